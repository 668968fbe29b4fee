"""Element types in CUDA C++: their form in memory and in registers, and literals."""

from __future__ import annotations

import math
import struct

import numpy as np

from ridgeline import dtypes
from ridgeline.dtypes import DType
from ridgeline.loops.ir import Const

_NAMES = {
    "bool": "bool", "int8": "signed char", "uint8": "unsigned char", "int16": "short",
    "uint16": "unsigned short", "int32": "int", "uint32": "unsigned int", "int64": "long long",
    "uint64": "unsigned long long", "float32": "float", "float64": "double",
}  # fmt: skip
_NARROW = {
    "float16": "unsigned short", "bfloat16": "unsigned short", "float8_e4m3fn": "unsigned char",
    "float8_e5m2": "unsigned char",
}  # fmt: skip


def is_narrow_float(dtype: DType) -> bool:
    """True for floats that are computed in float32 and rounded after every operation."""
    return dtype.name in _NARROW


def register_type(dtype: DType) -> str:
    """The C++ type of a value."""
    return "float" if is_narrow_float(dtype) else _NAMES[dtype.name]


def memory_type(dtype: DType) -> str:
    """The C++ type of an element in memory."""
    if dtype is dtypes.bool_:
        return "unsigned char"
    return _NARROW.get(dtype.name) or _NAMES[dtype.name]


def unsigned_type(dtype: DType) -> str:
    """The unsigned integer in which arithmetic of an integer type wraps around."""
    return "unsigned long long" if dtype.itemsize == 8 else "unsigned int"


def loaded(dtype: DType, element: str) -> str:
    """The value of an element of memory."""
    if is_narrow_float(dtype):
        return f"rl_from_{dtype.name}({element})"
    return f"({element} != 0)" if dtype is dtypes.bool_ else element


def stored(dtype: DType, value: str) -> str:
    """What is written to memory for a value that has the precision of its type."""
    if is_narrow_float(dtype):
        return f"rl_to_{dtype.name}({value})"
    return value


def packed(dtype: DType, values: str) -> str:
    """What is written to memory for the collected values of a pack."""
    return f"rl_pack_{dtype.name}({values})" if is_narrow_float(dtype) else values


def unpacks(dtype: DType) -> bool:
    """True for floats of which a pack is converted as a whole: those of eight bits."""
    return is_narrow_float(dtype) and dtype.itemsize == 1


def literal(const: Const) -> str:
    """A literal of the register type."""
    dtype, value = const.dtype, const.value
    if dtype is dtypes.bool_:
        return "true" if value else "false"
    if dtype.kind != "float":
        return _integer(int(value), dtype)
    single = dtype is not dtypes.float64
    number = float(np.float32(value)) if single else float(value)
    if math.isfinite(number):
        text = number.hex() + ("f" if single else "")
        return text if not text.startswith("-") else f"({text})"
    if single:
        return f"__int_as_float(0x{struct.pack('>f', number).hex()})"
    return f"__longlong_as_double(0x{struct.pack('>d', number).hex()}ll)"


def _integer(value: int, dtype: DType) -> str:
    if dtype is dtypes.int64:
        return f"({value}ll)" if value > -(1 << 63) else "(-9223372036854775807ll - 1)"
    if dtype is dtypes.uint64:
        return f"{value}ull"
    if dtype is dtypes.int32 and value == -(1 << 31):
        return "(-2147483647 - 1)"
    return f"{value}u" if dtype.kind == "uint" else f"({value})"
