"""Powers and inverse trigonometric and hyperbolic functions of complex numbers, in their parts.

The formulas are Kahan's ("Branch cuts for complex elementary functions"): sums of parts with equal
signs, so that nothing cancels. Far out, where squares would overflow, a function is its first term,
which is also right for infinities. Everything is computed in float64 and rounded once.
"""

from __future__ import annotations

import math
from collections.abc import Callable

from ridgeline import dtypes
from ridgeline.graph.node import Node
from ridgeline.graph.passes.legalize import complex_math as plain
from ridgeline.graph.passes.legalize.complex_math import Pair
from ridgeline.ops.elementwise import cast, full_like, select
from ridgeline.ops.math import asinh, atan2, copysign, hypot, isnan, log, log1p, trunc

_FAR = 1e100  # from here on the first term is exact
_CLOSE = 1e-150  # to a pole: squares of smaller distances vanish
_MOST_FACTORS = 7  # bits of an exponent for which a power is a product, as in NumPy
Parts = Callable[[Node, Node], Pair]


def _size(x: Node) -> Node:
    return abs(x)


def _far(x: Node, y: Node) -> Node:
    limit = full_like(x, _FAR)
    return (limit < _size(x)) | (limit < _size(y))


def _both(a: Node, b: Node) -> Node:
    return a & b


def _zero(x: Node) -> Node:
    return x.eq(0)


def _log_of_twice(x: Node, y: Node) -> Node:
    """log(2 |z|), which does not overflow on the way."""
    quarter = full_like(x, 0.25)
    size = hypot(x * quarter, y * quarter)
    return log(size) + full_like(x, math.log(8.0))


def _roots(x: Node, y: Node) -> tuple[Pair, Pair]:
    """sqrt(1 - z) and sqrt(1 + z); the sign of a zero imaginary part stays."""
    one = full_like(x, 1)
    return plain.sqrt_of(one - x, -y), plain.sqrt_of(one + x, y)


def _asin(x: Node, y: Node) -> Pair:
    left, right = _roots(x, y)
    below = left.real * right.real - left.imaginary * right.imaginary
    across = left.real * right.imaginary - left.imaginary * right.real
    far = _far(x, y)
    real = select(far, atan2(x, _size(y)), atan2(x, below))
    imaginary = select(far, copysign(_log_of_twice(x, y), y), asinh(across))
    return Pair(select(_zero(x), x, real), imaginary)


def _acos(x: Node, y: Node) -> Pair:
    left, right = _roots(x, y)
    across = right.real * left.imaginary - right.imaginary * left.real
    angle = atan2(left.real, right.real)
    far = _far(x, y)
    real = select(far, atan2(_size(y), x), angle + angle)
    size = -copysign(_log_of_twice(x, y), y)
    upright = _both(_zero(x), isnan(y))
    return Pair(select(upright, full_like(x, math.pi / 2), real), select(far, size, asinh(across)))


def _acosh(x: Node, y: Node) -> Pair:
    """acos turned so that its real part is not negative."""
    real, imaginary = _acos(x, y)
    return Pair(_size(imaginary), copysign(real, y))


def _atanh(x: Node, y: Node) -> Pair:
    a, one = _size(x), full_like(x, 1)
    before, after = one - a, one + a
    distance = hypot(before, y)
    near = log1p(a * full_like(x, 4.0) / distance / distance)
    close = (full_like(x, math.log(2.0)) - log(distance)) * full_like(x, 0.5)
    pole = _both(distance < full_like(x, _CLOSE), full_like(x, 0) < distance)
    size = select(pole, close, near * full_like(x, 0.25))
    angle = atan2(y + y, before * after - y * y)
    far, whole = _far(x, y), hypot(x, y)
    endless = whole.eq(full_like(x, math.inf))
    first = select(endless, full_like(x, 0), a / whole / whole)
    turn = full_like(x, math.pi / 2) + select(isnan(y), y, full_like(x, 0))
    real = copysign(select(far, first, size), x)
    imaginary = select(far, copysign(turn, y), angle * full_like(x, 0.5))
    return Pair(select(_zero(x), x, real), imaginary)


def _turned(function: Parts) -> Parts:
    """asinh by asin, atan by atanh: swap real and imaginary parts before and after."""

    def other(x: Node, y: Node) -> Pair:
        real, imaginary = function(y, x)
        return Pair(imaginary, real)

    return other


def power(a: Pair, b: Pair) -> Pair:
    """a ** b: products for small whole exponents, else e ** (b log a)."""
    dtype = a.real.dtype
    base, exponent = (Pair(*(cast(p, dtypes.float64) for p in z)) for z in (a, b))
    made = plain.exp_of(*plain.mul(exponent, plain.log_of(*base)))
    whole = _both(_zero(exponent.imaginary), _is_small_whole(exponent.real))
    made = plain.choose(whole, _whole_power(base, exponent.real), made)
    nothing, zero = full_like(base.real, math.nan), full_like(base.real, 0)
    positive = _both(zero < exponent.real, _zero(exponent.imaginary))
    of_zero = select(positive, zero, nothing)
    at_zero = _both(_zero(base.real), _zero(base.imaginary))
    made = plain.choose(at_zero, Pair(of_zero, of_zero), made)
    none = _both(_zero(exponent.real), _zero(exponent.imaginary))
    made = plain.choose(none, Pair(full_like(zero, 1), zero), made)
    return Pair(cast(made.real, dtype), cast(made.imaginary, dtype))


def _is_small_whole(x: Node) -> Node:
    small = _size(x) < full_like(x, 100.0)
    return _both(small, trunc(x).eq(x))


def _whole_power(base: Pair, exponent: Node) -> Pair:
    """Exponentiation by squaring."""
    small = select(_is_small_whole(exponent), _size(exponent), full_like(exponent, 0))
    left = cast(small, dtypes.int64)
    one = full_like(exponent, 1)
    made, square = Pair(one, full_like(exponent, 0)), base
    for bit in range(_MOST_FACTORS):
        taken = (left & 1 << bit).ne(full_like(left, 0))
        first = left < 2 << bit
        below = left & (1 << bit) - 1
        fresh = below.eq(full_like(left, 0))
        made = plain.choose(taken, plain.choose(fresh, square, plain.mul(made, square)), made)
        square = plain.choose(first, square, plain.mul(square, square))
    negative = exponent < 0
    return plain.choose(negative, plain.reciprocal(made), made)


INVERSES: dict[str, Callable[..., Pair]] = {
    "asin": plain.in_double(_asin), "acos": plain.in_double(_acos),
    "asinh": plain.in_double(_turned(_asin)), "acosh": plain.in_double(_acosh),
    "atanh": plain.in_double(_atanh), "atan": plain.in_double(_turned(_atanh)), "pow": power,
}  # fmt: skip
