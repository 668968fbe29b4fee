"""The standard's element types: kinds, promotion, and questions about them.

The standard promotes inside a kind: bool with bool, integers with integers, floating with floating
and complex. What it leaves open, kinds that mix and integers in floating functions, is as in torch.
Python numbers are weak: they take the type of the array they meet.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import ml_dtypes
import numpy as np

from ridgeline import dtypes
from ridgeline.dtypes import DType
from ridgeline.errors import DTypeError
from ridgeline.functions.operands import complex_of, default_complex, defaults, promote_types
from ridgeline.tensors.tensor import Tensor

STANDARD: dict[str, DType] = {
    row.name: row
    for row in dtypes.ALL
    if row.kind != "float" or row in (dtypes.float32, dtypes.float64)
}
BOOL = frozenset(("bool",))
INTEGER = frozenset(("int", "uint"))
BITS = BOOL | INTEGER
REAL_FLOATING = frozenset(("float",))
FLOATING = frozenset(("float", "complex"))
REAL = INTEGER | REAL_FLOATING
NUMERIC = REAL | FLOATING
FLOATED = NUMERIC  # of functions with floating results: integers are left open, taken as in torch
ANY = BOOL | NUMERIC
KINDS: dict[str, frozenset[str]] = {
    "bool": BOOL,
    "signed integer": frozenset(("int",)),
    "unsigned integer": frozenset(("uint",)),
    "integral": INTEGER,
    "real floating": REAL_FLOATING,
    "complex floating": frozenset(("complex",)),
    "numeric": NUMERIC,
}
_FAMILY = {"bool": 0, "uint": 1, "int": 1, "float": 2, "complex": 2}


class KindError(DTypeError, TypeError):
    """An element type that the standard does not allow here."""


class RangeError(DTypeError, OverflowError):
    """A Python number that the element type it meets cannot hold."""


def promote(a: DType, b: DType) -> DType:
    """The type of a result of two types, by the standard's table.

    Kinds that the table leaves open (integers with floats) mix as in torch, for others rely on it.
    """
    try:
        return promote_types(a, b)
    except DTypeError as error:
        raise KindError(error.message, help=error.help) from None


def held_by(dtype: DType, own: DType) -> bool:
    """True if values may be written into an array of a type: of its kind, or of a lower one."""
    return _FAMILY[dtype.kind] <= _FAMILY[own.kind] and not (dtype.is_complex > own.is_complex)


def _kind_of(number: complex) -> str:
    if isinstance(number, bool | np.bool_):
        return "bool"
    if isinstance(number, int | np.integer):
        return "int"
    if isinstance(number, float | np.floating):
        return "float"
    if isinstance(number, complex | np.complexfloating):
        return "complex"
    raise KindError(f"expected a number, got {type(number).__name__}")


def is_number(value: Any) -> bool:
    """True for Python's numbers and NumPy's scalars."""
    return isinstance(value, bool | int | float | complex | np.number | np.bool_)


def weak(number: complex, dtype: DType) -> DType:
    """The type of a result of an array's type and a Python number.

    Truths count as 0 and 1. Integers with floats are refused: the standard leaves them open, and
    others then convert to the type they want.
    """
    kind = _kind_of(number)
    if dtype.kind in INTEGER and _FAMILY[kind] > _FAMILY[dtype.kind]:
        raise KindError(
            f"the standard does not mix {dtype.name} with the Python number {number!r}",
            help="convert the array with astype(), or make the number an array",
        )
    if kind == "int" and dtype.kind in INTEGER:
        limits = np.iinfo(dtype.numpy)
        if not limits.min <= int(number.real) <= limits.max:
            raise RangeError(f"{number!r} is outside the range of {dtype.name}")
    if _FAMILY[kind] > _FAMILY[dtype.kind]:
        return default_for(number)
    return complex_of(dtype) if kind == "complex" and dtype.kind == "float" else dtype


def default_for(number: complex | Tensor) -> DType:
    """The type of an array made of a Python number or a 0-d array."""
    if isinstance(number, Tensor):
        return number.dtype
    kind = _kind_of(number)
    if kind == "bool":
        return dtypes.bool_
    if kind == "int":
        return dtypes.int64
    return defaults.dtype if kind == "float" else default_complex()


def require(name: str, dtype: DType, kinds: frozenset[str]) -> None:
    """Raise unless a function takes arrays of this type."""
    if dtype.kind not in kinds:
        expected = ", ".join(row.name for row in STANDARD.values() if row.kind in kinds)
        raise KindError(f"{name} is not defined for {dtype.name}", help=f"it takes {expected}")


def dtype_of(value: Any) -> DType:
    """The element type of an array, or the type itself."""
    if isinstance(value, Tensor):
        return value.dtype
    if isinstance(value, DType | type | np.dtype):
        return dtypes.as_dtype(value)
    raise KindError(f"expected an array or an element type, got {type(value).__name__}")


# ---- the standard's functions --------------------------------------------------------------------


def result_type(*arrays_and_dtypes: Any) -> DType:
    """The element type of an operation on arrays, element types and Python numbers."""
    found: DType | None = None
    for value in arrays_and_dtypes:
        if not is_number(value):
            own = dtype_of(value)
            found = own if found is None else promote(found, own)
    if found is None:
        raise KindError("result_type needs at least one array or element type")
    for value in arrays_and_dtypes:
        if is_number(value):
            found = weak(value, found)
    return found


def can_cast(from_: DType | Tensor, to: DType, /) -> bool:
    """True where promotion leads from one type to the other."""
    source, to = dtype_of(from_), dtypes.as_dtype(to)
    if _FAMILY[source.kind] != _FAMILY[to.kind]:
        return False
    if "uint64" in (source.name, to.name) and "int" in (source.kind, to.kind):
        return False
    return promote_types(source, to) is to


def isdtype(dtype: DType, kind: DType | str | tuple[DType | str, ...]) -> bool:
    """True where an element type is, or belongs to, one of the kinds."""
    if isinstance(kind, tuple):
        return any(isdtype(dtype, part) for part in kind)
    dtype = dtypes.as_dtype(dtype)
    if isinstance(kind, DType | type | np.dtype):
        return dtype is dtypes.as_dtype(kind)
    if kind not in KINDS:
        raise KindError(f"there is no kind {kind!r}", help=f"kinds: {', '.join(KINDS)}")
    return dtype.kind in KINDS[kind]


@dataclass(frozen=True, slots=True)
class FloatInfo:
    """The limits of a floating type."""

    bits: int
    eps: float
    max: float
    min: float
    smallest_normal: float
    dtype: DType


@dataclass(frozen=True, slots=True)
class IntegerInfo:
    """The limits of an integer type."""

    bits: int
    max: int
    min: int
    dtype: DType


def finfo(type: DType | Tensor, /) -> FloatInfo:
    """The limits of a floating type; of the parts of a complex one."""
    dtype = dtype_of(type)
    require("finfo", dtype, FLOATING)
    if dtype.kind == "complex":
        dtype = dtypes.float64 if dtype is dtypes.complex128 else dtypes.float32
    limits = ml_dtypes.finfo(dtype.numpy)
    return FloatInfo(
        dtype.bits,
        float(limits.eps),
        float(limits.max),
        float(limits.min),
        float(limits.smallest_normal),
        dtype,
    )


def iinfo(type: DType | Tensor, /) -> IntegerInfo:
    """The limits of an integer type."""
    dtype = dtype_of(type)
    require("iinfo", dtype, INTEGER)
    limits = np.iinfo(dtype.numpy)
    return IntegerInfo(dtype.bits, int(limits.max), int(limits.min), dtype)
