"""The table of element types: one row each, with its NumPy form and its place in promotion."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import ml_dtypes
import numpy as np

from ridgeline.errors import DTypeError


@dataclass(frozen=True, slots=True, eq=False)
class DType:
    """An element type. Rows are unique objects, so they compare by identity."""

    name: str
    kind: str  # "bool", "uint", "int", "float", "complex"
    itemsize: int
    numpy: np.dtype[Any]
    is_differentiable: bool  # gradients exist for floating and complex values only

    @property
    def bits(self) -> int:
        """Storage width in bits."""
        return self.itemsize * 8

    @property
    def is_floating_point(self) -> bool:
        """True for real floating types, as in torch."""
        return self.kind == "float"

    @property
    def is_complex(self) -> bool:
        """True for complex types."""
        return self.kind == "complex"

    @property
    def is_integer(self) -> bool:
        """True for signed and unsigned integers, not for bool."""
        return self.kind in ("int", "uint")

    def __repr__(self) -> str:
        return f"ridgeline.{self.name}"

    def __reduce__(self) -> tuple[Any, ...]:
        return (named, (self.name,))


def _row(name: str, kind: str, scalar_type: Any) -> DType:
    numpy_type = np.dtype(scalar_type)
    return DType(name, kind, numpy_type.itemsize, numpy_type, kind in ("float", "complex"))


bool_ = _row("bool", "bool", np.bool_)
uint8 = _row("uint8", "uint", np.uint8)
uint16 = _row("uint16", "uint", np.uint16)
uint32 = _row("uint32", "uint", np.uint32)
uint64 = _row("uint64", "uint", np.uint64)
int8 = _row("int8", "int", np.int8)
int16 = _row("int16", "int", np.int16)
int32 = _row("int32", "int", np.int32)
int64 = _row("int64", "int", np.int64)
float8_e4m3fn = _row("float8_e4m3fn", "float", ml_dtypes.float8_e4m3fn)
float8_e5m2 = _row("float8_e5m2", "float", ml_dtypes.float8_e5m2)
float16 = _row("float16", "float", np.float16)
bfloat16 = _row("bfloat16", "float", ml_dtypes.bfloat16)
float32 = _row("float32", "float", np.float32)
float64 = _row("float64", "float", np.float64)
complex64 = _row("complex64", "complex", np.complex64)
complex128 = _row("complex128", "complex", np.complex128)

ALL: tuple[DType, ...] = (
    bool_, uint8, uint16, uint32, uint64, int8, int16, int32, int64,
    float8_e4m3fn, float8_e5m2, float16, bfloat16, float32, float64, complex64, complex128,
)  # fmt: skip
_BY_NAME = {dtype.name: dtype for dtype in ALL}
_BY_NUMPY = {dtype.numpy: dtype for dtype in ALL}


def named(name: str) -> DType:
    """The row called `name`; KeyError if there is none."""
    return _BY_NAME[name]


def from_numpy(numpy_type: Any) -> DType | None:
    """The row that stores the same elements as a NumPy dtype, or None."""
    return _BY_NUMPY.get(np.dtype(numpy_type))


def fits(value: float, dtype: DType) -> bool:
    """True if a real number has a place in an element type, by torch's rules.

    A negative number wraps round in an unsigned type, infinities and NaN need a floating one, and a
    fraction is cut off.
    """
    if isinstance(value, int) and not -(1 << 63) <= value < 1 << 64:
        return False
    if dtype.kind == "bool" or dtype.is_complex:
        return True
    if dtype.is_floating_point:
        return not math.isfinite(value) or abs(value) <= float(ml_dtypes.finfo(dtype.numpy).max)
    if not math.isfinite(value):
        return False
    limits = np.iinfo(dtype.numpy)
    most = int(limits.max)
    least = -most if dtype.kind == "uint" else int(limits.min)
    return least <= int(value) <= most


# what Python's own types of numbers hold, as torch reads them
_OF_PYTHON: dict[Any, DType] = {bool: bool_, int: int64, float: float64, complex: complex128}


def from_type(kind: Any) -> DType | None:
    """The row that a type of Python's or NumPy's stands for, or None."""
    if isinstance(kind, np.dtype):
        return from_numpy(kind)
    if kind in _OF_PYTHON:
        return _OF_PYTHON[kind]
    if not issubclass(kind, np.generic):
        return None
    try:
        return from_numpy(kind)
    except TypeError:  # one of NumPy's abstract kinds, such as np.floating
        return None


def as_dtype(kind: Any) -> DType:
    """What a caller means by an element type: a row, or a type of Python's or NumPy's."""
    found = kind
    if not isinstance(kind, DType):
        found = from_type(kind) if isinstance(kind, type | np.dtype) else None
    if found is None:
        raise DTypeError(
            f"{kind!r:.40} is no element type",
            help="use one such as ridgeline.float32, or a type of NumPy's or Python's",
        )
    assert isinstance(found, DType)
    return found


def wanted(kind: Any) -> DType | None:
    """A `dtype=` argument, which may be left out."""
    return None if kind is None else as_dtype(kind)
