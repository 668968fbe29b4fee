"""The type rules of scalars: what converts by itself, what two operands become, what is refused.

A value converts by itself where no value is lost: to a wider integer of the same sign, from
unsigned to a wider signed one, to a wider float; and integers become floats, as in CUDA. Python's
numbers take the type of what they meet if they fit: alone, an int is an i32 (i64 where it needs to
be) and a float an f32.
"""

from __future__ import annotations

import math

import ml_dtypes
import numpy as np

from ridgeline import dtypes
from ridgeline.dtypes import DType
from ridgeline.simt.types import short

Weak = bool | int | float


class TypeClash(Exception):
    """Types that do not go together; the message, and what to write instead."""

    def __init__(self, message: str, help: str = "") -> None:
        super().__init__(message)
        self.message, self.help = message, help


def converts(source: DType, target: DType) -> bool:
    """True where a value of one type becomes another by itself."""
    if source is target or source.kind == "bool":
        return True
    if target.kind == "float":
        if source.kind != "float":
            return target.itemsize >= 4
        return _float_holds(target, source)
    if source.kind == "float" or target.kind == "bool":
        return False
    if source.kind == target.kind:
        return source.itemsize <= target.itemsize
    return source.kind == "uint" and source.itemsize < target.itemsize


def _float_holds(wide: DType, narrow: DType) -> bool:
    large, small = ml_dtypes.finfo(wide.numpy), ml_dtypes.finfo(narrow.numpy)
    return bool(
        large.nmant >= small.nmant and large.maxexp >= small.maxexp and large.minexp <= small.minexp
    )


def common(left: DType, right: DType) -> DType:
    """The type in which two operands meet."""
    if left.kind == right.kind == "bool":
        return dtypes.int32
    if converts(left, right):
        return right
    if converts(right, left):
        return left
    floats = [t for t in (left, right) if t.kind == "float"]
    if len(floats) == 1:  # an integer beside a half: the integer has to say what it becomes
        raise TypeClash(
            f"{short(left)} and {short(right)} do not meet in one type",
            f"convert the integer by name: {short(floats[0])}(…) or f32(…)",
        )
    if {left.kind, right.kind} == {"int", "uint"}:
        signed = left if left.kind == "int" else right
        raise TypeClash(
            f"{short(left)} and {short(right)} differ in sign",
            f"convert one by name: {short(signed)}(…)"
            + (" or i64(…)" if signed.itemsize < 8 else ""),
        )
    raise TypeClash(
        f"{short(left)} and {short(right)} do not meet in one type", "convert both: f32(…)"
    )


def alone(value: Weak) -> DType:
    """The type of a Python number that meets no other."""
    if isinstance(value, bool):
        return dtypes.bool_
    if isinstance(value, float):
        return dtypes.float32
    for dtype in (dtypes.int32, dtypes.int64, dtypes.uint64):
        if _fits_integer(value, dtype):
            return dtype
    raise TypeClash(f"{value} fits no integer type")


def _fits_integer(value: int, dtype: DType) -> bool:
    limits = np.iinfo(dtype.numpy)
    return int(limits.min) <= value <= int(limits.max)


def beside(value: Weak, dtype: DType) -> DType:
    """The type in which a Python number meets a value of a type."""
    if isinstance(value, bool):
        return dtype if dtype.kind != "bool" else dtypes.int32
    if isinstance(value, float):
        return dtype if dtype.kind == "float" else dtypes.float32
    if dtype.kind == "bool":
        return alone(value)
    return dtype


def check_fits(value: Weak, dtype: DType) -> Weak:
    """The number as a literal of a type, or a refusal."""
    if dtype.kind == "bool":
        if isinstance(value, bool):
            return value
        raise TypeClash(f"{value} is no bool", "write True or False, or a comparison")
    if dtype.kind == "float":
        return float(value)
    if isinstance(value, float):
        raise TypeClash(
            f"{value} is no {short(dtype)}",
            f"write {int(value)}" if math.isfinite(value) else "use a float type",
        )
    if not _fits_integer(int(value), dtype):
        limits = np.iinfo(dtype.numpy)
        raise TypeClash(
            f"{value} does not fit {short(dtype)}",
            f"{short(dtype)} holds {limits.min} to {limits.max}",
        )
    return int(value)


def refusal(source: DType, target: DType, what: str) -> TypeClash:
    """Why a value does not become a type by itself, and how to say it."""
    if source.kind == "float" and target.kind != "float":
        return TypeClash(
            f"{what} is {short(target)}, and a value of {short(source)} would be cut off",
            f"convert it by name: {short(target)}(…)",
        )
    return TypeClash(
        f"{what} is {short(target)}, which does not hold every {short(source)}",
        f"convert it by name: {short(target)}(…)",
    )
