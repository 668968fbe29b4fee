"""bfloat16 on CPUs that cannot round to it: the upper half of a float32, rounded to even.

LLVM calls a function of the C runtime there, once for each lane, which is in no process of ours.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from ridgeline import dtypes
from ridgeline.codegen.llvm.target import target
from ridgeline.codegen.llvm.words import Words
from ridgeline.dtypes import DType

if TYPE_CHECKING:
    from ridgeline.codegen.llvm.scalar_ops import ScalarEmitter, Value

_HALF, _INFINITE, _QUIET = 16, 0x7F800000, 0x400000


def rounds_by_hand(dtype: DType) -> bool:
    """True where numbers become bfloat16 by arithmetic on their bits."""
    return dtype is dtypes.bfloat16 and "+avx512bf16" not in target().features.split(",")


def upper_half(emit: ScalarEmitter, x: Value) -> Value:
    """The 16 bits of float32 registers as bfloat16."""
    one = Words(emit, x.lanes)
    return emit.convert(one.op("shr", _rounded_bits(emit, x, one), one.word(_HALF)), dtypes.uint16)


def to_upper_half(emit: ScalarEmitter, x: Value) -> Value:
    """Float32 registers with the precision of bfloat16."""
    one = Words(emit, x.lanes)
    kept = one.op("and", _rounded_bits(emit, x, one), one.word(0xFFFF0000))
    return emit.apply("bitcast", dtypes.float32, kept)


def _rounded_bits(emit: ScalarEmitter, x: Value, one: Words) -> Value:
    """Bits whose upper half is the result; a NaN stays one, whichever bits make it one."""
    bits = emit.apply("bitcast", dtypes.uint32, x)
    odd = one.op("and", one.op("shr", bits, one.word(_HALF)), one.word(1))
    near = one.op("add", bits, one.op("add", odd, one.word(0x7FFF)))
    size = one.op("and", bits, one.word(0x7FFFFFFF))
    unknown = emit.apply("lt", dtypes.bool_, one.word(_INFINITE), size)
    return emit.choose(unknown, one.op("or", bits, one.word(_QUIET)), near)
