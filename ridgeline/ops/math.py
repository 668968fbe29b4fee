"""Elementwise functions of nodes under their mathematical names, for formulas."""

from __future__ import annotations

from collections.abc import Callable

from ridgeline.graph.node import Node, node
from ridgeline.ops.elementwise import ROWS


def _unary(name: str) -> Callable[[Node], Node]:
    row = ROWS[name]
    return lambda x: node(row, (x,))


def _binary(name: str) -> Callable[[Node, Node], Node]:
    row = ROWS[name]
    return lambda a, b: node(row, (a, b))


exp, exp2, expm1 = _unary("exp"), _unary("exp2"), _unary("expm1")
log, log1p, sqrt, reciprocal = _unary("log"), _unary("log1p"), _unary("sqrt"), _unary("reciprocal")
sin, cos, sinh, cosh, asinh = map(_unary, ("sin", "cos", "sinh", "cosh", "asinh"))
floor, ceil, trunc, round = map(_unary, ("floor", "ceil", "trunc", "round"))
sign, signed, isnan = _unary("sign"), _unary("signed"), _unary("isnan")
maximum, minimum = _binary("max"), _binary("min")
atan2, hypot, copysign, fmod = map(_binary, ("atan2", "hypot", "copysign", "fmod"))
