"""Monoids: neutral initial values, associativity, commutativity, and agreement with NumPy."""

from __future__ import annotations

import numpy as np
import pytest

from ridgeline import dtypes
from ridgeline.dtypes import DType
from ridgeline.loops.interpreter.evaluate import evaluate
from ridgeline.loops.ir import Expr, Hole
from ridgeline.loops.monoids import MONOIDS, Monoid
from ridgeline.scalars import Array

NAN, INF = np.nan, np.inf
VALUES = {
    "float": np.array([0.0, -0.0, 1.5, -2.0, 3.0, 3.0, NAN, INF, -INF, 1e10]),
    "int": np.array([0, 1, -1, 7, 7, 100, -100, 127, -128, 3]),
    "bool": np.array([True, False] * 5),
}


def types_of(monoid: Monoid, first: DType) -> tuple[DType, ...]:
    if monoid.name.startswith(("arg", "last")):
        return (first, dtypes.int64)
    return (first,) * monoid.arity


def join(
    monoid: Monoid, left: list[Array], right: list[Array], types: tuple[DType, ...]
) -> list[Array]:
    holes = [[Hole.make(t, f"{side}{n}") for n, t in enumerate(types)] for side in "lr"]
    values = dict(zip([*holes[0], *holes[1]], [*left, *right]))

    def leaf(node: Expr, operands: list[Array], lanes: Array | None) -> Array:
        assert isinstance(node, Hole)
        return values[node]

    results = monoid.join(tuple(holes[0]), tuple(holes[1]))
    assert tuple(result.dtype for result in results) == types
    return evaluate(results, len(left[0]), leaf)


def lifted(monoid: Monoid, types: tuple[DType, ...]) -> list[Array]:
    """Single elements, as a reduction would lift them."""
    values = VALUES[types[0].kind].astype(types[0].numpy)
    if monoid.name.startswith(("arg", "last")):
        return [values, np.arange(len(values))]
    if monoid.name == "affine" and types[0].kind == "float":
        finite = np.nan_to_num(values, posinf=5, neginf=-5).clip(-9, 9)
        return [finite, finite[::-1]]
    if monoid.name == "affine":
        return [values, values[::-1]]
    if monoid.name == "welford":
        finite = np.nan_to_num(values, posinf=5, neginf=-5).clip(-9, 9)
        return [np.ones_like(finite), finite, np.zeros_like(finite)]
    if monoid.name == "compensated":
        finite = np.nan_to_num(values, posinf=5, neginf=-5).clip(-9, 9)
        return [finite, np.zeros_like(finite)]
    if monoid.name == "online_softmax":
        return [values, np.ones_like(values)]
    return [values]


def cases() -> list[tuple[Monoid, DType]]:
    found = []
    for monoid in MONOIDS.values():
        if monoid.name in ("any", "all"):
            found.append((monoid, dtypes.bool_))
            continue
        found.append((monoid, dtypes.float32))
        if not monoid.name.startswith(("welford", "online", "log", "comp")):
            found.append((monoid, dtypes.int8))
        if monoid.name in ("max", "min"):
            found.append((monoid, dtypes.bool_))
    return found


def same(a: list[Array], b: list[Array], monoid: Monoid) -> None:
    for x, y in zip(a, b):
        if monoid.reassoc and x.dtype.kind == "f":
            np.testing.assert_allclose(x, y, rtol=1e-5, atol=1e-6)
        else:
            np.testing.assert_array_equal(x, y)


@pytest.mark.parametrize(("monoid", "first"), cases(), ids=lambda case: getattr(case, "name", ""))
def test_laws(monoid: Monoid, first: DType) -> None:
    types = types_of(monoid, first)
    elements = lifted(monoid, types)
    count = len(elements[0])
    a, b, d = np.meshgrid(*[np.arange(count)] * 3, indexing="ij")
    x, y, z = ([field[i.ravel()] for field in elements] for i in (a, b, d))
    if monoid.commutative:
        same(join(monoid, x, y, types), join(monoid, y, x, types), monoid)
    left = join(monoid, join(monoid, x, y, types), z, types)
    right = join(monoid, x, join(monoid, y, z, types), types)
    same(left, right, monoid)
    initial = monoid.init(types)
    empty = [np.full(count, literal.value, t.numpy) for literal, t in zip(initial, types)]
    if monoid.name == "online_softmax":  # infinite scores have no softmax: NaN either way
        elements = [field[np.isfinite(elements[0])] for field in elements]
        empty = [field[: len(elements[0])] for field in empty]
    same(join(monoid, empty, elements, types), elements, monoid)
    same(join(monoid, elements, empty, types), elements, monoid)


def fold(monoid: Monoid, fields: list[Array], types: tuple[DType, ...]) -> list[Array]:
    total = [np.full(1, v.value, t.numpy) for v, t in zip(monoid.init(types), types)]
    for position in range(len(fields[0])):
        total = join(monoid, total, [f[position : position + 1] for f in fields], types)
    return total


def test_folds_agree_with_numpy() -> None:
    x = np.array([3, -1, 4, 4, -5, 9, 2, 6], np.float32)
    one = (dtypes.float32,)
    for name, expected in {"sum": x.sum(), "prod": x.prod(), "max": 9, "min": -5}.items():
        assert fold(MONOIDS[name], [x], one)[0][0] == expected
    n, mean, m2 = fold(MONOIDS["welford"], [np.ones_like(x), x, x * 0], one * 3)
    np.testing.assert_allclose([n[0], mean[0], m2[0] / 8], [8, x.mean(), x.var()], rtol=1e-6)
    m, s = fold(MONOIDS["online_softmax"], [x, np.ones_like(x)], one * 2)
    np.testing.assert_allclose([m[0], s[0]], [9, np.exp(x - 9).sum()], rtol=1e-6)


def test_nan_wins_and_the_first_occurrence_counts() -> None:
    types = (dtypes.float32, dtypes.int64)
    for name, reference in (("argmax", np.argmax), ("argmin", np.argmin)):
        for row in ([1, 2, 2, 1, 1], [NAN, 9, NAN], [INF, NAN, -INF], [-INF, -INF], [INF, INF]):
            x = np.array(row, np.float32)
            found = fold(MONOIDS[name], [x, np.arange(len(x))], types)
            assert found[1][0] == reference(x), (name, row)


def test_nan_wins_and_the_last_occurrence_counts_for_running_extremes() -> None:
    types = (dtypes.float32, dtypes.int64)
    for row, largest, least in (
        ([1, 2, 2, 1, 1], 2, 4), ([NAN, 9, NAN, 3], 2, 2), ([-INF, -INF], 1, 1), ([INF, INF], 1, 1),
        ([0.0, -0.0], 1, 1),
    ):  # fmt: skip
        x = np.array(row, np.float32)
        for name, place in (("last_max", largest), ("last_min", least)):
            found = fold(MONOIDS[name], [x, np.arange(len(x))], types)
            assert found[1][0] == place, (name, row)


def test_the_factor_of_many_maps_stays_finite() -> None:
    factors, terms = np.full(50, 10, np.float32), np.zeros(50, np.float32)
    total = fold(MONOIDS["affine"], [factors, terms], (dtypes.float32,) * 2)
    assert np.isfinite(total[0][0])
    zero = [np.ones(1, np.float32), np.zeros(1, np.float32)]
    assert join(MONOIDS["affine"], zero, total, (dtypes.float32,) * 2)[1][0] == 0


def test_softmax_of_nothing_but_minus_infinity_has_no_nan() -> None:
    x = np.full(3, -np.inf, np.float32)
    m, s = fold(MONOIDS["online_softmax"], [x, np.ones_like(x)], (dtypes.float32,) * 2)
    assert m[0] == -np.inf and s[0] == 0


def test_only_floats_round_when_regrouped() -> None:
    assert MONOIDS["sum"].regroups_exactly((dtypes.int32,))
    assert not MONOIDS["sum"].regroups_exactly((dtypes.float32,))
    assert MONOIDS["argmax"].regroups_exactly((dtypes.float32, dtypes.int64))
