"""Smart constructors of expressions: `op`, `cast` and `bitcast` fold and simplify as they build.

The identities themselves are rows of `identities.py`. Each is exact: it holds for every bit
pattern of the operands, wrap-around, signed zeros and NaN included.
"""

from __future__ import annotations

import operator
from collections.abc import Callable
from functools import lru_cache

import ml_dtypes
import numpy as np

from ridgeline import dtypes, scalars
from ridgeline.dtypes import DType
from ridgeline.loops import ir
from ridgeline.loops.ir import Const, Expr, Load, Op

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
        if _swaps(name, types[0]):
            args = (args[1], args[0])
    rule = _IDENTITIES.get(name)
    simpler = rule(*args) if rule is not None else None
    return Op.make(args, dtype, name) if simpler is None else simpler


def cast(expr: Expr, dtype: DType) -> Expr:
    """Convert to another element type: saturating and total, as `scalars.cast` defines it."""
    if expr.dtype is dtype:
        return expr
    if isinstance(expr, Const) and dtype.kind != "complex":
        return constant(scalars.cast(_array(expr), dtype), dtype)
    if isinstance(expr, Op) and expr.name == "cast" and holds(expr.dtype, expr.args[0].dtype):
        return cast(expr.args[0], dtype)
    return Op.make((expr,), dtype, "cast")


def bitcast(expr: Expr, dtype: DType) -> Expr:
    """The same bits read as another type of the same width."""
    if expr.dtype is dtype:
        return expr
    if expr.dtype.itemsize != dtype.itemsize:
        raise TypeError(f"bitcast from {expr.dtype.name} to {dtype.name} changes the width")
    if isinstance(expr, Op) and expr.name == "bitcast":
        return bitcast(expr.args[0], dtype)
    if isinstance(expr, Const) and dtype.kind not in ("bool", "complex"):
        bits = _array(expr).view(dtype.numpy)
        if not (dtype.kind == "float" and np.isnan(bits.astype(np.float64))):
            return constant(bits, dtype)  # a literal NaN would lose its payload
    return Op.make((expr,), dtype, "bitcast")


def rebuild(expr: Expr, operands: tuple[Expr, ...]) -> Expr:
    """`expr` over other operands, simplified again."""
    if isinstance(expr, Load):
        return Load.make(expr.buffer, operands)
    if not isinstance(expr, Op):
        return expr
    if expr.name == "cast":
        return cast(operands[0], expr.dtype)
    if expr.name == "bitcast":
        return bitcast(operands[0], expr.dtype)
    return op(expr.name, *operands)


def holds(wide: DType, narrow: DType) -> bool:
    """True when every value of `narrow` is a value of `wide`."""
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


def _swaps(name: str, dtype: DType) -> bool:
    return name in _COMMUTATIVE or (name in _COMMUTATIVE_INTEGERS and dtype.kind != "float")


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
