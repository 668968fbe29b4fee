"""Smart constructors of expressions: `op`, `cast` and `bitcast` fold and simplify as they build.

The identities themselves are rows of `identities.py`. Each is exact: it holds for every bit
pattern of the operands, wrap-around, signed zeros and NaN included.
"""

from __future__ import annotations

from collections.abc import Callable

import ml_dtypes
import numpy as np

from ridgeline import dtypes, scalars
from ridgeline.dtypes import DType
from ridgeline.loops import ir
from ridgeline.loops.ir import Const, Expr, Load, Op

_COMMUTATIVE = frozenset({"add", "mul", "eq", "ne", "and", "or", "xor"})
_COMMUTATIVE_INTEGERS = frozenset({"max", "min"})  # floats: the order decides which zero wins

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
    row = scalars.TABLE[name]
    _check(row, args)
    if all(isinstance(arg, Const) for arg in args):
        folded = _fold(name, args)
        if folded is not None:
            return folded
    if isinstance(args[0], Const) and _swaps(name, args[0].dtype):
        args = (args[1], args[0])
    rule = _IDENTITIES.get(name)
    simpler = rule(*args) if rule is not None else None
    if simpler is not None:
        return simpler
    return Op.make(args, scalars.result_type(row, tuple(arg.dtype for arg in args)), name)


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


def _check(row: scalars.ScalarOp, args: tuple[Expr, ...]) -> None:
    types = [arg.dtype for arg in args]
    choice = row.name in ("select", "guarded")
    typed = types[1:] if choice else types
    if len(args) != row.arity or len(set(typed)) != 1 or typed[0].kind not in row.kinds:
        raise TypeError(f"{row.name} does not take ({', '.join(t.name for t in types)})")
    if choice and types[0] is not dtypes.bool_:
        raise TypeError(f"the condition of {row.name} is {types[0].name}, not bool")


def _swaps(name: str, dtype: DType) -> bool:
    return name in _COMMUTATIVE or (name in _COMMUTATIVE_INTEGERS and dtype.kind != "float")


def _array(literal: Const) -> np.ndarray[tuple[()], np.dtype[np.generic]]:
    return np.array(literal.value, literal.dtype.numpy)


def constant(value: scalars.Array, dtype: DType) -> Const:
    """The literal of a zero-dimensional array."""
    number = value.item() if dtype.kind != "float" else float(value)
    return ir.const(number, dtype)


def _fold(name: str, args: tuple[Expr, ...]) -> Const | None:
    if args[-1].dtype.kind == "complex":
        return None
    value = scalars.evaluate(name, *(_array(arg) for arg in args if isinstance(arg, Const)))
    row = scalars.TABLE[name]
    return constant(value, scalars.result_type(row, tuple(arg.dtype for arg in args)))
