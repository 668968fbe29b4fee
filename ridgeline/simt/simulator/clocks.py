"""Happens-before between threads: what each has seen of the others, by barriers, warps and fences.

A thread's stamp packs its counts of grid, cluster and block barriers and its own clock, which ticks
at every synchronisation. An access with an older block count was before a barrier that both
threads passed. What lanes know of one another is a matrix; what atomics carried between threads
after fences is kept in rows (a block's clocks each), since few threads ever learn it.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from ridgeline.simt.ir import Atomic
from ridgeline.simt.simulator.lanes import AnyArray, IntArray

# of 63: a million of a thread's own synchronisations and of its block's barriers, a thousand of
# its cluster's, four thousand of the grid's
_CLOCK_BITS, _BLOCK_BITS, _CLUSTER_BITS = 21, 20, 10
BLOCK_SHIFT = _CLOCK_BITS
_CLUSTER_SHIFT = BLOCK_SHIFT + _BLOCK_BITS
_GRID_SHIFT = _CLUSTER_SHIFT + _CLUSTER_BITS
_CLOCK_MASK = (1 << _CLOCK_BITS) - 1
_LANE_BITS = np.uint32(1) << np.arange(32, dtype=np.uint32)
Row = dict[int, AnyArray]  # by block: the clock of each of its threads that is known


@dataclass
class SyncLocation:
    """What releases left at one element: for all who read it, and for those of one block."""

    version: int = 0  # how often it was released
    device: Row | None = None
    block: dict[int, Row] = field(default_factory=dict)


class Clocks:
    """Stamps and knowledge of the threads of a batch; `first` is its first thread's number."""

    def __init__(self, threads: int, padded: int, first: int, cluster: int) -> None:
        self.padded, self.first, self.cluster = padded, first, cluster
        self.stamp: IntArray = np.zeros(threads, np.int64)
        self.at_barrier = np.full(threads, -1, np.int32)
        self.fenced = {"device": np.full(threads, -1, np.int32),
                       "block": np.full(threads, -1, np.int32)}  # fmt: skip
        self.lanes: AnyArray | None = None
        self.seen_element = np.full(threads, -1, np.int64)
        self.seen_version = np.full(threads, -1, np.int64)
        self.rows: dict[int, Row] = {}
        self.pending: dict[int, dict[Any, tuple[Row, bool]]] = {}

    def clock(self, ids: IntArray) -> IntArray:
        """The threads' own clocks."""
        return np.asarray(self.stamp[ids] & _CLOCK_MASK)

    def ordered(
        self, who: IntArray, stamp: IntArray, ids: IntArray, strong: bool = False
    ) -> AnyArray:
        """Whether accesses by `who` at `stamp` happened before what threads `ids` do now."""
        me = ids + self.first
        done = (who == me) | self.barriers_passed(who, stamp, ids)
        if self.lanes is not None:
            same_warp = who >> 5 == me >> 5
            known = self.lanes[ids, who & 31]
            done |= same_warp & (known >= stamp & _CLOCK_MASK)
        if (self.rows or (strong and self.pending)) and not done.all():
            self._by_rows(done, who, stamp, ids, strong)
        return np.asarray(done)

    def barriers_passed(self, who: IntArray, stamp: IntArray, ids: IntArray) -> AnyArray:
        """Whether a barrier that both threads passed lies between."""
        me, mine = ids + self.first, self.stamp[ids]
        same_block = who // self.padded == me // self.padded
        done = stamp >> _GRID_SHIFT < mine >> _GRID_SHIFT
        done |= same_block & (stamp >> BLOCK_SHIFT < mine >> BLOCK_SHIFT)
        if self.cluster > 1:
            size = self.padded * self.cluster
            earlier = stamp >> _CLUSTER_SHIFT < mine >> _CLUSTER_SHIFT
            done |= (who // size == me // size) & earlier
        return np.asarray(done)

    def lanes_known(self, ids: IntArray, stamp: IntArray) -> AnyArray:
        """Masks of the lanes of their own warps whose clocks at `stamp` threads know of."""
        if self.lanes is None:
            return np.zeros(len(ids), np.uint32)
        known = self.lanes[ids] >= (stamp & _CLOCK_MASK)[:, None]
        return np.packbits(known, axis=1, bitorder="little").view(np.uint32)[:, 0]

    def _learned(self, thread: int, block: int, strong: bool) -> Iterator[AnyArray]:
        """Clocks of a block that a thread learned by flags; a strong access sees the newest too."""
        rows = [self.rows.get(thread, {})]
        if strong:
            rows += [row for row, _ in self.pending.get(thread, {}).values()]
        yield from (row[block] for row in rows if block in row)

    def row_known(self, thread: int, base: int, stamp: int, strong: bool) -> np.uint32:
        """The lanes of the warp that begins at `base` of which a thread learned by flags."""
        block, inner = divmod(base, self.padded)
        found = np.uint32(0)
        for clocks in self._learned(thread, block, strong):
            known = clocks[inner : inner + 32] >= stamp & _CLOCK_MASK
            found |= np.uint32(np.where(known, _LANE_BITS, np.uint32(0)).sum(dtype=np.uint32))
        return found

    def _by_rows(
        self, done: AnyArray, who: IntArray, stamp: IntArray, ids: IntArray, strong: bool
    ) -> None:
        for place in np.flatnonzero(~done):
            block, inner = divmod(int(who[place]), self.padded)
            learned = self._learned(int(ids[place]), block, strong)
            if any(clocks[inner] >= stamp[place] & _CLOCK_MASK for clocks in learned):
                done[place] = True

    def block_barrier(self, ids: IntArray, blocks: AnyArray) -> None:
        """All threads of whole blocks passed a barrier; what one has acquired, all have."""
        if self.rows or self.pending:
            self._share(ids, ids // self.padded)
        self.at_barrier[ids] = self.clock(ids)
        self.stamp[ids] += (1 << BLOCK_SHIFT) + 1

    def cluster_barrier(self, ids: IntArray) -> None:
        """All threads of whole clusters passed a barrier."""
        self.at_barrier[ids] = self.clock(ids)
        self.stamp[ids] += (1 << _CLUSTER_SHIFT) + (1 << BLOCK_SHIFT) + 1

    def grid_barrier(self, ids: IntArray) -> None:
        """All threads of the grid passed a barrier."""
        self.at_barrier[ids] = self.clock(ids)
        self.stamp[ids] += (1 << _GRID_SHIFT) + (1 << BLOCK_SHIFT) + 1

    def warp_sync(self, ids: IntArray, masks: AnyArray) -> None:
        """Lanes named in each other's masks passed a syncwarp."""
        if self.lanes is None:
            self.lanes = np.full((len(self.stamp), 32), -1, np.int32)
        self.lanes[ids, ids & 31] = self.clock(ids)
        warps = ids >> 5
        if not self._join_groups(self.lanes, ids, masks):
            self._join_by_mask(self.lanes, ids, masks)
        if self.rows or self.pending:
            self._share(ids, warps)
        self.stamp[ids] += 1

    @staticmethod
    def _join_groups(lanes: AnyArray, ids: IntArray, masks: AnyArray) -> bool:
        """Lanes that all name each other learn what any of them knows; false for other masks."""
        order = np.lexsort((masks, ids >> 5))
        members, named = ids[order], masks[order]
        begins = np.ones(len(order), bool)
        begins[1:] = (members[1:] >> 5 != members[:-1] >> 5) | (named[1:] != named[:-1])
        starts = np.flatnonzero(begins)
        present = np.bitwise_or.reduceat(_LANE_BITS[members & 31], starts)
        if (present != named[starts]).any():
            return False
        joined = np.maximum.reduceat(lanes[members], starts, axis=0)
        lanes[members] = np.repeat(joined, np.diff(np.append(starts, len(order))), axis=0)
        return True

    def _join_by_mask(self, lanes: AnyArray, ids: IntArray, masks: AnyArray) -> None:
        """Each lane learns what every lane of its own mask knows."""
        warps = ids >> 5
        for number in range(32):
            source = (warps << 5) | number
            takes = ((masks >> np.uint32(number)) & np.uint32(1)).astype(bool) & (source != ids)
            if takes.any():
                known = lanes[source[takes]]
                known[:, number] = np.maximum(known[:, number], self.clock(source[takes]))
                lanes[ids[takes]] = np.maximum(lanes[ids[takes]], known)

    def _share(self, ids: IntArray, groups: IntArray) -> None:
        """Threads of one group join what they have acquired, and what they were about to."""
        holders = np.array(sorted({*self.rows, *self.pending}), np.int64)
        for group in np.unique(groups[np.isin(ids, holders)]):
            members = ids[groups == group]
            for member in members:
                self._settle(int(member), True)
            joined = join([self.rows[int(m)] for m in members if int(m) in self.rows])
            for member in members:
                self.rows[int(member)] = joined

    def fence(self, ids: IntArray, scope: str) -> None:
        """Threads passed a fence: it releases what was before, and completes acquires."""
        clock = self.clock(ids)
        self.fenced["block"][ids] = clock
        if scope not in ("block",):
            self.fenced["device"][ids] = clock
        self.complete_acquires(ids, scope != "block")
        self.stamp[ids] += 1

    def complete_acquires(self, ids: IntArray, device: bool = True) -> None:
        """What releases left, where threads have seen them, is known to them from now on."""
        if self.pending:
            for thread in ids.tolist():
                if thread in self.pending:
                    self._settle(thread, device)

    def _settle(self, thread: int, device: bool) -> None:
        waiting = self.pending.get(thread)
        if not waiting:
            return
        taken = {key: row for key, (row, local) in waiting.items() if device or local}
        if taken:
            self.rows[thread] = join([self.rows.get(thread, {}), *taken.values()])
        left = {key: pair for key, pair in waiting.items() if key not in taken}
        if left:
            self.pending[thread] = left
        else:
            del self.pending[thread]

    def knowledge(self, thread: int, clock: int) -> Row:
        """All that a thread can pass on: its own accesses up to a clock, and what it knows."""
        block = (thread + self.first) // self.padded
        start = thread - thread % self.padded
        own = self.at_barrier[start : start + self.padded].copy()
        if self.lanes is not None:
            warp = (thread % self.padded) & ~31
            own[warp : warp + 32] = np.maximum(own[warp : warp + 32], self.lanes[thread])
        own[thread - start] = max(own[thread - start], clock)
        return join([self.rows.get(thread, {}), {block: own}])

    def has_seen(self, ids: IntArray, element: IntArray, versions: AnyArray) -> AnyArray:
        """Which threads read these versions of these elements before; all have now."""
        seen = (self.seen_element[ids] == element) & (self.seen_version[ids] == versions)
        self.seen_element[ids] = element
        self.seen_version[ids] = versions
        return np.asarray(seen)

    def release(self, thread: int, at: SyncLocation, op: Atomic) -> None:
        """A thread wrote an element atomically; what a fence before it released goes along."""
        now = int(self.stamp[thread] & _CLOCK_MASK)
        block = (thread + self.first) // self.padded
        at.version += 1
        if op.name == "store":
            at.device, at.block = None, {}
        wide = now if op.releases else int(self.fenced["device"][thread])
        if op.scope != "block" and wide >= 0:
            at.device = join([at.device or {}, self.knowledge(thread, wide)])
        near = now if op.releases else int(self.fenced["block"][thread])
        if near >= 0:
            at.block[block] = join([at.block.get(block, {}), self.knowledge(thread, near)])
        if op.releases:
            self.stamp[thread] += 1

    def acquire(self, thread: int, at: SyncLocation, key: Any, op: Atomic) -> None:
        """A thread read an element atomically; a fence after it makes what it carries known."""
        block = (thread + self.first) // self.padded
        found = []
        if at.device is not None and op.scope != "block":
            found.append(((key, "device"), at.device, False))
        if block in at.block:
            found.append(((key, "block"), at.block[block], True))
        for name, row, local in found:
            self.pending.setdefault(thread, {})[name] = (row, local)
        if found and op.acquires:
            self._settle(thread, True)


def join(rows: Sequence[Row]) -> Row:
    """The most that several rows know; threads that met before share theirs."""
    different = list({id(row): row for row in rows}.values())
    if len(different) == 1:
        return different[0]
    joined: Row = {}
    for row in different:
        for block, clocks in row.items():
            known = joined.get(block)
            if known is None:
                joined[block] = clocks
            elif known is not clocks:
                joined[block] = np.maximum(known, clocks)
    return joined
