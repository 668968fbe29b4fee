"""Races as findings: which two lines, which two threads, and what would order them."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from ridgeline.simt.ir import SourcePlace, ThreadArray
from ridgeline.simt.simulator.accessors import BLOCK_ATOMIC, PLAIN, VOLATILE, unpacked
from ridgeline.simt.simulator.findings import FindingLog, KernelFinding

_MANNER = {PLAIN: "", VOLATILE: "(volatile) "}


@dataclass(frozen=True)
class RaceReporter:
    """Writes races into a log; `sites` are the places of accesses by number."""

    log: FindingLog
    sites: list[SourcePlace]
    padded: int

    def report(
        self, array: ThreadArray, element: str, writes: bool, kind: int, site: int,
        thread: int, earlier_key: int, before: str, same_value: bool, count: int,
    ) -> None:  # fmt: skip
        """One race, with an example of its threads."""
        other, other_site, other_kind = unpacked(earlier_key)
        place, other_place = self.sites[site], self.sites[other_site]
        same_block = thread // self.padded == other // self.padded
        key = (array.name, min(site, other_site), max(site, other_site), same_value, same_block)
        did = "writes" if writes else "reads"
        theirs = "read" if before == "read" else "written"
        if kind == VOLATILE:
            did = f"{did} (volatile)"
        elif kind != PLAIN:
            did = f"atomically {'updates' if writes else 'reads'}"
        if before in ("copy", "source"):
            way = "into" if before == "copy" else "out of"
            text = (
                f"{self.log.name(thread)} {did} {element}, {way} which a copy of "
                f"{self.log.name(other)} from line {other_place.line} is under way"
            )
        elif before == "same instruction":
            text = f"{self.log.name(thread)} and {self.log.name(other)} both write {element}"
        else:
            text = (
                f"{self.log.name(thread)} {did} {element}, {theirs} by {self.log.name(other)}"
                f" {_MANNER.get(other_kind, 'with an atomic ')}at line {other_place.line}, "
                "and nothing orders the two"
            )
        if same_value:
            text += "; both write the same value"
        finding = KernelFinding(
            "same-value race" if same_value else f"{array.space} race",  # type: ignore[arg-type]
            text, place, self.log.name(thread),
            self._help(array, thread, other, place, other_place, before, writes, kind, other_kind),
            other_place, self.log.name(other),
        )  # fmt: skip
        self.log.add(key, finding, count)

    def _help(
        self, array: ThreadArray, thread: int, other: int, place: SourcePlace,
        other_place: SourcePlace, before: str, writes: bool, kind: int, other_kind: int,
    ) -> str:  # fmt: skip
        same_block = thread // self.padded == other // self.padded
        if before in ("copy", "source"):
            own = "" if thread == other else " and a syncthreads()"
            return f"cp_async_commit(), cp_async_wait(0){own} before it"
        if (
            BLOCK_ATOMIC in (kind, other_kind)
            and kind != PLAIN
            and other_kind != PLAIN
            and not same_block
        ):
            return 'threads of different blocks need scope="device"'
        plain = (PLAIN, VOLATILE)
        both_write = before == "same instruction" or (
            writes and before == "write" and kind in plain
        )
        if place == other_place or (both_write and place.line == other_place.line):
            return f"let one thread write it, or use atomic_add({array.name}, …)"
        if (kind in plain) != (other_kind in plain):
            return "make both accesses atomic, or put a barrier between them"
        if not same_block:
            return (
                "blocks are not ordered within a launch: use two launches, atomics, or a fence "
                "and an atomic flag"
            )
        barrier = (
            "a syncwarp() or syncthreads()" if thread >> 5 == other >> 5 else "a syncthreads()"
        )
        if place.line < other_place.line:
            return f"{barrier} at the end of the loop's body, before line {place.line} comes again"
        if place.line == other_place.line:
            return f"{barrier} between the read and the write of line {place.line}"
        return f"{barrier} after line {other_place.line}"


def element_name(array: ThreadArray, shape: tuple[int, ...], flat: int) -> str:
    """`a[3, 4]` of a flat index."""
    where = np.unravel_index(flat % max(1, int(np.prod(shape))), shape)
    return f"{array.name}[{', '.join(str(int(part)) for part in where)}]"
