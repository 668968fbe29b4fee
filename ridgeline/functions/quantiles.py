"""Quantiles of all elements or along an axis, and searching in sorted values."""

from __future__ import annotations

from typing import Any

from ridgeline import dtypes
from ridgeline.errors import BadValueError, DTypeError, ShapeError
from ridgeline.functions.arithmetic import add, mul, sub
from ridgeline.functions.index_checks import flat, lined
from ridgeline.functions.operands import Operand, as_node, axis_of, promote_types
from ridgeline.functions.registry import public
from ridgeline.graph.node import Node
from ridgeline.graph.sizes import Size, product
from ridgeline.ops import movement, reduce
from ridgeline.ops.elementwise import cast, full_like, select
from ridgeline.ops.gather import gather_along
from ridgeline.ops.math import ceil, floor, isnan, maximum, round
from ridgeline.ops.search import search
from ridgeline.ops.sort import sort as ordered
from ridgeline.record.cells import known

_INTERPOLATIONS = ("linear", "lower", "higher", "nearest", "midpoint")


@public()
def quantile(
    input: Node,
    q: Operand,
    dim: int | None = None,
    keepdim: bool = False,
    *,
    interpolation: str = "linear",
) -> Node:
    """The q-quantiles along an axis, or of all elements; NaN where there is one."""
    return _quantile(input, q, dim, keepdim, interpolation, skip_nan=False)


@public(like=quantile)
def nanquantile(*args: Any, **kwargs: Any) -> Node:
    """The q-quantiles of the elements that are not NaN."""
    return _quantile(*args, **kwargs, skip_nan=True)


def _quantile(
    input: Node,
    q: Operand,
    dim: int | None = None,
    keepdim: bool = False,
    interpolation: str = "linear",
    *,
    skip_nan: bool,
) -> Node:
    if interpolation not in _INTERPOLATIONS:
        raise BadValueError(f"interpolation is one of {_INTERPOLATIONS}, not {interpolation!r}")
    if input.dtype not in (dtypes.float32, dtypes.float64):
        raise DTypeError(f"quantile needs float32 or float64, got {input.dtype.name}")
    if isinstance(q, float | int) and not 0 <= q <= 1:
        raise BadValueError(f"a quantile lies between 0 and 1, got {q}")
    wanted = as_node(q, input.dtype)
    if len(wanted.shape) > 1:
        raise ShapeError(f"quantile needs q as a number or a vector, got {list(wanted.shape)}")
    rank = len(input.shape)
    axis = 0 if dim is None else axis_of(dim, rank)
    source = flat(input) if dim is None else lined(input)
    if known(source.shape[axis]) == 0:
        raise BadValueError("quantile needs at least one element")
    last = movement.permute(source, (*(a for a in range(len(source.shape)) if a != axis), axis))
    found = _ranked(ordered(last, len(last.shape) - 1)[0], wanted, interpolation, skip_nan)
    return _placed(found, wanted, input.shape, axis if dim is not None else None, keepdim)


def _ranked(values: Node, q: Node, interpolation: str, skip_nan: bool) -> Node:
    """Quantiles of sorted rows: one per q along the last axis."""
    rank, size = len(values.shape), known(values.shape[-1])
    count = known(product(q.shape))
    shape = (*values.shape[:-1], count)
    spread = movement.broadcast(movement.reshape(q, (count,)), shape, (rank - 1,))
    missing = cast(isnan(values), values.dtype)
    lost = movement.broadcast(reduce.sum_(missing, (rank - 1,)), shape, tuple(range(rank - 1)))
    top = full_like(lost, size - 1)
    if skip_nan:
        top = maximum(sub(top, lost), full_like(top, 0))
    position = mul(spread, top)
    if not skip_nan:
        position = select(lost > 0, top, position)
    below = floor(position)
    if interpolation == "higher":
        below = ceil(position)
    elif interpolation == "nearest":
        below = round(position)
    low = gather_along(values, cast(below, dtypes.int64), rank - 1)
    if interpolation not in ("linear", "midpoint"):
        return low
    high = gather_along(values, cast(ceil(position), dtypes.int64), rank - 1)
    weight = sub(position, below)
    if interpolation == "midpoint":
        weight = full_like(weight, 0.5)
    return add(low, mul(weight, sub(high, low)))


def _placed(found: Node, q: Node, shape: tuple[Size, ...], axis: int | None, keepdim: bool) -> Node:
    """Quantiles with the axis of q in front, and the reduced axes kept if asked for."""
    rank = len(found.shape)
    front = movement.permute(found, (rank - 1, *range(rank - 1)))
    axes = tuple(range(len(shape))) if axis is None else (axis,)
    rest = tuple(s for a, s in enumerate(shape) if a not in axes)
    result = movement.reshape(front, (*q.shape, *rest))
    if not keepdim:
        return result
    kept = tuple(1 if a in axes else s for a, s in enumerate(shape))
    return movement.reshape(result, (*q.shape, *kept))


@public(method=False)
def searchsorted(
    sorted_sequence: Node,
    input: Operand,
    *,
    out_int32: bool = False,
    right: bool = False,
    side: str | None = None,
    sorter: Node | None = None,
) -> Node:
    """Where values would stand in a sorted sequence (or in each row of one)."""
    if side not in (None, "left", "right"):
        raise BadValueError(f'side is "left" or "right", not {side!r}')
    if side == "left" and right:
        raise BadValueError('side="left" and right=True contradict each other')
    sequence = sorted_sequence
    if sorter is not None:
        sequence = gather_along(sequence, cast(sorter, dtypes.int64), len(sequence.shape) - 1)
    edges, values = _comparable(sequence, input)
    if len(edges.shape) != 1 and values.shape[:-1] != edges.shape[:-1]:
        raise ShapeError(
            f"searchsorted needs one sequence, or one per row: {list(edges.shape)} and "
            f"{list(values.shape)}"
        )
    found = search(edges, values, right or side == "right")
    return cast(found, dtypes.int32) if out_int32 else found


def _comparable(sequence: Node, input: Operand) -> tuple[Node, Node]:
    """Both in one element type."""
    if not isinstance(input, Node):
        return sequence, as_node(input, sequence.dtype)
    both = promote_types(sequence.dtype, input.dtype)
    return cast(sequence, both), cast(input, both)


@public(method=False)
def bucketize(
    input: Operand, boundaries: Node, *, out_int32: bool = False, right: bool = False
) -> Node:
    """The bucket, between sorted boundaries, that each value falls into."""
    if len(boundaries.shape) != 1:
        raise ShapeError(f"bucketize needs a vector of boundaries, got {list(boundaries.shape)}")
    return searchsorted(boundaries, input, out_int32=out_int32, right=right)
