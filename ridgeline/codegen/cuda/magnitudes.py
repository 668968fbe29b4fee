"""How large a value can be, from the expression alone: an angle that is known to be small needs no
path for large ones."""

from __future__ import annotations

import math

from ridgeline.loops import ir
from ridgeline.loops.ir import Const, Expr, Op


def largest(expr: Expr) -> float:
    """A bound on the magnitude of a number; infinite where nothing is known."""
    bounds: dict[Expr, float] = {}
    for part in ir.subexpressions(expr):
        bounds[part] = _bound(part, [bounds[operand] for operand in ir.children(part)])
    return bounds[expr]


def _bound(expr: Expr, operands: list[float]) -> float:
    if isinstance(expr, Const):
        return abs(expr.value)
    kind = expr.dtype.kind
    most = {"bool": 1.0, "uint": 2.0**expr.dtype.bits, "int": 2.0**expr.dtype.bits}
    anything = most.get(kind, math.inf)
    if not isinstance(expr, Op):
        return anything
    if expr.name in ("cast", "neg", "abs") and expr.args[0].dtype.kind != "bool":
        found = operands[0]
    elif expr.name == "shr" and kind == "uint" and isinstance(expr.args[1], Const):
        found = operands[0] / 2.0 ** min(int(expr.args[1].value), expr.dtype.bits)
    elif expr.name == "mul" and kind == "float":
        found = operands[0] * operands[1]
    elif expr.name in ("add", "sub") and kind == "float":
        found = operands[0] + operands[1]
    else:
        found = math.inf
    return min(found, anything)
