"""Split collectives into a start and a wait, in an order that all ranks have.

%2 = all_reduce %1      becomes      %2 = start_all_reduce %1
                                     %3 = wait %2 %1

Each is started after the one before, so no two ranks wait for each other in a circle, and waited
for where its result is read (`ops/started.py`). Small sums of one kind that are ready about the
same time go as one where they may, in a bucket: many by themselves would cost latency.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from ridgeline.graph.graph import Graph, elements, nbytes
from ridgeline.graph.node import Node, node as make, over, topological, twin
from ridgeline.graph.origins import inherit
from ridgeline.ops.collectives import ALL_REDUCE, COLLECTIVES, holds_collectives
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


def split_collectives(graph: Graph) -> Graph:
    """The graph with every collective in two parts, started in the order of the program.

    What a rank computes may depend on which it is, and so may the order of its graph; that of its
    calls may not.
    """
    if not holds_collectives(graph.computed):
        return graph
    found: dict[Node, int] = {}
    last: dict[Node, int] = {}
    for node in graph.order:
        below = () if graph.is_input(node) else node.inputs
        last[node] = max([last[source] for source in below], default=0)
        if node.op in COLLECTIVES and not graph.is_input(node):
            last[node] = found[node] = max(last[node], node.attrs.number)
    return started_in_order(graph, sorted(found, key=found.__getitem__))


def started_in_order(graph: Graph, ordered: Sequence[Node]) -> Graph:
    """The graph with its collectives started one after the other, small sums together."""
    if not ordered:
        return graph
    chain = _Chain(graph)
    for bucket in buckets(graph, ordered):
        chain.add(bucket)
    return graph.giving([chain.rewritten(output) for output in graph.outputs])


def buckets(graph: Graph, ordered: Sequence[Node]) -> list[list[Node]]:
    """Collectives in the order in which they start, those together that go as one.

    One that needs what a sum gives starts after the bucket of that sum.
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
        if node.op is not ALL_REDUCE or not attrs.bucketed or size >= LARGE:
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
        whole = twin(make(ALL_REDUCE, (flat,), bucket[0].attrs))
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
