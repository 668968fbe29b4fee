"""The special functions, at the top and in the `special` namespace."""

from __future__ import annotations

import math
from functools import partial

from ridgeline.errors import BadValueError
from ridgeline.functions.operands import Operand, as_float, step_count
from ridgeline.functions.pointwise import function_of_one, sigmoid
from ridgeline.functions.registry import public
from ridgeline.functions.trigonometry import floats
from ridgeline.graph.node import Node
from ridgeline.ops import special as ops
from ridgeline.ops.elementwise import apply, full_like, select
from ridgeline.ops.math import isnan, sin
from ridgeline.ops.special import special

_function = partial(function_of_one, compute=special)
erfc = _function("erfc", "1 - erf(input), accurate in the right tail.")
erfinv = _function("erfinv", "The inverse of the error function.")
i0 = _function("i0", "The modified Bessel function of the first kind, order 0.")
lgamma = _function("lgamma", "The logarithm of the magnitude of the gamma function.")
digamma = _function("digamma", "The derivative of `lgamma`.")
psi = _function(
    "digamma", "The derivative of `gammaln`.", "digamma", name="psi", namespace="special"
)
# the namespace alone has these: the function, its op, what it is
_SPECIAL = (
    ("erfcx", "erfcx", "exp(input**2) * erfc(input)."),
    ("i0e", "i0e", "exp(-|input|) * i0(input)."),
    ("i1", "i1", "The modified Bessel function of the first kind, order 1."),
    ("i1e", "i1e", "exp(-|input|) * i1(input)."),
    ("ndtr", "ndtr", "The normal distribution function."),
    ("ndtri", "ndtri", "The inverse of the normal distribution function."),
    ("log_ndtr", "log_ndtr", "The logarithm of the normal distribution function."),
    ("airy_ai", "airy_ai", "The Airy function Ai."),
    ("bessel_j0", "j0", "The Bessel function of the first kind, order 0."),
    ("bessel_j1", "j1", "The Bessel function of the first kind, order 1."),
    ("bessel_y0", "y0", "The Bessel function of the second kind, order 0."),
    ("bessel_y1", "y1", "The Bessel function of the second kind, order 1."),
    ("modified_bessel_i0", "i0", "The modified Bessel function of the first kind, order 0."),
    ("modified_bessel_i1", "i1", "The modified Bessel function of the first kind, order 1."),
    ("modified_bessel_k0", "k0", "The modified Bessel function of the second kind, order 0."),
    ("modified_bessel_k1", "k1", "The modified Bessel function of the second kind, order 1."),
    ("scaled_modified_bessel_k0", "k0e", "exp(input) * modified_bessel_k0(input)."),
    ("scaled_modified_bessel_k1", "k1e", "exp(input) * modified_bessel_k1(input)."),
    ("spherical_bessel_j0", "spherical_bessel_j0", "sin(input) / input, and 1 at 0."),
    ("gammaln", "lgamma", "The logarithm of the magnitude of the gamma function."),
)
for _name, _op, _about in _SPECIAL:
    _function(_op, _about, name=_name, namespace="special")


@public(method=False)
def polygamma(n: int, input: Node) -> Node:
    """The n-th derivative of `digamma`."""
    if isinstance(n, Node | bool) or n < 0:
        raise BadValueError(f"polygamma needs an order of at least 0, got {n!r}")
    return ops.polygamma(int(n), as_float(input))


@public()
def mvlgamma(input: Node, p: int) -> Node:
    """The logarithm of the multivariate gamma function of dimension p."""
    if p < 1:
        raise BadValueError(f"mvlgamma needs a dimension of at least 1, got {p}")
    x = as_float(input)
    total = full_like(x, p * (p - 1) / 4 * math.log(math.pi))
    for j in range(step_count(p, "mvlgamma")):
        total = total + special("lgamma", x + -j / 2)
    return total


@public()
def igamma(input: Node, other: Node) -> Node:
    """The regularised lower incomplete gamma function."""
    return special("gammainc", *floats(input, other))


@public()
def igammac(input: Node, other: Node) -> Node:
    """The regularised upper incomplete gamma function."""
    return special("gammaincc", *floats(input, other))


# under the names that they have in the namespace
public(namespace="special", name="expit")(sigmoid)
public(namespace="special", name="multigammaln")(mvlgamma)
public(namespace="special", name="gammainc")(igamma)
public(namespace="special", name="gammaincc")(igammac)


@public(namespace="special")
def zeta(input: Operand, other: Operand) -> Node:
    """The Hurwitz zeta function."""
    return special("zeta", *floats(input, other))


@public(namespace="special", wide=True)
def entr(input: Node) -> Node:
    """-input * log(input), 0 at 0 and -inf below."""
    x = as_float(input)
    zero = full_like(x, 0)
    positive = zero < x
    safe = select(positive, x, full_like(x, 1))
    inside = -(x * apply("log", safe))
    outside = select(x.eq(zero), zero, full_like(x, -math.inf))
    return select(isnan(x), x, select(positive, inside, outside))


def _times_log(name: str, input: Operand, other: Operand) -> Node:
    """x * log(y), and 0 where x is 0 and y a number."""
    x, y = floats(input, other)
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
    given = as_float(input)
    if not given.dtype.is_complex:
        return apply("sinc", given)
    x = given * math.pi
    zero = x.eq(0)
    safe = select(zero, full_like(x, 1), x)
    # the series keeps the derivatives at 0
    near = full_like(x, 1) - x * x * (1 / 6)
    return select(zero, near, sin(safe) / safe)
