"""Float32 registers rounded to bfloat16, to the nearest and ties to even, subnormal numbers too.

The instruction of AVX-512 BF16 takes subnormal numbers for zero. They are lifted by 2**-126 before
it, to where its rounding leaves the same multiples of 2**-133, and lowered afterwards. Other CPUs
round by arithmetic on the bits: LLVM calls a function of the C runtime there, once for each lane,
which is in no process of ours.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from ridgeline import dtypes
from ridgeline.codegen.llvm.int32_lanes import Words
from ridgeline.codegen.llvm.target import target
from ridgeline.codegen.llvm.types import memory_type, vector

if TYPE_CHECKING:
    from ridgeline.codegen.llvm.scalar_ops import ScalarEmitter, Value

_HALF, _INFINITE, _QUIET = 16, 0x7F800000, 0x400000
_LEAST_NORMAL = 0x800000  # the bits of 2**-126


def upper_half(emit: ScalarEmitter, x: Value) -> Value:
    """The 16 bits of float32 registers as bfloat16."""
    one = Words(emit, x.lanes)
    if "+avx512bf16" in target().features.split(","):
        return _by_instruction(emit, x, one)
    return emit.convert(one.op("shr", _rounded_bits(emit, x, one), one.word(_HALF)), dtypes.uint16)


def to_upper_half(emit: ScalarEmitter, x: Value) -> Value:
    """Float32 registers with the precision of bfloat16."""
    one = Words(emit, x.lanes)
    bits = emit.convert(upper_half(emit, x), dtypes.uint32)
    return emit.apply("bitcast", dtypes.float32, one.op("shl", bits, one.word(_HALF)))


def _by_instruction(emit: ScalarEmitter, x: Value, one: Words) -> Value:
    bits = emit.apply("bitcast", dtypes.uint32, x)
    exponent = one.op("and", bits, one.word(_INFINITE))
    small = emit.apply("eq", dtypes.bool_, exponent, one.word(0))
    lifted = emit.choose(small, one.op("add", bits, one.word(_LEAST_NORMAL)), bits)
    number = emit.apply("bitcast", dtypes.float32, lifted)
    half, whole = vector(memory_type(dtypes.bfloat16), x.lanes), vector("i16", x.lanes)
    rounded = emit.instruction(f"fptrunc {x.type} {number.name} to {half}", dtypes.uint16, number)
    near = emit.instruction(f"bitcast {half} {rounded.name} to {whole}", dtypes.uint16, rounded)
    step = emit.convert(one.word(_LEAST_NORMAL >> _HALF), dtypes.uint16)
    return emit.choose(small, emit.apply("sub", dtypes.uint16, near, step), near)


def _rounded_bits(emit: ScalarEmitter, x: Value, one: Words) -> Value:
    """Bits whose upper half is the result; a NaN stays one, whichever bits make it one."""
    bits = emit.apply("bitcast", dtypes.uint32, x)
    odd = one.op("and", one.op("shr", bits, one.word(_HALF)), one.word(1))
    near = one.op("add", bits, one.op("add", odd, one.word(0x7FFF)))
    size = one.op("and", bits, one.word(0x7FFFFFFF))
    unknown = emit.apply("lt", dtypes.bool_, one.word(_INFINITE), size)
    return emit.choose(unknown, one.op("or", bits, one.word(_QUIET)), near)
