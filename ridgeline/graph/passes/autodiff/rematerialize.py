"""Recompute or store: what a forward pass keeps for the backward one, by a minimum cut.

A value that the backward pass needs is read from memory or computed again from others. Keeping a
value costs the bytes written and read, reading one that is in memory anyway its bytes, computing
one again its operations. The cheapest choice for all values together is the smallest cut between
what only the forward pass computes and what the backward pass needs.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Sequence

from ridgeline.graph.graph import nbytes, work_bytes
from ridgeline.graph.node import Node

# ---- maximum flow and the cut that bounds it, after Dinic: levels by breadth, flow along them ----

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


# ---- what to keep --------------------------------------------------------------------------------


def cheapest_to_keep(
    needed: Sequence[Node], is_known: Callable[[Node], bool], is_fixed: Callable[[Node], bool]
) -> list[Node]:
    """The values to read in order to have all `needed` ones.

    Known values are in memory anyway; fixed ones are never computed again.
    """
    network = Network()
    entry: dict[Node, int] = {}
    order: list[Node] = []
    waiting = list(needed)
    while waiting:
        node = waiting.pop()
        if node in entry:
            continue
        entry[node] = network.place()
        leave = network.place()
        order.append(node)
        known = is_known(node)
        network.pipe(entry[node], leave, nbytes(node) * (1 if known else 2))
        if known or is_fixed(node):
            network.pipe(0, entry[node], UNLIMITED)
            continue
        network.pipe(0, entry[node], int(work_bytes(node)))
        waiting += node.inputs
    for node in order:
        if not (is_known(node) or is_fixed(node)):
            for source in node.inputs:
                network.pipe(entry[source] + 1, entry[node], UNLIMITED)
    for node in dict.fromkeys(needed):
        network.pipe(entry[node] + 1, 1, UNLIMITED)
    before = network.source_side()
    return [n for n in order if entry[n] in before and entry[n] + 1 not in before]
