"""Value ranges: bounds of an expression from the expression alone.

An angle that is known to be small needs no path for large ones, and the logarithm of what is known
to be positive no tests for what is not.
"""

from __future__ import annotations

import math

import numpy as np

from ridgeline import dtypes
from ridgeline.dtypes import DType
from ridgeline.float_errors import float_errors_ignored
from ridgeline.index.intervals import RULES
from ridgeline.loops.ir import Const, Expr, OpExpr

Bounds = tuple[float, float]
_KNOWN = ("cast", "neg", "abs", "shr", "mul", "add", "sub")


def largest(expr: Expr) -> float:
    """A bound on the magnitude of a number; infinite if nothing is known."""
    low, high = bounds(expr)
    return max(abs(low), abs(high))


def bounds(expr: Expr) -> Bounds:
    """The least and the largest value of a number; if both are finite, it is not NaN."""
    found: dict[Expr, Bounds] = {}
    stack = [expr]
    while stack:
        current = stack[-1]
        operands = current.args if isinstance(current, OpExpr) and current.name in _KNOWN else ()
        missing = [operand for operand in operands if operand not in found]
        if missing:
            stack += missing
            continue
        stack.pop()
        found[current] = _bounds(current, [found[operand] for operand in operands])
    return found[expr]


def _bounds(expr: Expr, operands: list[Bounds]) -> Bounds:
    anything = _of_type(expr.dtype)
    if isinstance(expr, Const):
        return (expr.value, expr.value) if math.isfinite(expr.value) else anything
    found = _of_op(expr, operands) if isinstance(expr, OpExpr) and operands else None
    if found is None:
        return anything
    low, high = found
    if expr.dtype.kind == "float":
        return _rounded(low, high, expr.dtype)
    inside = anything[0] <= low and high <= anything[1]  # else it wraps around
    return found if inside else anything


def _of_type(dtype: DType) -> Bounds:
    if dtype is dtypes.bool_:
        return 0, 1
    if not dtype.is_integer:
        return -math.inf, math.inf
    limits = np.iinfo(dtype.numpy)
    return int(limits.min), int(limits.max)


def _of_op(expr: OpExpr, operands: list[Bounds]) -> Bounds | None:
    """Bounds from those of the operands, before rounding or wrap-around."""
    (low, high), *others = operands
    if expr.name == "cast":
        rounds = expr.args[0].dtype.kind == "float" or expr.dtype is dtypes.bool_
        return None if rounds and expr.dtype.kind != "float" else (low, high)
    if expr.name == "shr":
        count = expr.args[1]
        if not isinstance(count, Const) or not 0 <= count.value < expr.dtype.bits:
            return None
        return int(low) >> int(count.value), int(high) >> int(count.value)
    if expr.name == "mul" and not all(map(math.isfinite, (low, high, *others[0]))):
        return None  # 0 times infinity is NaN
    return RULES[expr.name](*operands)


def _rounded(low: float, high: float, dtype: DType) -> Bounds:
    """Bounds in a type, from bounds in float64: rounding is monotonic."""
    with float_errors_ignored():
        ends = np.nextafter([low, high], [-math.inf, math.inf])
        if dtype is not dtypes.float64:
            ends = ends.astype(np.float32).astype(dtype.numpy)
        least, most = (float(end) for end in ends)
    return (least, most) if math.isfinite(least) and math.isfinite(most) else _of_type(dtype)
