"""Index simplification: examples, equality with NumPy on random expressions, and z3 proofs."""

from __future__ import annotations

from operator import add, floordiv, lt, mod, mul, sub

import numpy as np
import pytest
from hypothesis import given, settings, strategies as st

from ridgeline import dtypes
from ridgeline.index.polynomial import Affine
from ridgeline.loops import build, ir
from ridgeline.loops.build import (
    affine,
    bounds,
    free_vars,
    simplify,
    substitute,
)
from ridgeline.loops.interpreter.evaluate import evaluate
from ridgeline.loops.ir import Expr, Hole, Var
from ridgeline.scalars import Array
from tests.loops import solver

I, J, K, N = (Var.make(name) for name in "ijkn")  # noqa: E741
RANGES = {"i": (0, 9), "j": (0, 5), "k": (-7, 23), "n": (100, 200)}


def c(value: int) -> Expr:
    return ir.index(value)


FLAT = I * c(6) + J  # a row of six
SPLIT = K // c(4) * c(4) + K % c(4)
EXAMPLES = [
    (FLAT // c(6), "i"),
    (FLAT % c(6), "j"),
    (FLAT // c(12), "floordiv(i, 2)"),
    (FLAT % c(12), "add(mul(mod(i, 2), 6), j)"),
    ((FLAT + c(1)) // c(6), "add(i, floordiv(add(j, 1), 6))"),
    (SPLIT, "k"),
    (FLAT // c(4) * c(4) + FLAT % c(4), "add(mul(i, 6), j)"),
    (K % c(12) // c(4), "mod(floordiv(k, 4), 3)"),
    (K % c(12) % c(4), "mod(k, 4)"),
    ((K + c(3)) // c(2) // c(3), "floordiv(add(k, 3), 6)"),
    (K // c(12) * c(3) + K // c(4) % c(3), "floordiv(k, 4)"),
    (K // c(-4), "floordiv(neg(k), 4)"),
    (c(60) > FLAT, "True"),
    (c(54) > FLAT, "lt(i, 9)"),
    (c(60) <= FLAT, "False"),
    (I * c(4) + c(2) < J * c(4), "lt(i, j)"),
    ((I * c(2)).eq(c(7)), "False"),
    ((I - J).eq(I - J), "True"),
    (build.minimum(FLAT, c(59)), "add(mul(i, 6), j)"),
    (build.maximum(FLAT, c(59)), "59"),
    ((I * N + J) // N, "i"),
    ((N * I + J) % N, "j"),
    (I + J - (J + I), "0"),
    ((I + c(1)) * (I + c(-1)), "sub(mul(i, i), 1)"),
]


@pytest.mark.parametrize(("expr", "expected"), EXAMPLES, ids=lambda item: str(item))
def test_examples(expr: Expr, expected: str) -> None:
    assert repr(simplify(expr, RANGES)) == expected


@pytest.mark.parametrize("expr", [expr for expr, _ in EXAMPLES], ids=lambda expr: str(expr))
def test_examples_are_proved(expr: Expr) -> None:
    facts = []
    for name in free_vars(expr):
        variable = solver.z3.Int(name)
        facts += [variable >= RANGES[name][0], variable <= RANGES[name][1]]
    simpler = simplify(expr, RANGES)
    solver.prove(solver.translate(expr, True) == solver.translate(simpler, True), *facts)


def test_rules_hold_for_all_constants() -> None:
    z3 = solver.z3
    x, q, r, m, g, k = z3.Ints("x q r m g k")
    positive = [m > 0, g > 0]
    # written with q and r so that the solver need not invent the quotient
    solver.prove(z3.Implies(z3.And(x == g * q + r, r >= 0, r < g), x / g == q), *positive)
    solver.prove((x < 0) == (x / g < 0), *positive)
    solver.prove((g * q + r) / (g * 4) == q / 4, *positive, r >= 0, r < g)
    solver.prove((x / 3 + k) / 5 == (x + 3 * k) / 15)
    solver.prove((x % 12) / 4 == (x / 4) % 3)
    solver.prove((x % 12) % 4 == x % 4)
    solver.prove(6 * (q % 5) + r == (6 * q + r) % 30, r >= 0, r < 6)


_LEAVES = st.one_of(
    st.sampled_from([I, J, K, N]), st.integers(-12, 12).map(ir.index),
    st.just(Hole.make(dtypes.int64, "h")),
    st.just(build.cast(Hole.make(dtypes.int8, "b"), dtypes.int64)),
)  # fmt: skip


def _grow(inner: st.SearchStrategy[Expr]) -> st.SearchStrategy[Expr]:
    small = st.integers(-12, 12).map(ir.index)
    return st.one_of(
        st.builds(add, inner, inner), st.builds(sub, inner, inner), st.builds(mul, inner, small),
        st.builds(mul, inner, inner), st.builds(floordiv, inner, small),
        st.builds(mod, inner, small), st.builds(floordiv, inner, inner),
        st.builds(mod, inner, st.just(N)),
        st.builds(build.minimum, inner, inner), st.builds(build.maximum, inner, inner),
        st.builds(build.select, st.builds(lt, inner, inner), inner, inner),
        st.builds(build.select, st.builds(Expr.eq, inner, inner), inner, inner),
    )  # fmt: skip


EXPRESSIONS = st.recursive(_LEAVES, _grow, max_leaves=12)


def _points(count: int = 64) -> dict[str, Array]:
    rng = np.random.default_rng(7)
    points = {name: rng.integers(low, high + 1, count) for name, (low, high) in RANGES.items()}
    for name, (low, high) in RANGES.items():
        points[name][:4] = [low, high, low, high] if name in "ik" else [low, low, high, high]
    extremes = np.array([0, 1, -1, 2**63 - 1, -(2**63), 2**62, 12345, -(2**61)])
    points["h"] = rng.choice(extremes, count)
    points["b"] = rng.integers(-128, 128, count).astype(np.int8)
    return points


POINTS = _points()


def _value(expr: Expr) -> Array:
    def leaf(node: Expr, operands: list[Array], lanes: Array | None) -> Array:
        assert isinstance(node, (Var, Hole))
        return POINTS[node.name]

    return evaluate([expr], len(POINTS["i"]), leaf)[0]


@settings(max_examples=400, deadline=None)
@given(EXPRESSIONS)
def test_simplify_keeps_the_value(expr: Expr) -> None:
    expected = _value(expr)
    np.testing.assert_array_equal(_value(simplify(expr, RANGES)), expected)
    low, high = bounds(expr, RANGES)
    assert low is None or low <= expected.min()
    assert high is None or expected.max() <= high


@settings(max_examples=200, deadline=None)
@given(EXPRESSIONS, EXPRESSIONS)
def test_comparisons_keep_the_value(a: Expr, b: Expr) -> None:
    for comparison in (a < b, a <= b, a.eq(b), build.op("ne", a, b)):
        np.testing.assert_array_equal(_value(simplify(comparison, RANGES)), _value(comparison))


@settings(max_examples=100, deadline=None)
@given(EXPRESSIONS)
def test_substitute_is_evaluation_elsewhere(expr: Expr) -> None:
    moved = substitute(expr, {I: J + c(3), J: I})
    original = dict(POINTS)
    try:
        expected_points = {**POINTS, "i": POINTS["j"] + 3, "j": POINTS["i"]}
        value = _value(moved)
        POINTS.update(expected_points)
        np.testing.assert_array_equal(value, _value(expr))
    finally:
        POINTS.update(original)


@settings(max_examples=100, deadline=None)
@given(EXPRESSIONS)
def test_affine_is_the_expression(expr: Expr) -> None:
    form = affine(expr)
    if form is not None:
        total = sum((POINTS[name] * k for name, k in form.terms), np.int64(form.offset))
        np.testing.assert_array_equal(np.broadcast_to(total, 64), _value(expr))


def test_deep_expressions_do_not_recurse() -> None:
    expr: Expr = I
    for step in range(3000):
        expr = expr * c(1 + step % 2) + J % c(2 + step % 3)
    assert free_vars(expr) == {"i", "j"}
    assert substitute(expr, {J: c(0)}) is not expr
    deep: Expr = I
    for _ in range(5000):
        deep = build.maximum(deep + c(1), J)
    low, _ = bounds(deep, RANGES)
    assert low == 5000
    assert affine(deep) is None


def test_affine_of_a_row_major_index() -> None:
    assert affine(FLAT - c(2)) == Affine((("i", 6), ("j", 1)), -2)
    assert affine(I * J) is None
    assert affine(FLAT - FLAT) == Affine(())
