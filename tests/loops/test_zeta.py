"""The zeta function and polygamma in kernels: against mpmath, and at the edges as defined."""

from __future__ import annotations

from functools import cache

import mpmath as mp
import numpy as np
import pytest

import ridgeline as rl
from ridgeline import scalars
from ridgeline.scalars import Array
from tests.loops.accuracy import Run, ulps
from tests.loops.runners import RUNNERS


def hurwitz(s: float, q: float) -> mp.mpf:
    """The sum, term by term at first, with many of Euler and Maclaurin's corrections.

    mpmath's own is accurate to an absolute error, and most of these values are small.
    """
    total, a, power = mp.mpf(0), mp.mpf(q), mp.mpf(s)
    for k in range(200):
        if a >= 50 and k >= 50:
            break
        total += a ** -int(s) if a < 0 else a**-power
        a += 1
    total += a ** (1 - power) / (power - 1) + a**-power / 2
    factor = power * a ** (-power - 1)
    for k in range(1, 40):
        total += mp.bernoulli(2 * k) / mp.factorial(2 * k) * factor
        factor *= (power + 2 * k - 1) * (power + 2 * k) / (a * a)
    return total


def operands() -> tuple[Array, Array]:
    rng = np.random.default_rng(0)
    s = np.concatenate(
        [
            1 + np.geomspace(1e-10, 1, 20), rng.uniform(1, 8, 60), rng.uniform(8, 60, 30),
            rng.integers(2, 30, 50), np.geomspace(60, 600, 10),
        ]
    )  # fmt: skip
    q = np.concatenate([np.exp(rng.uniform(-3, 6, 110)), -rng.uniform(0, 40, 50)])
    return s, np.concatenate([q, rng.uniform(0.3, 2, 10)])


@cache
def truths() -> list[mp.mpf]:
    with mp.workdps(60):
        return [hurwitz(s, q) for s, q in zip(*(x.tolist() for x in operands()))]


@pytest.mark.parametrize("run", RUNNERS.values(), ids=RUNNERS)
def test_zeta_is_close_to_mpmath(run: Run) -> None:
    x = operands()
    for s, q, got, truth in zip(*(a.tolist() for a in x), run("zeta", *x).tolist(), truths()):
        error = ulps(got, truth, 8)
        if q < 0:  # terms of both signs: to the size of the largest
            nearest = min(q - np.floor(q), np.ceil(q) - q)
            error = min(error, float(abs(mp.mpf(got) - truth) / np.spacing(nearest**-s)))
        assert error <= max(8.0, s), f"zeta({s!r}, {q!r}) = {got!r} is {error} ulp off"


inf, nan = np.inf, np.nan
EDGES = np.array(
    [
        (2, inf), (inf, 1), (inf, 0.5), (inf, 2), (2, -inf), (nan, 1), (2, nan), (1, 1), (0.5, 1),
        (2, 0), (2, -1), (2, -1.5), (3, -1.5), (2.5, -1.5), (2, -0.0), (inf, -1.5), (1, -1),
        (1, nan), (2, 1e300), (1e300, 1), (1e300, 2), (500, 0.5), (2, -20000.5), (-inf, 2),
        (1.0001, 1e-310), (2, 1e15), (nan, -1), (2, -1e-20), (2, 1e-20), (3, -7.5), (3, -8.5),
        (3, -9.25), (nan, inf), (0.5, inf), (1e300, 0.5), (400, 1.5), (1e10, 1.0), (-2, 3),
    ]
).T  # fmt: skip


@pytest.mark.parametrize("run", RUNNERS.values(), ids=RUNNERS)
def test_edges_of_zeta(run: Run) -> None:
    with np.errstate(all="ignore"):
        wanted = scalars.TABLE["zeta"].numpy(*EDGES)
    np.testing.assert_allclose(run("zeta", *EDGES), wanted, rtol=1e-13)


def test_infinite_operands() -> None:
    found = rl.special.zeta(rl.tensor([2.0, inf, inf]), rl.tensor([inf, 1.0, 2.0])).tolist()
    assert found == [0.0, 1.0, 0.0]


def test_float32_is_rounded_once() -> None:
    x = [a.astype(np.float32) for a in operands()]
    x = [a[np.floor(x[0]) == x[0]] for a in x]  # still whole
    exact = RUNNERS["compiled"]("zeta", *(a.astype(np.float64) for a in x))
    with np.errstate(over="ignore"):
        np.testing.assert_array_equal(RUNNERS["compiled"]("zeta", *x), exact.astype(np.float32))


@pytest.mark.parametrize("order", [0, 1, 2, 3, 7, 8, 20, 60])
@pytest.mark.parametrize("tier", ["compiled", "interpreter"])
def test_polygamma_is_close_to_mpmath(order: int, tier: str) -> None:
    x = np.array([0.02, 0.7, 1.0, 2.5, 9.0, 40.0, -0.3, -2.75, -30.4])
    with rl.config.override(tier=tier):
        found = rl.jit(lambda t: rl.polygamma(order, t))(rl.tensor(x)).tolist()
    with mp.workdps(80):
        for value, got in zip(x.tolist(), found):
            truth = mp.polygamma(order, mp.mpf(value))
            assert abs(got - truth) <= abs(truth) * max(8, 2 * order) * 2.0**-52


def test_polygamma_of_any_order_and_type() -> None:
    narrow = rl.polygamma(50, rl.tensor([100.0, 30.0]))  # the factor alone is beyond float32
    wide = rl.polygamma(50, rl.tensor([100.0, 30.0], dtype=rl.float64))
    np.testing.assert_allclose(narrow.numpy(), wide.numpy(), rtol=1e-6)
    assert narrow.dtype is rl.float32
    assert rl.polygamma(1, rl.tensor([0.0, -1.0, inf])).tolist() == [inf, inf, 0.0]
    assert rl.polygamma(200, rl.tensor([0.5])).tolist() == [-inf]
    half = rl.polygamma(2, rl.tensor([0.5, 3.0]).to(rl.bfloat16))
    assert half.dtype is rl.bfloat16 and half.float().tolist() == [-16.875, -0.154296875]


def test_zeta_and_polygamma_are_part_of_kernels() -> None:
    f = rl.jit(lambda x, q: rl.special.zeta(x + 1, q) * rl.polygamma(1, q) + rl.polygamma(3, q))
    f(rl.ones(3), rl.ones(3))
    assert len(f.program.layout.calls) == 1


def test_derivatives_of_trigamma_stay_in_one_kernel() -> None:
    step = rl.jit(rl.grad(lambda x: rl.polygamma(1, x).sum()))
    x = rl.tensor([0.7, 2.0, -0.4], dtype=rl.float64)
    wanted = [float(mp.polygamma(2, value)) for value in x.tolist()]
    np.testing.assert_allclose(step(x).numpy(), wanted, rtol=1e-12)
    assert len(step.program.layout.calls) == 1
