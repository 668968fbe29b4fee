"""Functions that make tensors from sizes, numbers and other tensors' shapes; and type casts."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import ml_dtypes
import numpy as np

from ridgeline import dtypes
from ridgeline.dtypes import DType, as_dtype
from ridgeline.errors import BadValueError, ShapeError
from ridgeline.functions.concrete import concrete
from ridgeline.functions.operands import (
    Operand,
    as_node,
    check_fits,
    default_complex,
    defaults,
    dtype_of_number,
    fitting,
    sizes_from,
)
from ridgeline.functions.registry import public
from ridgeline.graph.node import Node
from ridgeline.graph.sizes import Size, SizeExpr
from ridgeline.ops.elementwise import apply, cast, full_like, iota
from ridgeline.ops.math import trunc
from ridgeline.ops.movement import stretch


def finfo(dtype: DType) -> Any:
    """The limits of a floating type."""
    return ml_dtypes.finfo(as_dtype(dtype).numpy)


def iinfo(dtype: DType) -> Any:
    """The limits of an integer type."""
    return np.iinfo(as_dtype(dtype).numpy)


def filled(shape: tuple[Size, ...], value: Operand, dtype: DType) -> Node:
    """One value repeated over a shape."""
    if any(isinstance(size, int) and size < 0 for size in shape):
        raise ShapeError(f"sizes cannot be negative: {list(shape)}")
    return stretch(fitting(value, dtype), shape)


@public(method=False, creation=True)
def zeros(*size: Any, dtype: DType | None = None) -> Node:
    """Zeros."""
    return filled(sizes_from(size), 0, dtype or defaults.dtype)


@public(method=False, creation=True)
def ones(*size: Any, dtype: DType | None = None) -> Node:
    """Ones."""
    return filled(sizes_from(size), 1, dtype or defaults.dtype)


@public(method=False, creation=True)
def empty(*size: Any, dtype: DType | None = None) -> Node:
    """A tensor to be written to; reading it before gives zeros."""
    return filled(sizes_from(size), 0, dtype or defaults.dtype)


@public(method=False, creation=True)
def full(size: Sequence[int], fill_value: Operand, *, dtype: DType | None = None) -> Node:
    """One value everywhere."""
    if dtype is None:
        known = isinstance(fill_value, Node)
        dtype = fill_value.dtype if known else dtype_of_number(fill_value)  # type: ignore[union-attr,arg-type]
    return filled(sizes_from((size,)), fill_value, dtype)


@public(method=False, creation=True)
def zeros_like(input: Node, *, dtype: DType | None = None) -> Node:
    """Zeros in the shape of another tensor."""
    return filled(input.shape, 0, dtype or input.dtype)


@public(method=False, creation=True)
def ones_like(input: Node, *, dtype: DType | None = None) -> Node:
    """Ones in the shape of another tensor."""
    return filled(input.shape, 1, dtype or input.dtype)


@public(method=False, creation=True)
def empty_like(input: Node, *, dtype: DType | None = None) -> Node:
    """A tensor to be written to, in the shape of another."""
    return filled(input.shape, 0, dtype or input.dtype)


@public(method=False, creation=True, name="full_like")
def full_like_(input: Node, fill_value: Operand, *, dtype: DType | None = None) -> Node:
    """One value in the shape of another tensor."""
    return filled(input.shape, fill_value, dtype or input.dtype)


@public(function=False, creation=True)
def new_zeros(input: Node, *size: Any, dtype: DType | None = None) -> Node:
    """Zeros of this tensor's type."""
    return filled(sizes_from(size), 0, dtype or input.dtype)


@public(function=False, creation=True)
def new_ones(input: Node, *size: Any, dtype: DType | None = None) -> Node:
    """Ones of this tensor's type."""
    return filled(sizes_from(size), 1, dtype or input.dtype)


@public(function=False, creation=True)
def new_empty(input: Node, *size: Any, dtype: DType | None = None) -> Node:
    """A tensor of this one's type, to be written to."""
    return filled(sizes_from(size), 0, dtype or input.dtype)


@public(function=False, creation=True)
def new_full(
    input: Node, size: Sequence[int], fill_value: Operand, *, dtype: DType | None = None
) -> Node:
    """One value, in this tensor's type."""
    return filled(sizes_from((size,)), fill_value, dtype or input.dtype)


@public(method=False, creation=True)
def arange(
    start: float, end: float | None = None, step: float = 1, *, dtype: DType | None = None
) -> Node:
    """Numbers from `start` (0 if only the end is given) up to `end`, `step` apart."""
    start, end, step = (_told(v) for v in (start, end, step))
    first, last = (0, start) if end is None else (start, end)
    if isinstance(last, SizeExpr) and isinstance(first, int | SizeExpr) and step == 1:
        ramp = iota((last - first,), 0, dtypes.int64)
        moved = ramp if first == 0 else ramp + first
        return cast(moved, dtype or dtypes.int64)
    if dtype is not None and dtype.is_integer:  # torch counts in the type that is asked for
        first, last, step = int(first), int(last), int(step)
    if step == 0 or (last - first) / step < 0:
        raise BadValueError(f"arange from {first} to {last} never ends with step {step}")
    count = math.ceil((last - first) / step)
    whole = all(isinstance(v, int) for v in (first, last, step))
    wanted = dtype or (dtypes.int64 if whole else defaults.dtype)
    if whole:
        ramp = iota((count,), 0, dtypes.int64)
        if step != 1:
            ramp = ramp * step
        if first != 0:
            ramp = ramp + first
        return cast(ramp, wanted)
    ramp = iota((count,), 0, dtypes.float64)
    shift = stretch(as_node(float(first), dtypes.float64), (count,))
    return cast(
        ramp * filled((count,), float(step), dtypes.float64) + shift,
        wanted,
    )


def _told(value: Any) -> Any:
    """The number that a tensor holds; others as they are."""
    return concrete(value, "arange").item() if isinstance(value, Node) else value


@public(method=False, creation=True)
def linspace(start: Operand, end: Operand, steps: int, *, dtype: DType | None = None) -> Node:
    """`steps` numbers from `start` to `end`, both included, evenly apart."""
    wanted = dtype or _kind_between(start, end)
    return cast(_even(start, end, steps, wanted), wanted)


@public(method=False, creation=True)
def logspace(
    start: Operand, end: Operand, steps: int, base: float = 10.0, *, dtype: DType | None = None
) -> Node:
    """`base` to the power of `linspace(start, end, steps)`."""
    wanted = dtype or _kind_between(start, end)
    exponents = _even(start, end, steps, wanted)
    return cast(full_like(exponents, float(base)) ** exponents, wanted)


def _kind_between(*ends: Operand) -> DType:
    """The element type of numbers between two, which may be complex."""
    return default_complex() if any(isinstance(v, complex) for v in ends) else defaults.dtype


def _even(start: Operand, end: Operand, steps: int, wanted: DType) -> Node:
    """Numbers evenly apart, in double precision; as in torch, integers lie between whole ends."""
    if steps < 0:
        raise BadValueError(f"linspace needs a number of steps of at least 0, not {steps}")
    ends = (start, end)
    if wanted.is_complex or any(isinstance(v, Node | complex) for v in ends):
        kind = dtypes.complex128 if wanted.is_complex else dtypes.float64
        if any(isinstance(v, Node) and v.shape for v in ends):
            raise ShapeError("linspace needs numbers or 0-d tensors")
        first, last = (stretch(as_node(v, kind), (steps,)) for v in ends)
        if wanted.is_integer:
            first, last = trunc(first), trunc(last)
        positions = iota((steps,), 0, dtypes.float64)
        gap = (last - first) * (1 / max(steps - 1, 1))
        rising = first + cast(positions, kind) * gap
        back = full_like(positions, max(steps - 1, 0)) - positions
        falling = last - cast(back, kind) * gap
        return apply("select", positions < steps / 2, rising, falling)
    if wanted.is_integer:
        check_fits(start, wanted)
        check_fits(end, wanted)
        start, end = int(start), int(end)  # type: ignore[arg-type]
    return _even_reals(float(start), float(end), steps)  # type: ignore[arg-type]


def _even_reals(start: float, end: float, steps: int) -> Node:
    # counted from the nearer end, so that both ends are exact
    ramp = iota((steps,), 0, dtypes.float64)
    gap = (end - start) / (steps - 1) if steps > 1 else 0.0
    rising = ramp * gap + full_like(ramp, float(start))
    back = full_like(ramp, float(steps - 1)) - ramp
    falling = full_like(ramp, float(end)) - back * gap
    near = ramp < steps / 2
    return apply("select", near, rising, falling)


@public(method=False, creation=True)
def eye(n: int, m: int | None = None, *, dtype: DType | None = None) -> Node:
    """Ones on the diagonal, zeros elsewhere."""
    shape = sizes_from((n, n if m is None else m))
    same = iota(shape, 0, dtypes.int64).eq(iota(shape, 1, dtypes.int64))
    return cast(same, dtype or defaults.dtype)


@public(function=False, name="_cast")
def type_(input: Node, dtype: DType) -> Node:
    """The input in another element type."""
    return cast(input, as_dtype(dtype))
