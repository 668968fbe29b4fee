"""Microbatches: the graph of a step, repeated for each part of the batch.

A microbatch is to the graph what a rank along an axis of data is, except that one and the same rank
computes them all. So the rules that share a graph out over ranks share it out here too; where ranks
would need a collective, the parts meet in the graph itself: sums become additions, one microbatch
after the other, and gathers become concatenations.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from ridgeline.graph.graph import Graph
from ridgeline.graph.node import Node, node as make, over, topological
from ridgeline.graph.origins import inherit
from ridgeline.ops.collectives import ALL_GATHER, COLLECTIVES, REDUCE_SCATTER, GroupName
from ridgeline.ops.elementwise import ROWS, apply
from ridgeline.ops.local_parts import FROM_PARTS, LOCAL_PART
from ridgeline.ops.movement import concat, slice_
from ridgeline.ops.placed import MICROBATCH, PLACED, PLACED_AS_STATE, PLACED_LIKE, Shard
from ridgeline.sharding.hints import hints
from ridgeline.sharding.mesh_shapes import MeshShape
from ridgeline.sharding.partition import write
from ridgeline.sharding.share import MOVED, RankShare

_OF_WHOLE_BATCHES = (PLACED_LIKE, PLACED_AS_STATE, LOCAL_PART, FROM_PARTS, *COLLECTIVES)
_JOINED = {"sum": "add", "max": "maximum", "min": "minimum"}


@dataclass(frozen=True, slots=True)
class MicrobatchedGraph:
    """The graph over whole values, and where each microbatch begins in it."""

    graph: Graph
    begins: Mapping[Node, int] = field(default_factory=dict)


def has_microbatches(graph: Graph) -> bool:
    """True for a step: its batch is asked to be cut up, and a backward pass goes over it."""
    wishes = [dict(n.attrs.forward).get(MICROBATCH) for n in graph.computed if n.op is PLACED]
    cut = any(isinstance(wish, Shard) for wish in wishes)
    return cut and any(wish is not None and not isinstance(wish, Shard) for wish in wishes)


def in_microbatches(
    graph: Graph, count: int, pairs: Sequence[tuple[int, int]]
) -> MicrobatchedGraph:
    """The graph with its batch in `count` parts; `pairs` are outputs that replace inputs."""
    shape = MeshShape(((MICROBATCH, count),))
    whole = shape.replicated()
    given = dict.fromkeys(graph.inputs, whole)
    taken = {graph.outputs[o]: graph.inputs[i] for o, i in pairs if i >= 0}
    wishes = hints(graph, shape, given, taken)
    groups = {MICROBATCH: GroupName(MICROBATCH, MICROBATCH, count)}
    begins: dict[Node, int] = {}
    shares = []
    for place in range(count):
        share = RankShare(graph, shape, (place,), graph.device, wishes, _write, groups)
        share.through = (*MOVED, ROWS["add"])
        for source in graph.inputs:
            share.set(source, source, whole)
        for node in graph.order:
            if not graph.is_input(node):
                _write(share, node)
                _note_begin(share, node, begins)
        shares.append(share)
    outputs = [[share.at(output, whole) for output in graph.outputs] for share in shares]
    joined = _Joined(graph, [list(share.collectives) for share in shares])
    made = Graph([joined.of(output) for output in outputs[0]], graph.inputs)
    return MicrobatchedGraph(made, {joined.of(n): i for n, i in begins.items()})


def _note_begin(share: RankShare, node: Node, begins: dict[Node, int]) -> None:
    if node.op is PLACED and isinstance(dict(node.attrs.forward).get(MICROBATCH), Shard):
        begins[share.at(node, share.spec(node))] = share.place[0]


def _write(share: RankShare, node: Node) -> None:
    """Write a node down for one microbatch; what is asked of ranks is asked of its part."""
    share.asked = None
    whole = share.shape.replicated()
    if node.op is PLACED:
        wish = dict(node.attrs.forward).get(MICROBATCH)
        (source,) = node.inputs
        spec = share.spec(source) if wish is None else (wish,)
        made = make(PLACED, (share.at(source, spec),), node.attrs)
        share.set(node, made, spec)
    elif node.op in _OF_WHOLE_BATCHES:
        made = make(node.op, [share.at(source, whole) for source in node.inputs], node.attrs)
        share.set(node, made, whole)
    else:
        write(share, node)


class _Joined:
    """The graphs of all microbatches as one: collectives between them are written out."""

    def __init__(self, graph: Graph, collectives: Sequence[Sequence[Node]]) -> None:
        self._new: dict[Node, Node] = {node: node for node in graph.inputs}
        for parts in zip(*collectives, strict=True):
            operands = [self.of(part.inputs[0]) for part in parts]
            for part, result in zip(parts, _joined(parts, operands)):
                inherit(result, part.origins)
                self._new[part] = result

    def of(self, node: Node) -> Node:
        """A value of one microbatch's graph in the joined one."""
        for each in topological([node], self._new.__contains__):
            if each not in self._new:
                made = over(each, tuple([self._new[source] for source in each.inputs]))
                if not made.origins:
                    inherit(made, each.origins)
                self._new[each] = made
        return self._new[node]


def _joined(parts: Sequence[Node], operands: Sequence[Node]) -> list[Node]:
    """What each of several microbatches gets of a collective over their values."""
    op, attrs = parts[0].op, parts[0].attrs
    if op is ALL_GATHER:
        return [concat(list(operands), 0)] * len(parts)
    total = operands[0]
    for operand in operands[1:]:
        total = apply(_JOINED[attrs.reduction], total, operand)
    if op is not REDUCE_SCATTER:
        return [total] * len(parts)
    rest, found, at = total.shape[1:], [], 0
    for rows in attrs.counts:
        starts, steps = (at, *[0] * len(rest)), (1,) * (1 + len(rest))
        found.append(slice_(total, starts, (rows, *rest), steps))
        at += rows
    return found
