"""Sets of threads that stand at an instruction and may run, and which of them goes next."""

from __future__ import annotations

from typing import Literal

import numpy as np

from ridgeline.simt.simulator.lanes import IntArray

# Who goes first where threads could go on: those at the smallest instruction, so that threads meet
# again; the first or the last thread of the launch, as far as it comes without the others; or the
# one of the highest of random ranks, which a thread may lose to all others when it signals.
ThreadOrder = Literal["source", "first", "last", "ranked"]
Place = tuple[int, int]  # an instruction, and which part of the threads
_MOST_PARTS = 16
_LOSES_RANK = 0.25  # how often an atomic operation costs a thread its rank


def parts_of(threads: int, padded: int) -> IntArray:
    """Threads that go on by themselves in an order of threads: warps, blocks, or the outermost."""
    numbers = np.arange(threads, dtype=np.int64)
    for size in (32, padded):
        if threads <= _MOST_PARTS * size:
            return numbers // size
    blocks = numbers // padded
    return np.asarray((blocks > 0).astype(np.int64) + (blocks == blocks[-1]))


class ReadySets:
    """The sets by instruction; one that waits for others in a loop rests while they go on."""

    def __init__(
        self, order: ThreadOrder, parts: IntArray, shuffled: np.random.Generator | None
    ) -> None:
        self.order, self.parts, self.random = order, parts, shuffled
        self.sets: dict[Place, IntArray] = {}
        self.resting: set[Place] = set()
        self.ranks: IntArray | None = None
        self.lowest = 0
        if order == "ranked" and shuffled is not None:
            self.ranks = shuffled.permutation(len(parts))

    def __bool__(self) -> bool:
        return bool(self.sets)

    @property
    def in_source_order(self) -> bool:
        """True where threads wait to meet again, false where some go first."""
        return self.order == "source"

    @property
    def ways(self) -> int:
        """How many parts of the threads loop by themselves."""
        return 1 if self.in_source_order else int(self.parts[-1]) + 1

    @property
    def all_rest(self) -> bool:
        """True where every set waits for another one."""
        return len(self.resting) == len(self.sets)

    def park(self, pc: int, ids: IntArray) -> None:
        """Threads stand at an instruction."""
        if not len(ids):
            return
        if self.in_source_order:
            self._put((pc, 0), ids)
            return
        parts = self.parts[ids]
        for part in np.unique(parts).tolist():
            self._put((pc, part), ids[parts == part])

    def _put(self, place: Place, ids: IntArray) -> None:
        known = self.sets.get(place)
        self.sets[place] = ids if known is None else np.sort(np.concatenate([known, ids]))
        self.resting.discard(place)

    def rest(self, pc: int, ids: IntArray) -> None:
        """Threads loop, and others go on before them."""
        self.park(pc, ids)
        self.resting.add(self._place(pc, ids))

    def _place(self, pc: int, ids: IntArray) -> Place:
        return (pc, 0 if self.in_source_order else int(self.parts[ids[0]]))

    def wake(self) -> None:
        """Those that rested look again."""
        self.resting.clear()

    def take(self) -> tuple[int, IntArray]:
        """The set that goes on now; not all may rest."""
        awake = [place for place in self.sets if place not in self.resting]
        place = self._chosen(awake)
        return place[0], self.sets.pop(place)

    def _chosen(self, awake: list[Place]) -> Place:
        if self.order == "last":
            return max(awake, key=lambda place: int(self.sets[place][-1]))
        if self.order == "first":
            return min(awake, key=lambda place: int(self.sets[place][0]))
        if self.ranks is not None:
            ranks = self.ranks
            return max(awake, key=lambda place: int(ranks[self.sets[place]].max()))
        if self.random is not None and len(awake) > 1:
            return sorted(awake)[int(self.random.integers(len(awake)))]
        return min(awake)

    def gives_way(self, pc: int, ids: IntArray) -> bool:
        """Whether threads that signalled lose their rank; they stand at an instruction then."""
        if self.ranks is None or self.random is None or self.random.random() >= _LOSES_RANK:
            return False
        self.lowest -= 1
        self.ranks[ids] = self.lowest
        self.park(pc, ids)
        return True

    def stops_at(self, end: int) -> int:
        """The smallest instruction where others stand that are to run, for which a set waits."""
        if not self.in_source_order:
            return end
        return min((pc for pc, part in self.sets if (pc, part) not in self.resting), default=end)

    def joined(self, pc: int, ids: IntArray) -> IntArray:
        """The threads, with those that stand where they have come to."""
        there = self.sets.pop(self._place(pc, ids), None)
        if there is None:
            return ids
        self.resting.discard(self._place(pc, ids))
        return np.sort(np.concatenate([there, ids]))
