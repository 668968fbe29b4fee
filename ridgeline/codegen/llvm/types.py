"""LLVM's spelling of our element types, literals and scalar operations.

Narrow floats live in registers as float32 and are rounded when they are stored or cast;
booleans live in registers as i1 and in memory as bytes.
"""

from __future__ import annotations

import struct
from functools import lru_cache

from ridgeline import dtypes
from ridgeline.dtypes import DType
from ridgeline.loops.ir import Const

_MEMORY = {
    dtypes.float16: "half",
    dtypes.bfloat16: "bfloat",
    dtypes.float32: "float",
    dtypes.float64: "double",
    dtypes.bool_: "i8",
}


def memory_type(dtype: DType) -> str:
    """The type an element has in memory."""
    return _MEMORY.get(dtype) or f"i{dtype.bits}"


def register_dtype(dtype: DType) -> DType:
    """The type an element is computed in."""
    narrow = dtype.kind == "float" and dtype.itemsize < 4
    return dtypes.float32 if narrow else dtype


@lru_cache(maxsize=64)
def register_type(dtype: DType) -> str:
    """The type an element has in a register."""
    return "i1" if dtype is dtypes.bool_ else memory_type(register_dtype(dtype))


def vector(scalar: str, lanes: int) -> str:
    """A vector type; one lane is the scalar itself."""
    return scalar if lanes == 1 else f"<{lanes} x {scalar}>"


def mangled(scalar: str, lanes: int) -> str:
    """A type's spelling inside the name of an intrinsic."""
    short = {"float": "f32", "double": "f64", "half": "f16", "bfloat": "bf16", "ptr": "p0"}
    name = short.get(scalar, scalar)
    return name if lanes == 1 else f"v{lanes}{name}"


def literal(const: Const) -> str:
    """A constant in LLVM's syntax, exact to the bit."""
    dtype = register_dtype(const.dtype)
    if dtype is dtypes.bool_:
        return "true" if const.value else "false"
    if dtype.kind != "float":
        return const.text
    value = float(const.value)
    if dtype is dtypes.float32:  # a float literal is written as the double of the same value
        value = struct.unpack("f", struct.pack("f", _clamped(value)))[0]
    return f"0x{struct.unpack('>Q', struct.pack('>d', value))[0]:016X}"


def _clamped(value: float) -> float:
    largest = 3.4028234663852886e38
    if abs(value) > largest and value == value and abs(value) != float("inf"):
        return largest if value > 0 else -largest
    return value


def splat(type_and_value: str, lanes: int) -> str:
    """A constant vector with equal lanes, e.g. of `i64 3`."""
    return "<" + ", ".join([type_and_value] * lanes) + ">"
