"""Inverse trigonometric and hyperbolic functions, and what they are made of, in float64.

atan2 is the middle of the first half: with q the smaller of |y| and |x| over the larger, atan(q) is
a polynomial, around 0 or around 1, and the quadrant says what it is to be subtracted from.
"""

from __future__ import annotations

import math

from ridgeline import dtypes
from ridgeline.loops.ir import Expr
from ridgeline.loops.math.exponential import exp, expm1
from ridgeline.loops.math.hyperbolic import with_sign
from ridgeline.loops.math.logarithm import log, log1p
from ridgeline.loops.math.tables import elementary as table
from ridgeline.loops.math.toolbox import (
    bitcast,
    const,
    fma,
    op,
    select,
    series,
)

_EIGHTH = math.tan(math.pi / 8)
_FAR = 2.0**28  # beyond, x*x + 1 is x*x
_HALF_RANGE = 709.0  # above, e**x may overflow where half of it does not
_SCALE = 2.0**600
_LARGE, _TINY = 2.0**500, 2.0**-450  # squares beyond overflow, or lose digits


def atan2(y: Expr, x: Expr) -> Expr:
    """The angle of the point (x, y)."""
    a, b = abs(y), abs(x)
    steep = b < a
    high, low = select(steep, a, b), select(steep, b, a)
    quotient = low / high
    # 0/0 is the angle of a zero, and inf/inf that of a diagonal
    quotient = select(low.eq(0), low, quotient)
    quotient = select(low.eq(math.inf), const(1, x), quotient)
    angle = _quarter(quotient)
    half_pi = table.HALF_PI_64
    angle = select(steep, _from(half_pi[0], half_pi[1], angle), angle)
    backwards = bitcast(x, dtypes.int64) < 0
    angle = select(backwards, _from(2 * half_pi[0], 2 * half_pi[1], angle), angle)
    unknown = op("isnan", x) | op("isnan", y)
    return select(unknown, x + y, with_sign(angle, y))


def _quarter(q: Expr) -> Expr:
    """atan on [0, 1]: a quarter of pi plus atan((q - 1)/(q + 1)) for large q."""
    one = const(1, q)
    far = const(_EIGHTH, q) < q
    t = select(far, (q - one) / (q + one), q)
    z = t * t
    rest = t * z * series(table.ATAN64, z)
    quarter = select(far, const(table.HALF_PI_64[0] / 2, q), const(0, q))
    tail = select(far, const(table.HALF_PI_64[1] / 2, q), const(0, q))
    return select(far, quarter + (t + (rest + tail)), t + rest)


def _from(head: float, tail: float, angle: Expr) -> Expr:
    """An angle subtracted from a constant in two parts."""
    return const(head, angle) - (angle - tail)


def atan(x: Expr) -> Expr:
    """The arc tangent."""
    return atan2(x, const(1, x))


def asin(x: Expr) -> Expr:
    """The arc sine: the angle of a point on the unit circle at height x."""
    return select(x.eq(0), x, atan2(x, _other_side(x)))


def acos(x: Expr) -> Expr:
    """The arc cosine: the angle of a point on the unit circle above x."""
    return atan2(_other_side(x), x)


def _other_side(x: Expr) -> Expr:
    """sqrt(1 - x*x), without cancellation."""
    one = const(1, x)
    return op("sqrt", (one - x) * (one + x))


def sinh(x: Expr) -> Expr:
    """The hyperbolic sine."""
    a = abs(x)
    e = expm1(a)
    half = const(0.5, x)
    middle = half * (e + e / (e + 1))
    return with_sign(select(a < _HALF_RANGE, middle, _half_exp(a)), x)


def cosh(x: Expr) -> Expr:
    """The hyperbolic cosine."""
    a = abs(x)
    half = const(0.5, x)
    e = exp(a)
    middle = fma(half, e, half / e)
    return select(a < _HALF_RANGE, middle, _half_exp(a))


def _half_exp(x: Expr) -> Expr:
    """e**x / 2, finite where e**x is not."""
    root = exp(x * 0.5)
    return root * 0.5 * root


def asinh(x: Expr) -> Expr:
    """The inverse of sinh: log1p(a + a*a / (1 + sqrt(a*a + 1))) with the sign of x."""
    a = abs(x)
    one = const(1, x)
    square = a * a
    near = log1p(a + square / (one + op("sqrt", square + one)))
    return with_sign(select(a < _FAR, near, _log_of_double(a)), x)


def acosh(x: Expr) -> Expr:
    """The inverse of cosh: log1p(t + sqrt(2t + t*t)) with t = x - 1."""
    t = x - 1
    near = log1p(t + op("sqrt", fma(t, t, t + t)))
    return select(x < _FAR, near, _log_of_double(x))


def _log_of_double(x: Expr) -> Expr:
    """log(2x), finite where 2x is not."""
    high, low = table.LN2_64
    return log(x) + (high + low)


def atanh(x: Expr) -> Expr:
    """The inverse of tanh: half of log1p(2a / (1 - a)) with the sign of x."""
    a = abs(x)
    doubled = a + a
    half = 0.5 * log1p(doubled / (1 - a))
    return with_sign(half, x)


def hypot(x: Expr, y: Expr) -> Expr:
    """sqrt(x*x + y*y): squares of scaled operands, so that none overflows or underflows."""
    a, b = abs(x), abs(y)
    larger = select(a < b, b, a)
    large, tiny = const(_LARGE, x) < larger, larger < _TINY
    up, down = const(_SCALE, x), const(1 / _SCALE, x)
    scale = select(large, down, select(tiny, up, const(1, x)))
    back = select(large, up, select(tiny, down, const(1, x)))
    p, q = a * scale, b * scale
    length = op("sqrt", fma(p, p, q * q)) * back
    endless = op("or", *(side.eq(math.inf) for side in (a, b)))
    return select(endless, const(math.inf, x), length)


def copysign(x: Expr, y: Expr) -> Expr:
    """|x| with the sign of y."""
    return with_sign(abs(x), y)


def signed(x: Expr) -> Expr:
    """1 with the sign of x."""
    return with_sign(const(1, x), x)


def fmod(a: Expr, b: Expr) -> Expr:
    """The remainder with the sign of a: that of magnitudes has no other."""
    return with_sign(abs(a) % abs(b), a)
