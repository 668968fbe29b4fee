"""Movement ops: placements move with the dimensions, and what cuts through shards gathers them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from math import prod

from ridgeline.graph.node import Node, node as make
from ridgeline.ops.movement import broadcast, concat, permute, reshape
from ridgeline.ops.placed import Partial, Placement, Shard
from ridgeline.sharding.mesh_shapes import REPLICATE, MeshShape, Spec, fits, is_even
from ridgeline.sharding.rules.pointwise import aligned
from ridgeline.sharding.share import RankShare, is_plain


def reshape_rule(share: RankShare, node: Node) -> None:
    """Elements keep their order: a shard stays one where its parts are whole in the new shape."""
    (source,) = node.inputs
    old, new = share.sizes(source), share.sizes(node)
    if share.is_free(source):
        share.set_free(node, _reshaped)
        return
    spec = share.spec(source)
    after = reshaped_spec(share.shape, spec, old, new)
    kept = tuple(REPLICATE if b is None else a for a, b in zip(spec, after))
    result = tuple(REPLICATE if b is None else b for b in after)
    share.asked = node
    local = reshape(share.at(source, kept), share.local_shape(node, result))
    share.set(node, local, result)


def _reshaped(share: RankShare, node: Node, spec: Spec) -> Node:
    """A free value: its source in the placements that give these, or sliced."""
    (source,) = node.inputs
    before = reshaped_spec(share.shape, spec, share.sizes(node), share.sizes(source))
    if all(placement is not None for placement in before):
        kept: Spec = tuple(p for p in before if p is not None)
        return reshape(share.at(source, kept), share.local_shape(node, spec))
    whole = share.shape.replicated()
    share.set(node, reshape(share.at(source, whole), share.sizes(node)), whole)
    return share.moved(node, whole, spec)


def reshaped_spec(
    shape: MeshShape, spec: Spec, old: Sequence[int], new: Sequence[int]
) -> tuple[Placement | None, ...]:
    """Placements after a reshape; None along axes for which there is none.

    A shard that begins after P elements' blocks, in row-major order, does so in any shape.
    """
    found: list[Placement | None] = []
    for axis, placement in enumerate(spec):
        if not isinstance(placement, Shard):
            found.append(placement)
            continue
        found.append(_reshaped_shard(shape, spec, axis, old, new))
    for dim in range(len(new)):
        made = tuple(REPLICATE if p is None else p for p in found)
        if not fits(shape, made, dim, new[dim]):
            for axis, other in enumerate(found):
                if isinstance(other, Shard) and other.dim == dim:
                    found[axis] = None
    return tuple(found)


def _reshaped_shard(
    shape: MeshShape, spec: Spec, axis: int, old: Sequence[int], new: Sequence[int]
) -> Shard | None:
    placement = spec[axis]
    assert isinstance(placement, Shard)
    if 0 in old:
        return None
    blocks = prod(old[: placement.dim]) * placement.outer
    length = old[placement.dim] // placement.outer
    before = 1
    for dim, size in enumerate(new):
        if before <= blocks < before * size and blocks % before == 0:
            outer = blocks // before
            if size % outer:
                return None
            same = size // outer == length
            if not same and not _divides(shape, spec, placement, old, size // outer):
                return None
            return replace(placement, dim=dim, outer=outer)
        before *= size
    return None


def _divides(shape: MeshShape, spec: Spec, shard: Shard, old: Sequence[int], length: int) -> bool:
    """True where parts come out even in the old length and in the new one."""
    parts = prod(
        shape.size(a) for a in shape.nested(spec, shard.dim) if _outer(spec[a]) == shard.outer
    )
    if shard.zigzag:  # boundaries between the parts of all ranks are the same elements
        return (old[shard.dim] // shard.outer) % (2 * parts) == 0 and length % (2 * parts) == 0
    return is_even(shape, spec, old, shard.dim) and length % parts == 0


def _outer(placement: Placement) -> int:
    return placement.outer if isinstance(placement, Shard) else 0


def permute_rule(share: RankShare, node: Node) -> None:
    """Dimensions go to other places, and shards with them."""
    (source,), order = node.inputs, node.attrs.order
    if share.is_free(source):
        share.set_free(node, _permuted)
        return
    spec = share.spec(source)
    share.set(
        node,
        permute(share.at(source, spec), order),
        tuple(_at(p, order.index(p.dim)) if isinstance(p, Shard) else p for p in spec),
    )


def _permuted(share: RankShare, node: Node, spec: Spec) -> Node:
    order = node.attrs.order
    before = tuple(_at(p, order[p.dim]) if isinstance(p, Shard) else p for p in spec)
    return permute(share.at(node.inputs[0], before), order)


def _at(shard: Shard, dim: int) -> Shard:
    return replace(shard, dim=dim)


def broadcast_rule(share: RankShare, node: Node) -> None:
    """What is repeated can be repeated as far as a rank needs it."""
    (source,) = node.inputs
    spec = share.spec(source)
    if share.is_free(source) or all(map(is_plain, spec)):
        share.set_free(node, _repeated)
        return
    axes, sizes, shape = node.attrs.axes, share.sizes(source), share.sizes(node)
    kept = tuple(
        REPLICATE if isinstance(p, Shard) and sizes[p.dim] != shape[axes[p.dim]] else p
        for p in spec
    )
    result = tuple(_at(p, axes[p.dim]) if isinstance(p, Shard) else p for p in kept)
    share.asked = node
    local = broadcast(share.at(source, kept), share.local_shape(node, result), axes)
    share.set(node, local, result)


def _repeated(share: RankShare, node: Node, spec: Spec) -> Node:
    (source,), axes = node.inputs, node.attrs.axes
    sizes, shape = share.sizes(source), share.sizes(node)
    dims = {axis: dim for dim, axis in enumerate(axes) if sizes[dim] == shape[axis]}
    before: list[Placement] = []
    for placement in spec:
        shared = isinstance(placement, Shard) and placement.dim in dims
        before.append(
            _at(placement, dims[placement.dim])
            if shared and isinstance(placement, Shard)
            else REPLICATE
        )
    return broadcast(share.at(source, tuple(before)), share.local_shape(node, spec), axes)


def slice_rule(share: RankShare, node: Node) -> None:
    """Dimensions that are taken whole stay sharded."""
    (source,), attrs = node.inputs, node.attrs
    sizes = share.sizes(source)
    whole = [
        start == 0 and step == 1 and size == full
        for start, size, step, full in zip(attrs.starts, attrs.sizes, attrs.steps, sizes)
    ]
    spec = _kept(share.spec(source), whole)
    share.asked = node
    local = share.at(source, spec)
    lengths = tuple(local.shape[d] if whole[d] else attrs.sizes[d] for d in range(len(sizes)))
    share.set(node, make(node.op, (local,), replace(attrs, sizes=lengths)), spec)


def pad_rule(share: RankShare, node: Node) -> None:
    """Dimensions that get no margin stay sharded; margins of zeros leave sums what they are."""
    (source,), attrs = node.inputs, node.attrs
    plain = [not (a or b or c) for a, b, c in zip(attrs.low, attrs.high, attrs.interior)]
    spec = _kept(share.spec(source), plain)
    if attrs.value != 0:
        spec = tuple(REPLICATE if isinstance(p, Partial) else p for p in spec)
    share.asked = node
    share.set(node, make(node.op, (share.at(source, spec),), attrs), spec)


def _kept(spec: Spec, whole: Sequence[bool]) -> Spec:
    return tuple(REPLICATE if isinstance(p, Shard) and not whole[p.dim] else p for p in spec)


def concat_rule(share: RankShare, node: Node) -> None:
    """Parts lie alike, and whole along the dimension that joins them."""
    along = node.attrs.axis
    result: list[Placement] = []
    for axis in range(len(share.shape.axes)):
        have = [share.spec(i)[axis] for i in node.inputs if not share.is_free(i)]
        if have and all(p == Partial() for p in have) and len(have) == len(node.inputs):
            result.append(Partial())
            continue
        made = aligned(share, node, axis, have) if have else REPLICATE
        cuts = isinstance(made, Shard) and (made.dim == along or made.outer != 1)
        result.append(REPLICATE if cuts or isinstance(made, Partial) else made)
    spec = tuple(result)
    share.asked = node
    share.set(node, concat([share.at(i, spec) for i in node.inputs], along), spec)


def whole_operands(share: RankShare, node: Node) -> None:
    """What no rule is known for: every rank computes it of whole operands."""
    spec = share.shape.replicated()
    share.asked = node
    local = make(node.op, [share.at(i, spec) for i in node.inputs], node.attrs)
    set_results(share, node, local, [spec] * len(node.types))


def along_axis(share: RankShare, node: Node) -> None:
    """Ops along one axis, such as sorts and scans: other dimensions stay sharded."""
    along = node.attrs.axis
    result: list[Placement] = []
    for axis in range(len(share.shape.axes)):
        have = [share.spec(i)[axis] for i in node.inputs if not share.is_free(i)]
        made = next((p for p in have if isinstance(p, Shard)), REPLICATE)
        result.append(REPLICATE if isinstance(made, Shard) and made.dim == along else made)
    spec = tuple(result)
    share.asked = node
    local = make(node.op, [share.at(i, spec) for i in node.inputs], node.attrs)
    set_results(share, node, local, [spec] * len(node.types))


def set_results(share: RankShare, node: Node, local: Node, specs: Sequence[Spec]) -> None:
    """One result, or several, which are read as projections."""
    if len(node.types) == 1:
        share.set(node, local, specs[0])
    else:
        share.several[node] = local, tuple(specs)


def without(spec: Spec, dims: Sequence[int]) -> Spec:
    """Placements where some dimensions, which are not sharded, are gone."""
    return tuple(
        _at(p, p.dim - sum(d < p.dim for d in dims)) if isinstance(p, Shard) else p for p in spec
    )
