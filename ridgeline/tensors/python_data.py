"""Python numbers and nested lists as arrays, in the element type that torch would choose."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import chain
from types import UnionType
from typing import Any

import numpy as np

from ridgeline import dtypes
from ridgeline.dtypes import DType
from ridgeline.errors import BadTypeError, BadValueError, DTypeError
from ridgeline.functions.operands import defaults
from ridgeline.record.numbers import Lifted
from ridgeline.record.values import Handle, read_array
from ridgeline.scalars import Array, cast

_PYTHON_NUMBERS = {bool, int, float, complex}
_LISTS = {list, tuple}
_DOUBLES = (dtypes.float64, dtypes.complex128, np.float64, np.complex128)


def array_from(data: Any, dtype: DType | None) -> tuple[Array, DType]:
    """Python values as an array of the wanted type, or of the type torch would choose."""
    given = isinstance(data, np.ndarray | np.generic)
    plain = not given and _is_plain(data)
    array = np.asarray(data) if given else _nested(data, plain)
    found = dtypes.from_numpy(array.dtype)
    if found is None:
        raise DTypeError(f"values of {array.dtype} have no element type here")
    if plain or not (given or _has_doubles(data)):
        if found is dtypes.float64:
            found = defaults.dtype
        elif found is dtypes.complex128:
            found = dtypes.complex64 if defaults.dtype is dtypes.float32 else dtypes.complex128
        elif found is dtypes.uint64:  # NumPy's answer to large numbers; Python's are int64
            found = dtypes.int64
    wanted = dtype or found
    if not isinstance(data, np.ndarray):  # arrays wrap round, numbers do not
        _check_fit(array, wanted)
    return np.asarray(cast(array, wanted)), wanted


def _check_fit(array: Array, dtype: DType) -> None:
    """Raise where a number of Python's has no place in an element type."""
    if array.dtype.kind == "c" and not dtype.is_complex and dtype.kind != "bool":
        raise DTypeError(f"a complex number does not fit into {dtype.name}", help="use its .real")
    if not dtype.is_integer or array.dtype.kind not in "iuf" or not array.size:
        return
    if array.dtype == dtype.numpy:
        return
    for value in (array.min().item(), array.max().item()):
        if not dtypes.fits(value, dtype):
            raise BadValueError(
                f"{value} does not fit into {dtype.name}", help="use a wider element type"
            )


def _nested(data: Any, plain: bool) -> Array:
    if not plain and (
        isinstance(data, Lifted)
        or (isinstance(data, list | tuple) and _holds(data, Handle | Lifted))
    ):
        data = _as_lists(data)
    try:
        array = np.array(data)
    except ValueError as error:
        raise BadValueError(
            "nested lists must have equal lengths at every level", note=str(error)
        ) from None
    if _may_be_wide(array) and _wide_integers(data):
        raise BadValueError("an integer has no place in 64 bits", help="make it a float")
    if array.dtype == object:
        raise BadTypeError(f"cannot make a tensor from {type(data).__name__}: {data!r:.60}")
    if array.size == 0 and not isinstance(data, np.ndarray):
        array = array.astype(np.float64)
    return array


def _is_plain(data: Any) -> bool:
    """True for numbers of Python's own and nested lists of these: most data, and long ones."""
    items: Sequence[Any] = (data,)
    kinds = {type(data)}
    while items and kinds <= _LISTS:  # a level at a time, in C
        items = list(chain.from_iterable(items))
        kinds = set(map(type, items))
    return kinds <= _PYTHON_NUMBERS


def _holds(data: Any, kind: type | UnionType) -> bool:
    return any(
        isinstance(item, kind) or (isinstance(item, list | tuple) and _holds(item, kind))
        for item in data
    )


def _has_doubles(data: Any) -> bool:
    """True for nested lists with a scalar, an array or a tensor of double precision in them."""
    if not isinstance(data, list | tuple):
        return getattr(data, "dtype", None) in _DOUBLES
    return any(map(_has_doubles, data))


def _may_be_wide(array: Array) -> bool:
    """True for what NumPy makes of integers beyond 64 bits, and of some other values."""
    return array.dtype == object or (
        array.dtype.kind == "f" and bool(array.size) and float(np.abs(array).max()) >= 1 << 63
    )


def _wide_integers(data: Any) -> bool:
    """True for integers of which one is beyond 64 bits, without a float among them."""
    if isinstance(data, list | tuple):
        return any(map(_wide_integers, data)) and not _holds(data, float)
    return isinstance(data, int) and not -(1 << 63) <= data < 1 << 63


def _as_lists(data: Any) -> Any:
    if isinstance(data, Handle):
        array = read_array(data, "tolist()")
        return array if data._type.dtype.is_integer else python_values(array, data._type.dtype)
    if isinstance(data, Lifted):
        return float(data)
    return [_as_lists(item) for item in data] if isinstance(data, list | tuple) else data


def python_values(array: Array, dtype: DType) -> Any:
    """An array as Python numbers; NumPy has no `tolist` for the small floating types."""
    if dtype.kind == "float" and dtype.itemsize < 4:
        return array.astype(np.float32).tolist()
    return array.tolist()
