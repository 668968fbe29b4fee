"""Pointwise ops: operands lie alike. Sums of partial values stay partial."""

from __future__ import annotations

from collections.abc import Sequence

from ridgeline.graph.node import Node, node as make
from ridgeline.ops.barrier import after
from ridgeline.ops.elementwise import CAST
from ridgeline.ops.movement import BROADCAST, RESHAPE, SLICE
from ridgeline.ops.placed import Dispatched, Partial, Placement, Shard
from ridgeline.sharding.mesh_shapes import REPLICATE, Spec
from ridgeline.sharding.share import RankShare


def pointwise(share: RankShare, node: Node) -> None:
    """Everybody computes the elements that some operand is sharded by."""
    if all(share.is_free(source) for source in node.inputs):
        share.set_free(node, _made)
        return
    specs = [share.spec(source) for source in node.inputs]
    wanted: list[list[Placement]] = [[] for _ in node.inputs]
    result: list[Placement] = []
    for axis in range(len(share.shape.axes)):
        have = [spec[axis] for spec in specs]
        made = aligned(share, node, axis, have)
        keeps = isinstance(made, Partial)
        for operand, placement in zip(wanted, have):
            whole = keeps and not isinstance(placement, Partial)
            operand.append(REPLICATE if whole else made)
        result.append(made)
    wants = [tuple(operand) for operand in wanted]
    share.set(node, _local(share, node, wants), tuple(result))


def aligned(share: RankShare, node: Node, axis: int, have: Sequence[Placement]) -> Placement:
    """How the result lies along an axis of the mesh, by how the operands do."""
    dispatched = [p for p in have if isinstance(p, Dispatched)]
    if dispatched:
        return dispatched[0]
    shards = [p for p in have if isinstance(p, Shard)]
    if shards:
        computed = [p for p in shards if not p.stored]
        return (computed or shards)[0]
    partial = [number for number, p in enumerate(have) if isinstance(p, Partial)]
    if not partial:
        return REPLICATE
    if all(have[n] == Partial() for n in partial) and _is_linear(share, node, partial):
        return Partial()
    hint = share.hint(node, axis)
    return hint if isinstance(hint, Shard) else REPLICATE


def after_rule(share: RankShare, node: Node) -> None:
    """A value that waits for another one waits for this rank's part of it, which is there."""
    value, other = node.inputs[0], _waited_for(node.inputs[1])
    if share.is_free(value) or share.is_free(other):
        pointwise(share, node)
        return
    spec = share.spec(value)
    share.asked = node
    share.set(node, after(share.at(value, spec), share.at(other, share.spec(other))), spec)


def _waited_for(number: Node) -> Node:
    """The value of which one element is repeated (`ops/barrier.py`)."""
    while number.op in (BROADCAST, CAST, RESHAPE):
        number = number.inputs[0]
    return number.inputs[0] if number.op is SLICE else number


def _is_linear(share: RankShare, node: Node, partial: Sequence[int]) -> bool:
    """True where the op of the sums is the sum of the op of the parts."""
    op = node.op
    if op.family == "movement":
        return True
    if op is CAST:
        floats = {node.dtype.kind, node.inputs[0].dtype.kind}
        return floats <= {"float", "complex"} and node.dtype.itemsize >= 4
    if op.linear_if is not None and not op.linear_if(node.attrs):
        return False
    return any(set(group) == set(partial) for group in op.linear)


def _made(share: RankShare, node: Node, spec: Spec) -> Node:
    return _local(share, node, [spec] * len(node.inputs))


def _local(share: RankShare, node: Node, wants: Sequence[Spec]) -> Node:
    share.asked = node
    return make(node.op, [share.at(i, w) for i, w in zip(node.inputs, wants)], node.attrs)
