"""Element types in LLVM: spelling, literals, and floats narrower than a register.

Narrow floats live in registers as float32 and are rounded when they are stored or cast;
booleans live in registers as i1 and in memory as bytes.
"""

from __future__ import annotations

import struct
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import TYPE_CHECKING

from ridgeline import dtypes
from ridgeline.codegen.llvm.machine_code import target
from ridgeline.dtypes import DType
from ridgeline.loops import ir
from ridgeline.loops.build import guarded, map_children

if TYPE_CHECKING:
    from ridgeline.codegen.llvm.scalar_ops import ScalarEmitter, Value


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


def literal(const: ir.Const) -> str:
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


# ---- integer arithmetic on 32-bit lanes, for the bits of floats ----------------------------------


class Words:
    """Operations on words, and literals of them, in so many lanes."""

    def __init__(self, emit: ScalarEmitter, lanes: int) -> None:
        self.emit, self.lanes = emit, lanes

    def word(self, number: int) -> Value:
        """A literal in every lane."""
        return self.emit.widen(self.emit.constant(ir.const(number, dtypes.uint32)), self.lanes)

    def op(self, name: str, a: Value, b: Value) -> Value:
        """One operation; shifts are by literals that are in range."""
        if name in ("shl", "shr"):
            opcode = "shl" if name == "shl" else "lshr"
            kind = vector("i32", self.lanes)
            return self.emit.instruction(f"{opcode} {kind} {a.name}, {b.name}", a.dtype, a, b)
        return self.emit.apply(name, dtypes.uint32, a, b)


# ---- bfloat16: rounded to the nearest, ties to even, subnormal numbers too -----------------------
# The instruction of AVX-512 BF16 takes subnormal numbers for zero. They are lifted by 2**-126
# before it, to where its rounding leaves the same multiples of 2**-133, and lowered afterwards.
# Other CPUs round by arithmetic on the bits: LLVM calls a function of the C runtime there, once for
# each lane, which is in no process of ours.


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
    number = _opaque(emit, emit.apply("bitcast", dtypes.float32, lifted))
    half, whole = vector(memory_type(dtypes.bfloat16), x.lanes), vector("i16", x.lanes)
    rounded = emit.instruction(f"fptrunc {x.type} {number.name} to {half}", dtypes.uint16, number)
    near = emit.instruction(f"bitcast {half} {rounded.name} to {whole}", dtypes.uint16, rounded)
    step = emit.convert(one.word(_LEAST_NORMAL >> _HALF), dtypes.uint16)
    return emit.choose(small, emit.apply("sub", dtypes.uint16, near, step), near)


def _opaque(emit: ScalarEmitter, x: Value) -> Value:
    """The same numbers, hidden from LLVM's constant folding.

    LLVM 22 folds constant parts of a vector into a vector of bfloat16, for which it then has no
    code, and aborts the process.
    """
    name = f"llvm.arithmetic.fence.{mangled('float', x.lanes)}"
    emit.declarations.add(f"declare {x.type} @{name}({x.type})")
    return emit.instruction(f"call {x.type} @{name}({x.type} {x.name})", dtypes.float32, x)


def _rounded_bits(emit: ScalarEmitter, x: Value, one: Words) -> Value:
    """Bits whose upper half is the result; a NaN stays one, whichever bits make it one."""
    bits = emit.apply("bitcast", dtypes.uint32, x)
    odd = one.op("and", one.op("shr", bits, one.word(_HALF)), one.word(1))
    near = one.op("add", bits, one.op("add", odd, one.word(0x7FFF)))
    size = one.op("and", bits, one.word(0x7FFFFFFF))
    unknown = emit.apply("lt", dtypes.bool_, one.word(_INFINITE), size)
    return emit.choose(unknown, one.op("or", bits, one.word(_QUIET)), near)


# ---- eight-bit floats ----------------------------------------------------------------------------
# Stored as bytes, computed with in float32 registers, rounded once, to even.


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
    """Encode float32 registers as bytes: scale to units in the last place, round as integers."""
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
    """Decode bytes to float32 registers: the same fields, scaled by the difference of biases."""
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


# ---- narrow floats that are only moved: as the integers of their bits, unconverted ---------------
# In registers they are float32. A copy needs no conversion, which would take time both ways, and on
# some machines would turn the smallest numbers into zero.


_BITS = {1: dtypes.uint8, 2: dtypes.uint16}
NARROW = frozenset(d for d in dtypes.ALL if d.kind == "float" and d.itemsize < 4)


def moved_as_bits(statement: ir.Stmt) -> ir.Stmt:
    """Copy narrow floats as integers if a store's value was just loaded."""
    inner = map_children(statement, moved_as_bits)
    if not (isinstance(inner, ir.Store) and _narrow(inner.buffer)):
        return inner
    moved = _bits(inner.value, inner.buffer)
    return inner if moved is None else ir.Store(_as_bits(inner.buffer), inner.index, moved)


def _bits(value: ir.Expr, target: ir.Buffer) -> ir.Expr | None:
    """The bits of a load, perhaps guarded with zero; None for any other value."""
    if isinstance(value, ir.Load):
        same = value.dtype is target.dtype and _narrow(value.buffer)
        return ir.Load.make(_as_bits(value.buffer), value.index) if same else None
    if isinstance(value, ir.OpExpr) and value.name == "guarded":
        condition, read, other = value.args
        moved = _bits(read, target)
        if moved is not None and isinstance(other, ir.Const) and other.text in ("0", "0.0"):
            return guarded(condition, moved, ir.const(0, moved.dtype))
    return None


def _narrow(buffer: ir.Buffer) -> bool:
    dtype = buffer.dtype
    return dtype.kind == "float" and dtype.itemsize < 4 and buffer.scope != "reg"


def _as_bits(buffer: ir.Buffer) -> ir.Buffer:
    return replace(buffer, dtype=_BITS[buffer.dtype.itemsize])


# ---- narrow floats that a kernel stores and goes on with: it goes on with what memory holds ------
# In registers they are float32, unrounded. Another kernel reads the stored value, and what both
# compute from it must fit together: the deviation of a number from its own mean is 0.


def stored_and_read(body: ir.Stmt) -> frozenset[ir.Expr]:
    """The narrow values that a kernel writes to memory and also uses otherwise."""
    stored = [s for s in ir.statements(body) if isinstance(s, ir.Store) and _rounds(s)]
    if not stored:
        return frozenset()
    found = {s.value for s in stored}
    read: set[ir.Expr] = set()
    for statement in ir.statements(body):
        roots = ir.expressions(statement)
        if not (isinstance(statement, ir.Store) and _rounds(statement)):
            read.update(roots)
        for expr in ir.subexpressions(*roots):
            read.update(ir.children(expr))
    return frozenset(found & read)


def _rounds(store: ir.Store) -> bool:
    """True where a store rounds a computed value."""
    dtype, value = store.buffer.dtype, store.value
    narrow = dtype.kind == "float" and dtype.itemsize < 4 and store.buffer.scope != "reg"
    return narrow and isinstance(value, ir.OpExpr) and value.dtype is dtype and value.name != "cast"
