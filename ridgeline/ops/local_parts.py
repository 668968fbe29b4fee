"""Conversion between values on a mesh and the part of a rank, for hand-written collectives.

Between the two every rank computes of its own part, and nothing is shared out. Derivatives are
those of the sum of what all ranks compute, as those of the collectives are: of a value that every
rank has, each has its share of the cotangent.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from ridgeline.errors import PlacementError
from ridgeline.graph.node import Attrs, Node, Op, TensorType, node
from ridgeline.ops.elementwise import full_like
from ridgeline.ops.placed import Partial, Placement, Replicate, Shard
from ridgeline.scalars import Array

if TYPE_CHECKING:
    from ridgeline.graph.vectorize import Batching

AxisPlacements = tuple[tuple[str, int, Placement], ...]  # every axis, its length, and how along it


@dataclass(frozen=True, slots=True)
class PartAttrs(Attrs):
    """How a value lies along every axis of its mesh."""

    axes: AxisPlacements


def local_part(value: Node, axes: AxisPlacements) -> Node:
    """This rank's part of a value."""
    return node(LOCAL_PART, (value,), PartAttrs(axes))


def from_parts(part: Node, axes: AxisPlacements) -> Node:
    """The value whose parts ranks hold; of one that is partial, their sum."""
    return node(FROM_PARTS, (part,), PartAttrs(axes))


def _ranks(attrs: PartAttrs, dim: int) -> int:
    """By how many ranks a dimension is shared out."""
    count = 1
    for _, size, placement in attrs.axes:
        if isinstance(placement, Shard) and placement.dim == dim:
            count *= size
    return count


def _infer_part(types: Sequence[TensorType], attrs: PartAttrs) -> tuple[TensorType, ...]:
    (kind,) = types
    for dim, size in enumerate(kind.shape):
        if size % _ranks(attrs, dim) != 0:
            raise PlacementError(
                f"dimension {dim} of {kind} is no multiple of the {_ranks(attrs, dim)} ranks that "
                "share it out",
                help="parts that a function computes of by hand are equally long",
            )
    shape = tuple(size // _ranks(attrs, dim) for dim, size in enumerate(kind.shape))
    return (TensorType(shape, kind.dtype, kind.device),)


def _infer_whole(types: Sequence[TensorType], attrs: PartAttrs) -> tuple[TensorType, ...]:
    (kind,) = types
    shape = tuple(size * _ranks(attrs, dim) for dim, size in enumerate(kind.shape))
    return (TensorType(shape, kind.dtype, kind.device),)


def _value(current: Node, inputs: Sequence[Array]) -> tuple[Array, ...]:
    assert not current.attrs.axes, "what a rank holds is known where work is shared out"
    return (inputs[0],)


def _swapped(attrs: PartAttrs) -> AxisPlacements:
    """What every rank has, each has given a share of, and the other way round."""
    return tuple(
        (name, size, placement if isinstance(placement, Shard) else Partial()
         if isinstance(placement, Replicate) else Replicate())
        for name, size, placement in attrs.axes
    )  # fmt: skip


def _part_vjp(current: Node, cotangents: Sequence[Node | None]) -> list[Node | None]:
    ct = cotangents[0]
    return [None if ct is None else from_parts(ct, _swapped(current.attrs))]


def _whole_vjp(current: Node, cotangents: Sequence[Node | None]) -> list[Node | None]:
    ct = cotangents[0]
    if ct is None:
        return [None]
    kept = tuple(
        (name, size, p if isinstance(p, Shard) else Replicate())
        for name, size, p in current.attrs.axes
    )
    part, ranks = local_part(ct, kept), 1
    for _, size, placement in current.attrs.axes:
        ranks *= size if isinstance(placement, Replicate) else 1
    return [part / full_like(part, ranks) if ranks > 1 else part]


def _tangent(current: Node, tangents: Sequence[Node | None]) -> list[Node | None]:
    return [None if tangents[0] is None else node(current.op, (tangents[0],), current.attrs)]


def _batch(
    current: Node, inputs: Sequence[Node], batched: Sequence[bool], batching: Batching
) -> list[Node]:
    """The dimension of the batch is in front of all others."""
    axes = tuple(
        (name, size, replace(p, dim=p.dim + 1) if isinstance(p, Shard) else p)
        for name, size, p in current.attrs.axes
    )
    return [node(current.op, inputs, PartAttrs(axes))]


LOCAL_PART = Op("local_part", "movement", _infer_part, _value, _part_vjp, _tangent, _batch)
FROM_PARTS = Op("from_parts", "movement", _infer_whole, _value, _whole_vjp, _tangent, _batch)
