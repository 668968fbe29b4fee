"""The special functions, at the top and in the `special` namespace."""

from __future__ import annotations

import math

from ridgeline.errors import BadValueError
from ridgeline.functions.operands import Operand, align, floating, result_type, step_count
from ridgeline.functions.pointwise import sigmoid
from ridgeline.functions.registry import public
from ridgeline.functions.trigonometry import real_or_complex
from ridgeline.graph.node import Node
from ridgeline.ops import special as ops
from ridgeline.ops.elementwise import apply, cast, full_like, select
from ridgeline.ops.math import isnan, sin
from ridgeline.ops.special import special


def _float(input: Node) -> Node:
    return cast(input, floating(input.dtype))


def _two(input: Operand, other: Operand) -> tuple[Node, Node]:
    a, b = align(input, other, dtype=floating(result_type(input, other)))
    return a, b


@public(inplace=True)
def erfc(input: Node) -> Node:
    """1 - erf(input), accurate in the right tail."""
    return special("erfc", _float(input))


@public(inplace=True)
def erfinv(input: Node) -> Node:
    """The inverse of the error function."""
    return special("erfinv", _float(input))


@public(inplace=True)
def i0(input: Node) -> Node:
    """The modified Bessel function of the first kind, order 0."""
    return special("i0", _float(input))


@public(namespace="special")
def erfcx(input: Node) -> Node:
    """exp(input**2) * erfc(input)."""
    return special("erfcx", _float(input))


@public(namespace="special")
def i0e(input: Node) -> Node:
    """exp(-|input|) * i0(input)."""
    return special("i0e", _float(input))


@public(namespace="special")
def i1(input: Node) -> Node:
    """The modified Bessel function of the first kind, order 1."""
    return special("i1", _float(input))


@public(namespace="special")
def i1e(input: Node) -> Node:
    """exp(-|input|) * i1(input)."""
    return special("i1e", _float(input))


@public(namespace="special")
def ndtri(input: Node) -> Node:
    """The inverse of the normal distribution function."""
    return special("ndtri", _float(input))


@public(namespace="special")
def log_ndtr(input: Node) -> Node:
    """The logarithm of the normal distribution function."""
    return special("log_ndtr", _float(input))


@public(namespace="special")
def airy_ai(input: Node) -> Node:
    """The Airy function Ai."""
    return special("airy_ai", _float(input))


@public(namespace="special")
def bessel_j0(input: Node) -> Node:
    """The Bessel function of the first kind, order 0."""
    return special("j0", _float(input))


@public(namespace="special")
def bessel_j1(input: Node) -> Node:
    """The Bessel function of the first kind, order 1."""
    return special("j1", _float(input))


@public(namespace="special")
def bessel_y0(input: Node) -> Node:
    """The Bessel function of the second kind, order 0."""
    return special("y0", _float(input))


@public(namespace="special")
def bessel_y1(input: Node) -> Node:
    """The Bessel function of the second kind, order 1."""
    return special("y1", _float(input))


@public(namespace="special")
def modified_bessel_i0(input: Node) -> Node:
    """The modified Bessel function of the first kind, order 0."""
    return special("i0", _float(input))


@public(namespace="special")
def modified_bessel_i1(input: Node) -> Node:
    """The modified Bessel function of the first kind, order 1."""
    return special("i1", _float(input))


@public(namespace="special")
def modified_bessel_k0(input: Node) -> Node:
    """The modified Bessel function of the second kind, order 0."""
    return special("k0", _float(input))


@public(namespace="special")
def modified_bessel_k1(input: Node) -> Node:
    """The modified Bessel function of the second kind, order 1."""
    return special("k1", _float(input))


@public(namespace="special")
def scaled_modified_bessel_k0(input: Node) -> Node:
    """exp(input) * modified_bessel_k0(input)."""
    return special("k0e", _float(input))


@public(namespace="special")
def scaled_modified_bessel_k1(input: Node) -> Node:
    """exp(input) * modified_bessel_k1(input)."""
    return special("k1e", _float(input))


@public(namespace="special")
def spherical_bessel_j0(input: Node) -> Node:
    """sin(input) / input, and 1 at 0."""
    return special("spherical_bessel_j0", _float(input))


@public(inplace=True)
def lgamma(input: Node) -> Node:
    """The logarithm of the magnitude of the gamma function."""
    return special("lgamma", _float(input))


@public(namespace="special")
def gammaln(input: Node) -> Node:
    """The logarithm of the magnitude of the gamma function."""
    return special("lgamma", _float(input))


@public(inplace=True)
def digamma(input: Node) -> Node:
    """The derivative of `lgamma`."""
    return special("digamma", _float(input))


@public("digamma", namespace="special")
def psi(input: Node) -> Node:
    """The derivative of `gammaln`."""
    return special("digamma", _float(input))


@public(method=False)
def polygamma(n: int, input: Node) -> Node:
    """The n-th derivative of `digamma`."""
    if isinstance(n, Node | bool) or n < 0:
        raise BadValueError(f"polygamma needs an order of at least 0, got {n!r}")
    return ops.polygamma(int(n), _float(input))


@public()
def mvlgamma(input: Node, p: int) -> Node:
    """The logarithm of the multivariate gamma function of dimension p."""
    if p < 1:
        raise BadValueError(f"mvlgamma needs a dimension of at least 1, got {p}")
    x = _float(input)
    total = full_like(x, p * (p - 1) / 4 * math.log(math.pi))
    for j in range(step_count(p, "mvlgamma")):
        total = total + special("lgamma", x + -j / 2)
    return total


@public(namespace="special")
def multigammaln(input: Node, p: int) -> Node:
    """The logarithm of the multivariate gamma function of dimension p."""
    return mvlgamma(input, p)


@public()
def igamma(input: Node, other: Node) -> Node:
    """The regularised lower incomplete gamma function."""
    return special("gammainc", *_two(input, other))


@public()
def igammac(input: Node, other: Node) -> Node:
    """The regularised upper incomplete gamma function."""
    return special("gammaincc", *_two(input, other))


@public(namespace="special")
def gammainc(input: Node, other: Node) -> Node:
    """The regularised lower incomplete gamma function."""
    return igamma(input, other)


@public(namespace="special")
def gammaincc(input: Node, other: Node) -> Node:
    """The regularised upper incomplete gamma function."""
    return igammac(input, other)


@public(namespace="special")
def zeta(input: Operand, other: Operand) -> Node:
    """The Hurwitz zeta function."""
    return special("zeta", *_two(input, other))


@public(namespace="special")
def expit(input: Node) -> Node:
    """1 / (1 + exp(-input))."""
    return sigmoid(input)


@public(namespace="special")
def ndtr(input: Node) -> Node:
    """The normal distribution function."""
    return special("ndtr", _float(input))


@public(namespace="special", wide=True)
def entr(input: Node) -> Node:
    """-input * log(input), 0 at 0 and -inf below."""
    x = _float(input)
    zero = full_like(x, 0)
    positive = zero < x
    safe = select(positive, x, full_like(x, 1))
    inside = -(x * apply("log", safe))
    outside = select(x.eq(zero), zero, full_like(x, -math.inf))
    return select(isnan(x), x, select(positive, inside, outside))


def _times_log(name: str, input: Operand, other: Operand) -> Node:
    """x * log(y), and 0 where x is 0 and y a number."""
    x, y = _two(input, other)
    log = apply(name, y)
    zero = full_like(x, 0)
    silent = x.eq(zero) & y.eq(y)
    safe = select(silent, zero, log)
    return select(silent, zero * x, x * safe)


@public(inplace=True, wide=True)
def xlogy(input: Operand, other: Operand) -> Node:
    """input * log(other), and 0 where input is 0."""
    return _times_log("log", input, other)


@public(namespace="special", wide=True)
def xlog1py(input: Operand, other: Operand) -> Node:
    """input * log1p(other), and 0 where input is 0."""
    return _times_log("log1p", input, other)


@public(inplace=True)
def sinc(input: Node) -> Node:
    """sin(pi * x) / (pi * x), and 1 at 0."""
    given = real_or_complex(input)
    if not given.dtype.is_complex:
        return apply("sinc", given)
    x = given * math.pi
    zero = x.eq(0)
    safe = select(zero, full_like(x, 1), x)
    # the series keeps the derivatives at 0
    near = full_like(x, 1) - x * x * (1 / 6)
    return select(zero, near, sin(safe) / safe)
