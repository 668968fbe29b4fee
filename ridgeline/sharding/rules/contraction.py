"""Contractions and reductions: by the axes they run over, so every einsum and convolution follows.

Along an axis of the mesh one axis of the iteration is shared out. If the result has it, the result
is sharded; if not, ranks have sums of their own, and the result is partial.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from math import prod

from ridgeline.graph.node import Node, node as make
from ridgeline.ops.contract import AxisMap, ContractAttrs, contract
from ridgeline.ops.placed import Partial, Placement, Shard
from ridgeline.sharding.mesh_shapes import REPLICATE, Spec
from ridgeline.sharding.rules.movement import set_results, without
from ridgeline.sharding.share import RankShare

_JOINED = ("sum", "max", "min")  # what communicators join


@dataclass(frozen=True, slots=True)
class _Chosen:
    """The axis of the iteration that ranks share out, and the blocks of its shards."""

    axis: int
    shard: Shard


def contract_rule(share: RankShare, node: Node) -> None:
    """Operands that have the axis that is shared out are sharded along it, others are whole."""
    attrs: ContractAttrs = node.attrs
    wanted: list[list[Placement]] = [[], []]
    result: list[Placement] = []
    for axis in range(len(share.shape.axes)):
        have = [share.spec(source)[axis] for source in node.inputs]
        chosen = _chosen(share, node, have)
        if chosen is None:
            operands, made = _unshared(have)
        else:
            operands = [_wanted(maps, chosen) for maps in (attrs.left, attrs.right)]
            place = attrs.output.index(chosen.axis) if chosen.axis in attrs.output else None
            made = Partial() if place is None else _at(chosen, place)
        for wants, placement in zip(wanted, operands):
            wants.append(placement)
        result.append(made)
    share.asked = node
    left, right = (share.at(i, tuple(w)) for i, w in zip(node.inputs, wanted))
    extents = _extents(attrs, left, right)
    local = ContractAttrs(extents, attrs.output, attrs.left, attrs.right)
    share.set(node, contract(left, right, local), tuple(result))


def _chosen(share: RankShare, node: Node, have: Sequence[Placement]) -> _Chosen | None:
    """The axis that the operands are sharded by; of two, that of the larger operand."""
    attrs, found = node.attrs, list[tuple[int, _Chosen]]()
    for source, placement, maps in zip(node.inputs, have, (attrs.left, attrs.right)):
        if isinstance(placement, Shard) and not placement.stored:
            axis = plain_axis(maps, placement.dim, attrs, share.sizes(source))
            if axis is not None and _can_share(attrs, axis):
                found.append((prod(share.sizes(source)), _Chosen(axis, placement)))
    return max(found, key=lambda each: each[0])[1] if found else None


def _at(chosen: _Chosen, dim: int) -> Shard:
    return replace(chosen.shard, dim=dim)


def plain_axis(
    maps: Sequence[AxisMap], dim: int, attrs: ContractAttrs, sizes: Sequence[int]
) -> int | None:
    """The axis that is a dimension of an operand itself, over all of its length."""
    plain = maps[dim].plain
    return plain if plain is not None and attrs.extents[plain] == sizes[dim] else None


def _can_share(attrs: ContractAttrs, axis: int) -> bool:
    """True where an axis occurs as a dimension by itself, and in no window."""
    for maps in (attrs.left, attrs.right):
        for index_map in maps:
            if any(number == axis for number, _ in index_map.terms) and index_map.plain != axis:
                return False
    return all(sum(m.plain == axis for m in maps) <= 1 for maps in (attrs.left, attrs.right))


def _wanted(maps: Sequence[AxisMap], chosen: _Chosen) -> Placement:
    for dim, index_map in enumerate(maps):
        if index_map.plain == chosen.axis:
            return _at(chosen, dim)
    return REPLICATE


def _unshared(have: Sequence[Placement]) -> tuple[list[Placement], Placement]:
    """A product with one partial operand is partial; two are more than the sum of products."""
    partial = [p == Partial() for p in have]
    if sum(partial) == 1:
        return [Partial() if p else REPLICATE for p in partial], Partial()
    return [REPLICATE, REPLICATE], REPLICATE


def _extents(attrs: ContractAttrs, left: Node, right: Node) -> tuple[int, ...]:
    """The lengths of the iteration axes over local operands."""
    found = [int(extent) for extent in attrs.extents]
    for operand, maps in ((left, attrs.left), (right, attrs.right)):
        for size, index_map in zip(operand.shape, maps):
            plain = index_map.plain
            if plain is not None and int(size) < found[plain]:
                found[plain] = int(size)
    return tuple(found)


def reduce_rule(share: RankShare, node: Node) -> None:
    """What is folded along a sharded dimension is partial."""
    (source,), attrs = node.inputs, node.attrs
    kept: list[Placement] = []
    result: list[Placement] = []
    for placement in share.spec(source):
        folded = isinstance(placement, Shard) and placement.dim in attrs.axes
        if folded and attrs.monoid not in _JOINED:
            kept.append(REPLICATE)
            result.append(REPLICATE)
        elif folded:
            kept.append(placement)
            result.append(Partial(attrs.monoid))
        elif isinstance(placement, Partial) and attrs.monoid != "sum":
            kept.append(REPLICATE)
            result.append(REPLICATE)
        else:
            kept.append(placement)
            result.append(placement)
    share.asked = node
    local = make(node.op, (share.at(source, tuple(kept)),), attrs)
    share.set(node, local, without(tuple(result), attrs.axes))
    if attrs.monoid != "sum":  # extremes are used at once
        share.at(node, tuple(REPLICATE if isinstance(p, Partial) else p for p in share.spec(node)))
        share.prefer(node)


def arg_reduce_rule(share: RankShare, node: Node) -> None:
    """The dimension that is searched is whole."""
    (source,), along = node.inputs, node.attrs.axis
    spec = tuple(
        REPLICATE if isinstance(p, Partial) or (isinstance(p, Shard) and p.dim == along) else p
        for p in share.spec(source)
    )
    share.asked = node
    local = make(node.op, (share.at(source, spec),), node.attrs)
    made: Spec = without(spec, (along,))
    set_results(share, node, local, [made] * len(node.types))
