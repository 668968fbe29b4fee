"""What the forward pass stores for the backward pass, and what is recomputed: a minimum cut.

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
from ridgeline.ops.tracking import CUSTOM, ERASED

# ---- maximum flow and the cut that bounds it, after Dinic: levels by breadth, flow along them ----

UNLIMITED = 1 << 60


class FlowNetwork:
    """A flow network with integer capacities; vertex 0 is the source, 1 the sink."""

    def __init__(self) -> None:
        self._edges: list[list[int]] = [[], []]  # numbers of the edges that leave each vertex
        self._ends: list[int] = []
        self._left: list[int] = []  # capacity left; edge n ^ 1 is the way back of edge n

    def vertex(self) -> int:
        """A new vertex."""
        self._edges.append([])
        return len(self._edges) - 1

    def edge(self, start: int, end: int, capacity: int) -> None:
        """Add an edge."""
        for a, b, room in ((start, end, capacity), (end, start, 0)):
            self._edges[a].append(len(self._ends))
            self._ends.append(b)
            self._left.append(room)

    def source_side(self) -> set[int]:
        """The vertices on the source's side of a minimum cut."""
        while True:
            level = self._levels()
            if 1 not in level:
                return set(level)
            self._fill(level)

    def _levels(self) -> dict[int, int]:
        level, waiting = {0: 0}, deque([0])
        while waiting:
            vertex = waiting.popleft()
            for edge in self._edges[vertex]:
                end = self._ends[edge]
                if self._left[edge] and end not in level:
                    level[end] = level[vertex] + 1
                    waiting.append(end)
        return level

    def _fill(self, level: dict[int, int]) -> None:
        """Augment along shortest paths until all are blocked."""
        untried = {vertex: iter(self._edges[vertex]) for vertex in level}
        way: list[int] = []
        vertex = 0
        while True:
            if vertex == 1:
                room = min(self._left[edge] for edge in way)
                for edge in way:
                    self._left[edge] -= room
                    self._left[edge ^ 1] += room
                full = next(n for n, edge in enumerate(way) if not self._left[edge])
                vertex = self._ends[way[full] ^ 1]
                del way[full:]
                untried[vertex] = iter(self._edges[vertex])
                continue
            for edge in untried[vertex]:
                end = self._ends[edge]
                if self._left[edge] and level.get(end) == level[vertex] + 1:
                    way.append(edge)
                    vertex = end
                    break
            else:
                if not way:
                    return
                level[vertex] = -1  # a dead end
                vertex = self._ends[way.pop() ^ 1]


# ---- what to keep --------------------------------------------------------------------------------


def cheapest_to_keep(
    needed: Sequence[Node], is_known: Callable[[Node], bool], is_fixed: Callable[[Node], bool]
) -> list[Node]:
    """The cheapest values to store so that all `needed` ones can be had.

    `is_known` values are in memory anyway; `is_fixed` ones are never recomputed.
    """
    network = FlowNetwork()
    entry: dict[Node, int] = {}
    order: list[Node] = []
    waiting = list(needed)
    while waiting:
        node = waiting.pop()
        if node in entry:
            continue
        entry[node] = network.vertex()
        leave = network.vertex()
        order.append(node)
        known = is_known(node)
        network.edge(entry[node], leave, nbytes(node) * (1 if known else 2))
        if known or is_fixed(node):
            network.edge(0, entry[node], UNLIMITED)
            continue
        network.edge(0, entry[node], int(work_bytes(node)))
        waiting += _value_from(node)
    for node in order:
        if not (is_known(node) or is_fixed(node)):
            for source in _value_from(node):
                network.edge(entry[source] + 1, entry[node], UNLIMITED)
    for node in dict.fromkeys(needed):
        network.edge(entry[node] + 1, 1, UNLIMITED)
    before = network.source_side()
    return [n for n in order if entry[n] in before and entry[n] + 1 not in before]


def _value_from(node: Node) -> Sequence[Node]:
    """The operands that a value is computed from, without those that only derivatives read."""
    if node.op is CUSTOM:
        return node.inputs[: node.attrs.outputs]
    return node.inputs[:1] if node.op in ERASED else node.inputs
