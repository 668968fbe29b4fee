"""Operators of nodes and of expressions are the ops of the table, operands in their order."""

from __future__ import annotations

import operator
from collections.abc import Callable
from typing import Any

import pytest

from ridgeline import dtypes
from ridgeline.graph.node import TensorType, leaf
from ridgeline.loops import ir
from ridgeline.loops.build import op
from ridgeline.ops.elementwise import apply, full_like

BINARY: dict[str, Callable[[Any, Any], Any]] = {
    "add": operator.add, "sub": operator.sub, "mul": operator.mul, "div": operator.truediv,
    "floordiv": operator.floordiv, "mod": operator.mod, "lt": operator.lt, "le": operator.le,
    "eq": lambda a, b: a.eq(b), "ne": lambda a, b: a.ne(b),
}  # fmt: skip
A, B = (leaf(TensorType((4, 3), dtypes.float32)) for _ in range(2))
X, Y = (ir.Hole.make(dtypes.float32, name) for name in "xy")


@pytest.mark.parametrize("name", BINARY)
def test_of_two_operands(name: str) -> None:
    made = BINARY[name]
    assert made(A, B) is apply(name, A, B)
    assert made(A, 2.5) is apply(name, A, full_like(A, 2.5))
    if name != "floordiv":  # of expressions, whole numbers alone
        assert made(X, Y) is op(name, X, Y)
        assert made(X, 2.5) is op(name, X, ir.const(2.5, dtypes.float32))
    if name not in ("eq", "ne"):
        assert made(2.5, A) is apply(name, full_like(A, 2.5), A)


def test_of_one_operand() -> None:
    assert -A is apply("neg", A)
    assert abs(A) is apply("abs", A)
    assert ~(A < B) is apply("not", apply("lt", A, B))
    assert (A > B) is apply("lt", B, A)
    assert (B >= A) is apply("le", A, B)
    assert -X is op("neg", X)


def test_a_node_is_itself_alone_and_neither_true_nor_false() -> None:
    assert A == A
    assert A != B
    assert len({A, B, A}) == 2
    with pytest.raises(TypeError, match="neither true nor false"):
        bool(A < B)
