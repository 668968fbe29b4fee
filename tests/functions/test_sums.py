"""Sums, means and variances of many numbers, against double precision and next to torch's."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import product
from typing import Any

import mpmath
import numpy as np
import pytest

import ridgeline as rl

torch = pytest.importorskip("torch")

from tests.attacks.exact_sums import KINDS, exact  # noqa: E402
from tests.functions.error_statistics import (  # noqa: E402
    DATA,
    FORMS,
    MOST,
    SHAPES,
    TIERS,
    Form,
    ratios,
)

EPS, DOUBLE = 2.0**-23, 2.0**-52
Shapes = Sequence[tuple[tuple[int, int], int]]


def _far_from_zero(shape: tuple[int, ...], seed: int = 0) -> Any:
    rng = np.random.default_rng(seed)
    return (1000 + rng.random(shape)).astype(np.float32)


@pytest.mark.parametrize("tier", TIERS)
def test_statistics_of_many_rows_far_from_zero(tier: str) -> None:
    array = _far_from_zero((250_000, 8))
    truth = array.astype(np.float64)
    with rl.config.override(tier=tier):
        x = rl.tensor(array)
        np.testing.assert_allclose(x.mean(0).numpy(), truth.mean(0), rtol=2 * EPS)
        np.testing.assert_allclose(x.var(0).numpy(), truth.var(0, ddof=1), rtol=8 * EPS)
        np.testing.assert_allclose(x.std(0).numpy(), truth.std(0, ddof=1), rtol=8 * EPS)
        np.testing.assert_allclose(x.mean().numpy(), truth.mean(), rtol=2 * EPS)
        np.testing.assert_allclose(x.var().numpy(), truth.var(ddof=1), rtol=8 * EPS)


@pytest.mark.parametrize("tier", TIERS)
def test_batch_norm_over_many_rows(tier: str) -> None:
    array = _far_from_zero((200_000, 4))
    with rl.config.override(tier=tier):
        layer = rl.nn.BatchNorm1d(4, momentum=1.0)
        layer(rl.tensor(array))
        truth = array.astype(np.float64)
        np.testing.assert_allclose(layer.running_mean.numpy(), truth.mean(0), rtol=2 * EPS)
        np.testing.assert_allclose(layer.running_var.numpy(), truth.var(0, ddof=1), rtol=8 * EPS)


@pytest.mark.parametrize("tier", TIERS)
def test_infinities_and_nan_pass_through_long_sums(tier: str) -> None:
    for special, should in ((np.inf, np.inf), (-np.inf, -np.inf), (np.nan, np.nan)):
        array = np.ones((5_000, 3), np.float32)
        array[1234, 1] = special
        with rl.config.override(tier=tier):
            np.testing.assert_array_equal(rl.tensor(array).sum(0).numpy(), [5_000, should, 5_000])
            np.testing.assert_array_equal(rl.tensor(array).sum().numpy(), should)


@pytest.mark.parametrize("tier", TIERS)
@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
@pytest.mark.parametrize(("places", "columns"), [(1, 1), (7, 5), (64, 100), (300, 67), (1500, 9)])
def test_scatters_are_rounded_once(tier: str, dtype: str, places: int, columns: int) -> None:
    """However many places there are, and however their columns are cut."""
    rng = np.random.default_rng(places)
    which = np.minimum(rng.integers(0, 2 * places, 900), places - 1)
    base, updates = rng.standard_normal((places, columns)), rng.random((900, columns)) * 100
    with rl.config.override(tier=tier):
        kind = getattr(rl, dtype)
        start, added = rl.tensor(base).to(kind), rl.tensor(updates).to(kind)
        found = [
            start.index_add(0, rl.tensor(which), added),
            start.T.index_add(1, rl.tensor(which), added.T).T,
            start.scatter_add(0, rl.tensor(which)[:, None].expand(900, columns), added),
        ]
        truth = start.to(rl.float64).numpy().copy()
        np.add.at(truth, which, added.to(rl.float64).numpy())
        should = rl.tensor(truth).to(kind).to(rl.float64).numpy()
        for sums in found:
            np.testing.assert_array_equal(sums.to(rl.float64).numpy(), should)


@pytest.mark.parametrize("tier", TIERS)
def test_a_variance_about_its_own_outlier(tier: str) -> None:
    """The first element is what a variance in one reading is shifted by."""
    array = np.random.default_rng(0).random((5, 100_000)).astype(np.float32)
    array[:, 0] = [1e6, -3e7, 1e10, 1e-10, 0]
    truth = array.astype(np.float64).var(1, ddof=1)
    with rl.config.override(tier=tier):
        np.testing.assert_allclose(rl.tensor(array).var(1).numpy(), truth, rtol=4 * EPS)
        columns = rl.tensor(np.ascontiguousarray(array.T))
        np.testing.assert_allclose(columns.var(0).numpy(), truth, rtol=4 * EPS)


@pytest.mark.parametrize("tier", TIERS)
def test_variances_of_what_is_not_finite_or_does_not_vary(tier: str) -> None:
    with rl.config.override(tier=tier):
        for special in (np.inf, -np.inf, np.nan):
            for place in (0, 3):
                array = np.ones((2, 50), np.float32)
                array[0, place] = special
                np.testing.assert_array_equal(rl.tensor(array).var(1).numpy(), [np.nan, 0])
        largest = np.finfo(np.float32).max
        array = np.array([[0.1] * 9, [largest, -largest] * 4 + [0]], np.float32)
        np.testing.assert_array_equal(rl.tensor(array).var(1).numpy(), [0, np.inf])
        np.testing.assert_array_equal(rl.tensor(array[:, :1]).var(1).numpy(), [np.nan, np.nan])


SUMS_OF_ZEROS: dict[str, Callable[..., Any]] = {
    "sum": lambda t, x: x.sum(1),
    "mean": lambda t, x: x.mean(0),
    "cumsum": lambda t, x: x.cumsum(1),
    "matmul": lambda t, x: x @ t.ones(4, 3),
    "conv1d": lambda t, x: t.conv1d(x.reshape(2, 4, 1), t.ones(3, 4, 1)),
    "conv1d of one number": lambda t, x: t.conv1d(x.reshape(2, 1, 4), t.ones(3, 1, 1)),
}


@pytest.mark.parametrize("tier", ["interpreter", "compiled"])
@pytest.mark.parametrize("name", SUMS_OF_ZEROS)
def test_sums_start_from_zero(name: str, tier: str) -> None:
    zeros = np.full((2, 4), -0.0, np.float32)
    with rl.config.override(tier=tier):
        found = SUMS_OF_ZEROS[name](rl, rl.tensor(zeros)).numpy()
    assert not found.any() and not np.signbit(found).any()
    if name != "conv1d of one number":  # whose sign depends on the kernel that torch takes
        wanted = SUMS_OF_ZEROS[name](torch, torch.tensor(zeros)).numpy()
        assert not np.signbit(wanted).any()


@pytest.mark.parametrize("tier", ["interpreter", "compiled"])
def test_equal_numbers_of_float64_do_not_vary(tier: str) -> None:
    """A mean that is off by an ulp would be all that they deviate from."""
    rows = np.repeat(0.1 + np.random.default_rng(3).random((40, 1)), 3247, axis=1)
    with rl.config.override(tier=tier):
        x = rl.tensor(rows, requires_grad=True)
        spread = x.var(1)
        spread.sum().backward()
        assert spread.tolist() == [0.0] * len(rows)
        assert x.grad is not None and not x.grad.numpy().any()


@pytest.mark.parametrize("dynamic", [False, True])
def test_jitted_variances_far_from_zero(dynamic: bool) -> None:
    function = rl.jit(lambda x: rl.var_mean(x, 0), dynamic=dynamic)
    for rows in (100, 200, 300):
        array = (1e6 + np.random.default_rng(rows).standard_normal((rows, 6))).astype(np.float32)
        truth = array.astype(np.float64)
        spread, mean = function(rl.tensor(array))
        np.testing.assert_allclose(spread.numpy(), truth.var(0, ddof=1), rtol=EPS)
        np.testing.assert_allclose(mean.numpy(), truth.mean(0), rtol=EPS)


@pytest.mark.parametrize("tier", TIERS)
def test_the_denominators_of_attention(tier: str) -> None:
    """One large weight and many that each is too small for; the value is 1 at the large one."""
    n = 8_192
    scores = np.full((1, 1, n, 1), np.log(0.49 * EPS), np.float32)
    scores[:, :, 0] = 0
    values = np.zeros((1, 1, n, 4), np.float32)
    values[:, :, 0] = 1
    queries = np.ones((1, 1, 64, 1), np.float32)
    with rl.config.override(tier=tier):
        found = rl.nn.functional.scaled_dot_product_attention(
            *map(rl.tensor, (queries, scores, values)), scale=1.0
        ).numpy()
    should = 1 / np.exp(scores.astype(np.float64)).sum()
    np.testing.assert_allclose(found, should, rtol=(np.log2(n) + 8) * EPS)


@pytest.mark.parametrize("tier", TIERS)
@pytest.mark.parametrize("n", [5, 25, 64, 1_003])
def test_running_log_sums_of_doubles(tier: str, n: int) -> None:
    rng = np.random.default_rng(n)
    rows = np.stack([rng.standard_normal(n) * 3, np.linspace(-20, 30, n), np.full(n, 0.1)])
    with mpmath.workdps(40), rl.config.override(tier=tier):
        along = rl.logcumsumexp(rl.tensor(rows), 1).numpy()
        down = rl.logcumsumexp(rl.tensor(np.ascontiguousarray(rows.T)), 0).numpy()
        np.testing.assert_allclose(down.T, along, rtol=64 * DOUBLE, atol=64 * DOUBLE)
        for row, found in zip(rows, along):
            total = mpmath.mpf(0)
            for value, running in zip(row, found):
                total += mpmath.exp(float(value))
                error = abs(float(mpmath.mpf(float(running)) - mpmath.log(total)))
                assert error <= (np.log2(n) + 8 + abs(float(running)) + np.abs(row).max()) * DOUBLE


@pytest.mark.parametrize("tier", TIERS)
def test_running_log_sums_of_what_is_infinite(tier: str) -> None:
    row = np.full(100, -np.inf)
    row[[40, 70, 90]] = [1.0, np.inf, np.nan]
    with rl.config.override(tier=tier):
        found = rl.logcumsumexp(rl.tensor(row), 0).numpy()
    should = [-np.inf, -np.inf, 1, 1, np.inf, np.inf, np.nan, np.nan]
    np.testing.assert_array_equal(found[[0, 39, 40, 69, 70, 89, 90, 99]], should)


@pytest.mark.parametrize("tier", TIERS)
@pytest.mark.parametrize("kind", KINDS)
def test_recurrences_of_doubles(tier: str, kind: str) -> None:
    """The gradient of a running product of ones is a running sum, by r := 1 * r + term."""
    n = 3_001
    terms = KINDS[kind](np.random.default_rng(1), n, DOUBLE)
    with rl.config.override(tier=tier):
        ones = rl.ones(n, dtype=rl.float64, requires_grad=True)
        (ones.cumprod(0) * rl.tensor(terms)).sum().backward()
        found = ones.grad.numpy()
    for place in (0, 1, n // 2, n - 30):
        should = exact(terms[place:])
        assert abs(found[place] - should.value) <= should.bound(DOUBLE)


@pytest.mark.parametrize("tier", TIERS)
def test_running_log_sums_of_any_length(tier: str) -> None:
    """One program for lengths that are not known, in both directions."""

    def both(x: rl.Tensor) -> tuple[rl.Tensor, rl.Tensor]:
        return x.logcumsumexp(0), x.flip(0).logcumsumexp(0)

    rng = np.random.default_rng(2)
    with rl.config.override(tier=tier):
        running = rl.jit(both, dynamic=True)
        for n in (700, 2, 7, 8, 9, 63, 65, 1_003, 20_001):
            row = rng.standard_normal(n) * 1e-3 + 1
            for values, found in zip((row, row[::-1]), running(rl.tensor(row))):
                should = np.log(np.cumsum(np.exp(values.astype(np.longdouble))))
                error = np.abs(found.numpy() - should).max()
                assert error <= (np.log2(n) + 8 + float(should[-1])) * DOUBLE
    assert running.traces <= 3


@pytest.mark.parametrize("tier", TIERS)
@pytest.mark.parametrize("kind", KINDS)
def test_recurrences_of_any_length(tier: str, kind: str) -> None:
    @rl.jit(dynamic=True)
    def gradient(ones: rl.Tensor, terms: rl.Tensor) -> rl.Tensor:
        return rl.autograd.grad((ones.cumprod(0) * terms).sum(), [ones])[0]

    with rl.config.override(tier=tier):
        for n in (500, 9, 3_001):
            terms = KINDS[kind](np.random.default_rng(1), n, DOUBLE)
            ones = rl.ones(n, dtype=rl.float64, requires_grad=True)
            found = gradient(ones, rl.tensor(terms)).numpy()
            for place in (0, 1, n // 2):
                should = exact(terms[place:])
                assert abs(found[place] - should.value) <= should.bound(DOUBLE)


def _are_as_good_as_torchs(form: Form, tier: str, seeds: int, shapes: Shapes) -> None:
    for kind, (shape, axis) in product(DATA, shapes):
        found = ratios(form, DATA[kind], shape, axis, tier, seeds)
        assert max(found) <= MOST, (kind, shape, axis, found)


@pytest.mark.parametrize("form", FORMS, ids=lambda form: form.name)
@pytest.mark.parametrize("tier", TIERS)
def test_sums_and_moments_are_as_good_as_torchs(tier: str, form: Form) -> None:
    _are_as_good_as_torchs(form, tier, 5, [((40, 9), 1), ((400, 32), 0)])


@pytest.mark.slow
@pytest.mark.parametrize("form", FORMS, ids=lambda form: form.name)
@pytest.mark.parametrize("tier", TIERS)
def test_sums_and_moments_are_as_good_as_torchs_everywhere(tier: str, form: Form) -> None:
    _are_as_good_as_torchs(form, tier, 100, list(product(SHAPES, (0, 1))))


@pytest.mark.parametrize("data", DATA.values(), ids=DATA)
@pytest.mark.parametrize(
    "shape, axis", [((10,), 0), ((3_000, 7), 0), ((7, 3_000), 1), ((5, 999, 6), 1), ((60_000,), 0)]
)
@pytest.mark.parametrize("tier", TIERS)
def test_sums_are_as_good_as_torchs(
    tier: str, shape: tuple[int, ...], axis: int, data: Callable[..., Any]
) -> None:
    ours, theirs = [], []
    with rl.config.override(tier=tier):
        function = rl.jit(lambda x: (x.sum(axis), x.mean(axis)))
        for seed in range(30):
            array = data(np.random.default_rng(seed), shape).astype(np.float32)
            truth = array.astype(np.float64).sum(axis)
            scale = np.abs(array.astype(np.float64)).sum(axis)
            total, mean = (np.asarray(r.numpy(), np.float64) for r in function(rl.tensor(array)))
            x = torch.tensor(array)
            count = shape[axis]
            ours += [(total - truth) / scale, (mean * count - truth) / scale]
            theirs += [
                (x.sum(axis).double().numpy() - truth) / scale,
                (x.mean(axis).double().numpy() * count - truth) / scale,
            ]
    worst = np.abs(np.stack(ours)).max()
    assert worst <= (np.log2(shape[axis]) + 8) * EPS
    rms = [float(np.sqrt(np.mean(np.square(np.stack(errors))))) for errors in (ours, theirs)]
    assert rms[0] <= 1.5 * rms[1]
