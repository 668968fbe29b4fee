"""Remarks on counts that cost time, with the usual remedy."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from ridgeline.simt.model.explanation import LaunchExplanation


def remarks(found: LaunchExplanation) -> list[str]:
    """What an engineer would say on seeing the counts."""
    notes: list[str] = []
    for line in found.lines:
        counts = line.counts
        if counts.requests and counts.sectors > 2 * counts.ideal_sectors:
            each = counts.sectors / counts.requests
            ideal = counts.ideal_sectors / counts.requests
            notes.append(
                f"line {line.number}: {each:.3g} sectors a request where {ideal:.3g} would do: let "
                "neighbouring threads access neighbouring elements"
            )
        if counts.shared_requests and counts.wavefronts >= 2 * counts.ideal_wavefronts:
            ways = counts.wavefronts / counts.ideal_wavefronts
            notes.append(
                f"line {line.number}: {ways:.3g}-way bank conflicts: make rows one element longer, "
                "as (32, 33)"
            )
        if counts.branches and counts.divergent > counts.branches / 2 and counts.warps > 64:
            notes.append(
                f"line {line.number}: {counts.divergent / counts.branches:.0%} of its warps part "
                "here: branch on whole warps"
            )
    if found.compiled is not None:
        notes += found.compiled.changes
    prediction = found.prediction
    if prediction.bound in ("dram", "latency") and (
        prediction.bytes_in_flight < 0.5 * prediction.bytes_needed
    ):
        notes.append(
            "too few bytes are in flight to use the memory's bandwidth: more warps, or more "
            "independent loads a thread (load4, unroll)"
        )
    if found.launch.blocks < found.gpu.sms:
        notes.append(
            f"{found.launch.blocks} blocks leave {found.gpu.sms - found.launch.blocks} of "
            f"{found.gpu.sms} multiprocessors idle"
        )
    if found.meets and found.launch.blocks > found.gpu.sms * found.occupancy.blocks:
        notes.append(
            f"grid_sync() needs all {found.launch.blocks} blocks at once, and "
            f"{found.gpu.sms * found.occupancy.blocks} fit"
        )
    if found.launch.threads % 32:
        notes.append(
            f"blocks of {found.launch.threads} threads leave lanes of their last warp idle"
        )
    return notes
