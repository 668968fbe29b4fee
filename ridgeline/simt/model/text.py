"""The report of a launch as text."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ridgeline.simt.model.remarks import remarks

if TYPE_CHECKING:
    from ridgeline.simt.model.explanation import LaunchExplanation, SourceLine
    from ridgeline.simt.model.ptx import CompiledCounts


def duration(seconds: float) -> str:
    """A time in the unit that suits it."""
    for unit, scale in (("s", 1.0), ("ms", 1e-3), ("µs", 1e-6)):
        if seconds >= scale:
            return f"{seconds / scale:.3g} {unit}"
    return f"{seconds / 1e-9:.3g} ns"


def amount(count: float) -> str:
    """Bytes in the unit that suits them."""
    for unit, scale in (("GB", 1e9), ("MB", 1e6), ("KB", 1e3)):
        if count >= scale:
            return f"{count / scale:.3g} {unit}"
    return f"{count:.0f} B"


def report_text(found: LaunchExplanation) -> str:
    """Findings, the time and its bound, occupancy, and the counts of each line."""
    parts = [_headline(found), _findings(found), *_summary(found), "", _table(found)]
    notes = remarks(found)
    if notes:
        parts += ["", *(f"note: {note}" for note in notes)]
    return "\n".join(part for part in parts if part is not None)


def _headline(found: LaunchExplanation) -> str:
    grid = "x".join(map(str, found.launch.grid))
    block = "x".join(map(str, found.launch.block))
    return f"{found.name}: grid {grid}, block {block}, on {found.gpu.name}"


def _findings(found: LaunchExplanation) -> str:
    findings = found.simulation.findings
    if not findings:
        return "no race, no access out of bounds, no uninitialised read, no divergent barrier"
    return "\n".join(finding.text(found.source) for finding in findings)


def _summary(found: LaunchExplanation) -> list[str]:
    fits, prediction = found.occupancy, found.prediction
    local = f", {found.local_bytes} bytes local" if found.local_bytes else ""
    units = sorted(prediction.units.items(), key=lambda pair: -pair[1])
    busiest = ", ".join(f"{name} {duration(time)}" for name, time in units[:4] if time)
    compiled = [] if found.compiled is None else [_compiled(found.compiled)]
    return [
        f"predicted {duration(prediction.seconds)}, bound by {prediction.bound} (alone: {busiest})",
        f"occupancy {fits.share:.0%}: {fits.blocks} blocks, {fits.warps} warps a multiprocessor, "
        f"limited by {fits.limiter}; {found.registers} registers ({found.registers_from}){local}, "
        f"{found.shared} bytes shared; {prediction.waves:.3g} rounds of blocks",
        f"memory touched {amount(found.dram_bytes)}; in flight "
        f"{amount(prediction.bytes_in_flight)} a multiprocessor, Little's law asks for "
        f"{amount(prediction.bytes_needed)}",
        *compiled,
    ]


def _compiled(compiled: CompiledCounts) -> str:
    units = sorted(compiled.units.items(), key=lambda pair: -pair[1])
    shares = ", ".join(f"{name} {count / compiled.total:.0%}" for name, count in units[:4])
    return f"{compiled.total:.4g} instructions of warps as compiled: {shares}"


def _table(found: LaunchExplanation) -> str:
    names = (("line", 5), ("lanes", 5), ("sect/req", 8), ("ideal", 5), ("banks", 6), ("div", 5),
             ("stall", 6))  # fmt: skip
    head = " ".join(f"{name:>{width}}" for name, width in names)
    total = sum(sum(line.stalls.values()) for line in found.lines) or 1.0
    rows = [head, *(_row(line, total) for line in found.lines)]
    return "\n".join(rows)


def _row(line: SourceLine, total: float) -> str:
    counts = line.counts
    active = f"{counts.active:5.1f}" if counts.warps else ""
    sectors = f"{counts.sectors / counts.requests:8.2f}" if counts.requests else ""
    ideal = f"{counts.ideal_sectors / counts.requests:5.2f}" if counts.requests else ""
    banks = f"{counts.wavefronts / counts.ideal_wavefronts:5.1f}x" if counts.shared_requests else ""
    divergent = f"{counts.divergent / counts.branches:5.0%}" if counts.branches else ""
    share = sum(line.stalls.values()) / total
    stall = f"{share:6.0%}" if share >= 0.005 else ""
    return (
        f"{line.number:5} {active:>5} {sectors:>8} {ideal:>5} {banks:>6} {divergent:>5} "
        f"{stall:>6}  {line.text}"
    ).rstrip()
