"""Means and variances of columns in one reading, and sums of deviations that are not computed."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from ridgeline import dtypes
from ridgeline.graph.graph import Graph
from ridgeline.graph.interpreter import evaluate
from ridgeline.graph.node import Node, TensorType, leaf, topological
from ridgeline.graph.passes.contractions.one_pass_moments import one_pass_moments
from ridgeline.ops.differentiate import reverse
from ridgeline.ops.elementwise import add, apply, cast, div, full_like, mul, neg, sub
from ridgeline.ops.movement import broadcast
from ridgeline.ops.reduce import REDUCE, sum_
from tests.compiler.passing import optimized

SHAPE = (6, 3, 5, 4)
AXES = (0, 2, 3)
COUNT = 6 * 5 * 4


def deviations(x: Node) -> tuple[Node, Node]:
    """The mean along the columns, and what is left of the values without it."""
    total = sum_(x, AXES)
    mean = div(total, full_like(total, COUNT))
    return mean, sub(x, broadcast(mean, x.shape, (1,)))


def variance(x: Node) -> tuple[Node, Node]:
    mean, d = deviations(x)
    squares = sum_(mul(d, d), AXES)
    return mean, div(squares, full_like(squares, COUNT))


def once(*roots: Node) -> list[Node]:
    return optimized(*roots, shared_bytes=1 << 16)


def left_alone(*roots: Node) -> bool:
    return one_pass_moments(Graph.below(roots)).outputs == roots


def folds(roots: list[Node]) -> list[Node]:
    return [n for n in topological(roots) if n.op is REDUCE]


@pytest.mark.parametrize("offset", [0.0, 3.0, 200.0])
def test_mean_and_variance_need_nothing_of_one_another(offset: float) -> None:
    narrow = leaf(TensorType(SHAPE, dtypes.bfloat16))
    roots = once(*variance(cast(narrow, dtypes.float32)))
    first, second = folds(roots)
    assert first not in topological([second]) and second not in topological([first])
    data = (np.random.default_rng(0).standard_normal(SHAPE) + offset).astype(narrow.dtype.numpy)
    mean, spread = evaluate(roots, {narrow: data})
    exact = data.astype(np.float64)
    np.testing.assert_allclose(mean, exact.mean(AXES), rtol=1e-6, atol=1e-6)
    np.testing.assert_allclose(spread, exact.var(AXES), rtol=1e-5)


def test_equal_values_have_no_variance() -> None:
    narrow = leaf(TensorType(SHAPE, dtypes.float16))
    roots = once(*variance(cast(narrow, dtypes.float32)))
    _, spread = evaluate(roots, {narrow: np.full(SHAPE, 12345, np.float16)})
    np.testing.assert_array_equal(spread, 0)


def test_float32_is_read_twice_and_rows_are_left_alone() -> None:
    wide = leaf(TensorType(SHAPE, dtypes.float32))
    assert left_alone(*variance(wide))
    narrow = leaf(TensorType((8, 16), dtypes.bfloat16))
    x = cast(narrow, dtypes.float32)
    total = sum_(x, (1,))
    d = sub(x, broadcast(div(total, full_like(total, 16)), x.shape, (0,)))
    rows = sum_(mul(d, d), (1,))
    assert left_alone(rows)


def test_a_sum_of_deviations_is_not_computed() -> None:
    narrow, scale = leaf(TensorType(SHAPE, dtypes.bfloat16)), leaf(TensorType((3,), dtypes.float32))
    _, d = deviations(cast(narrow, dtypes.float32))
    scaled = mul(broadcast(scale, SHAPE, (1,)), d)
    roots = once(sum_(neg(add(scaled, scaled)), AXES))
    assert not folds(roots)
    given = {narrow: np.ones(SHAPE, narrow.dtype.numpy), scale: np.ones(3, np.float32)}
    np.testing.assert_array_equal(evaluate(roots, given)[0], 0)


def test_what_is_the_same_for_a_sum_stands_behind_it() -> None:
    a, b = (leaf(TensorType(SHAPE, dtypes.float32)) for _ in range(2))
    scale = leaf(TensorType((3,), dtypes.float32))
    spread = broadcast(scale, SHAPE, (1,))
    first = sum_(mul(mul(a, spread), b), AXES)
    second = sum_(neg(mul(a, div(mul(b, spread), spread))), AXES)
    roots = once(first, second)
    assert len(folds(roots)) == 1  # both are factors times one sum
    rng = np.random.default_rng(0)
    given = {n: rng.integers(1, 5, n.shape).astype(np.float32) for n in (a, b, scale)}
    for got, wanted in zip(evaluate(roots, given), evaluate([first, second], given)):
        np.testing.assert_allclose(got, wanted, rtol=1e-6)


def test_batch_norm_reads_memory_twice_each_way() -> None:
    narrow, outer = (leaf(TensorType(SHAPE, dtypes.bfloat16)) for _ in range(2))
    weight = leaf(TensorType((3,), dtypes.float32))
    x = cast(narrow, dtypes.float32)
    mean, spread = variance(x)
    d = sub(x, broadcast(mean, SHAPE, (1,)))
    scale = apply("reciprocal", apply("sqrt", add(spread, full_like(spread, 1e-5))))
    normal = mul(d, broadcast(scale, SHAPE, (1,)))
    y = cast(mul(normal, broadcast(weight, SHAPE, (1,))), dtypes.bfloat16)
    gradients = reverse([y], [outer], [narrow, weight])
    roots = [y, *(g for g in gradients if g is not None)]
    made = once(*roots)
    assert len(folds(made)) == 4  # shifted sums of values and squares, sums of dy and dy * d
    assert len(folds(optimized(*roots))) > 4
    rng = np.random.default_rng(1)
    given: dict[Node, Any] = {
        n: rng.standard_normal(n.shape).astype(n.dtype.numpy) for n in (narrow, outer, weight)
    }
    for got, wanted in zip(evaluate(made, given), evaluate(roots, given)):
        got, wanted = (np.asarray(v, np.float64) for v in (got, wanted))
        assert np.linalg.norm(got - wanted) <= 4e-3 * np.linalg.norm(wanted)
