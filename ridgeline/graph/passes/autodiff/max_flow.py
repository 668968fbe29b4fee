"""Maximum flow and the cut that bounds it, after Dinic: levels by breadth, flow along them."""

from __future__ import annotations

from collections import deque

UNLIMITED = 1 << 60


class Network:
    """Places joined by pipes of whole-number capacity; place 0 is the source, 1 the sink."""

    def __init__(self) -> None:
        self._pipes: list[list[int]] = [[], []]  # numbers of the pipes that leave each place
        self._ends: list[int] = []
        self._left: list[int] = []  # capacity left; pipe n ^ 1 is the way back of pipe n

    def place(self) -> int:
        """A new place."""
        self._pipes.append([])
        return len(self._pipes) - 1

    def pipe(self, start: int, end: int, capacity: int) -> None:
        """Join two places."""
        for a, b, room in ((start, end, capacity), (end, start, 0)):
            self._pipes[a].append(len(self._ends))
            self._ends.append(b)
            self._left.append(room)

    def source_side(self) -> set[int]:
        """The places that the source still reaches once no more can flow: one side of the cut."""
        while True:
            level = self._levels()
            if 1 not in level:
                return set(level)
            self._fill(level)

    def _levels(self) -> dict[int, int]:
        level, waiting = {0: 0}, deque([0])
        while waiting:
            place = waiting.popleft()
            for pipe in self._pipes[place]:
                end = self._ends[pipe]
                if self._left[pipe] and end not in level:
                    level[end] = level[place] + 1
                    waiting.append(end)
        return level

    def _fill(self, level: dict[int, int]) -> None:
        """Send flow along shortest ways until every one of them is full somewhere."""
        untried = {place: iter(self._pipes[place]) for place in level}
        way: list[int] = []
        place = 0
        while True:
            if place == 1:
                room = min(self._left[pipe] for pipe in way)
                for pipe in way:
                    self._left[pipe] -= room
                    self._left[pipe ^ 1] += room
                full = next(n for n, pipe in enumerate(way) if not self._left[pipe])
                place = self._ends[way[full] ^ 1]
                del way[full:]
                untried[place] = iter(self._pipes[place])
                continue
            for pipe in untried[place]:
                end = self._ends[pipe]
                if self._left[pipe] and level.get(end) == level[place] + 1:
                    way.append(pipe)
                    place = end
                    break
            else:
                if not way:
                    return
                level[place] = -1  # a dead end
                place = self._ends[way.pop() ^ 1]
