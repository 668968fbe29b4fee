"""Algebraic simplification: identities that hold to the bit, for NaN, infinities and -0 too.

%1 = neg %0              becomes   %1 = mul %0, %x
%2 = neg %1
%3 = mul %2, %x

x + 0 is not among them for floats: -0 + 0 is 0.
"""

from __future__ import annotations

import math
from collections.abc import Callable

from ridgeline.graph.node import Node
from ridgeline.graph.passes.canonicalize.splat import number_in, uniform
from ridgeline.ops.elementwise import apply, neg, select

Rule = Callable[[Node], Node | None]


def _is(node: Node, value: float) -> bool:
    number = number_in(node)
    if number is None or number != value or isinstance(number, complex):
        return False  # a complex product has parts that may be infinite times zero
    return not (value == 0 and isinstance(number, float) and math.copysign(1, number) < 0)


def _is_minus_zero(node: Node) -> bool:
    number = number_in(node)
    return isinstance(number, float) and number == 0 and math.copysign(1, number) < 0


def _whole(node: Node) -> bool:
    return node.dtype.kind in ("int", "uint")


def _add(node: Node) -> Node | None:
    for kept, other in (node.inputs, reversed(node.inputs)):
        if _is_minus_zero(other) or (_whole(node) and _is(other, 0)):
            return kept
    return None


def _sub(node: Node) -> Node | None:
    a, b = node.inputs
    if _is(b, 0):
        return a
    return uniform(0, node) if a is b and _whole(node) else None


def _mul(node: Node) -> Node | None:
    for kept, other in (node.inputs, reversed(node.inputs)):
        if _is(other, 1):
            return kept
        if _is(other, -1) and node.dtype.kind == "float":
            return neg(kept)
        if _whole(node) and _is(other, 0):
            return other
    return None


def _div(node: Node) -> Node | None:
    return node.inputs[0] if _is(node.inputs[1], 1) else None


def _neg(node: Node) -> Node | None:
    inner = node.inputs[0]
    return inner.inputs[0] if inner.op.name == "neg" else None


def _abs(node: Node) -> Node | None:
    inner = node.inputs[0]
    if inner.op.name == "neg" and node.dtype.kind == "float":
        return apply("abs", inner.inputs[0])
    return inner if inner.op.name == "abs" else None


def _not(node: Node) -> Node | None:
    inner = node.inputs[0]
    return inner.inputs[0] if inner.op.name == "not" else None


def _same(node: Node) -> Node | None:
    """max, min, and, or of a value with itself."""
    a, b = node.inputs
    return a if a is b else None


def _select(node: Node) -> Node | None:
    condition, yes, no = node.inputs
    decided = number_in(condition)
    if decided is not None:
        return yes if decided else no
    if yes is no:
        return yes
    if condition.op.name == "not":
        return select(condition.inputs[0], no, yes)
    return None


def _compare(holds: bool) -> Rule:
    """A comparison of a value with itself; NaN differs from itself, so of whole numbers only."""

    def rule(node: Node) -> Node | None:
        a, b = node.inputs
        return uniform(holds, node) if a is b and (_whole(a) or a.dtype.kind == "bool") else None

    return rule


ALGEBRA: dict[str, Rule] = {
    "add": _add, "sub": _sub, "mul": _mul, "div": _div, "neg": _neg, "abs": _abs, "not": _not,
    "max": _same, "min": _same, "and": _same, "or": _same, "select": _select,
    "eq": _compare(True), "le": _compare(True), "ne": _compare(False), "lt": _compare(False),
}  # fmt: skip


def simplify_algebra(node: Node) -> Node | None:
    """A simpler node of the same value."""
    rule = ALGEBRA.get(node.op.name)
    return rule(node) if rule is not None and node.op.family == "pointwise" else None
