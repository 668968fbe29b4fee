"""Eight-bit floats: stored as bytes, computed with in float32 registers, rounded once, to even."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from ridgeline import dtypes
from ridgeline.codegen.llvm.int32_lanes import Words
from ridgeline.dtypes import DType
from ridgeline.loops import ir

if TYPE_CHECKING:
    from ridgeline.codegen.llvm.scalar_ops import ScalarEmitter, Value

_MANTISSA, _BIAS = 23, 127  # of float32


@dataclass(frozen=True, slots=True)
class _Format:
    """Mantissa bits, bias, the bits that too large numbers become, and those of NaN."""

    mantissa: int
    bias: int
    top: int
    nan: int
    has_infinity: bool

    @property
    def least(self) -> int:
        """The smallest exponent of a normal number, as float32 has it."""
        return _BIAS + 1 - self.bias


# e4m3 has no infinities: what is too large becomes 448
_FORMATS = {
    dtypes.float8_e4m3fn: _Format(3, 7, 0x7E, 0x7F, False),
    dtypes.float8_e5m2: _Format(2, 15, 0x7C, 0x7E, True),
}


def is_float8(dtype: DType) -> bool:
    """True for the types of this file."""
    return dtype in _FORMATS


def encode(emit: ScalarEmitter, x: Value, dtype: DType) -> Value:
    """The bytes of float32 registers: in units of the last place, rounded as integers are."""
    form, one = _FORMATS[dtype], Words(emit, x.lanes)
    bits = emit.apply("bitcast", dtypes.uint32, x)
    sign = one.op("and", one.op("shr", bits, one.word(24)), one.word(0x80))
    low = one.op("and", bits, one.word(0x7FFFFFFF))
    exponent = one.op("max", one.op("shr", low, one.word(_MANTISSA)), one.word(form.least))
    exponent = one.op("min", exponent, one.word(2 * _BIAS))
    inverse = one.op("sub", one.word(2 * _BIAS + form.mantissa), exponent)
    unit = emit.apply("bitcast", dtypes.float32, one.op("shl", inverse, one.word(_MANTISSA)))
    size = emit.apply("bitcast", dtypes.float32, low)
    steps = emit.apply("round", dtypes.float32, emit.apply("mul", dtypes.float32, size, unit))
    count = one.op("min", emit.convert(steps, dtypes.uint32), one.word(1 << (form.mantissa + 2)))
    lifted = one.op("sub", exponent, one.word(form.least))
    made = one.op("add", count, one.op("shl", lifted, one.word(form.mantissa)))
    made = one.op("min", made, one.word(form.top))
    unknown = emit.apply("lt", dtypes.bool_, one.word(0xFF << _MANTISSA), low)
    made = emit.choose(unknown, one.word(form.nan), made)
    return emit.convert(one.op("or", made, sign), dtypes.uint8)


def decode(emit: ScalarEmitter, stored: Value, dtype: DType) -> Value:
    """Float32 registers from bytes: the same fields, scaled by the difference of the biases."""
    form, one = _FORMATS[dtype], Words(emit, stored.lanes)
    byte = emit.convert(stored, dtypes.uint32)
    sign = one.op("shl", one.op("and", byte, one.word(0x80)), one.word(24))
    low = one.op("and", byte, one.word(0x7F))
    fields = one.op("shl", low, one.word(_MANTISSA - form.mantissa))
    scale = emit.widen(
        emit.constant(ir.const(2.0 ** (_BIAS - form.bias), dtypes.float32)), stored.lanes
    )
    number = emit.apply("bitcast", dtypes.float32, fields)
    scaled = emit.apply("bitcast", dtypes.uint32, emit.apply("mul", dtypes.float32, number, scale))
    if form.has_infinity:
        endless = emit.apply("eq", dtypes.bool_, low, one.word(form.top))
        scaled = emit.choose(endless, one.word(0x7F800000), scaled)
    unknown = emit.apply("lt", dtypes.bool_, one.word(form.top), low)
    scaled = emit.choose(unknown, one.word(0x7FC00000), scaled)
    return emit.apply("bitcast", dtypes.float32, one.op("or", scaled, sign))
