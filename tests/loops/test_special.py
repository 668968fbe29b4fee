"""Special functions in kernels: against mpmath, and at the edges against their NumPy values."""

from __future__ import annotations

from collections.abc import Callable
from functools import cache

import mpmath as mp
import numpy as np
import pytest

import ridgeline as rl
from ridgeline import scalars
from ridgeline.scalars import SPECIAL, Array
from tests.loops.accuracy import Run, spread, ulps
from tests.loops.runners import RUNNERS

LIMIT = 8.0
LIMIT_OF_DEFINITION = 4.0  # which has more digits than its result, but for those of erf
OF_ONE = [name for name in SPECIAL if scalars.TABLE[name].arity == 1]


def _erfcx(x: mp.mpf) -> mp.mpf:
    return mp.exp(x * x) * mp.erfc(x)


def _quantile(y: mp.mpf) -> mp.mpf:
    return mp.erfinv(y)


TRUTH = {
    "erfc": mp.erfc,
    "erfcx": _erfcx,
    "erfinv": _quantile,
    "ndtri": lambda p: mp.sqrt(2) * mp.erfinv(2 * p - 1),
    "ndtr": mp.ncdf,
    "log_ndtr": lambda x: mp.log(mp.erfc(-x / mp.sqrt(2)) / 2),
    "lgamma": lambda x: mp.log(abs(mp.gamma(x))),
    "digamma": mp.digamma,
    "i0": lambda x: mp.besseli(0, x),
    "i1": lambda x: mp.besseli(1, x),
    "i0e": lambda x: mp.exp(-abs(x)) * mp.besseli(0, x),
    "i1e": lambda x: mp.exp(-abs(x)) * mp.besseli(1, x),
    "j0": lambda x: mp.besselj(0, x),
    "j1": lambda x: mp.besselj(1, x),
    "y0": lambda x: mp.bessely(0, x),
    "y1": lambda x: mp.bessely(1, x),
    "k0": lambda x: mp.besselk(0, x),
    "k1": lambda x: mp.besselk(1, x),
    "k0e": lambda x: mp.exp(x) * mp.besselk(0, x),
    "k1e": lambda x: mp.exp(x) * mp.besselk(1, x),
    "airy_ai": mp.airyai,
    "spherical_bessel_j0": mp.sinc,
}


def samples(name: str) -> Array:
    rng = np.random.default_rng(len(name))
    if name in ("ndtr", "log_ndtr"):
        return np.concatenate([rng.uniform(-38, 9, 100), spread(-60, 2, 40, np.float64)])
    if name in ("erfc", "erfcx"):
        return np.concatenate(
            [rng.uniform(-5, 5, 60), rng.uniform(4, 26, 40), spread(-60, 2, 40, np.float64)]
        )
    if name == "erfinv":
        near_one = 1 - np.geomspace(1e-16, 0.2, 30)
        return np.concatenate(
            [rng.uniform(-1, 1, 60), near_one, -near_one, spread(-60, -1, 20, np.float64)]
        )
    if name == "ndtri":
        return np.concatenate([rng.uniform(0, 1, 80), np.geomspace(1e-300, 0.1, 40)])
    if name in ("lgamma", "digamma"):
        return np.concatenate(
            [rng.uniform(0, 14, 120), rng.uniform(-6, 0, 60), np.geomspace(1e-8, 1e15, 60)]
        )
    if name in ("y0", "y1", "k0", "k1", "k0e", "k1e"):
        return np.concatenate(
            [rng.uniform(0, 6, 80), rng.uniform(5, 700, 40), np.geomspace(1e-300, 1, 30)]
        )
    if name == "airy_ai":
        return np.concatenate(
            [rng.uniform(-6, 2, 80), rng.uniform(-40, 105, 60), -np.geomspace(1e-20, 1e5, 20)]
        )
    return np.concatenate(
        [rng.uniform(-20, 20, 80), rng.uniform(-700, 700, 20), spread(-60, 3, 40, np.float64)]
    )


def wave(x: float) -> float:
    """The size of a wave around 0."""
    return min(1.0, float(np.sqrt(2 / (np.pi * abs(x)))))


# close to their zeros sums are accurate to the size of what is summed
SCALE: dict[str, Callable[[float], float]] = {
    "lgamma": lambda x: 1.0,
    "digamma": lambda x: 1.0,
    **dict.fromkeys(("j0", "j1", "y0", "y1"), wave),
    "airy_ai": lambda x: 0.5 * min(1.0, abs(x) ** -0.25) if x < 0 else 0.0,
}


@cache
def truths(name: str) -> list[mp.mpf]:
    with mp.workdps(350 if name in ("ndtri", "log_ndtr") else 40):
        return [TRUTH[name](mp.mpf(value)) for value in samples(name).tolist()]


@pytest.mark.parametrize("run", RUNNERS.values(), ids=RUNNERS)
@pytest.mark.parametrize("name", OF_ONE)
def test_close_to_mpmath(name: str, run: Run) -> None:
    check(name, run(name, samples(name)), LIMIT)


@pytest.mark.parametrize("name", OF_ONE)
def test_the_definition_is_close_to_mpmath(name: str) -> None:
    with np.errstate(all="ignore"):
        check(name, scalars.TABLE[name].numpy(samples(name)), LIMIT_OF_DEFINITION)


def check(name: str, found: Array, limit: float) -> None:
    for value, got, truth in zip(samples(name).tolist(), found.tolist(), truths(name)):
        error = ulps(got, truth, 8)
        if name in SCALE:
            error = min(error, float(abs(mp.mpf(got) - truth)) / np.spacing(SCALE[name](value)))
        assert error <= limit, f"{name}({value!r}) = {got!r} is {error} ulp off"


EDGES = np.array(
    [0.0, 1.0, 2.0, 3.0, 0.5, 12.0, 8.0, 40.0, 800.0, 1e300, np.inf, np.nan, 2.5, 1e-310]
)


@pytest.mark.parametrize("run", RUNNERS.values(), ids=RUNNERS)
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("name", OF_ONE)
def test_edges_are_those_of_the_definition(name: str, dtype: type, run: Run) -> None:
    with np.errstate(all="ignore"):
        x = np.concatenate([EDGES, -EDGES]).astype(dtype)
        wanted = scalars.TABLE[name].numpy(x)
    found = run(name, x)
    assert np.array_equal(np.isnan(found), np.isnan(wanted))
    np.testing.assert_allclose(
        found, wanted, rtol=2e-6 if dtype is np.float32 else 2e-14, atol=1e-15
    )
    assert np.array_equal(np.signbit(found[x == 0]), np.signbit(wanted[x == 0]))


@pytest.mark.parametrize("name", OF_ONE)
def test_float32_is_rounded_once(name: str) -> None:
    x = samples(name).astype(np.float32)
    exact = RUNNERS["compiled"](name, x.astype(np.float64))
    with np.errstate(over="ignore", under="ignore"):
        np.testing.assert_array_equal(RUNNERS["compiled"](name, x), exact.astype(np.float32))


def test_special_functions_are_part_of_kernels() -> None:
    f = rl.jit(lambda x: rl.lgamma(x) + rl.digamma(x) * rl.special.erfcx(x) - rl.i0(x))
    f(rl.ones(3))
    assert len(f._traces[0].executable.program.layout.calls) == 1


@pytest.mark.parametrize("length", [1003, 64, 5])
def test_a_kernel_holds_one_copy_of_a_long_function(length: int) -> None:
    x = rl.ones(6, length)
    for f in (rl.lgamma, lambda x: rl.lgamma(x).sum(1), lambda x: rl.lgamma(x).sum()):
        scheduled = rl.loops(f, x).default()
        _, body = str(scheduled).split("\n", 1)
        assert body.count("lgamma(") == 1
        np.testing.assert_allclose(scheduled(x).numpy(), 0.0, atol=1e-5)  # type: ignore[union-attr]
