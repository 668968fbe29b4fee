"""Running sums, products and extremes along an axis."""

from __future__ import annotations

from ridgeline import dtypes
from ridgeline.dtypes import DType
from ridgeline.errors import DTypeError, ShapeError
from ridgeline.functions.index_checks import lined
from ridgeline.functions.operands import axis_of, require_float
from ridgeline.functions.reductions import ValuesIndices
from ridgeline.functions.registry import public
from ridgeline.graph.node import Node
from ridgeline.ops import movement
from ridgeline.ops.elementwise import cast, constant
from ridgeline.ops.scan import extreme_scan, scan


def _running(input: Node, monoid: str, dim: int, dtype: DType | None) -> Node:
    axis = axis_of(dim, len(input.shape))
    wanted = dtype or (input.dtype if input.dtype.is_differentiable else dtypes.int64)
    if wanted is dtypes.bool_:
        raise DTypeError("running sums and products are not defined for bool")
    x = cast(input, wanted)
    result = movement.reshape(scan(lined(_wide(x)), monoid, axis), input.shape)
    return cast(result, wanted)


def _wide(x: Node) -> Node:
    """Small floats as float32, so that values and gradients are rounded once, at the end."""
    return cast(x, dtypes.float32) if x.dtype.kind == "float" and x.dtype.itemsize < 4 else x


@public(inplace=True)
def cumsum(input: Node, dim: int, *, dtype: DType | None = None) -> Node:
    """The sum of each element and those before it along an axis."""
    return _running(input, "sum", dim, dtype)


@public(method=False)
def cumulative_sum(
    input: Node,
    *,
    dim: int | None = None,
    dtype: DType | None = None,
    include_initial: bool = False,
) -> Node:
    """`cumsum` as the Array API has it: the axis of a vector need not be named."""
    if dim is None and len(input.shape) != 1:
        raise ShapeError(f"cumulative_sum of shape {list(input.shape)} needs an axis")
    axis = axis_of(dim or 0, len(input.shape))
    total = _running(input, "sum", axis, dtype)
    if not include_initial:
        return total
    rank = len(input.shape)
    return movement.pad(total, tuple(int(a == axis) for a in range(rank)), (0,) * rank)


@public(inplace=True)
def cumprod(input: Node, dim: int, *, dtype: DType | None = None) -> Node:
    """The product of each element and those before it along an axis."""
    return _running(input, "prod", dim, dtype)


@public(inplace=True)
def logcumsumexp(input: Node, dim: int) -> Node:
    """log(cumsum(exp(input))), without overflow."""
    require_float(input, "logcumsumexp")
    axis = axis_of(dim, len(input.shape))
    result = movement.reshape(scan(lined(_wide(input)), "logaddexp", axis), input.shape)
    return cast(result, input.dtype)


def _extremes(input: Node, monoid: str, dim: int) -> ValuesIndices:
    axis = axis_of(dim, len(input.shape))
    if not input.shape:
        return ValuesIndices(input, constant(0, dtypes.int64))
    return ValuesIndices(*extreme_scan(input, monoid, axis))


@public()
def cummax(input: Node, dim: int) -> ValuesIndices:
    """The largest of each element and those before it, and where it stands."""
    return _extremes(input, "max", dim)


@public()
def cummin(input: Node, dim: int) -> ValuesIndices:
    """The smallest of each element and those before it, and where it stands."""
    return _extremes(input, "min", dim)
