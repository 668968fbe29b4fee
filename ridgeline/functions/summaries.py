"""Reductions that skip NaN, extremes in pairs, norms held in bounds, and whole-tensor questions."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from ridgeline import dtypes
from ridgeline.dtypes import DType
from ridgeline.errors import BadValueError, DTypeError, ShapeError
from ridgeline.functions.arithmetic import add, div, le, mul, sub
from ridgeline.functions.concrete import concrete
from ridgeline.functions.matrices import vector_norm
from ridgeline.functions.movement import cut, drop
from ridgeline.functions.operands import (
    Operand,
    as_node,
    axes_of,
    axis_of,
    defaults,
    dtype_of_number,
    fitting,
    pair,
)
from ridgeline.functions.padding import pad as pad_
from ridgeline.functions.pointwise import abs, isfinite, isnan
from ridgeline.functions.reductions import Dims, amax, amin, keep, sum
from ridgeline.functions.registry import public
from ridgeline.graph.node import Node
from ridgeline.graph.sizes import Size, product
from ridgeline.ops.elementwise import cast, full_like, select
from ridgeline.ops.movement import (
    broadcast_scalar,
    broadcast_shapes,
    pad,
    permute,
    reshape,
    stretch,
)
from ridgeline.ops.reduce import sum_
from ridgeline.ops.reinterpret import reinterpret
from ridgeline.record.cells import known


def _without_nan(input: Node) -> Node:
    return select(isnan(input), full_like(input, 0), input)


@public()
def nansum(
    input: Node, dim: Dims = None, keepdim: bool = False, *, dtype: DType | None = None
) -> Node:
    """The sum, with NaN counted as 0."""
    return sum(_without_nan(input), dim, keepdim, dtype=dtype)


@public()
def nanmean(
    input: Node, dim: Dims = None, keepdim: bool = False, *, dtype: DType | None = None
) -> Node:
    """The mean of what is not NaN."""
    x = input if dtype is None else cast(input, dtype)
    if not x.dtype.is_differentiable:
        raise DTypeError(f"nanmean needs floating values, got {x.dtype.name}")
    counted = cast(~isnan(x), x.dtype)
    return div(sum(_without_nan(x), dim, keepdim), sum(counted, dim, keepdim))


class MinMax(NamedTuple):
    """The smallest and the largest value."""

    min: Node
    max: Node


@public()
def aminmax(input: Node, *, dim: int | None = None, keepdim: bool = False) -> MinMax:
    """The smallest and the largest value along an axis, or of all."""
    if dim is not None and not input.shape:
        axis_of(dim, 0)
        dim = None
    return MinMax(amin(input, dim, keepdim), amax(input, dim, keepdim))


@public(inplace=True)
def renorm(input: Node, p: float, dim: int, maxnorm: float) -> Node:
    """Slices along an axis whose norm exceeds `maxnorm`, scaled down to it."""
    axis = axis_of(dim, len(input.shape))
    others = tuple(a for a in range(len(input.shape)) if a != axis)
    if not others:
        raise ShapeError(f"renorm needs at least two axes, got shape {list(input.shape)}")
    size = vector_norm(input, p, others, True)
    limit = stretch(as_node(float(maxnorm), size.dtype), size.shape)
    over = limit < size
    small = full_like(size, 1e-7)
    factor = select(over, limit / (size + small), full_like(size, 1))
    return mul(input, factor)


@public()
def equal(input: Node, other: Node) -> bool:
    """Do two tensors have the same shape and elements?"""
    if input.shape != other.shape:
        return False
    if input.dtype is not other.dtype:
        raise DTypeError(f"equal needs one type, got {input.dtype.name} and {other.dtype.name}")
    same = input.eq(other)
    return bool(concrete(same, "equal").all())


@public()
def isclose(
    input: Node, other: Node, rtol: float = 1e-5, atol: float = 1e-8, equal_nan: bool = False
) -> Node:
    """True where |input - other| <= atol + rtol * |other|."""
    if input.dtype is not other.dtype:
        raise DTypeError(
            f"isclose needs operands of one type, got {input.dtype.name} and {other.dtype.name}"
        )
    a, b = pair(input, other)
    same = a.eq(b)
    if not a.dtype.is_differentiable:
        a, b = cast(a, dtypes.float64), cast(b, dtypes.float64)
    near = le(abs(sub(a, b)), add(mul(abs(b), float(rtol)), float(atol)))
    result = same | near & isfinite(sub(a, b))
    if equal_nan:
        result = result | isnan(a) & isnan(b)
    return result


@public()
def allclose(
    input: Node, other: Node, rtol: float = 1e-5, atol: float = 1e-8, equal_nan: bool = False
) -> bool:
    """Are all elements close? A Python bool, as in torch: inside jit use `isclose().all()`."""
    close = isclose(input, other, rtol, atol, equal_nan)
    return bool(concrete(close, "allclose", "use isclose(...).all()").all())


@public(inplace=True)
def fill(input: Node, value: Operand) -> Node:
    """One value everywhere."""
    if isinstance(value, Node) and value.shape:
        raise ShapeError(f"fill needs a 0-d value, got shape {list(value.shape)}")
    never = broadcast_scalar(as_node(False, dtypes.bool_), input.shape)
    return select(never, input, stretch(fitting(value, input.dtype), input.shape))


@public(shares=True)
def positive(input: Node) -> Node:
    """The input itself."""
    if input.dtype is dtypes.bool_:
        raise DTypeError("positive is not defined for bool tensors")
    return input


@public(function=False, shares=True)
def sum_to_size(input: Node, *size: int | Sequence[int]) -> Node:
    """The sum over the axes that broadcasting from a shape would repeat."""
    listed = size[0] if len(size) == 1 and not isinstance(size[0], int) else size
    wanted: tuple[Size, ...] = tuple(known(s) for s in listed)  # type: ignore[arg-type]
    shift = len(input.shape) - len(wanted)
    if shift < 0 or broadcast_shapes(wanted, input.shape) != input.shape:
        raise ShapeError(f"{list(input.shape)} is not a broadcast of {list(wanted)}")
    repeated = [
        axis
        for axis, own in enumerate(input.shape)
        if axis < shift or (wanted[axis - shift] == 1 and own != 1)
    ]
    if (repeated or not input.shape) and not input.dtype.is_differentiable:
        input = cast(input, dtypes.int64)
    return reshape(sum_(input, repeated), wanted)


@public(method=False, name="broadcast_shapes")
def _broadcast_shapes(*shapes: Sequence[int] | int) -> tuple[Size, ...]:
    """The shape that several shapes broadcast to."""
    listed = [(s,) if isinstance(s, int) else tuple(s) for s in shapes]
    return broadcast_shapes(*listed) if listed else ()


@public(method=False)
def constant_pad_nd(input: Node, pad: Sequence[int], value: float = 0) -> Node:
    """Elements of one value put around."""
    return pad_(input, pad, "constant", value)


@public(method=False, creation=True)
def scalar_tensor(s: Operand, *, dtype: DType | None = None) -> Node:
    """A number as a 0-d tensor."""
    if isinstance(s, Node):
        raise DTypeError("scalar_tensor needs a number, not a tensor")
    kept = dtype or (defaults.dtype if not isinstance(s, complex) else dtype_of_number(s))
    return as_node(s, kept)


# ---- a hash of a tensor's bits, the same in whatever order its elements lie ----------------------


@public()
def hash_tensor(input: Node, dim: Dims = (), *, keepdim: bool = False, mode: int = 0) -> Node:
    """The exclusive or of all elements, as bits of float64 or int64, over some axes or all."""
    if mode != 0:
        raise BadValueError(f"hash_tensor has mode 0 only, the exclusive or, not {mode}")
    if input.dtype.is_complex:
        raise DTypeError(f"hash_tensor is not defined for {input.dtype.name}")
    axes = axes_of(dim, len(input.shape))
    if 0 in input.shape and dim in ((), [], None):
        raise BadValueError("hash_tensor of no elements needs a dim")
    wide = dtypes.float64 if input.dtype.is_floating_point else dtypes.int64
    bits = reinterpret(cast(input, wide), dtypes.uint64)
    kept = [axis for axis in range(len(input.shape)) if axis not in axes]
    rest = tuple(input.shape[axis] for axis in kept)
    count = product(input.shape[axis] for axis in axes)
    rows = reshape(permute(bits, (*kept, *axes)), (*rest, count))
    return keep(_joined(rows), input.shape, axes, keepdim)


def _joined(rows: Node) -> Node:
    """The exclusive or along the last axis, by halves."""
    axis = len(rows.shape) - 1
    count = known(rows.shape[axis])
    while count != 1:
        half = (count + 1) // 2 or 1
        low = (0,) * (axis + 1)
        even = pad(rows, low, (*(0,) * axis, 2 * half - count))
        rows = cut(even, axis, 0, half) ^ cut(even, axis, half, half)
        count = half
    return drop(rows, axis)
