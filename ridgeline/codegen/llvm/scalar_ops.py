"""Scalar operations as LLVM instructions, on scalars and vectors alike."""

from __future__ import annotations

from dataclasses import dataclass

from ridgeline import dtypes
from ridgeline.codegen.llvm.types import (
    decode,
    encode,
    is_float8,
    literal,
    mangled,
    memory_type,
    register_dtype,
    register_type,
    splat,
    to_upper_half,
    vector,
)
from ridgeline.dtypes import DType
from ridgeline.loops.ir import Const, const


@dataclass(frozen=True, slots=True)
class Value:
    """A computed value: LLVM's name for it, its type, and how deep the scope is that made it.

    A volatile value was read from memory that the kernel writes, so it must not be reused.
    """

    name: str
    dtype: DType
    lanes: int = 1
    depth: int = 0
    volatile: bool = False

    @property
    def type(self) -> str:
        """The LLVM type."""
        return vector(register_type(self.dtype), self.lanes)


_FLOAT_BINARY = {"add": "fadd", "sub": "fsub", "mul": "fmul", "div": "fdiv"}
_INTEGER_BINARY = {"add": "add", "sub": "sub", "mul": "mul"}
_BITWISE = {"and": "and", "or": "or", "xor": "xor"}
_FLOAT_UNARY = {
    "sqrt": "sqrt", "floor": "floor", "ceil": "ceil", "trunc": "trunc", "round": "rint",
    "abs": "fabs",
}  # fmt: skip
_COMPARE_FLOAT = {"lt": "olt", "le": "ole", "eq": "oeq", "ne": "une"}
_COMPARE_SIGNED = {"lt": "slt", "le": "sle", "eq": "eq", "ne": "ne"}
_COMPARE_UNSIGNED = {"lt": "ult", "le": "ule", "eq": "eq", "ne": "ne"}


class ScalarEmitter:
    """Instruction selection. The subclass says where an instruction goes (`place`)."""

    def __init__(self) -> None:
        self.declarations: set[str] = set()
        self._count = 0
        self._splats: dict[tuple[str, int], Value] = {}

    def fresh(self) -> int:
        """A number not used before in this kernel."""
        self._count += 1
        return self._count

    def insert(self, depth: int, instruction: str) -> str:
        """Append an instruction to the scope at `depth`; returns the result's name."""
        raise NotImplementedError

    def instruction(self, text: str, dtype: DType, *operands: Value) -> Value:
        """An instruction whose operands' scopes decide where it stands."""
        depth = max((o.depth for o in operands), default=0)
        volatile = any(o.volatile for o in operands)
        lanes = max((o.lanes for o in operands), default=1)
        return Value(self.insert(depth, text), register_dtype(dtype), lanes, depth, volatile)

    def constant(self, const: Const) -> Value:
        """A literal."""
        return Value(literal(const), register_dtype(const.dtype))

    def widen(self, value: Value, lanes: int) -> Value:
        """A value in every lane."""
        if value.lanes == lanes:
            return value
        assert value.lanes == 1, "only scalars can be repeated over lanes"
        if not value.name.startswith("%"):
            name = splat(f"{value.type} {value.name}", lanes)
            return Value(name, value.dtype, lanes, value.depth)
        key = (value.name, lanes)
        if key not in self._splats:
            kind = vector(value.type, lanes)
            first = self.insert(
                value.depth, f"insertelement {kind} poison, {value.type} {value.name}, i64 0"
            )
            zeros = "zeroinitializer"
            name = self.insert(
                value.depth,
                f"shufflevector {kind} {first}, {kind} poison, <{lanes} x i32> {zeros}",
            )
            self._splats[key] = Value(name, value.dtype, lanes, value.depth, value.volatile)
        return self._splats[key]

    def matched(self, *values: Value) -> tuple[Value, ...]:
        """Operands with equally many lanes."""
        lanes = max(v.lanes for v in values)
        return tuple(self.widen(v, lanes) for v in values)

    def intrinsic(self, name: str, dtype: DType, *operands: Value) -> Value:
        """A call of an overloaded intrinsic whose operands all have its result type."""
        kind = operands[0].type
        full = f"llvm.{name}.{mangled(register_type(operands[0].dtype), operands[0].lanes)}"
        self.declarations.add(f"declare {kind} @{full}({', '.join([kind] * len(operands))})")
        arguments = ", ".join(f"{kind} {o.name}" for o in operands)
        return self.instruction(f"call {kind} @{full}({arguments})", dtype, *operands)

    def choose(self, condition: Value, yes: Value, no: Value) -> Value:
        """A lane-wise choice."""
        if condition.lanes == 1:
            yes, no = self.matched(yes, no)
        else:
            condition, yes, no = self.matched(condition, yes, no)
        text = (
            f"select {condition.type} {condition.name}, {yes.type} {yes.name}, {no.type} {no.name}"
        )
        return self.instruction(text, yes.dtype, condition, yes, no)

    def both(self, a: Value, b: Value) -> Value:
        """The conjunction of two conditions."""
        return self.apply("and", dtypes.bool_, a, b)

    def apply(self, name: str, dtype: DType, *operands: Value) -> Value:
        """One scalar operation of the table."""
        if name in ("select", "guarded"):
            return self.choose(*operands)
        if name == "cast":
            return self.convert(operands[0], dtype)
        if name == "bitcast":
            return self._bitcast(operands[0], dtype)
        operands = self.matched(*operands)
        if name == "after":
            return operands[0]
        kind = operands[0].dtype.kind
        if name in _COMPARE_FLOAT:
            return self._compare(name, *operands)
        if name in _BITWISE:
            return self._binary(_BITWISE[name], dtype, *operands)
        if name == "not":
            ones = self.widen(
                Value("true" if kind == "bool" else "-1", operands[0].dtype), operands[0].lanes
            )
            return self._binary("xor", dtype, operands[0], ones)
        return (self._float if kind == "float" else self._integer)(name, dtype, *operands)

    def _binary(self, opcode: str, dtype: DType, a: Value, b: Value) -> Value:
        return self.instruction(f"{opcode} {a.type} {a.name}, {b.name}", dtype, a, b)

    def _compare(self, name: str, a: Value, b: Value) -> Value:
        if a.dtype.kind == "float":
            text = f"fcmp {_COMPARE_FLOAT[name]} {a.type} {a.name}, {b.name}"
        else:
            table = _COMPARE_SIGNED if a.dtype.kind == "int" else _COMPARE_UNSIGNED
            text = f"icmp {table[name]} {a.type} {a.name}, {b.name}"
        return self.instruction(text, dtypes.bool_, a, b)

    def _literal(self, number: float, like: Value) -> Value:
        return self.widen(self.constant(const(number, like.dtype)), like.lanes)

    def _float(self, name: str, dtype: DType, *operands: Value) -> Value:
        a = operands[0]
        if name in _FLOAT_BINARY:
            return self._binary(_FLOAT_BINARY[name], dtype, *operands)
        if name in _FLOAT_UNARY:
            return self.intrinsic(_FLOAT_UNARY[name], dtype, a)
        if name in ("max", "min"):
            return self.intrinsic("maximum" if name == "max" else "minimum", dtype, *operands)
        if name == "fma":
            return self.intrinsic("fma", dtype, *operands)
        if name == "neg":
            return self.instruction(f"fneg {a.type} {a.name}", dtype, a)
        if name == "reciprocal":
            return self._binary("fdiv", dtype, self._literal(1.0, a), a)
        if name == "isnan":
            return self.instruction(f"fcmp uno {a.type} {a.name}, {a.name}", dtypes.bool_, a)
        if name == "sign":
            return self._float_sign(a)
        if name == "floordiv":
            return self._float_floordiv(*operands)
        if name == "mod":
            return self._float_mod(*operands)
        if name.startswith("libm_"):
            return self._libm(name.removeprefix("libm_"), *operands)
        raise AssertionError(f"{name} must be expanded before code is generated")

    def _float_sign(self, a: Value) -> Value:
        zero, one = self._literal(0.0, a), self._literal(1.0, a)
        below = self.choose(self._compare("lt", a, zero), self._literal(-1.0, a), zero)
        return self.choose(self._compare("lt", zero, a), one, below)

    def _float_mod(self, a: Value, b: Value) -> Value:
        """The remainder with the divisor's sign, zero with the dividend's; exact as C's fmod is."""
        rest = self._binary("frem", a.dtype, a, b)
        zero = self._literal(0.0, a)
        nonzero = self._compare("ne", rest, zero)  # also NaN, which any sum keeps
        differ = self._binary(
            "xor", dtypes.bool_, self._compare("lt", rest, zero), self._compare("lt", b, zero)
        )
        moved = self._binary("fadd", a.dtype, rest, b)
        return self.choose(self.both(nonzero, differ), moved, rest)

    def _float_floordiv(self, a: Value, b: Value) -> Value:
        """The quotient rounded down, from the exact remainder: 1 // 0.1 is 9, not 10."""
        zero, one = self._literal(0.0, a), self._literal(1.0, a)
        plain = self._binary("fdiv", a.dtype, a, b)
        rest = self._binary("frem", a.dtype, a, b)
        exact = self._binary("fdiv", a.dtype, self._binary("fsub", a.dtype, a, rest), b)
        differ = self._binary(
            "xor", dtypes.bool_, self._compare("lt", rest, zero), self._compare("lt", b, zero)
        )
        down = self.both(self._compare("ne", rest, zero), differ)
        quotient = self.choose(down, self._binary("fsub", a.dtype, exact, one), exact)
        whole = self._float("floor", a.dtype, quotient)
        # the division above may have rounded to just below a whole number
        short = self._compare(
            "lt", self._literal(0.5, a), self._binary("fsub", a.dtype, quotient, whole)
        )
        nearest = self.choose(short, self._binary("fadd", a.dtype, whole, one), whole)
        signed_zero = self.intrinsic("copysign", a.dtype, zero, plain)
        rounded = self.choose(self._compare("ne", quotient, zero), nearest, signed_zero)
        return self.choose(self._compare("ne", b, zero), rounded, plain)

    def _libm(self, name: str, *operands: Value) -> Value:
        """A call of the C library in each lane, for the rare ranges that need it."""
        kind = register_type(operands[0].dtype)
        symbol = name + ("f" if kind == "float" else "")
        self.declarations.add(f"declare {kind} @{symbol}({', '.join([kind] * len(operands))})")
        if operands[0].lanes == 1:
            arguments = ", ".join(f"{kind} {o.name}" for o in operands)
            return self.instruction(
                f"call {kind} @{symbol}({arguments})", operands[0].dtype, *operands
            )
        whole = operands[0].type
        result = Value("poison", operands[0].dtype, operands[0].lanes)
        for lane in range(operands[0].lanes):
            parts = [
                self.instruction(f"extractelement {whole} {o.name}, i64 {lane}", o.dtype, o)
                for o in operands
            ]
            arguments = ", ".join(f"{kind} {p.name}" for p in parts)
            call = self.instruction(f"call {kind} @{symbol}({arguments})", result.dtype, *parts)
            text = f"insertelement {whole} {result.name}, {kind} {call.name}, i64 {lane}"
            result = self.instruction(text, result.dtype, result, call)
        return result

    def _integer(self, name: str, dtype: DType, *operands: Value) -> Value:
        a = operands[0]
        signed = a.dtype.kind == "int"
        if name in _INTEGER_BINARY:
            return self._binary(_INTEGER_BINARY[name], dtype, *operands)
        if name in ("max", "min"):
            return self.intrinsic(("s" if signed else "u") + name, dtype, *operands)
        if name in ("floordiv", "mod"):
            return self._integer_division(name, *operands)
        if name in ("shl", "shr"):
            return self._shift(name, *operands)
        if name == "neg":
            return self._binary("sub", dtype, self.widen(Value("0", a.dtype), a.lanes), a)
        if name == "abs":
            if not signed:
                return a
            return self.choose(
                self._compare("lt", a, self.widen(Value("0", a.dtype), a.lanes)),
                self._integer("neg", dtype, a), a,
            )  # fmt: skip
        if name == "sign":
            zero, one = (self.widen(Value(t, a.dtype), a.lanes) for t in ("0", "1"))
            below = self.widen(Value("-1", a.dtype), a.lanes) if signed else zero
            negative = self.choose(self._compare("lt", a, zero), below, zero)
            return self.choose(self._compare("lt", zero, a), one, negative)
        if name == "mulhi":
            wide = [self.convert(o, dtypes.uint64) for o in operands]
            product = self._binary("mul", dtypes.uint64, *wide)
            thirty_two = self.widen(Value("32", dtypes.uint64), product.lanes)
            return self.convert(self._binary("lshr", dtypes.uint64, product, thirty_two), dtype)
        raise AssertionError(f"{name} must be expanded before code is generated")

    def _integer_division(self, name: str, a: Value, b: Value) -> Value:
        """Floor division and remainder, total: by zero they give zero."""
        zero, one = (self.widen(Value(t, a.dtype), a.lanes) for t in ("0", "1"))
        constant = not b.name.startswith("%") and b.name.lstrip("<").split()[-1].rstrip(">") != "0"
        by_zero = None if constant else self._compare("eq", b, zero)
        safe = b if by_zero is None else self.choose(by_zero, one, b)
        if a.dtype.kind == "uint":
            result = self._binary("udiv" if name == "floordiv" else "urem", a.dtype, a, safe)
        else:
            minus = self.widen(Value("-1", a.dtype), a.lanes)
            # the least integer divided by -1 traps in hardware: divide by 1 and negate instead
            negate = None if constant else self._compare("eq", safe, minus)
            divisor = safe if negate is None else self.choose(negate, one, safe)
            quotient = self._binary("sdiv", a.dtype, a, divisor)
            rest = self._binary("sub", a.dtype, a, self._binary("mul", a.dtype, quotient, divisor))
            differ = self._binary(
                "xor", dtypes.bool_, self._compare("lt", rest, zero),
                self._compare("lt", divisor, zero),
            )  # fmt: skip
            adjust = self.both(self._compare("ne", rest, zero), differ)
            if name == "floordiv":
                lower = self.choose(adjust, self._binary("sub", a.dtype, quotient, one), quotient)
                result = (
                    lower
                    if negate is None
                    else self.choose(negate, self._binary("sub", a.dtype, zero, a), lower)
                )
            else:
                upper = self.choose(adjust, self._binary("add", a.dtype, rest, divisor), rest)
                result = upper if negate is None else self.choose(negate, zero, upper)
        return result if by_zero is None else self.choose(by_zero, zero, result)

    def _shift(self, name: str, a: Value, b: Value) -> Value:
        bits = self.widen(Value(str(a.dtype.bits), a.dtype), a.lanes)
        last = self.widen(Value(str(a.dtype.bits - 1), a.dtype), a.lanes)
        inside = self.instruction(f"icmp ult {b.type} {b.name}, {bits.name}", dtypes.bool_, b, bits)
        amount = self.choose(inside, b, last)
        arithmetic = name == "shr" and a.dtype.kind == "int"
        if arithmetic:  # far shifts leave only copies of the sign; negative amounts shift by none
            zero = self.widen(Value("0", a.dtype), a.lanes)
            amount = self.choose(self._compare("lt", b, zero), zero, amount)
            return self._binary("ashr", a.dtype, a, amount)
        shifted = self._binary("shl" if name == "shl" else "lshr", a.dtype, a, amount)
        return self.choose(inside, shifted, self.widen(Value("0", a.dtype), a.lanes))

    def _bitcast(self, a: Value, dtype: DType) -> Value:
        target = vector(register_type(dtype), a.lanes)
        if target == a.type:
            return Value(a.name, dtype, a.lanes, a.depth, a.volatile)
        return self.instruction(f"bitcast {a.type} {a.name} to {target}", dtype, a)

    def convert(self, a: Value, dtype: DType) -> Value:
        """A cast between element types, as `scalars.cast` defines it."""
        target = vector(register_type(dtype), a.lanes)
        source_kind, kind = a.dtype.kind, dtype.kind
        if kind == "bool":
            if source_kind == "bool":
                return a
            if source_kind == "float":
                return self._compare("ne", a, self._literal(0.0, a))
            return self._compare("ne", a, self.widen(Value("0", a.dtype), a.lanes))
        if kind == "float":
            return self._to_float(a, dtype, target)
        if source_kind == "float":
            return self._whole(a, dtype)
        width = 1 if source_kind == "bool" else a.dtype.bits
        if width == dtype.bits:
            return Value(a.name, dtype, a.lanes, a.depth, a.volatile)
        opcode = "trunc" if width > dtype.bits else "sext" if source_kind == "int" else "zext"
        return self.instruction(f"{opcode} {a.type} {a.name} to {target}", dtype, a)

    def _whole(self, a: Value, dtype: DType) -> Value:
        """A float as a whole number; `scalars._whole` says what becomes of large ones."""
        if dtype.bits < 32:
            room = dtypes.int64 if a.dtype is dtypes.float64 else dtypes.int32
            return self.convert(self._saturated(a, room), dtype)
        inside = self._saturated(a, dtype)
        if dtype.kind == "int":
            return inside
        signed = self._saturated(a, dtypes.int32 if dtype.bits == 32 else dtypes.int64)
        negative = self._compare("lt", a, self._literal(0.0, a))
        return self.choose(negative, self.convert(signed, dtype), inside)

    def _saturated(self, a: Value, dtype: DType) -> Value:
        target, sign = vector(register_type(dtype), a.lanes), "s" if dtype.kind == "int" else "u"
        to, source = (mangled(register_type(t), a.lanes) for t in (dtype, a.dtype))
        full = f"llvm.fpto{sign}i.sat.{to}.{source}"
        self.declarations.add(f"declare {target} @{full}({a.type})")
        return self.instruction(f"call {target} @{full}({a.type} {a.name})", dtype, a)

    def _to_float(self, a: Value, dtype: DType, target: str) -> Value:
        if a.dtype.kind != "float":
            opcode = "sitofp" if a.dtype.kind == "int" else "uitofp"
            number = self.instruction(f"{opcode} {a.type} {a.name} to {target}", dtype, a)
            return self.rounded(number, dtype)
        if a.type == target:
            return self.rounded(a, dtype)
        opcode = "fpext" if a.dtype.bits < register_dtype(dtype).bits else "fptrunc"
        number = self.instruction(f"{opcode} {a.type} {a.name} to {target}", dtype, a)
        return self.rounded(number, dtype)

    def rounded(self, a: Value, dtype: DType) -> Value:
        """A float32 register rounded to the precision of a narrow type."""
        if register_dtype(dtype) is dtype:
            return a
        if is_float8(dtype):
            return decode(self, encode(self, a, dtype), dtype)
        if dtype is dtypes.bfloat16:
            return to_upper_half(self, a)
        narrow = vector(memory_type(dtype), a.lanes)
        small = self.instruction(f"fptrunc {a.type} {a.name} to {narrow}", dtype, a)
        return self.instruction(f"fpext {narrow} {small.name} to {a.type}", dtype, a, small)
