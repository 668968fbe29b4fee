"""Attention: ranks share out batches, heads, or the queries' places in the sequence.

Along heads, a rank that has queries of one head of keys and values alone takes that head. Along the
sequence keys and values are gathered, or go around the ring of ranks (`ring.py`); of a causal op
no block is computed in which every key is later than every query.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from ridgeline.graph.node import Node, node as make, proj
from ridgeline.ops.attention import ATTENTION_GRADIENT
from ridgeline.ops.attention.written import is_masked
from ridgeline.ops.elementwise import cast
from ridgeline.ops.movement import pad, slice_
from ridgeline.ops.placed import Partial, Placement, Shard
from ridgeline.sharding.mesh_shapes import REPLICATE, Run, Spec, factors
from ridgeline.sharding.rules.attention_blocks import AttentionBlocks, HeldKeys
from ridgeline.sharding.rules.ring import ring_rule
from ridgeline.sharding.share import RankShare, replaced


@dataclass(frozen=True, slots=True)
class _Plan:
    """Placements of queries and of keys, and what differs from the whole op."""

    queries: Spec
    keys: Spec
    one_head: int | None  # of keys: the only one that this rank's queries share
    by_length: tuple[int, ...]  # axes of the mesh along which queries are shared out
    by_head: tuple[int, ...]  # axes along which several ranks have queries of one head


def attention_rule(share: RankShare, node: Node) -> None:
    """The op itself, or its gradient, over a rank's part."""
    plan = _plan(share, node)
    share.asked = node
    if share.shape.ring and len(plan.by_length) == 1 and _ring(share, node, plan):
        return
    operands = _operands(share, node, plan)
    is_empty = 0 in operands[0].shape  # which the op does not take
    if is_empty:
        share.keep(node, *operands[1:])  # ranks that have queries are given keys and values
    by_blocks = is_empty or (bool(plan.by_length) and not is_masked(node))
    if node.op is not ATTENTION_GRADIENT:
        specs: tuple[Spec, ...] = (plan.queries, plan.queries)
        saved: list[Node] = []
    else:
        partial = (*plan.by_length, *plan.by_head)
        of_keys = tuple(Partial() if a in partial else p for a, p in enumerate(plan.keys))
        specs = (plan.queries, of_keys, of_keys)
        saved = [share.at(source, plan.queries) for source in node.inputs[-3:]]
    if by_blocks:
        made = operands[0]  # stands for the results below, which several nodes compute
        parts = _by_blocks(share, node, plan, operands, saved)
    else:
        made = make(node.op, (*operands, *saved), node.attrs)
        parts = tuple(proj(made, output) for output in range(len(specs)))
    if saved and plan.one_head is not None:
        heads = share.local_shape(node.inputs[1], plan.keys)
        of_keys_alone = (_among_heads(part, plan.one_head, heads) for part in parts[1:])
        parts = (parts[0], *of_keys_alone)
    share.several[node] = made, specs
    share.results.update({(node, output): part for output, part in enumerate(parts)})


def _by_blocks(
    share: RankShare, node: Node, plan: _Plan, operands: Sequence[Node], saved: Sequence[Node]
) -> tuple[Node, ...]:
    """The op over runs of queries and the keys that they see."""
    q, k, v = operands[:3]
    blocks = AttentionBlocks(node.attrs, q, _runs(share, node.inputs[0], plan.queries))
    held = HeldKeys(k, v, ((0, int(k.shape[-2])),))
    if not saved:
        blocks.see(held)
        return blocks.result(int(v.shape[-1]))
    blocks.remember(*saved)
    by_keys = [cast(part, k.dtype) for part in blocks.gradients(held)]
    return blocks.by_queries(), *by_keys


def _ring(share: RankShare, node: Node, plan: _Plan) -> bool:
    """Let keys and values go around the axis of the sequence; False where that cannot be."""
    (axis,) = plan.by_length
    q, k = node.inputs[:2]
    rows = len(q.shape) - 2
    if share.sizes(q)[rows] != share.sizes(k)[rows] or is_masked(node):
        return False
    shared = plan.queries[axis]
    keys = replaced(plan.keys, axis, shared)
    local = _operands(share, node, replace(plan, keys=keys))
    saved = []
    if node.op is ATTENTION_GRADIENT:
        saved = [share.at(source, plan.queries) for source in node.inputs[-3:]]
    runs = [_runs(share, q, plan.queries, axis, at) for at in range(share.shape.size(axis))]
    parts = list(ring_rule(share, node, axis, runs, local, saved))
    specs: tuple[Spec, ...] = (plan.queries, plan.queries)
    if saved:
        of_keys = tuple(Partial() if a in plan.by_head else p for a, p in enumerate(keys))
        specs = (plan.queries, of_keys, of_keys)
        if plan.one_head is not None:
            heads = share.local_shape(k, keys)
            parts[1:] = [_among_heads(part, plan.one_head, heads) for part in parts[1:]]
    share.several[node] = local[0], specs
    share.results.update({(node, output): part for output, part in enumerate(parts)})
    return True


def _runs(share: RankShare, q: Node, queries: Spec, axis: int = -1, at: int = 0) -> tuple[Run, ...]:
    """The runs of the sequence that this rank has, or the one at another place along an axis."""
    rows = len(q.shape) - 2
    place = list(share.place)
    if axis >= 0:
        place[axis] = at
    (part,) = factors(share.shape, queries, rows, share.sizes(q)[rows], place)
    return part.runs


def _plan(share: RankShare, node: Node) -> _Plan:
    q, k = node.inputs[:2]
    rank = len(q.shape)
    heads, shared = share.sizes(q)[rank - 3], share.sizes(k)[rank - 3]
    queries, keys = share.shape.replicated(), share.shape.replicated()
    one_head, by_length, by_head = None, list[int](), list[int]()
    for axis in range(len(share.shape.axes)):
        placement = _placement(share, node, axis)
        if placement is None or placement.outer != 1:
            continue
        size = share.shape.size(axis)
        if placement.dim < rank - 3:
            queries, keys = (replaced(s, axis, placement) for s in (queries, keys))
        elif placement.dim == rank - 2:
            queries = replaced(queries, axis, placement)
            by_length.append(axis)
        elif placement.dim == rank - 3 and heads % size == 0 and shared % size == 0:
            queries, keys = (replaced(s, axis, placement) for s in (queries, keys))
        elif placement.dim == rank - 3 and heads % size == 0 and size % shared == 0:
            queries = replaced(queries, axis, placement)
            one_head = share.place[axis] * shared // size
            by_head.append(axis)
    return _Plan(queries, keys, one_head, tuple(by_length), tuple(by_head))


def _placement(share: RankShare, node: Node, axis: int) -> Shard | None:
    """What is shared out along an axis: as queries are, or as the cotangent, or keys."""
    rank = len(node.inputs[0].shape)
    of_keys = [share.spec(source)[axis] for source in node.inputs[1:3]]
    others = [share.spec(node.inputs[0])[axis]]
    if node.op is ATTENTION_GRADIENT:
        others.append(share.spec(node.inputs[-1])[axis])
    others += [p for p in of_keys if isinstance(p, Shard) and p.dim != rank - 2]
    return next((p for p in others if isinstance(p, Shard) and p.dim < rank - 1), None)


def _operands(share: RankShare, node: Node, plan: _Plan) -> list[Node]:
    """Local queries, keys, values and mask."""
    q, k, v = node.inputs[:3]
    local = [share.at(q, plan.queries), *(share.at(source, plan.keys) for source in (k, v))]
    if plan.one_head is not None:
        local[1:] = [_head(source, plan.one_head) for source in local[1:]]
    if is_masked(node):
        mask = node.inputs[3]
        local.append(share.at(mask, _of_mask(share.sizes(mask), plan.queries)))
    return local


def _of_mask(sizes: Sequence[int], queries: Spec) -> Spec:
    """A mask's dimensions of length 1 serve all ranks."""
    found: list[Placement] = []
    for placement in queries:
        shared = isinstance(placement, Shard) and sizes[placement.dim] > 1
        found.append(placement if shared else REPLICATE)
    return tuple(found)


def _head(source: Node, head: int) -> Node:
    """One head of keys or values."""
    rank = len(source.shape)
    starts = tuple(head if d == rank - 3 else 0 for d in range(rank))
    sizes = tuple(1 if d == rank - 3 else size for d, size in enumerate(source.shape))
    return slice_(source, starts, sizes, (1,) * rank)


def _among_heads(source: Node, head: int, shape: Sequence[int]) -> Node:
    """The gradient of one head among zeros for the others."""
    rank = len(shape)
    low = tuple(head if d == rank - 3 else 0 for d in range(rank))
    high = tuple(shape[rank - 3] - 1 - head if d == rank - 3 else 0 for d in range(rank))
    return pad(source, low, high)
