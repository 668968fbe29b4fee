"""Incomplete gamma functions in kernels: against mpmath, and at the edges as defined."""

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

NAMES = ["gammainc", "gammaincc"]
LIMIT = {"gammainc": 8.0, "gammaincc": 12.0}  # ulp


@cache
def operands() -> tuple[Array, Array]:
    """Around x = a for all sizes of a, and anywhere for small ones."""
    rng = np.random.default_rng(0)
    a = np.exp(np.concatenate([rng.uniform(-8, 9, 150), rng.uniform(-2, 3, 100)]))
    x = a * np.exp(rng.normal(0, 1, 250) * np.where(a > 1, 2 / np.sqrt(a), 1.5))
    x[::7] = np.exp(rng.uniform(-6, 2, len(x[::7])))
    x[::11] = a[::11] * np.exp(rng.uniform(-4, 4, len(x[::11])))  # far out, where values are small
    edge = np.array([(12, 12), (12, 3.7), (11.999, 11.999), (12, 28.2), (0.999, 1.499), (30, 70.0)])
    return np.concatenate([a, edge[:, 0]]), np.concatenate([x, edge[:, 1]])


@cache
def truths(name: str) -> list[mp.mpf]:
    with mp.workdps(40):
        return [
            mp.gammainc(a, 0, x, regularized=True)
            if name == "gammainc"
            else mp.gammainc(a, x, mp.inf, regularized=True)
            for a, x in zip(*(v.tolist() for v in operands()))
        ]


@pytest.mark.parametrize("run", RUNNERS.values(), ids=RUNNERS)
@pytest.mark.parametrize("name", NAMES)
def test_close_to_mpmath(name: str, run: Run) -> None:
    given = operands()
    found = run(name, *given).tolist()
    for a, x, got, truth in zip(*(v.tolist() for v in given), found, truths(name)):
        if truth < 1e-300:
            continue
        error = ulps(got, truth, 8)
        assert error <= LIMIT[name], f"{name}({a!r}, {x!r}) = {got!r} is {error} ulp off"


@pytest.mark.parametrize("name", NAMES)
def test_the_definition_is_close_to_mpmath(name: str) -> None:
    given = operands()
    found = scalars.TABLE[name].numpy(*given)
    for a, x, got, truth in zip(*(v.tolist() for v in given), found.tolist(), truths(name)):
        assert truth < 1e-300 or ulps(got, truth, 8) <= 1, f"{name}({a!r}, {x!r}) = {got!r}"


inf, nan = np.inf, np.nan
EDGES = np.array([
    (0, 0), (0, 1), (1, 0), (0, inf), (inf, 0), (inf, 1), (1, inf), (inf, inf), (-1, 1), (1, -1),
    (nan, 1), (1, nan), (nan, 0), (0, nan), (inf, nan), (nan, inf), (-0.0, 1), (1, -0.0),
    (1, 1e300), (1e300, 1), (1e-300, 1), (1e-300, 1e-300), (1, 1e-300), (1e300, 1e300), (1e7, 1e7),
    (1e9, 9.9e8), (2e6, 2.001e6), (5e-324, 5e-324), (0.5, 700), (170, 600), (-inf, 1), (1, -inf),
    (0, -1), (-1, 0),
]).T  # fmt: skip


@pytest.mark.parametrize("run", RUNNERS.values(), ids=RUNNERS)
@pytest.mark.parametrize("name", NAMES)
def test_edges_are_those_of_the_definition(name: str, run: Run) -> None:
    with np.errstate(all="ignore"):
        wanted = scalars.TABLE[name].numpy(*EDGES)
    np.testing.assert_allclose(run(name, *EDGES), wanted, rtol=1e-9, atol=1e-300)


@pytest.mark.parametrize("name", NAMES)
def test_float32_is_rounded_once(name: str) -> None:
    given = [v.astype(np.float32) for v in operands()]
    exact = RUNNERS["compiled"](name, *(v.astype(np.float64) for v in given))
    np.testing.assert_array_equal(RUNNERS["compiled"](name, *given), exact.astype(np.float32))


def test_they_add_up_to_one_and_rise() -> None:
    a = rl.tensor(np.repeat([0.3, 3.0, 11.9, 12.0, 50.0, 4000.0], 200).reshape(6, 200))
    x = a * rl.linspace(0.05, 3, 200, dtype=rl.float64)
    both = rl.jit(lambda a, x: (rl.special.gammainc(a, x), rl.special.gammaincc(a, x)))
    lower, upper = (t.numpy() for t in both(a, x))
    np.testing.assert_allclose(lower + upper, 1.0, rtol=4e-16)
    assert (np.diff(lower) > -1e-15).all() and (np.diff(upper) < 1e-15).all()


def test_incomplete_gammas_and_their_gradient_are_part_of_kernels() -> None:
    a = rl.tensor([0.5, 2.0, 30.0], dtype=rl.float64)
    step = rl.jit(rl.grad(lambda x: rl.special.gammaincc(a, x).sum()))
    x = rl.tensor([0.7, 2.0, 33.0], dtype=rl.float64)
    wanted = [
        -float(mp.exp((p - 1) * mp.log(q) - q - mp.loggamma(p)))
        for p, q in zip(a.tolist(), x.tolist())
    ]
    np.testing.assert_allclose(step(x).numpy(), wanted, rtol=1e-12)
    assert len(step.program.layout.calls) == 1
