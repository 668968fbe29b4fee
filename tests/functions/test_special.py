"""Special functions against torch and mpmath, and their derivatives against differences."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import mpmath
import numpy as np
import pytest
import torch

import ridgeline as rl
from ridgeline.errors import RidgelineError
from tests.ops.derivatives import check_derivatives

POSITIVE = np.array([0.03, 0.4, 1.0, 2.5, 4.9, 7.0, 24.0, 31.0])
SIGNED = np.array([-6.5, -2.2, -0.7, 0.0, 0.3, 1.6, 5.5])
INSIDE = np.array([0.001, 0.1, 0.45, 0.5, 0.8, 0.999])

EXACT: dict[str, tuple[Callable[..., Any], np.ndarray]] = {
    "erfc": (mpmath.erfc, SIGNED),
    "special.erfcx": (lambda x: mpmath.exp(x * x) * mpmath.erfc(x), SIGNED),
    "erfinv": (mpmath.erfinv, INSIDE),
    "special.ndtr": (mpmath.ncdf, SIGNED),
    "special.log_ndtr": (lambda x: mpmath.log(mpmath.ncdf(x)), SIGNED),
    "lgamma": (mpmath.loggamma, POSITIVE),
    "digamma": (mpmath.digamma, np.concatenate([POSITIVE, [-0.3, -3.7]])),
    "i0": (lambda x: mpmath.besseli(0, x), POSITIVE),
    "special.i0e": (lambda x: mpmath.exp(-x) * mpmath.besseli(0, x), POSITIVE),
    "special.i1": (lambda x: mpmath.besseli(1, x), POSITIVE),
    "special.bessel_j0": (lambda x: mpmath.besselj(0, x), POSITIVE),
    "special.bessel_j1": (lambda x: mpmath.besselj(1, x), POSITIVE),
    "special.bessel_y0": (lambda x: mpmath.bessely(0, x), POSITIVE),
    "special.bessel_y1": (lambda x: mpmath.bessely(1, x), POSITIVE),
    "special.modified_bessel_k0": (lambda x: mpmath.besselk(0, x), POSITIVE),
    "special.modified_bessel_k1": (lambda x: mpmath.besselk(1, x), POSITIVE),
    "special.airy_ai": (mpmath.airyai, np.array([-30.0, -6.0, -2.0, 0.0, 1.5, 2.5, 8.0])),
}


def named(name: str, library: Any = rl) -> Callable[..., Any]:
    for part in name.split("."):
        library = getattr(library, part)
    return library  # type: ignore[no-any-return]


@pytest.mark.parametrize("name", EXACT)
def test_exact_to_nearly_all_digits(name: str) -> None:
    exact, points = EXACT[name]
    want = [float(mpmath.re(exact(mpmath.mpf(float(x))))) for x in points]
    got = named(name)(rl.tensor(points)).numpy()
    np.testing.assert_allclose(got, want, rtol=3e-13, atol=1e-15)


def test_two_arguments_are_exact() -> None:
    a, x = np.meshgrid([0.2, 1.0, 3.5, 20.0], [0.1, 1.0, 4.0, 25.0])
    lower = [float(mpmath.gammainc(p, 0, q, regularized=True)) for p, q in zip(a.flat, x.flat)]
    got = rl.igamma(rl.tensor(a), rl.tensor(x)).numpy()
    np.testing.assert_allclose(got.ravel(), lower, rtol=1e-12)
    np.testing.assert_allclose(rl.igammac(rl.tensor(a), rl.tensor(x)).numpy(), 1 - got, atol=1e-12)
    s = a + 1.1
    with mpmath.workdps(40):  # mpmath's own sum needs the digits
        zeta = [float(mpmath.zeta(p, q)) for p, q in zip(s.flat, x.flat)]
    found = rl.special.zeta(rl.tensor(s), rl.tensor(x)).numpy()
    np.testing.assert_allclose(found.ravel(), zeta, rtol=1e-12)


EDGES = np.array([-np.inf, -3.0, -1.0, -0.0, 0.0, 1.0, np.inf, np.nan])


@pytest.mark.parametrize(
    "name",
    [
        "erfc",
        "erfinv",
        "lgamma",
        "digamma",
        "i0",
        "sinc",
        "special.erfcx",
        "special.i0e",
        "special.i1",
        "special.ndtri",
        "special.log_ndtr",
        "special.entr",
        "special.modified_bessel_k0",
        "asin",
        "acos",
        "atan",
        "asinh",
        "acosh",
        "atanh",
        "sinh",
        "cosh",
        "tan",
    ],
)
@pytest.mark.parametrize("kind", ["float64", "float32"])
def test_edges_are_torchs(name: str, kind: str) -> None:
    got = named(name)(rl.tensor(EDGES.astype(kind))).numpy()
    want = named(name, torch)(torch.tensor(EDGES.astype(kind))).numpy()
    assert got.dtype == want.dtype
    np.testing.assert_allclose(got, want, rtol=2e-6, atol=1e-7)


@pytest.mark.parametrize("name", [n for n in dir(torch.special) if "polynomial" in n])
def test_polynomials(name: str) -> None:
    x, n = np.meshgrid(np.array([-1.0, -0.4, 0.0, 0.7, 1.0, 1.5]), np.arange(-1.0, 6.0))
    got = named("special." + name)(rl.tensor(x), rl.tensor(n)).numpy()
    want = named("special." + name, torch)(torch.tensor(x), torch.tensor(n)).numpy()
    np.testing.assert_allclose(got, want, rtol=1e-8, atol=1e-8)


POSITIVE_SLOPES = [
    "asinh",
    "atan",
    "erfc",
    "sinh",
    "cosh",
    "tan",
    "sinc",
    "exp2",
    "lgamma",
    "digamma",
    "i0",
    "special.erfcx",
    "special.i0e",
    "special.i1",
    "special.i1e",
    "special.log_ndtr",
    "special.ndtr",
    "special.entr",
    "special.bessel_j0",
    "special.bessel_j1",
    "special.bessel_y0",
    "special.bessel_y1",
    "special.modified_bessel_k0",
    "special.modified_bessel_k1",
    "special.scaled_modified_bessel_k0",
    "special.scaled_modified_bessel_k1",
]


@pytest.mark.parametrize("name", POSITIVE_SLOPES)
def test_derivatives(name: str) -> None:
    check_derivatives(named(name), np.array([[0.4, 1.3], [2.2, 0.9]]))


@pytest.mark.parametrize("name", ["asin", "acos", "atanh", "erfinv", "logit", "special.ndtri"])
def test_derivatives_inside_the_unit_interval(name: str) -> None:
    check_derivatives(named(name), np.array([0.15, 0.5, 0.8]))


@pytest.mark.parametrize("name", ["xlogy", "special.xlog1py", "atan2", "hypot", "copysign", "fmod"])
def test_derivatives_of_two_operands(name: str) -> None:
    check_derivatives(named(name), np.array([0.5, -1.7, 2.2]), np.array([1.1, 0.6, 0.9]))


def test_derivatives_by_one_operand() -> None:
    a = rl.tensor(np.array([0.7, 2.5]))
    x = np.array([1.4, 0.8])
    check_derivatives(lambda t: rl.polygamma(2, t), x)
    check_derivatives(lambda t: rl.mvlgamma(t, 3), x + 2)
    check_derivatives(lambda t: rl.igamma(a, t), x)
    check_derivatives(lambda t: rl.special.zeta(a + 1, t), x)


@pytest.mark.parametrize("name", ["erfinv", "lgamma", "i0", "special.ndtri", "atan"])
def test_integers_become_floats_and_narrow_floats_round_once(name: str) -> None:
    assert named(name)(rl.tensor([1, 2])).dtype is rl.float32
    narrow = named(name)(rl.tensor([0.3, 0.7]).to(rl.bfloat16))
    exact = named(name)(rl.tensor([0.3, 0.7]).to(rl.bfloat16).float())
    np.testing.assert_array_equal(narrow.float().numpy(), exact.to(rl.bfloat16).float().numpy())


def test_wrong_input() -> None:
    with pytest.raises(RidgelineError):
        rl.lgamma(rl.tensor([1j]))
    with pytest.raises(RidgelineError):
        rl.polygamma(-1, rl.tensor([1.0]))
    with pytest.raises(RidgelineError):
        rl.atan2(rl.tensor([1.0, 2.0]), rl.tensor([1.0, 2.0, 3.0]))


@pytest.mark.parametrize("name", ["zeta", "gammainc", "gammaincc"])
def test_a_derivative_that_is_not_known_is_an_error_and_not_zero(name: str) -> None:
    function = getattr(rl.special, name)
    first = rl.tensor([3.0, 4.0], requires_grad=True)
    second = rl.tensor([2.0, 2.5], requires_grad=True)
    with pytest.raises(rl.RidgelineError, match="no gradient by operand 1"):
        function(first, second).sum().backward()
    with pytest.raises(rl.RidgelineError, match="no gradient by operand 1"):
        rl.jvp(lambda a: function(a, second), (first,), (first,))
    function(first.detach(), second).sum().backward()
    assert second.grad is not None and (second.grad != 0).all()
