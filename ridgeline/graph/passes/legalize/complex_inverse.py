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
from ridgeline.ops.elementwise import add, apply, cast, div, full_like, mul, select, sub

_FAR = 1e100  # from here on the first term is exact
_CLOSE = 1e-150  # to a pole: squares of smaller distances vanish
_MOST_FACTORS = 7  # bits of an exponent for which a power is a product, as in NumPy
Parts = Callable[[Node, Node], Pair]


def _size(x: Node) -> Node:
    return apply("abs", x)


def _far(x: Node, y: Node) -> Node:
    limit = full_like(x, _FAR)
    return apply("or", apply("lt", limit, _size(x)), apply("lt", limit, _size(y)))


def _both(a: Node, b: Node) -> Node:
    return apply("and", a, b)


def _zero(x: Node) -> Node:
    return apply("eq", x, full_like(x, 0))


def _log_of_twice(x: Node, y: Node) -> Node:
    """log(2 |z|), which does not overflow on the way."""
    quarter = full_like(x, 0.25)
    size = apply("hypot", mul(x, quarter), mul(y, quarter))
    return add(apply("log", size), full_like(x, math.log(8.0)))


def _roots(x: Node, y: Node) -> tuple[Pair, Pair]:
    """sqrt(1 - z) and sqrt(1 + z); the sign of a zero imaginary part stays."""
    one = full_like(x, 1)
    return plain.sqrt_of(sub(one, x), apply("neg", y)), plain.sqrt_of(add(one, x), y)


def _asin(x: Node, y: Node) -> Pair:
    left, right = _roots(x, y)
    below = sub(mul(left.real, right.real), mul(left.imaginary, right.imaginary))
    across = sub(mul(left.real, right.imaginary), mul(left.imaginary, right.real))
    far = _far(x, y)
    real = select(far, apply("atan2", x, _size(y)), apply("atan2", x, below))
    imaginary = select(far, apply("copysign", _log_of_twice(x, y), y), apply("asinh", across))
    return Pair(select(_zero(x), x, real), imaginary)


def _acos(x: Node, y: Node) -> Pair:
    left, right = _roots(x, y)
    across = sub(mul(right.real, left.imaginary), mul(right.imaginary, left.real))
    angle = apply("atan2", left.real, right.real)
    far = _far(x, y)
    real = select(far, apply("atan2", _size(y), x), add(angle, angle))
    size = apply("neg", apply("copysign", _log_of_twice(x, y), y))
    upright = _both(_zero(x), apply("isnan", y))
    return Pair(
        select(upright, full_like(x, math.pi / 2), real), select(far, size, apply("asinh", across))
    )


def _acosh(x: Node, y: Node) -> Pair:
    """acos turned so that its real part is not negative."""
    real, imaginary = _acos(x, y)
    return Pair(_size(imaginary), apply("copysign", real, y))


def _atanh(x: Node, y: Node) -> Pair:
    a, one = _size(x), full_like(x, 1)
    before, after = sub(one, a), add(one, a)
    distance = apply("hypot", before, y)
    near = apply("log1p", div(div(mul(a, full_like(x, 4.0)), distance), distance))
    close = mul(sub(full_like(x, math.log(2.0)), apply("log", distance)), full_like(x, 0.5))
    pole = _both(
        apply("lt", distance, full_like(x, _CLOSE)), apply("lt", full_like(x, 0), distance)
    )
    size = select(pole, close, mul(near, full_like(x, 0.25)))
    angle = apply("atan2", add(y, y), sub(mul(before, after), mul(y, y)))
    far, whole = _far(x, y), apply("hypot", x, y)
    endless = apply("eq", whole, full_like(x, math.inf))
    first = select(endless, full_like(x, 0), div(div(a, whole), whole))
    turn = add(full_like(x, math.pi / 2), select(apply("isnan", y), y, full_like(x, 0)))
    real = apply("copysign", select(far, first, size), x)
    imaginary = select(far, apply("copysign", turn, y), mul(angle, full_like(x, 0.5)))
    return Pair(select(_zero(x), x, real), imaginary)


def _turned(function: Parts) -> Parts:
    """asinh of asin, atan of atanh: both parts change places, before and after."""

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
    positive = _both(apply("lt", zero, exponent.real), _zero(exponent.imaginary))
    of_zero = select(positive, zero, nothing)
    at_zero = _both(_zero(base.real), _zero(base.imaginary))
    made = plain.choose(at_zero, Pair(of_zero, of_zero), made)
    none = _both(_zero(exponent.real), _zero(exponent.imaginary))
    made = plain.choose(none, Pair(full_like(zero, 1), zero), made)
    return Pair(cast(made.real, dtype), cast(made.imaginary, dtype))


def _is_small_whole(x: Node) -> Node:
    small = apply("lt", _size(x), full_like(x, 100.0))
    return _both(small, apply("eq", apply("trunc", x), x))


def _whole_power(base: Pair, exponent: Node) -> Pair:
    """Squares of squares, multiplied where the exponent has a bit."""
    small = select(_is_small_whole(exponent), _size(exponent), full_like(exponent, 0))
    left = cast(small, dtypes.int64)
    one = full_like(exponent, 1)
    made, square = Pair(one, full_like(exponent, 0)), base
    for bit in range(_MOST_FACTORS):
        taken = apply("ne", apply("and", left, full_like(left, 1 << bit)), full_like(left, 0))
        first = apply("lt", left, full_like(left, 2 << bit))
        below = apply("and", left, full_like(left, (1 << bit) - 1))
        fresh = apply("eq", below, full_like(left, 0))
        made = plain.choose(taken, plain.choose(fresh, square, plain.mul(made, square)), made)
        square = plain.choose(first, square, plain.mul(square, square))
    negative = apply("lt", exponent, full_like(exponent, 0))
    return plain.choose(negative, plain.reciprocal(made), made)


INVERSES: dict[str, Callable[..., Pair]] = {
    "asin": plain.in_double(_asin), "acos": plain.in_double(_acos),
    "asinh": plain.in_double(_turned(_asin)), "acosh": plain.in_double(_acosh),
    "atanh": plain.in_double(_atanh), "atan": plain.in_double(_turned(_atanh)), "pow": power,
}  # fmt: skip
