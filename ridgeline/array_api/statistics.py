"""Reductions and running totals."""

from __future__ import annotations

from typing import Any

from ridgeline import dtypes
from ridgeline.array_api.array import Array, SizeError, as_array, call, need_array
from ridgeline.array_api.types import ANY, FLOATING, NUMERIC, REAL, REAL_FLOATING, require
from ridgeline.dtypes import DType
from ridgeline.tensors.tensor import Tensor

Axis = int | tuple[int, ...] | None


def reduced(name: str, x: Tensor, axis: Axis, keepdims: bool, **options: Any) -> Array:
    """A reduction of the framework over an axis, several, all (None) or none (the empty tuple)."""
    if axis == ():  # every element by itself: a reduction over an axis of size 1
        return call(name, x.unsqueeze(-1), -1, keepdim=False, **options)
    if x.ndim == 0 and axis is not None:
        raise SizeError(f"{name}: a 0-d array has no axis {axis}")
    return call(name, x, axis, keepdim=keepdims, **options)


def _checked(name: str, x: Tensor, kinds: frozenset[str]) -> Tensor:
    require(name, need_array(name, x).dtype, kinds)
    return x


def total_type(x: Tensor, dtype: DType | None) -> DType:
    """The type of sums and products: small integers grow to 64 bits, truths are counted."""
    if dtype is not None:
        return dtypes.as_dtype(dtype)
    if x.dtype.kind == "uint":
        return dtypes.uint64
    return x.dtype if x.dtype.is_differentiable else dtypes.int64


def sum(
    x: Tensor, /, *, axis: Axis = None, dtype: DType | None = None, keepdims: bool = False
) -> Array:
    """The sum."""
    wanted = total_type(_checked("sum", x, ANY), dtype)
    return reduced("sum", x, axis, keepdims, dtype=wanted)


def prod(
    x: Tensor, /, *, axis: Axis = None, dtype: DType | None = None, keepdims: bool = False
) -> Array:
    """The product."""
    wanted = total_type(_checked("prod", x, ANY), dtype)
    return reduced("prod", x, axis, keepdims, dtype=wanted)


def mean(x: Tensor, /, *, axis: Axis = None, keepdims: bool = False) -> Array:
    """The mean."""
    return reduced("mean", _checked("mean", x, FLOATING), axis, keepdims)


def var(
    x: Tensor, /, *, axis: Axis = None, correction: float = 0.0, keepdims: bool = False
) -> Array:
    """The variance; `correction` is taken from the number of elements."""
    _checked("var", x, REAL_FLOATING)
    return reduced("var", x, axis, keepdims, correction=correction)


def std(
    x: Tensor, /, *, axis: Axis = None, correction: float = 0.0, keepdims: bool = False
) -> Array:
    """The standard deviation."""
    _checked("std", x, REAL_FLOATING)
    return reduced("std", x, axis, keepdims, correction=correction)


def max(x: Tensor, /, *, axis: Axis = None, keepdims: bool = False) -> Array:
    """The largest value."""
    return reduced("amax", _checked("max", x, REAL), axis, keepdims)


def min(x: Tensor, /, *, axis: Axis = None, keepdims: bool = False) -> Array:
    """The smallest value."""
    return reduced("amin", _checked("min", x, REAL), axis, keepdims)


def all(x: Tensor, /, *, axis: Axis = None, keepdims: bool = False) -> Array:
    """True where no element is zero."""
    return reduced("all", _checked("all", x, ANY).to(dtypes.bool_), axis, keepdims)


def any(x: Tensor, /, *, axis: Axis = None, keepdims: bool = False) -> Array:
    """True where at least one element is not zero."""
    return reduced("any", _checked("any", x, ANY).to(dtypes.bool_), axis, keepdims)


def count_nonzero(x: Tensor, /, *, axis: Axis = None, keepdims: bool = False) -> Array:
    """How many elements are not zero."""
    _checked("count_nonzero", x, ANY)
    return reduced("sum", x.to(dtypes.bool_), axis, keepdims, dtype=dtypes.int64)


def _running(
    name: str, x: Tensor, axis: int | None, dtype: DType | None, initial: int | None
) -> Array:
    if axis is None:
        if x.ndim != 1:
            raise SizeError(f"{name} needs an axis for an array of shape {list(x.shape)}")
        axis = 0
    wanted = total_type(x, dtype)
    if x.ndim == 0:
        raise SizeError(f"{name} needs at least one axis")
    totals = call(name, x.to(wanted), axis, dtype=wanted)
    if initial is None:
        return totals
    shape = list(x.shape)
    shape[axis] = 1
    start = call("full", shape, initial, dtype=wanted)
    return call("cat", [start, totals], axis)


def cumulative_sum(
    x: Tensor,
    /,
    *,
    axis: int | None = None,
    dtype: DType | None = None,
    include_initial: bool = False,
) -> Array:
    """Running sums along an axis; with `include_initial`, from 0."""
    _checked("cumulative_sum", x, ANY)
    return _running("cumsum", x, axis, dtype, 0 if include_initial else None)


def cumulative_prod(
    x: Tensor,
    /,
    *,
    axis: int | None = None,
    dtype: DType | None = None,
    include_initial: bool = False,
) -> Array:
    """Running products along an axis; with `include_initial`, from 1."""
    _checked("cumulative_prod", x, ANY)
    return _running("cumprod", x, axis, dtype, 1 if include_initial else None)


def diff(
    x: Tensor,
    /,
    *,
    axis: int = -1,
    n: int = 1,
    prepend: Tensor | None = None,
    append: Tensor | None = None,
) -> Array:
    """The differences between neighbours along an axis, `n` times."""
    _checked("diff", x, NUMERIC)
    if n < 0 or x.ndim == 0:
        raise SizeError(f"diff needs an axis and n of at least 0, got {list(x.shape)} and {n}")
    parts = [part for part in (prepend, x, append) if part is not None]
    result = as_array(call("cat", parts, axis) if len(parts) > 1 else x.clone())
    for _ in range(n):
        size = result.shape[axis]
        length = size - 1 if size else 0
        later = result.narrow(axis, size - length, length)
        result = call("sub", later, result.narrow(axis, 0, length))
    return result
