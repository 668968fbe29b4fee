"""Values without operands: each rank makes the part that it needs.

Random bits are those of the elements' places in the whole, so that a draw does not depend on how
it is shared out.
"""

from __future__ import annotations

from dataclasses import replace

from ridgeline import dtypes
from ridgeline.graph.node import Node, node as make
from ridgeline.graph.sizes import Size
from ridgeline.ops.elementwise import apply, cast, full_like, iota
from ridgeline.ops.movement import broadcast, broadcast_scalar, concat, reshape
from ridgeline.sharding.mesh_shapes import Factor, Spec, factors, is_replicated
from ridgeline.sharding.share import RankShare
from ridgeline.values.philox import WORDS


def literal(share: RankShare, node: Node) -> None:
    """A constant, or any other node without operands that names its device."""
    share.set_free(node, _on_own_device)


def _on_own_device(share: RankShare, node: Node, spec: Spec) -> Node:
    return make(node.op, (), replace(node.attrs, device=share.device))


def ramp(share: RankShare, node: Node) -> None:
    """0, 1, 2 … along an axis."""
    share.set_free(node, _ramp)


def _ramp(share: RankShare, node: Node, spec: Spec) -> Node:
    attrs, shape = node.attrs, share.local_shape(node, spec)
    along = places(share, node, spec, attrs.axis)
    return broadcast(cast(along, attrs.dtype), shape, (attrs.axis,))


def places(share: RankShare, node: Node, spec: Spec, dim: int) -> Node:
    """The places in the whole of the elements that this rank holds of a dimension, as int64."""
    size = share.sizes(node)[dim]
    parts = factors(share.shape, spec, dim, size, share.place)
    counts: tuple[Size, ...] = tuple(part.count for part in parts)
    total: Node | None = None
    for number, part in enumerate(parts):
        steps = _steps(part, counts, number, share.device)
        at = steps * full_like(steps, part.stride)
        total = at if total is None else total + at
    assert total is not None
    length = 1
    for part in parts:
        length *= part.count
    return reshape(total, (length,))


def _steps(part: Factor, counts: tuple[Size, ...], number: int, device: str) -> Node:
    """The steps of a factor that a rank holds, run after run, along one of some axes."""
    found = []
    for start, count in part.runs or ((0, 0),):
        sizes = tuple(count if n == number else size for n, size in enumerate(counts))
        steps = iota(sizes, number, dtypes.int64, device)
        found.append(steps + full_like(steps, start))
    return concat(found, number) if len(found) > 1 else found[0]


def random_bits(share: RankShare, node: Node) -> None:
    """The words of the elements' places in the whole draw."""
    share.set_free(node, _random_bits)


def _random_bits(share: RankShare, node: Node, spec: Spec) -> Node:
    sizes, shape = share.sizes(node), share.local_shape(node, spec)
    whole = share.shape.replicated()
    key, offset = (share.at(source, whole) for source in node.inputs)
    if is_replicated(spec):
        return make(node.op, (key, offset), node.attrs)
    index: Node | None = None
    stride = 1
    for dim in reversed(range(len(sizes))):
        along = places(share, node, spec, dim)
        part = broadcast(along * full_like(along, stride), shape, (dim,))
        index = part if index is None else index + part
        stride *= sizes[dim]
    assert index is not None
    four = full_like(index, WORDS)
    block, word = (cast(apply(n, index, four), dtypes.uint64) for n in ("floordiv", "mod"))
    if node.attrs.of_two == 0:
        word = word & WORDS - 2
    elif node.attrs.of_two == 1:
        word = word | 1
    keys, start = (broadcast_scalar(number, shape) for number in (key, offset))
    return cast(apply("philox", keys, block + start, word), dtypes.uint32)
