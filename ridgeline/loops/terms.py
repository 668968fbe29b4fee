"""Smart constructors: `op`, `cast` and `bitcast` fold and simplify as they build.

Each identity is exact: it holds for every bit pattern of the operands, wrap-around, signed zeros
and NaN included.
"""

from __future__ import annotations

import math
import operator
from collections.abc import Callable
from functools import lru_cache
from typing import Any

import ml_dtypes
import numpy as np

from ridgeline import dtypes, scalars
from ridgeline.dtypes import DType
from ridgeline.loops import ir
from ridgeline.loops.ir import Const, Expr, Load, OpExpr

_COMMUTATIVE = frozenset({"add", "mul", "eq", "ne", "and", "or", "xor"})
_COMMUTATIVE_INTEGERS = frozenset({"max", "min"})  # floats: the order decides which zero wins

# index arithmetic in Python's numbers, which are as good as int64 while they are small
_WHOLE: dict[str, Callable[..., int]] = {
    "add": operator.add, "sub": operator.sub, "mul": operator.mul,
}  # fmt: skip
_PLAIN = 1 << 62

Rule = Callable[..., Expr | None]
_IDENTITIES: dict[str, Rule] = {}


def identity(*names: str) -> Callable[[Rule], Rule]:
    """Register a rule that `op` tries on every term with one of these names."""

    def register(rule: Rule) -> Rule:
        _IDENTITIES.update(dict.fromkeys(names, rule))
        return rule

    return register


def op(name: str, *args: Expr) -> Expr:
    """A scalar operation on operands that agree in type, simplified where that is exact."""
    types = tuple([arg.dtype for arg in args])
    dtype = _result_type(name, types)
    if type(args[0]) is Const:
        folded = _fold(name, args, dtype)
        if folded is not None:
            return folded
        whole = types[0].kind != "float"
        if name in _COMMUTATIVE or (whole and name in _COMMUTATIVE_INTEGERS):
            args = (args[1], args[0])
    rule = _IDENTITIES.get(name)
    simpler = rule(*args) if rule is not None else None
    return OpExpr.make(args, dtype, name) if simpler is None else simpler


def cast(expr: Expr, dtype: DType) -> Expr:
    """Convert to another element type, as `scalars.cast` defines it."""
    if expr.dtype is dtype:
        return expr
    if isinstance(expr, Const) and dtype.kind != "complex":
        return constant(scalars.cast(_array(expr), dtype), dtype)
    if isinstance(expr, OpExpr) and expr.name == "cast" and holds(expr.dtype, expr.args[0].dtype):
        return cast(expr.args[0], dtype)
    return OpExpr.make((expr,), dtype, "cast")


def bitcast(expr: Expr, dtype: DType) -> Expr:
    """The same bits read as another type of the same width."""
    if expr.dtype is dtype:
        return expr
    if expr.dtype.itemsize != dtype.itemsize:
        raise TypeError(f"bitcast from {expr.dtype.name} to {dtype.name} changes the width")
    if isinstance(expr, OpExpr) and expr.name == "bitcast":
        return bitcast(expr.args[0], dtype)
    if isinstance(expr, Const) and dtype.kind not in ("bool", "complex"):
        bits = _array(expr).view(dtype.numpy)
        if not (dtype.kind == "float" and np.isnan(bits.astype(np.float64))):
            return constant(bits, dtype)  # a literal NaN would lose its payload
    return OpExpr.make((expr,), dtype, "bitcast")


def rebuild(expr: Expr, operands: tuple[Expr, ...]) -> Expr:
    """`expr` over other operands, simplified again."""
    if isinstance(expr, Load):
        return Load.make(expr.buffer, operands)
    if not isinstance(expr, OpExpr):
        return expr
    if expr.name == "cast":
        return cast(operands[0], expr.dtype)
    if expr.name == "bitcast":
        return bitcast(operands[0], expr.dtype)
    return op(expr.name, *operands)


def holds(wide: DType, narrow: DType) -> bool:
    """True if every value of `narrow` is a value of `wide`."""
    if wide is narrow or narrow.kind == "bool":
        return True
    if (
        wide.kind == "bool"
        or "complex" in (wide.kind, narrow.kind)
        or narrow.kind == "float" != (wide.kind)
    ):
        return False
    if narrow.kind == "float":
        low, high = ml_dtypes.finfo(narrow.numpy), ml_dtypes.finfo(wide.numpy)
        infinite = narrow is dtypes.float8_e4m3fn or wide is not dtypes.float8_e4m3fn
        exponents = low.maxexp <= high.maxexp and low.minexp - low.nmant >= high.minexp - high.nmant
        return bool(infinite and exponents and low.nmant <= high.nmant)
    digits = narrow.bits - (narrow.kind == "int")
    if wide.kind == "float":
        finfo = ml_dtypes.finfo(wide.numpy)
        return bool(digits <= finfo.nmant + 1 and digits < finfo.maxexp)
    if wide.kind == "uint":
        return narrow.kind == "uint" and narrow.bits <= wide.bits
    return digits <= wide.bits - 1


@lru_cache(maxsize=4096)
def _result_type(name: str, types: tuple[DType, ...]) -> DType:
    """The type of an operation on operands of these types, which must agree."""
    row = scalars.TABLE[name]
    choice = name in ("select", "guarded")
    typed = types[1:] if choice else types
    if len(types) != row.arity or len(set(typed)) != 1 or typed[0].kind not in row.kinds:
        raise TypeError(f"{name} does not take ({', '.join(t.name for t in types)})")
    if choice and types[0] is not dtypes.bool_:
        raise TypeError(f"the condition of {name} is {types[0].name}, not bool")
    return scalars.result_type(row, types)


def _array(literal: Const) -> np.ndarray[tuple[()], np.dtype[np.generic]]:
    return np.array(literal.value, literal.dtype.numpy)


def constant(value: scalars.Array, dtype: DType) -> Const:
    """The literal of a zero-dimensional array."""
    number = value.item() if dtype.kind != "float" else float(value)
    return ir.const(number, dtype)


def _fold(name: str, args: tuple[Expr, ...], dtype: DType) -> Const | None:
    """The literal that an operation on literals gives."""
    literals = [arg for arg in args if type(arg) is Const]
    if len(literals) < len(args) or literals[-1].dtype.kind == "complex":
        return None
    if all(arg.dtype is dtypes.int64 for arg in literals) and name in _WHOLE:
        found = _WHOLE[name](*[int(arg.text) for arg in literals])
        if -_PLAIN < found < _PLAIN:
            return ir.index(found)
    return constant(scalars.evaluate(name, *map(_array, literals)), dtype)


# ---- operators of expressions --------------------------------------------------------------------

_OPERATORS = {
    "add": "add", "sub": "sub", "mul": "mul", "truediv": "div", "floordiv": "floordiv",
    "mod": "mod", "and": "and", "or": "or", "xor": "xor", "lshift": "shl", "rshift": "shr",
}  # fmt: skip


def _binary(name: str, reflected: bool = False) -> Callable[[Expr, Any], Expr]:
    def operator(self: Expr, other: Any) -> Expr:
        if not isinstance(other, Expr):
            other = ir.const(other, self.dtype)
        return op(name, other, self) if reflected else op(name, self, other)

    return operator


def _unary(name: str) -> Callable[[Expr], Expr]:
    return lambda self: op(name, self)


for _symbol, _name in _OPERATORS.items():
    setattr(Expr, f"__{_symbol}__", _binary(_name))
    setattr(Expr, f"__r{_symbol}__", _binary(_name, reflected=True))
for _name in ("lt", "le"):
    setattr(Expr, f"__{_name}__", _binary(_name))
    setattr(Expr, f"__g{_name[1]}__", _binary(_name, reflected=True))
for _name in ("eq", "ne"):
    setattr(Expr, _name, _binary(_name))
for _symbol, _name in (("neg", "neg"), ("invert", "not"), ("abs", "abs")):
    setattr(Expr, f"__{_symbol}__", _unary(_name))


# ---- identities of scalar operations, applied by `op` whenever a term is built -------------------
# A rule takes the operands of one operation (literals stand on the right of commutative ones) and
# returns a simpler equal expression, or None. `tests/loops/test_identities.py` proves them with z3.


__all__ = ["bitcast", "cast", "holds", "op", "rebuild"]

_ROUNDINGS = ("floor", "ceil", "round", "trunc")
_Rule = Callable[[Expr, Expr], Expr | None]


def _is(expr: Expr, value: int | float) -> bool:
    """True for the literal `value`; 0.0 and -0.0 are told apart."""
    if not isinstance(expr, Const) or expr.dtype.kind == "bool":
        return False
    found = expr.value
    same_sign = math.copysign(1.0, found) == math.copysign(1.0, value)
    return found == value and (found != 0 or expr.dtype.kind != "float" or same_sign)


def _is_bool(expr: Expr, value: bool) -> bool:
    return isinstance(expr, Const) and expr.dtype is dtypes.bool_ and expr.value == value


def _named(expr: Expr, name: str) -> tuple[Expr, ...] | None:
    return expr.args if isinstance(expr, OpExpr) and expr.name == name else None


def _integral(expr: Expr) -> bool:
    return expr.dtype.kind in ("int", "uint")


def _zero(expr: Expr) -> Const:
    return ir.const(0, expr.dtype)


def _offset(expr: Expr) -> tuple[Expr, int]:
    """An integer expression as (base, literal added to it)."""
    if isinstance(expr, OpExpr) and expr.name in ("add", "sub") and isinstance(expr.args[1], Const):
        amount = int(expr.args[1].value)
        return expr.args[0], amount if expr.name == "add" else -amount
    return expr, 0


def _shifted(base: Expr, amount: int) -> Expr:
    """`base + amount` in the one form used for it: a positive literal added or subtracted."""
    dtype = base.dtype
    span = 1 << dtype.bits
    amount %= span
    if dtype.kind == "int" and amount > span // 2:
        return OpExpr.make((base, ir.const(span - amount, dtype)), dtype, "sub")
    if dtype.kind == "int" and amount == span // 2:
        amount -= span
    return OpExpr.make((base, ir.const(amount, dtype)), dtype, "add") if amount else base


@identity("neg")
def _neg(x: Expr) -> Expr | None:
    if inner := _named(x, "neg"):
        return inner[0]
    if (inner := _named(x, "sub")) and _integral(x) and not isinstance(inner[1], Const):
        return op("sub", inner[1], inner[0])
    return None


@identity("abs")
def _abs(x: Expr) -> Expr | None:
    if x.dtype.kind == "uint" or _named(x, "abs"):
        return x
    inner = _named(x, "neg")
    return op("abs", inner[0]) if inner else None


@identity(*_ROUNDINGS)
def _rounding(x: Expr) -> Expr | None:
    whole = isinstance(x, OpExpr) and (
        x.name in _ROUNDINGS
        or (x.name == "cast" and x.args[0].dtype.kind in ("bool", "int", "uint"))
    )
    return x if whole else None


@identity("not")
def _not(x: Expr) -> Expr | None:
    if inner := _named(x, "not"):
        return inner[0]
    if isinstance(x, OpExpr) and x.name in ("eq", "ne"):
        return op("ne" if x.name == "eq" else "eq", *x.args)
    if isinstance(x, OpExpr) and x.name in ("lt", "le") and _integral(x.args[0]):
        return op("le" if x.name == "lt" else "lt", x.args[1], x.args[0])
    return None


@identity("add")
def _add(a: Expr, b: Expr) -> Expr | None:
    if inner := _named(b, "neg"):
        return op("sub", a, inner[0])
    if inner := _named(a, "neg"):
        return op("sub", b, inner[0])
    if _is(b, -0.0):
        return a
    if _integral(a) and isinstance(b, Const):
        base, amount = _offset(a)
        return _shifted(base, amount + int(b.value))
    return None


@identity("sub")
def _sub(a: Expr, b: Expr) -> Expr | None:
    if inner := _named(b, "neg"):
        return op("add", a, inner[0])
    if _is(a, -0.0):  # also the integer 0
        return op("neg", b)
    if _is(b, 0.0):
        return a
    if _integral(a) and a is b:
        return _zero(a)
    if _integral(a) and isinstance(b, Const):
        base, amount = _offset(a)
        return _shifted(base, amount - int(b.value))
    return None


@identity("mul")
def _mul(a: Expr, b: Expr) -> Expr | None:
    if _is(b, 1):
        return a
    if _is(b, -1):
        return op("neg", a)
    if (left := _named(a, "neg")) and (right := _named(b, "neg")):
        return op("mul", left[0], right[0])
    if _integral(a) and isinstance(b, Const):
        if _is(b, 0):
            return b
        inner = _named(a, "mul")
        if inner and isinstance(inner[1], Const):
            return op("mul", inner[0], op("mul", inner[1], b))
    return None


@identity("div")
def _div(a: Expr, b: Expr) -> Expr | None:
    if not isinstance(b, Const) or b.dtype.kind != "float" or not b.value:
        return None
    inverse = 1.0 / b.value
    exact = constant(scalars.cast(np.array(inverse), b.dtype), b.dtype)
    power_of_two = math.isfinite(b.value) and abs(math.frexp(b.value)[0]) == 0.5
    return op("mul", a, exact) if power_of_two and exact.value == inverse else None


@identity("floordiv")
def _floordiv(a: Expr, b: Expr) -> Expr | None:
    if not _integral(a):
        return None
    if _is(b, 1):
        return a
    if _is(a, 0) or _is(b, 0):
        return _zero(a)
    inner = _named(a, "floordiv")
    if inner and isinstance(b, Const) and isinstance(inner[1], Const):
        product = int(inner[1].value) * int(b.value)
        if min(inner[1].value, b.value) > 0 and product <= np.iinfo(a.dtype.numpy).max:
            return op("floordiv", inner[0], ir.const(product, a.dtype))
    return None


@identity("mod")
def _mod(a: Expr, b: Expr) -> Expr | None:
    if not _integral(a):
        return None
    if _is(b, 1) or _is(b, 0) or _is(a, 0):
        return _zero(a)
    inner = _named(a, "mod")
    return a if inner and inner[1] is b else None


@identity("pow")
def _pow(a: Expr, b: Expr) -> Expr | None:
    if _is(b, 0) or _is(b, -0.0):
        return ir.const(1, a.dtype)
    return a if _is(b, 1) else None


def _extreme(name: str) -> _Rule:
    sign = 1.0 if name == "max" else -1.0

    def rule(a: Expr, b: Expr) -> Expr | None:
        if a is b or _is(b, -sign * math.inf):
            return a
        inner = _named(a, name)
        if _integral(a) and isinstance(b, Const):
            limits = np.iinfo(a.dtype.numpy)
            if b.value == (limits.min if sign > 0 else limits.max):
                return a
            if inner and isinstance(inner[1], Const):
                return op(name, inner[0], op(name, inner[1], b))
        return a if inner and _integral(a) and b in inner else None

    return rule


def _compare(name: str) -> _Rule:
    def rule(a: Expr, b: Expr) -> Expr | None:
        if a is b and (name == "lt" or (a.dtype.kind != "float" and a.dtype.kind != "complex")):
            return ir.const(name in ("le", "eq"), dtypes.bool_)
        if a.dtype is dtypes.bool_ and name in ("eq", "ne") and isinstance(b, Const):
            return a if b.value == (name == "eq") else op("not", a)
        if a.dtype.kind == "uint" and (
            (name == "lt" and _is(b, 0)) or (name == "le" and _is(a, 0))
        ):
            return ir.const(name == "le", dtypes.bool_)
        return None

    return rule


def _bits(name: str) -> _Rule:
    def rule(a: Expr, b: Expr) -> Expr | None:
        none = _is(b, 0) or _is_bool(b, False)
        ones = _is(b, -1 if b.dtype.kind == "int" else (1 << b.dtype.bits) - 1)
        if name == "xor":
            if a is b:
                return ir.const(0, a.dtype)
            return a if none else op("not", a) if ones or _is_bool(b, True) else None
        neutral, absorbing = (ones or _is_bool(b, True)), none
        if name == "or":
            neutral, absorbing = absorbing, neutral
        return a if neutral or a is b else b if absorbing else None

    return rule


@identity("shl", "shr")
def _shift(a: Expr, b: Expr) -> Expr | None:
    return a if _is(b, 0) or _is(a, 0) else None


@identity("select")
def _select(condition: Expr, yes: Expr, no: Expr) -> Expr | None:
    if isinstance(condition, Const):
        return yes if condition.value else no
    if yes is no:
        return yes
    if inner := _named(condition, "not"):
        return op("select", inner[0], no, yes)
    if _is_bool(yes, True) and _is_bool(no, False):
        return condition
    if _is_bool(yes, False) and _is_bool(no, True):
        return op("not", condition)
    if (inner := _named(yes, "select")) and inner[0] is condition:
        return op("select", condition, inner[1], no)
    if (inner := _named(no, "select")) and inner[0] is condition:
        return op("select", condition, yes, inner[2])
    return None


@identity("guarded")
def _guarded(condition: Expr, yes: Expr, no: Expr) -> Expr | None:
    if isinstance(condition, Const):
        return yes if condition.value else no
    if yes is no:
        return yes
    worthwhile = any(_is_dear(node) for node in ir.subexpressions(yes))
    return None if worthwhile else op("select", condition, yes, no)


def _is_dear(node: Expr) -> bool:
    """What guards exist for: memory that may not be read, calls that should not be made."""
    return isinstance(node, Load) or (isinstance(node, OpExpr) and node.name.startswith("libm_"))


@identity("fma")
def _fma(a: Expr, b: Expr, c: Expr) -> Expr | None:
    if _is(c, -0.0):
        return op("mul", a, b)
    if _is(b, 1):
        return op("add", a, c)
    return op("add", b, c) if _is(a, 1) else None


for _family, _names in (
    (_extreme, ("max", "min")),
    (_compare, ("lt", "le", "eq", "ne")),
    (_bits, ("and", "or", "xor")),
):
    for _name in _names:
        identity(_name)(_family(_name))
