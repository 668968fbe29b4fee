"""The collectives of a rank's graph in the order that all ranks agree on, each in two parts.

Each is started after the one before, so no two ranks wait for each other in a circle, and waited
for where its result is read (`ops/started.py`). Small sums of one kind that are ready about the
same time go as one, in a bucket: many by themselves would cost latency.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from ridgeline.graph.graph import Graph, elements, nbytes
from ridgeline.graph.node import Node, over, topological
from ridgeline.graph.origins import inherit
from ridgeline.ops.collectives import ALL_REDUCE, all_reduce
from ridgeline.ops.movement import concat, reshape, slice_
from ridgeline.ops.started import start, wait

BUCKET = 1 << 20  # bytes of sums that go as one
# bytes of a sum that goes by itself: latency is small beside its time, and the copy is not
LARGE = 32 << 10
_Key = tuple[str, str, str]


@dataclass(slots=True)
class _Bucket:
    """Sums of one group and type, in the places from the first to the last of them."""

    first: int
    members: list[Node] = field(default_factory=list)
    size: int = 0


def in_order(graph: Graph, places: Mapping[Node, tuple[int, int]]) -> Graph:
    """The graph with its collectives started by their places."""
    if not places:
        return graph
    there = [node for node in graph.computed if node in places]
    ordered = sorted(there, key=places.__getitem__)
    chain = _Chain(graph)
    for bucket in buckets(graph, ordered):
        chain.add(bucket)
    return graph.giving([chain.rewritten(output) for output in graph.outputs])


def buckets(graph: Graph, ordered: Sequence[Node]) -> list[list[Node]]:
    """Collectives in the order in which they start, those together that go as one.

    One that needs what a sum gives starts after the bucket of that sum. Stages of a pipeline have
    collectives of their own between those they share, so along it nothing goes together.
    """
    latest = _latest(graph, ordered)
    found: list[list[Node]] = []
    filling: dict[_Key, _Bucket] = {}

    def close(keys: Sequence[_Key]) -> None:
        found.extend(filling.pop(key).members for key in keys)

    for place, node in enumerate(ordered):
        needs = max(latest[source] for source in node.inputs)
        close([key for key, bucket in filling.items() if bucket.first <= needs])
        attrs, size = node.attrs, nbytes(node)
        if node.op is not ALL_REDUCE or attrs.group.axis == "pp" or size >= LARGE:
            found.append([node])
            continue
        key = attrs.group.key, attrs.reduction, node.dtype.name
        if key in filling and filling[key].size + size > BUCKET:
            close([key])
        bucket = filling.setdefault(key, _Bucket(place))
        bucket.members.append(node)
        bucket.size += size
    close(list(filling))
    return found


def _latest(graph: Graph, ordered: Sequence[Node]) -> dict[Node, int]:
    """For each value the place of the last collective that it needs; -1 for none."""
    place = {node: index for index, node in enumerate(ordered)}
    found: dict[Node, int] = {}
    for node in graph.order:
        below = () if graph.is_input(node) else node.inputs
        needs = max([found[source] for source in below], default=-1)
        found[node] = max(needs, place.get(node, -1))
    return found


class _Chain:
    """Collectives one after the other, over a graph that is rewritten as far as they need it."""

    def __init__(self, graph: Graph) -> None:
        self._new: dict[Node, Node] = {node: node for node in graph.inputs}
        self._ticket: Node | None = None

    def rewritten(self, node: Node) -> Node:
        """A value, whose collectives were added before."""
        for each in topological([node], self._new.__contains__):
            if each not in self._new:
                made = over(each, tuple([self._new[source] for source in each.inputs]))
                if not made.origins:
                    inherit(made, each.origins)
                self._new[each] = made
        return self._new[node]

    def add(self, bucket: Sequence[Node]) -> None:
        """Start what goes together, and wait for it where it is read."""
        if len(bucket) == 1:
            own = [self.rewritten(source) for source in bucket[0].inputs]
            self._new[bucket[0]] = self._called(bucket[0], *own)
            return
        operands = [self.rewritten(node.inputs[0]) for node in bucket]
        flat = concat([reshape(each, (elements(each),)) for each in operands], 0)
        whole = all_reduce(flat, bucket[0].attrs.group, bucket[0].attrs.reduction)
        inherit(whole, bucket[0].origins)
        total, at = self._called(whole, flat), 0
        for node, operand in zip(bucket, operands):
            count = elements(operand)
            part = slice_(total, (at,), (count,), (1,))
            made = reshape(part, operand.shape)
            inherit(made, node.origins)
            self._new[node], at = made, at + count

    def _called(self, node: Node, *operands: Node) -> Node:
        self._ticket = start(node, operands, self._ticket)
        result = wait(node, self._ticket, operands[-1])
        inherit(self._ticket, node.origins)
        inherit(result, node.origins)
        return result
