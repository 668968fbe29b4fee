"""Shadow memory: who touched each element, and which accesses race with one another.

An element remembers its last plain write, and of each other sort (reads, atomic reads, atomic
updates, each atomic by its scope) as many accesses as it takes. Two accesses race if one of them
writes, not both are atomic in a scope that holds both threads, and none happened before the other.
A copy under way (`cp.async`) races with every access from its issue to its wait. Volatile accesses
of data race with one another, and volatile writes with atomic updates.
"""

from __future__ import annotations

from typing import Literal

import numpy as np

from ridgeline.simt.simulator.accessors import (
    ATOMIC,
    BLOCK_ATOMIC,
    PLAIN,
    VOLATILE,
    Accessors,
    LaneAccessors,
    Slot,
    Visit,
    check_slot,
    packed,
)
from ridgeline.simt.simulator.lanes import IntArray

# what orders the threads of a program: barriers alone, parts of warps too, or flags and fences
Ordering = Literal["barriers", "lanes", "flags"]


class Shadow:
    """The remembered accesses of one array; `own_block` where only one block reaches an element."""

    def __init__(self, size: int, own_block: bool, ordering: Ordering) -> None:
        self.size, self.own_block, self.ordering = size, own_block, ordering
        self.write = Slot(size)
        self.reads = self._accessors()
        self.atomic_reads: dict[int, Accessors] = {}
        self.updates: dict[int, Accessors] = {}
        self.copies: Slot | None = None  # under way into elements
        self.sources: Slot | None = None  # under way out of them

    def _accessors(self) -> Accessors:
        if self.ordering == "barriers":
            return Accessors(self.size, self.own_block)
        return LaneAccessors(self.size, self.own_block, self.ordering == "flags")

    def on_read(self, visit: Visit, site: int, kind: int) -> None:
        """Threads read elements."""
        self._check_copies(visit)
        beside = VOLATILE if kind in ATOMIC else None
        check_slot(visit, self.write, self.own_block, "write", beside=beside)
        if kind == PLAIN:
            for updates in self.updates.values():
                updates.check(visit, "write")
            self.reads.add(visit, site, kind)
            return
        self._check_scopes(visit, self.updates, kind, "write")
        self._sort(self.atomic_reads, kind).add(visit, site, kind)

    def on_write(self, visit: Visit, site: int, kind: int = PLAIN) -> None:
        """Threads write elements; call it before the values change."""
        self._check_copies(visit)
        self._check_sources(visit)
        self._check_write(visit, kind)
        key = packed(visit.threads, site, kind)
        self.write.set(visit.at, key, visit.stamp)
        lost = self.write.key[visit.at] != key
        if lost.any():  # several threads wrote one element in this instruction
            places = np.flatnonzero(lost)
            visit.report(places, self.write.key[visit.at[places]], "same instruction")
        for sort in (self.reads, *self.atomic_reads.values(), *self.updates.values()):
            sort.clear(visit.at)

    def on_update(self, visit: Visit, site: int, kind: int) -> None:
        """Threads change elements atomically."""
        self._check_copies(visit)
        self._check_sources(visit)
        check_slot(visit, self.write, self.own_block, "write")
        self.reads.check(visit, "read")
        self._sort(self.updates, kind).add(visit, site, kind)
        self._check_scopes(visit, self.updates, kind, "write")
        self._check_scopes(visit, self.atomic_reads, kind, "read")

    def on_issue(self, visit: Visit, site: int) -> None:
        """Threads issue copies into elements: writes that may come at any time from now on."""
        self._check_copies(visit)
        self._check_write(visit)
        if self.copies is None:
            self.copies = Slot(self.size)
        self.copies.set(visit.at, packed(visit.threads, site, PLAIN), visit.stamp)

    def on_source(self, visit: Visit, site: int) -> None:
        """Threads issue copies out of elements: reads that may come at any time from now on."""
        if self.sources is None:
            self.sources = Slot(self.size)
        self.sources.set(visit.at, packed(visit.threads, site, PLAIN), visit.stamp)

    def on_taken(self, at: IntArray) -> None:
        """Copies out of elements are done."""
        assert self.sources is not None
        self.sources.clear(at)

    def on_arrival(self, visit: Visit, site: int) -> None:
        """Threads waited for their copies."""
        assert self.copies is not None
        self.copies.clear(visit.at)
        self.on_write(visit, site)

    def _check_write(self, visit: Visit, kind: int = PLAIN) -> None:
        check_slot(visit, self.write, self.own_block, "write")
        for updates in self.updates.values():
            updates.check(visit, "write")
        self.reads.check(visit, "read")
        for sort, reads in self.atomic_reads.items():
            if kind == PLAIN or sort == VOLATILE:
                reads.check(visit, "read")

    def _check_copies(self, visit: Visit) -> None:
        """Copies under way race with all others, and with what their own thread does."""
        _check_under_way(visit, self.copies, "copy")

    def _check_sources(self, visit: Visit) -> None:
        """What is being copied is not to be changed by anyone."""
        _check_under_way(visit, self.sources, "source")

    def _sort(self, sorts: dict[int, Accessors], kind: int) -> Accessors:
        found = sorts.get(kind)
        if found is None:
            found = sorts[kind] = self._accessors()
        return found

    def _check_scopes(
        self, visit: Visit, sorts: dict[int, Accessors], kind: int, before: str
    ) -> None:
        """Atomics conflict where a scope of one block is to hold threads of two."""
        if self.own_block:
            return
        for scope in ATOMIC:
            if scope in sorts and BLOCK_ATOMIC in (kind, scope):
                sorts[scope].check(visit, before, apart=True)


def _check_under_way(visit: Visit, slot: Slot | None, before: str) -> None:
    if slot is None:
        return
    key = slot.key[visit.at]
    places = np.flatnonzero(key >= 0)
    if len(places):
        visit.report(places, key[places], before)
