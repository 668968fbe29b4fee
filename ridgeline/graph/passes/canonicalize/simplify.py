"""The simplifier: all local rules, applied bottom up in one walk until none fits.

Dead code needs no rule: a walk from the results does not reach it. Common subexpressions need
none either: equal nodes are one node, also when a rewrite makes them equal.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from functools import lru_cache

import ml_dtypes
import numpy as np

from ridgeline.dtypes import DType
from ridgeline.float_errors import float_errors_ignored
from ridgeline.graph.graph import Graph
from ridgeline.graph.node import PROJ, Node, node
from ridgeline.graph.passes.canonicalize.movement import join_parts, simplify_moves
from ridgeline.ops.elementwise import (
    CAST,
    CONSTANT,
    IOTA,
    cast,
    full_like,
    number_in,
    select,
)
from ridgeline.ops.movement import PAD, PERMUTE, RESHAPE, SLICE
from ridgeline.ops.reduce import REDUCE

# ---- constant folding: pointwise work on numbers is done once, by the definition of the op -------
# %0 = constant 2.0        becomes   %0 = constant 6.0
# %1 = constant 3.0
# %2 = mul %0, %1

_IDEMPOTENT = ("max", "min", "any", "all")  # folding equal values gives that value


def fold(node: Node) -> Node | None:
    """The constant that a node always equals."""
    if node.op is IOTA:
        return full_like(node, 0) if node.shape[node.attrs.axis] == 1 else None
    if node.op is CONSTANT or not node.inputs:
        return None
    numbers = [number_in(i) for i in node.inputs]
    if any(number is None for number in numbers):
        return None
    if node.op in (RESHAPE, PERMUTE, SLICE):
        return full_like(node, numbers[0])  # type: ignore[arg-type]
    if node.op is PAD:
        filled = full_like(node, node.attrs.value)
        return filled if filled is full_like(node, numbers[0]) else None  # type: ignore[arg-type]
    if node.op is REDUCE:
        full = 0 not in node.inputs[0].shape
        kept = full and node.attrs.monoid in _IDEMPOTENT
        return full_like(node, numbers[0]) if kept else None  # type: ignore[arg-type]
    if node.op.family != "pointwise":
        return None
    operands = [np.array(n, i.dtype.numpy) for n, i in zip(numbers, node.inputs)]
    with float_errors_ignored():
        value = node.op.value(node, operands)[0]
    return full_like(node, value.item())


# ---- identities ----------------------------------------------------------------------------------

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
    return full_like(node, 0) if a is b and _whole(node) else None


def _mul(node: Node) -> Node | None:
    for kept, other in (node.inputs, reversed(node.inputs)):
        if _is(other, 1):
            return kept
        if _is(other, -1) and node.dtype.kind == "float":
            return -kept
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
        return abs(inner.inputs[0])
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
    """A comparison of a value with itself; for integers only, since NaN differs from itself."""

    def rule(node: Node) -> Node | None:
        a, b = node.inputs
        return full_like(node, holds) if a is b and (_whole(a) or a.dtype.kind == "bool") else None

    return rule


ALGEBRA: dict[str, Rule] = {
    "add": _add, "sub": _sub, "mul": _mul, "div": _div, "neg": _neg, "abs": _abs, "not": _not,
    "max": _same, "min": _same, "and": _same, "or": _same, "select": _select,
    "eq": _compare(True), "le": _compare(True), "ne": _compare(False), "lt": _compare(False),
}  # fmt: skip


def simplify_algebra(node: Node) -> Node | None:
    """Apply the algebraic identities of a node's op."""
    rule = ALGEBRA.get(node.op.name)
    return rule(node) if rule is not None and node.op.family == "pointwise" else None


# ---- cast cancellation: a detour through a type that holds every value changes nothing -----------
# %1 = cast %0 [dtype=float32] : float32[8]      becomes   %0
# %2 = cast %1 [dtype=bfloat16] : bfloat16[8]


def simplify_casts(node: Node) -> Node | None:
    """Drop the first of two casts if it loses nothing."""
    if node.op is not CAST:
        return None
    inner = node.inputs[0]
    if inner.op is not CAST:
        return None
    source = inner.inputs[0]
    return cast(source, node.dtype) if holds_all(inner.dtype, source.dtype) else None


@lru_cache(maxsize=256)
def holds_all(wide: DType, narrow: DType) -> bool:
    """True if every value of `narrow` is a value of `wide`: nothing is rounded or clipped."""
    if wide is narrow or narrow.kind == "bool":
        return True
    if wide.kind == "complex" or narrow.kind == "complex" or wide.kind == "bool":
        return False
    if narrow.kind == "float":
        return wide.kind == "float" and _floats_fit(wide, narrow)
    low, high = np.iinfo(narrow.numpy).min, np.iinfo(narrow.numpy).max
    if wide.kind == "float":
        bits = int(ml_dtypes.finfo(wide.numpy).nmant) + 1
        return max(-int(low), int(high)) <= 1 << bits
    return np.iinfo(wide.numpy).min <= low and high <= np.iinfo(wide.numpy).max


def _floats_fit(wide: DType, narrow: DType) -> bool:
    a, b = ml_dtypes.finfo(wide.numpy), ml_dtypes.finfo(narrow.numpy)
    least = float(a.smallest_subnormal) <= float(b.smallest_subnormal)
    return bool(a.nmant >= b.nmant and least and float(a.max) >= float(b.max))


RULES = (fold, simplify_algebra, simplify_casts, simplify_moves, join_parts)


def simplified(current: Node) -> Node:
    """A node after all rules that fit it, one after another."""
    changed = True
    while changed:
        changed = False
        for rule in RULES:
            made = rule(current)
            if made is not None and made is not current:
                current, changed = made, True
    return current


def simplify(graph: Graph) -> Graph:
    """The graph with every node simplified. Rules look below nodes, so inputs must be leaves."""

    def replace(current: Node, inputs: Sequence[Node]) -> Node | None:
        if current.op is PROJ or len(current.types) != 1:
            return None
        if not inputs and current.op is not IOTA:
            return None
        same = tuple(inputs) == current.inputs
        start = current if same else node(current.op, inputs, current.attrs)
        made = simplified(start)
        return None if made is current else made

    return graph.rebuilt(replace)
