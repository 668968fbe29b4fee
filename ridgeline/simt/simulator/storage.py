"""Arrays in the simulator: elements, what was written at all, and the checks of every access."""

from __future__ import annotations

import math
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from ridgeline.simt.ir import Atomic, SourcePlace, ThreadArray
from ridgeline.simt.simulator import atomics
from ridgeline.simt.simulator.accessors import ATOMIC, PLAIN, VOLATILE, OnRace, Visit
from ridgeline.simt.simulator.clocks import Clocks
from ridgeline.simt.simulator.findings import FindingKind, FindingLog, KernelFinding
from ridgeline.simt.simulator.lanes import AnyArray, IntArray, Lanes, spread
from ridgeline.simt.simulator.race_reports import RaceReporter, element_name
from ridgeline.simt.simulator.ready import ThreadOrder
from ridgeline.simt.simulator.shadow import Shadow


@dataclass
class HeldArray:
    """One array: flat elements, with a copy for each block or thread it belongs to."""

    array: ThreadArray
    shape: tuple[int, ...]
    data: AnyArray
    start: IntArray | None  # of each thread's copy; None where all share one
    written: AnyArray | None  # None where everything has a value from the start
    shadow: Shadow | None  # None where no two threads can meet in it
    address: int = 0  # of the first byte, as a GPU would place it
    base: int = 0  # where its first element lies, in memory that arguments share
    memory: str = ""  # the first of the arrays that share it

    @property
    def size(self) -> int:
        """Elements of one copy."""
        return math.prod(self.shape)

    @property
    def values(self) -> AnyArray:
        """All elements of an array that all threads share, in its shape."""
        return self.data[self.base : self.base + self.size].reshape(self.shape)

    def starts(self, lanes: Lanes) -> Any:
        """Where each thread's copy begins."""
        return self.base if self.start is None else self.start[lanes.select]

    def element(self, flat: int) -> str:
        """An element by the user's name, from its place in memory."""
        return element_name(self.array, self.shape, flat - self.base)


@dataclass
class MemoryChecks:
    """Reads and writes of elements by sets of threads, with all checks."""

    log: FindingLog
    clocks: Clocks
    sites: list[SourcePlace] = field(default_factory=list)
    counter: Any = None
    changes: int = 0  # writes so far that changed an element
    order: ThreadOrder = "source"
    watch: bool = False  # count changes, to see whether waiting threads still make progress

    def __post_init__(self) -> None:
        self.races = RaceReporter(self.log, self.sites, self.clocks.padded)

    def site(self, place: SourcePlace) -> int:
        """A number for a place in the source that accesses memory."""
        self.sites.append(place)
        return len(self.sites) - 1

    def locate(
        self, stored: HeldArray, parts: list[Any], lanes: Lanes
    ) -> tuple[IntArray, AnyArray | None]:
        """Flat places of elements, and which are inside if not all are."""
        flat: Any = 0
        outside: Any = False
        for part, size in zip(parts, stored.shape):
            outside = outside | _is_outside(part, size)
            wide = np.asarray(part).astype(np.int64)
            flat = flat * size + wide if len(parts) > 1 else wide
        inside = None
        if np.any(outside):
            inside = ~spread(outside, lanes.count)
            flat = np.where(inside, flat, 0)
        if stored.start is not None or stored.base:
            flat = stored.starts(lanes) + flat
        return spread(flat, lanes.count), inside

    def read(self, stored: HeldArray, parts: list[Any], lanes: Lanes, site: int) -> AnyArray:
        """The elements that threads read; what is out of bounds is reported and reads as zero."""
        at, inside = self.locate(stored, parts, lanes)
        if inside is not None:
            self.out_of_bounds(stored, parts, lanes, ~inside, site, "reads")
            found = np.zeros(lanes.count, stored.data.dtype)
            kept = Lanes(lanes.ids[inside], -1)
            if kept.count:
                found[inside] = self.read_at(stored, at[inside], kept, site)
            return found
        return self.read_at(stored, at, lanes, site)

    def read_at(
        self, stored: HeldArray, at: IntArray, lanes: Lanes, site: int, kind: int = PLAIN
    ) -> AnyArray:
        """The elements at places that are known to be inside."""
        if stored.written is not None:
            missing = stored.written[at] == 0
            if missing.any():
                self._uninitialised(stored, at, lanes, missing, site)
        if stored.shadow is not None:
            report = self._racing(stored, at, lanes, site, False, kind, None)
            stored.shadow.on_read(self._visit(at, lanes, report, kind in ATOMIC), site, kind)
        if self.counter is not None:
            self.counter.access(site, stored, at, lanes, "read")
        return stored.data[at]

    def write(
        self,
        stored: HeldArray,
        parts: list[Any],
        values: Any,
        lanes: Lanes,
        site: int,
        guarded: bool,
    ) -> None:
        """Threads write elements; out of bounds is dropped if guarded, and reported if not."""
        at, inside = self.locate(stored, parts, lanes)
        if inside is not None:
            if not guarded:
                self.out_of_bounds(stored, parts, lanes, ~inside, site, "writes")
            values = spread(values, lanes.count)[inside]
            at, lanes = at[inside], Lanes(lanes.ids[inside], -1)
            if not lanes.count:
                return
        self.write_at(stored, at, values, lanes, site)

    def write_at(
        self, stored: HeldArray, at: IntArray, values: Any, lanes: Lanes, site: int,
        kind: int = PLAIN,
    ) -> None:  # fmt: skip
        """Threads write elements at places that are known to be inside."""
        if stored.shadow is not None:
            report = self._racing(stored, at, lanes, site, True, kind, values)
            stored.shadow.on_write(self._visit(at, lanes, report), site, kind)
        if self.counter is not None:
            self.counter.access(site, stored, at, lanes, "write")
        self._put(stored, at, values)

    def _put(self, stored: HeldArray, at: IntArray, values: Any) -> None:
        if self.watch and np.any(stored.data[at] != values):
            self.changes += 1
        stored.data[at] = values
        if stored.written is not None:
            stored.written[at] = 1

    def issue_copy(
        self, stored: HeldArray, at: IntArray, source: HeldArray, taken: IntArray, lanes: Lanes,
        site: int,
    ) -> None:  # fmt: skip
        """Threads issue copies into elements, which arrive when they wait for them."""
        if not lanes.count:
            return
        if stored.shadow is not None:
            report = self._racing(stored, at, lanes, site, True, PLAIN, None)
            stored.shadow.on_issue(self._visit(at, lanes, report), site)
        if source.shadow is not None:
            report = self._racing(source, taken, lanes, site, False, PLAIN, None)
            source.shadow.on_source(self._visit(taken, lanes, report), site)

    def copy_arrives(
        self, stored: HeldArray, at: IntArray, values: AnyArray, source: HeldArray,
        taken: IntArray, lanes: Lanes, site: int,
    ) -> None:  # fmt: skip
        """Threads have waited for their copies."""
        if source.shadow is not None:
            source.shadow.on_taken(taken)
        if stored.shadow is not None:
            report = self._racing(stored, at, lanes, site, True, PLAIN, values)
            stored.shadow.on_arrival(self._visit(at, lanes, report), site)
        self._put(stored, at, values)

    def _visit(self, at: IntArray, lanes: Lanes, report: OnRace, strong: bool = False) -> Visit:
        return Visit(self.clocks, at, lanes.ids, self.clocks.stamp[lanes.ids], report, strong)

    def atomic(
        self, op: Atomic, stored: HeldArray, at: IntArray, lanes: Lanes, site: int, kind: int,
        values: Any, compare: Any,
    ) -> AnyArray:  # fmt: skip
        """Threads carry out an atomic operation; each gets the value that was there."""
        if op.name == "load":
            return self.read_at(stored, at, lanes, site, kind)
        if kind == VOLATILE:
            self.write_at(stored, at, values, lanes, site, kind)
            return np.asarray(values)
        if stored.written is not None and op.name not in ("store", "exch"):
            missing = stored.written[at] == 0
            if missing.any():
                self._uninitialised(stored, at, lanes, missing, site)
        if self.counter is not None:
            self.counter.access(site, stored, at, lanes, "atomic")
        before = stored.data[at] if self.watch else None
        turn = slice(None, None, -1) if self.order == "last" else slice(None)
        given = [None if part is None else part[turn] for part in (values, compare)]
        found = atomics.apply(op, stored.data, at[turn], *given)[turn]
        if stored.shadow is not None:
            wrote = np.ones(lanes.count, bool)
            if compare is not None:
                wrote = atomics.bits(found) == atomics.bits(compare)
            self._visit_atomically(stored, at, lanes, site, kind, wrote)
        if before is not None and np.any(stored.data[at] != before):
            self.changes += 1
        if stored.written is not None:
            stored.written[at] = 1
        return found

    def _visit_atomically(
        self, stored: HeldArray, at: IntArray, lanes: Lanes, site: int, kind: int, wrote: AnyArray
    ) -> None:
        """Updates, and the reads that exchanges are which found another value."""
        assert stored.shadow is not None
        for chosen, writes in ((wrote, True), (~wrote, False)):
            if not chosen.any():
                continue
            some, there = lanes, at
            if not chosen.all():
                some, there = Lanes(lanes.ids[chosen], -1), at[chosen]
            report = self._racing(stored, there, some, site, writes, kind, None)
            visit = self._visit(there, some, report, True)
            if writes:
                stored.shadow.on_update(visit, site, kind)
            else:
                stored.shadow.on_read(visit, site, kind)

    @contextmanager
    def as_one(
        self, site: int, stored: HeldArray, at: IntArray, lanes: Lanes, what: str, width: int
    ) -> Iterator[None]:
        """MemoryChecks inside are counted as one of `width` elements a thread."""
        counter, self.counter = self.counter, None
        try:
            yield
        finally:
            self.counter = counter
        if counter is not None:
            counter.access(site, stored, at, lanes, what, width)

    def _racing(
        self, stored: HeldArray, at: IntArray, lanes: Lanes, site: int, writes: bool, kind: int,
        values: Any,
    ) -> Any:  # fmt: skip
        def report(places: AnyArray, keys: IntArray, before: str) -> None:
            groups: list[tuple[AnyArray, bool]] = [(np.ones(len(places), bool), False)]
            if values is not None and before in ("write", "same instruction"):
                mine = spread(values, lanes.count)
                same = self._same_values(stored, at, places, keys, mine, before, lanes)
                groups = [(~same, False), (same, True)]
            for chosen, same_value in groups:
                if chosen.any():
                    self._one_race(stored, at, lanes, site, writes, kind, places[chosen],
                                   keys[chosen], before, same_value)  # fmt: skip

        return report

    def _same_values(
        self, stored: HeldArray, at: IntArray, places: AnyArray, keys: IntArray, values: AnyArray,
        before: str, lanes: Lanes,
    ) -> AnyArray:  # fmt: skip
        mine = values[places]
        if before == "write":
            return np.asarray(atomics.bits(stored.data[at[places]]) == atomics.bits(mine))
        winners = np.searchsorted(lanes.ids + self.clocks.first, keys >> 20)
        return np.asarray(atomics.bits(values[winners]) == atomics.bits(mine))

    def _one_race(
        self, stored: HeldArray, at: IntArray, lanes: Lanes, site: int, writes: bool, kind: int,
        places: AnyArray, keys: IntArray, before: str, same_value: bool,
    ) -> None:  # fmt: skip
        place = int(places[0])
        thread = int(lanes.ids[place]) + self.clocks.first
        element = stored.element(int(at[place]))
        self.races.report(stored.array, element, writes, kind, site, thread, int(keys[0]),
                          before, same_value, len(places))  # fmt: skip

    def add(self, kind: FindingKind, site: int, lanes: Lanes, first: int, message: str,
            help: str, count: int) -> None:  # fmt: skip
        """Report a mistake of threads at a site; `first` is the first one's place in the lanes."""
        name = self.log.name(int(lanes.ids[first]) + self.clocks.first)
        finding = KernelFinding(kind, f"{name} {message}", self.sites[site], name, help)
        self.log.add((kind, site), finding, count)

    def out_of_bounds(
        self,
        stored: HeldArray,
        parts: list[Any],
        lanes: Lanes,
        outside: AnyArray,
        site: int,
        did: str,
    ) -> None:
        """Report threads whose indices lie outside an array."""
        first = int(np.flatnonzero(outside)[0])
        index = [int(spread(part, lanes.count)[first]) for part in parts]
        sizes = ", ".join(map(str, stored.shape))
        negative = any(part < 0 for part in index)
        array = stored.array
        guard = "0 <= i" if negative else f"i < {array.name}.shape[0]"
        self.add(
            "out of bounds", site, lanes, first,
            f"{did} {array.name}[{', '.join(map(str, index))}], and its sizes are ({sizes})",
            f"guard it: if {guard}, or use {array.name}.{'get' if did == 'reads' else 'put'}(…)",
            int(outside.sum()),
        )  # fmt: skip

    def _uninitialised(
        self, stored: HeldArray, at: IntArray, lanes: Lanes, missing: AnyArray, site: int
    ) -> None:
        first = int(np.flatnonzero(missing)[0])
        element = stored.element(int(at[first]))
        help = "write it first; shared and local memory start with whatever was there"
        if stored.array.space == "global":
            help = "declare it inout[…] to read what the caller passes"
        self.add(
            "uninitialised", site, lanes, first, f"reads {element}, which nothing has written",
            help, int(missing.sum()),
        )  # fmt: skip


def _is_outside(part: Any, size: int) -> Any:
    if isinstance(part, np.ndarray) and part.dtype == np.int32 and part.ndim:
        return part.view(np.uint32) >= np.uint32(size)  # a negative index is a very large one
    return (np.asarray(part) < 0) | (np.asarray(part) >= size)
