"""Accesses of several threads to one element that need no order among themselves.

Reads do not race with reads, nor atomics with atomics; a write later on may race with any of them.
Where only barriers order threads, three of them stand for all: one, another thread's, and one of
another block. Where lanes sync in parts of warps, or flags order single threads, that is not
enough: then a warp's accesses are kept as a mask of lanes, and with flags every warp's.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

import numpy as np

from ridgeline.simt.simulator.clocks import BLOCK_SHIFT, Clocks
from ridgeline.simt.simulator.lanes import AnyArray, IntArray

_SITE_BITS, _KIND_BITS = 17, 3
_THREAD_SHIFT = _SITE_BITS + _KIND_BITS
_WARP_SHIFT = _THREAD_SHIFT + 5
PLAIN, BLOCK_ATOMIC, DEVICE_ATOMIC, VOLATILE = 0, 1, 2, 3
ATOMIC = (BLOCK_ATOMIC, DEVICE_ATOMIC)
# what is told of a race: the racing threads' place in the lanes, the earlier access, what it was
OnRace = Callable[[AnyArray, IntArray, str], None]


class Slot:
    """One remembered access an element: thread, site and kind packed, and its stamp."""

    __slots__ = ("key", "stamp")

    def __init__(self, size: int) -> None:
        self.key: IntArray = np.full(size, -1, np.int64)
        self.stamp: IntArray = np.full(size, -1, np.int64)

    def set(self, at: IntArray, key: IntArray, stamp: IntArray) -> None:
        self.key[at] = key
        self.stamp[at] = stamp

    def clear(self, at: IntArray) -> None:
        """Forget what elements had."""
        self.key[at] = -1
        self.stamp[at] = -1


def packed(threads: IntArray, site: int, kind: int) -> IntArray:
    """Thread, site and kind of accesses as one number each."""
    return (threads << _THREAD_SHIFT) | (site << _KIND_BITS) | kind


def unpacked(key: int) -> tuple[int, int, int]:
    """Thread, site and kind of a remembered access."""
    return (
        key >> _THREAD_SHIFT,
        (key >> _KIND_BITS) & ((1 << _SITE_BITS) - 1),
        key & ((1 << _KIND_BITS) - 1),
    )


def thread_of(key: IntArray) -> IntArray:
    """The threads of remembered accesses."""
    return np.asarray(key >> _THREAD_SHIFT)


def kind_of(key: IntArray) -> IntArray:
    """The kinds of remembered accesses."""
    return np.asarray(key & ((1 << _KIND_BITS) - 1))


def same_block(key: IntArray, threads: IntArray, padded: int) -> AnyArray:
    """Where nothing is remembered, or an access of the same block."""
    return np.asarray((key < 0) | (thread_of(key) // padded == threads // padded))


class Visit(NamedTuple):
    """Threads that access elements now: where, who, at which stamps, and whom to tell of races.

    A `strong` (atomic) access comes after what an atomic read before it saw, with no fence between:
    both go to the memory that all share, in the thread's order.
    """

    clocks: Clocks
    at: IntArray
    ids: IntArray
    stamp: IntArray
    report: OnRace
    strong: bool = False

    @property
    def threads(self) -> IntArray:
        """The threads' numbers in the launch."""
        return np.asarray(self.ids + self.clocks.first)


def check_slot(
    visit: Visit, slot: Slot, own_block: bool, before: str, apart: bool = False,
    beside: int | None = None,
) -> None:  # fmt: skip
    """Report threads that are not ordered after a remembered access; `apart` those of its block
    never conflict with, nor do those of the kind `beside`."""
    earlier = slot.stamp[visit.at]
    if own_block:  # an older block epoch was before a barrier of the same block
        open_ = earlier >> BLOCK_SHIFT >= visit.stamp >> BLOCK_SHIFT
        if not open_.any():
            return
    key, clocks = slot.key[visit.at], visit.clocks
    who, threads = thread_of(key), visit.threads
    suspects = (key >= 0) & (who != threads)
    if apart:
        suspects &= ~same_block(key, threads, clocks.padded)
    if beside is not None:
        suspects &= kind_of(key) != beside
    places = np.flatnonzero(suspects)
    if not len(places):
        return
    racing = ~clocks.ordered(who[places], earlier[places], visit.ids[places], visit.strong)
    if racing.any():
        places = places[racing]
        visit.report(places, key[places], before)


class Accessors:
    """The remembered accesses of one sort, for programs that only barriers order."""

    def __init__(self, size: int, own_block: bool) -> None:
        self.own_block = own_block
        self.first, self.other = Slot(size), Slot(size)
        self.far = Slot(0 if own_block else size)

    @property
    def slots(self) -> tuple[Slot, ...]:
        """What is remembered of each element."""
        return (self.first, self.other) if self.own_block else (self.first, self.other, self.far)

    def add(self, visit: Visit, site: int, kind: int) -> None:
        """Remember accesses: of the newest epoch one, another thread's and another block's."""
        at, stamp, threads, padded = visit.at, visit.stamp, visit.threads, visit.clocks.padded
        fresh = self.first.stamp[at] < stamp
        if not self.own_block:
            fresh &= same_block(self.first.key[at], threads, padded)
        if fresh.any():
            self.first.set(at[fresh], packed(threads[fresh], site, kind), stamp[fresh])
        first = self.first.key[at]
        beside = thread_of(first) != threads
        if not self.own_block:
            far = beside & ~same_block(first, threads, padded)
            if far.any():
                self.far.set(at[far], packed(threads[far], site, kind), stamp[far])
            beside &= ~far
        stale = beside & (self.other.stamp[at] < stamp)
        if stale.any():
            self.other.set(at[stale], packed(threads[stale], site, kind), stamp[stale])

    def check(self, visit: Visit, before: str, apart: bool = False) -> None:
        """Report what is not ordered after remembered accesses."""
        for slot in self.slots:
            check_slot(visit, slot, self.own_block, before, apart)

    def clear(self, at: IntArray) -> None:
        """A write came after all of them, or raced with them."""
        for slot in self.slots:
            slot.clear(at)


class LaneGroups(NamedTuple):
    """Lanes of one warp with one stamp that access one element in one instruction."""

    at: IntArray
    thread: IntArray  # one of them
    mask: AnyArray
    stamp: IntArray

    def picked(self, chosen: AnyArray) -> LaneGroups:
        """Some of the groups."""
        return LaneGroups(*(part[chosen] for part in self))


def lane_groups(visit: Visit) -> LaneGroups:
    """The accesses of an instruction, lanes of a warp together."""
    threads = visit.threads
    bits = np.uint32(1) << (threads & 31).astype(np.uint32)
    order = np.lexsort((visit.stamp, threads >> 5, visit.at))
    at, warps, stamp = visit.at[order], threads[order] >> 5, visit.stamp[order]
    begins = np.ones(len(order), bool)
    begins[1:] = (at[1:] != at[:-1]) | (warps[1:] != warps[:-1]) | (stamp[1:] != stamp[:-1])
    starts = np.flatnonzero(begins)
    masks = np.bitwise_or.reduceat(bits[order], starts)
    return LaneGroups(at[starts], threads[order][starts], masks, stamp[starts])


class LaneAccessors(Accessors):
    """The same for programs in which lanes or single threads are ordered.

    `first` stands for a group of lanes of one warp. Another warp's access conflicts with a write of
    any lane of it, so one is enough, except where flags may order it: then all are kept.
    """

    def __init__(self, size: int, own_block: bool, flags: bool) -> None:
        super().__init__(size, own_block)
        self.flags = flags
        self.mask = np.zeros(size, np.uint32)
        self.more: dict[int, dict[tuple[int, int], tuple[int, int]]] = {}

    def add(self, visit: Visit, site: int, kind: int) -> None:
        """Remember groups of lanes; what an access came after is forgotten."""
        if not len(visit.at):
            return
        groups = lane_groups(visit)
        key = packed(groups.thread, site, kind)
        held, stamps = self.first.key[groups.at], self.first.stamp[groups.at]
        joins = (held >> _WARP_SHIFT == groups.thread >> 5) & (stamps == groups.stamp)
        self.mask[groups.at[joins]] |= groups.mask[joins]
        after = LaneGroups(groups.at, groups.thread, self.mask[groups.at], stamps)
        replaces = ~joins & ((held < 0) | self._passed(visit.clocks, after, held))
        at = groups.at[replaces]
        self.first.set(at, key[replaces], groups.stamp[replaces])
        self.mask[at] = groups.mask[replaces]
        lost = ~joins & (self.first.key[groups.at] != key)
        if lost.any():
            self._keep(visit.clocks, groups.picked(lost), key[lost])
            # a group of this instruction took the place of one that had just joined
            gone = joins & (self.first.key[groups.at] >> _WARP_SHIFT != groups.thread >> 5)
            if gone.any():
                self._keep(visit.clocks, groups.picked(gone), key[gone])

    def _passed(self, clocks: Clocks, held: LaneGroups, key: IntArray) -> AnyArray:
        """Whether all lanes of held groups came before what the threads do now."""
        ids = held.thread - clocks.first
        racing, _ = _open_lanes(clocks, key, held.stamp, held.mask, ids, False)
        return ~racing

    def _keep(self, clocks: Clocks, groups: LaneGroups, key: IntArray) -> None:
        """Groups beside `first`."""
        first = self.first.key[groups.at]
        near = same_block(first, groups.thread, clocks.padded)
        same_warp = first >> _WARP_SHIFT == groups.thread >> 5
        single = same_warp | self.flags
        for slot, chosen in ((self.other, near & ~single), (self.far, ~near & ~single)):
            if chosen.any():
                slot.set(groups.at[chosen], key[chosen], groups.stamp[chosen])
        for place in np.flatnonzero(single).tolist():
            element, stamp = int(groups.at[place]), int(groups.stamp[place])
            found = self.more.setdefault(element, {})
            name = (int(groups.thread[place]) >> 5, stamp)
            mask = int(groups.mask[place]) | found.get(name, (0, 0))[1]
            found[name] = (int(key[place]), mask)

    def check(self, visit: Visit, before: str, apart: bool = False) -> None:
        """Report what is not ordered after every remembered lane."""
        for slot in self.slots[1:]:
            check_slot(visit, slot, self.own_block, before, apart)
        at = visit.at
        key, stamp = self.first.key[at], self.first.stamp[at]
        self._check_groups(visit, np.arange(len(at)), key, stamp, self.mask[at], before, apart)
        if self.more:
            self._check_more(visit, before, apart)

    def _check_more(self, visit: Visit, before: str, apart: bool) -> None:
        rows = [
            (place, key, stamp, mask)
            for place, element in enumerate(visit.at.tolist())
            for (_, stamp), (key, mask) in self.more.get(element, {}).items()
        ]
        if rows:
            places, key, stamp, mask = (np.array(column, np.int64) for column in zip(*rows))
            self._check_groups(visit, places, key, stamp, mask.astype(np.uint32), before, apart)

    def _check_groups(
        self, visit: Visit, places: IntArray, key: IntArray, stamp: IntArray, mask: AnyArray,
        before: str, apart: bool,
    ) -> None:  # fmt: skip
        suspects = key >= 0
        if apart:
            suspects &= ~same_block(key, visit.threads[places], visit.clocks.padded)
        places, key, stamp, mask = places[suspects], key[suspects], stamp[suspects], mask[suspects]
        if not len(places):
            return
        ids = visit.ids[places]
        racing, lanes = _open_lanes(visit.clocks, key, stamp, mask, ids, visit.strong)
        if racing.any():
            shown = (key & ~np.int64(31 << _THREAD_SHIFT)) | (lanes << _THREAD_SHIFT)
            visit.report(places[racing], shown[racing], before)

    def clear(self, at: IntArray) -> None:
        """A write came after all of them, or raced with them."""
        super().clear(at)
        if self.more:
            for element in at.tolist():
                self.more.pop(element, None)


def _open_lanes(
    clocks: Clocks, key: IntArray, stamp: IntArray, mask: AnyArray, ids: IntArray, strong: bool
) -> tuple[AnyArray, IntArray]:
    """Whether groups of lanes have one that threads `ids` do not come after, and the first such."""
    who, threads = thread_of(key), ids + clocks.first
    left = np.where(clocks.barriers_passed(who, stamp, ids), np.uint32(0), mask)
    near = np.flatnonzero((left != 0) & (who >> 5 == threads >> 5))
    if len(near):
        own = np.uint32(1) << (threads[near] & 31).astype(np.uint32)
        left[near] &= ~(own | clocks.lanes_known(ids[near], stamp[near]))
    if clocks.rows or (strong and clocks.pending):
        for place in np.flatnonzero(left).tolist():
            base = int(who[place]) & ~31
            left[place] &= ~clocks.row_known(int(ids[place]), base, int(stamp[place]), strong)
    lowest = left & (~left + np.uint32(1))
    lanes = np.log2(np.maximum(lowest, 1)).astype(np.int64)
    return left != 0, lanes
