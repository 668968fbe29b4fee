"""Arithmetic and functions of complex numbers, written in operations on their parts.

They follow NumPy, also where a part is infinite or NaN: products are the plain formula, quotients
scale by the larger part of the divisor, and branches are cut along the axes with the sign of a zero
choosing the side. Functions are computed in float64 and rounded once.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import NamedTuple

from ridgeline import dtypes
from ridgeline.graph.node import Node
from ridgeline.ops.elementwise import (
    apply,
    cast,
    full_like,
    select,
)
from ridgeline.ops.math import (
    atan2,
    copysign,
    cos,
    cosh,
    exp,
    expm1,
    hypot,
    isnan,
    log,
    log1p,
    signed,
    sin,
    sinh,
    sqrt,
)

_HALF_RANGE = 700.0  # e**x is finite for all smaller x
_TANH_FLAT = 22.0  # from here on the real part of tanh is 1 in float64


class Pair(NamedTuple):
    """The parts of a complex value."""

    real: Node
    imaginary: Node


def _below(a: Node, b: Node) -> Node:
    return a < b


def _is_zero(x: Node) -> Node:
    return x.eq(0)


def _is_infinite(x: Node) -> Node:
    return abs(x).eq(full_like(x, math.inf))


def _both(a: Node, b: Node) -> Node:
    return a & b


def _times(x: Node, number: float) -> Node:
    return x * number


# ---- arithmetic ----------------------------------------------------------------------------------


def negative(z: Pair) -> Pair:
    """-z."""
    return Pair(-z[0], -z[1])


def add(a: Pair, b: Pair) -> Pair:
    """a + b."""
    return Pair(a[0] + b[0], a[1] + b[1])


def sub(a: Pair, b: Pair) -> Pair:
    """a - b."""
    return Pair(a[0] - b[0], a[1] - b[1])


def mul(a: Pair, b: Pair) -> Pair:
    """a * b."""
    real = a[0] * b[0] - a[1] * b[1]
    return Pair(real, a[0] * b[1] + a[1] * b[0])


def div(a: Pair, b: Pair) -> Pair:
    """a / b by Smith's method: no square that could overflow."""
    wide = abs(b[1]) <= abs(b[0])
    larger, smaller = select(wide, b[0], b[1]), select(wide, b[1], b[0])
    ratio = smaller / larger
    scale = apply("reciprocal", larger + smaller * ratio)
    x, y = a
    real = select(wide, x + y * ratio, x * ratio + y)
    imaginary = select(wide, y - x * ratio, y * ratio - x)
    zero = _both(_is_zero(b[0]), _is_zero(b[1]))
    size = abs(b[0])
    return Pair(
        select(zero, x / size, real * scale),
        select(zero, y / size, imaginary * scale),
    )


def reciprocal(z: Pair) -> Pair:
    """1 / z."""
    return div(Pair(full_like(z[0], 1), full_like(z[0], 0)), z)


def equal(a: Pair, b: Pair) -> Node:
    """Both parts are equal."""
    return _both(a[0].eq(b[0]), a[1].eq(b[1]))


def different(a: Pair, b: Pair) -> Node:
    """One part differs."""
    return a[0].ne(b[0]) | a[1].ne(b[1])


def is_nan(z: Pair) -> Node:
    """One part is NaN."""
    return isnan(z[0]) | isnan(z[1])


def choose(condition: Node, a: Pair, b: Pair) -> Pair:
    """`a` where the condition holds."""
    return Pair(select(condition, a[0], b[0]), select(condition, a[1], b[1]))


# ---- functions -----------------------------------------------------------------------------------


def in_double(function: Callable[[Node, Node], Pair]) -> Callable[[Pair], Pair]:
    """Compute a function of both parts in float64, then round to their type."""

    def rounded(z: Pair) -> Pair:
        dtype = z[0].dtype
        made = function(cast(z[0], dtypes.float64), cast(z[1], dtypes.float64))
        return Pair(cast(made[0], dtype), cast(made[1], dtype))

    return rounded


def sqrt_of(x: Node, y: Node) -> Pair:
    """t + i y/2t with t = sqrt((|x| + |z|)/2), turned by a quarter for negative x.

    Halving twice under the root keeps |x| + |z| from overflowing.
    """
    a = abs(x)
    quarter = _times(a, 0.25) + _times(hypot(x, y), 0.25)
    tiny = quarter < full_like(x, 1e-300)  # where a quarter would lose digits
    lifted = hypot(_times(x, 2.0**200), _times(y, 2.0**200))
    root = select(
        tiny,
        _times(sqrt(_times(_times(a, 2.0**200) + lifted, 0.5)), 2.0**-100),
        sqrt(_times(quarter, 2.0)),
    )
    other = _times(abs(y) / root, 0.5)
    right = x >= 0
    zero = _both(_is_zero(x), _is_zero(y))
    real = select(zero, full_like(x, 0), select(right, root, other))
    size = select(zero, full_like(x, 0), select(right, other, root))
    endless_x = _both(_is_infinite(x), y.eq(y))
    flat = full_like(x, 0)
    real = select(endless_x, select(right, a, flat), real)
    size = select(endless_x, select(right, flat, a), size)
    unknown = isnan(y)
    # of an infinity and NaN: infinite to the right, an infinite imaginary part to the left
    open_end = _both(_is_infinite(x), unknown)
    real = select(open_end, select(right, a, y), real)
    size = select(open_end, select(right, y, a), size)
    real = select(_is_infinite(y), full_like(x, math.inf), real)
    size = select(_is_infinite(y), full_like(x, math.inf), size)
    return Pair(real, copysign(size, y))


def exp_of(x: Node, y: Node) -> Pair:
    """e**x (cos y + i sin y), in two factors where e**x alone might overflow."""
    far = full_like(x, _HALF_RANGE) < x
    first = exp(select(far, x - _HALF_RANGE, x))
    second = select(far, full_like(x, math.exp(_HALF_RANGE)), full_like(x, 1))
    real = first * cos(y) * second
    imaginary = first * sin(y) * second
    imaginary = select(_is_zero(y), y, imaginary)
    # without a size there is no direction; without a direction an infinity stays one
    nothing = x.eq(-math.inf)
    turning = _is_infinite(y) | isnan(y)
    vanished = _both(nothing, turning)
    endless = _both(x.eq(math.inf), turning)
    real = select(endless, full_like(x, math.inf), real)
    return Pair(
        select(vanished, full_like(x, 0), real), select(vanished, full_like(x, 0), imaginary)
    )


def log_of(x: Node, y: Node) -> Pair:
    """log|z| + i times the angle; near the unit circle from |z|**2 - 1, which is exact there."""
    a, b = abs(x), abs(y)
    swap = a < b
    larger, smaller = select(swap, b, a), select(swap, a, b)
    square, lost = _product(larger, larger)
    rest, lost_rest = _product(smaller, smaller)
    beyond = square - full_like(x, 1) + rest + (lost + lost_rest)
    near = _both(_below(full_like(x, 0.5), larger), _below(larger, full_like(x, 1.5)))
    size = log(hypot(x, y))
    real = select(near, _times(log1p(beyond), 0.5), size)
    return Pair(real, atan2(y, x))


def _log1p(x: Node, y: Node) -> Pair:
    """log(1 + z), near 0 from |1 + z|**2 - 1 = 2x + x*x + y*y."""
    moved = x + 1
    square, lost = _product(x, x)
    rest, lost_rest = _product(y, y)
    first, error = _sum(_times(x, 2.0), square)
    second, error_rest = _sum(first, rest)
    beyond = second + (error + error_rest + (lost + lost_rest))
    near = _both(_below(abs(x), full_like(x, 0.5)), _below(abs(y), full_like(y, 1.0)))
    size = log(hypot(moved, y))
    real = select(near, _times(log1p(beyond), 0.5), size)
    return Pair(real, atan2(y, moved))


def _product(a: Node, b: Node) -> tuple[Node, Node]:
    """The rounded product, and its rounding error."""
    rounded = a * b
    return rounded, apply("fma", a, b, -rounded)


def _sum(a: Node, b: Node) -> tuple[Node, Node]:
    """The rounded sum, and its rounding error."""
    rounded = a + b
    of_b = rounded - a
    return rounded, a - (rounded - of_b) + (b - of_b)


def _expm1(x: Node, y: Node) -> Pair:
    """As NumPy has it: expm1(x) cos y - 2 sin(y/2)**2, and the imaginary part of exp."""
    half = sin(_times(y, 0.5))
    real = expm1(x) * cos(y) - _times(half * half, 2.0)
    return Pair(real, exp(x) * sin(y))


def _or_infinite(x: Node, y: Node, part: Node) -> Node:
    """A part that is infinite where x is, even if the angle y is NaN."""
    lost = _both(_is_infinite(x), (y - y).ne(full_like(y, 0)))
    return select(lost, full_like(x, math.inf), part)


def _sinh(x: Node, y: Node) -> Pair:
    """sinh x cos y + i cosh x sin y."""
    real = select(_is_zero(x), x, sinh(x) * cos(y))
    imaginary = select(_is_zero(y), y, cosh(x) * sin(y))
    return Pair(_or_infinite(x, y, real), imaginary)


def _cosh(x: Node, y: Node) -> Pair:
    """cosh x cos y + i sinh x sin y."""
    real = cosh(x) * cos(y)
    flat = _is_zero(x) | _is_zero(y)
    zero = copysign(full_like(x, 0), signed(x) * signed(y))
    imaginary = select(flat, zero, sinh(x) * sin(y))
    return Pair(_or_infinite(x, y, real), imaginary)


def _sin(x: Node, y: Node) -> Pair:
    """sin x cosh y + i cos x sinh y, the parts of sinh(y + ix) in the other order."""
    real, imaginary = _sinh(y, x)
    return Pair(imaginary, real)


def _cos(x: Node, y: Node) -> Pair:
    """cos x cosh y - i sin x sinh y, the conjugate of cosh(y + ix)."""
    real, imaginary = _cosh(y, x)
    return Pair(real, -imaginary)


def _tanh(x: Node, y: Node) -> Pair:
    """By Kahan's formula, with t = tan y and s = sinh x; nearly 1 for large x."""
    a, one = abs(x), full_like(x, 1)
    flat = full_like(x, _TANH_FLAT) <= a
    sine, cosine = sin(y), cos(y)
    t = sine / cosine
    s = sinh(select(flat, full_like(x, 0), x))
    beta = one + t * t
    below = one + beta * (s * s)
    root = sqrt(one + s * s)
    real = beta * root * s / below
    imaginary = select(_is_zero(y), y, t / below)
    # far out the real part is 1, and infinitely far the imaginary one 0 with the sign of sin 2y
    turn, endless = sine * cosine, _is_infinite(x)
    known = (y - y).eq(full_like(y, 0))
    far = copysign(select(endless, one, one + (y - y)), x)
    fading = _times(turn, 4.0) * exp(_times(a, -2.0))
    gone = copysign(full_like(x, 0), select(known, turn, y))
    real = select(flat, far, select(_both(_is_zero(x), ~known), x, real))
    return Pair(real, select(flat, select(endless, gone, fading), imaginary))


FUNCTIONS: dict[str, Callable[..., Node | Pair]] = {
    "neg": negative, "add": add, "sub": sub, "mul": mul, "div": div, "reciprocal": reciprocal,
    "eq": equal, "ne": different, "isnan": is_nan, "select": choose,
    "sqrt": in_double(sqrt_of), "exp": in_double(exp_of), "log": in_double(log_of),
    "log1p": in_double(_log1p), "expm1": in_double(_expm1), "sin": in_double(_sin),
    "cos": in_double(_cos), "tanh": in_double(_tanh), "sinh": in_double(_sinh),
    "cosh": in_double(_cosh),
}  # fmt: skip
