"""Arrays from sizes, numbers, sequences and other arrays."""

from __future__ import annotations

import math
from typing import Any, Literal

from ridgeline import dtypes
from ridgeline.array_api.array import Array, SizeError, as_array, call, need_array
from ridgeline.array_api.types import (
    FLOATING,
    NUMERIC,
    KindError,
    RangeError,
    default_for,
    iinfo,
    is_number,
    require,
)
from ridgeline.dtypes import DType, wanted as wanted_type
from ridgeline.functions.operands import default_complex, defaults
from ridgeline.interop import arrays, dlpack
from ridgeline.tensors.tensor import Tensor

Shape = int | tuple[int, ...]


def _sizes(shape: Shape) -> tuple[int, ...]:
    sizes = (shape,) if isinstance(shape, int) else tuple(shape)
    if any(size < 0 for size in sizes):
        raise SizeError(f"sizes are not negative: {sizes}")
    return sizes


def _check_fill(value: complex, dtype: DType) -> None:
    """Raise where a number does not fit an integer type."""
    if dtype.is_integer and isinstance(value, int):
        limits = iinfo(dtype)
        if not limits.min <= value <= limits.max:
            raise RangeError(f"{value!r} is outside the range of {dtype.name}")


def asarray(
    obj: Any,
    /,
    *,
    dtype: DType | None = None,
    device: Any = None,
    copy: bool | None = None,
) -> Array:
    """`obj` as an array; its memory is shared where it can be, unless `copy=True`."""
    dtype = wanted_type(dtype)
    if dtype is not None and is_number(obj):
        _check_fill(obj, dtype)
    return as_array(arrays.asarray(obj, dtype=dtype, device=device, copy=copy))


def from_dlpack(x: Any, /, *, device: Any = None, copy: bool | None = None) -> Array:
    """An array over the memory of another library's array."""
    return as_array(dlpack.from_dlpack(x, device=device, copy=copy))


def empty(shape: Shape, *, dtype: DType | None = None, device: Any = None) -> Array:
    """An array to be written to; reading it before gives zeros."""
    return zeros(shape, dtype=dtype, device=device)


def zeros(shape: Shape, *, dtype: DType | None = None, device: Any = None) -> Array:
    """Zeros."""
    return full(shape, 0, dtype=dtype or defaults.dtype, device=device)


def ones(shape: Shape, *, dtype: DType | None = None, device: Any = None) -> Array:
    """Ones."""
    return full(shape, 1, dtype=dtype or defaults.dtype, device=device)


def full(
    shape: Shape, fill_value: complex, *, dtype: DType | None = None, device: Any = None
) -> Array:
    """One value everywhere."""
    wanted = wanted_type(dtype) or default_for(fill_value)
    if not isinstance(fill_value, Tensor):
        _check_fill(fill_value, wanted)
    return call("full", _sizes(shape), fill_value, dtype=wanted, device=device)


def empty_like(x: Tensor, /, *, dtype: DType | None = None, device: Any = None) -> Array:
    """An array to be written to, in the shape of another."""
    return zeros_like(x, dtype=dtype, device=device)


def zeros_like(x: Tensor, /, *, dtype: DType | None = None, device: Any = None) -> Array:
    """Zeros in the shape of another array."""
    return full_like(x, 0, dtype=dtype, device=device)


def ones_like(x: Tensor, /, *, dtype: DType | None = None, device: Any = None) -> Array:
    """Ones in the shape of another array."""
    return full_like(x, 1, dtype=dtype, device=device)


def full_like(
    x: Tensor, /, fill_value: complex, *, dtype: DType | None = None, device: Any = None
) -> Array:
    """One value in the shape of another array."""
    need_array("full_like", x)
    target = x.device if device is None else device
    return full(tuple(x.shape), fill_value, dtype=dtype or x.dtype, device=target)


def arange(
    start: float,
    /,
    stop: float | None = None,
    step: float = 1,
    *,
    dtype: DType | None = None,
    device: Any = None,
) -> Array:
    """Numbers from `start` (0 if only the end is given) up to `stop`, `step` apart."""
    first, last = (0, start) if stop is None else (start, stop)
    if step == 0:
        raise SizeError("arange never ends with a step of 0")
    whole = all(isinstance(value, int) for value in (first, last, step))
    wanted = wanted_type(dtype) or (dtypes.int64 if whole else defaults.dtype)
    require("arange", wanted, NUMERIC)
    if whole:
        count = len(range(int(first), int(last), int(step)))
    else:
        count = max(math.ceil((last - first) / step), 0)
    if count == 0:
        return zeros(0, dtype=wanted, device=device)
    return call("arange", first, last, step, dtype=wanted, device=device)


def linspace(
    start: complex,
    stop: complex,
    /,
    num: int,
    *,
    dtype: DType | None = None,
    device: Any = None,
    endpoint: bool = True,
) -> Array:
    """`num` numbers from `start` to `stop`, evenly apart."""
    if num < 0:
        raise SizeError(f"linspace needs a number of at least 0, not {num}")
    if isinstance(start, complex) or isinstance(stop, complex):
        return _complex_linspace(complex(start), complex(stop), num, dtype, device, endpoint)
    wanted = wanted_type(dtype) or defaults.dtype
    require("linspace", wanted, FLOATING)
    first, last = float(start), float(stop)
    if endpoint or num == 0:
        return call("linspace", first, last, num, dtype=wanted, device=device)
    return call("linspace", first, last, num + 1, dtype=wanted, device=device)[:-1]


def _complex_linspace(
    start: complex, stop: complex, num: int, dtype: DType | None, device: Any, endpoint: bool
) -> Array:
    wanted = wanted_type(dtype) or default_complex()
    if wanted.kind != "complex":
        raise KindError(f"linspace between complex numbers does not fit {wanted.name}")
    part = dtypes.float64 if wanted is dtypes.complex128 else dtypes.float32
    real = linspace(start.real, stop.real, num, dtype=part, device=device, endpoint=endpoint)
    imag = linspace(start.imag, stop.imag, num, dtype=part, device=device, endpoint=endpoint)
    return call("complex", real, imag)


def eye(
    n_rows: int,
    n_cols: int | None = None,
    /,
    *,
    k: int = 0,
    dtype: DType | None = None,
    device: Any = None,
) -> Array:
    """Ones on the diagonal `k` above the main one, zeros elsewhere."""
    columns = n_rows if n_cols is None else n_cols
    k = max(-(1 << 62), min(k, 1 << 62))  # further off than any matrix reaches
    rows = call("arange", n_rows, device=device).reshape((n_rows, 1))
    ramp = call("arange", columns, device=device).reshape((1, columns))
    return as_array((rows + k == ramp).to(wanted_type(dtype) or defaults.dtype))


def meshgrid(*arrays: Tensor, indexing: Literal["xy", "ij"] = "xy") -> tuple[Array, ...]:
    """Coordinates of a grid: one array of full rank for each vector of coordinates."""
    if indexing not in ("xy", "ij"):
        raise SizeError(f'indexing is "xy" or "ij", not {indexing!r}')
    if any(x.dtype is not arrays[0].dtype for x in arrays):
        raise KindError("meshgrid needs arrays of one element type")
    if any(x.ndim > 1 for x in arrays):
        raise SizeError("meshgrid needs vectors")
    shape = [x.numel() for x in arrays]
    axes = list(range(len(arrays)))
    if indexing == "xy" and len(arrays) > 1:
        shape[:2] = shape[1::-1]
        axes[:2] = (1, 0)
    grids = []
    for x, axis in zip(arrays, axes):
        lengths = [1] * len(shape)
        lengths[axis] = x.numel()
        grids.append(as_array(x.reshape(lengths).expand(shape).clone()))
    return tuple(grids)


def _check_matrix(name: str, x: Tensor) -> None:
    if need_array(name, x).ndim < 2:
        raise SizeError(f"{name} needs at least 2 axes, got shape {list(x.shape)}")


def tril(x: Tensor, /, *, k: int = 0) -> Array:
    """The lower triangles of matrices; zeros above the diagonal `k`."""
    _check_matrix("tril", x)
    return call("tril", x, k)


def triu(x: Tensor, /, *, k: int = 0) -> Array:
    """The upper triangles of matrices; zeros below the diagonal `k`."""
    _check_matrix("triu", x)
    return call("triu", x, k)


def astype(x: Tensor, dtype: DType, /, *, copy: bool = True, device: Any = None) -> Array:
    """The values in another element type, and on another device if one is named."""
    need_array("astype", x)
    dtype = dtypes.as_dtype(dtype)
    if device is not None:
        x = x.to(device=device)
    if dtype is x.dtype:
        return as_array(x.clone() if copy else x)
    if x.dtype.kind == "complex" and dtype.kind not in ("complex", "bool"):
        raise KindError(
            f"{x.dtype.name} cannot become {dtype.name}", help="take real() or imag() first"
        )
    return as_array(x.to(dtype))
