"""log|gamma| and its derivative, in float64.

Below 1/2 both are reflected to 1 - x. log|gamma| is a quotient of polynomials times (x - 1)(x - 2)
from 1 to 3, where it has its zeros, another quotient up to 12, and Stirling's series beyond.
digamma goes up to 10 in single steps and then has its own series.
"""

from __future__ import annotations

import math

from ridgeline.loops.ir import Expr
from ridgeline.loops.math.logarithm import log
from ridgeline.loops.math.tables import elementary, gamma as table
from ridgeline.loops.math.toolbox import (
    clamp,
    const,
    fma,
    op,
    select,
    series,
)

_ZEROS_END, _MIDDLE_END = 3.0, 12.0
_SHIFT = 10
_STIRLING = (1 / 12, -1 / 360, 1 / 1260, -1 / 1680, 1 / 1188, -691 / 360360, 1 / 156)
_DIGAMMA = (
    -1 / 12, 1 / 120, -1 / 252, 1 / 240, -1 / 132, 691 / 32760, -1 / 12, 3617 / 8160,
)  # fmt: skip


def lgamma(x: Expr) -> Expr:
    """log|gamma(x)|; infinite at its poles."""
    low = x < 0.5
    right = _right(select(low, 1 - x, x))
    sine, _ = _half_turn(x)
    reflected = const(math.log(math.pi), x) - log(sine) - right
    result = select(low, reflected, right)
    whole = x.eq(op("floor", x))
    endless = whole & (x <= 0)  # at -inf too, which is whole
    return select(endless, const(math.inf, x), result)


def _right(x: Expr) -> Expr:
    """log gamma for x from 1/2 on; below 1 from one step further."""
    one, half = const(1, x), const(0.5, x)
    early = x < one
    t = select(early, x, clamp(x, None, _ZEROS_END) - one)
    by_zeros = t * (t - one) * (series(table.LGAMMA64, t) / series(table.LGAMMA64_BELOW, t))
    by_zeros = select(early, by_zeros - log(x), by_zeros)
    m = clamp(x, _ZEROS_END, _MIDDLE_END) - _ZEROS_END
    middle = series(table.LGAMMA_MID64, m) / series(table.LGAMMA_MID64_BELOW, m)
    far = clamp(x, _MIDDLE_END, None)
    inverse = one / far
    tail = fma(inverse, series(_STIRLING, inverse * inverse), 0.5 * math.log(2 * math.pi))
    stirling = (far - half) * (log(far) - one) + (tail - half)
    stirling = select(x.eq(math.inf), x, stirling)
    result = select(x < _MIDDLE_END, middle, stirling)
    return select(x < _ZEROS_END, by_zeros, result)


def _half_turn(x: Expr) -> tuple[Expr, Expr]:
    """|sin(pi x)|, and the cotangent of pi x, from the distance to the nearest integer."""
    r = x - op("round", x)
    a = abs(r)
    steep = a > 0.25
    turn = const(math.pi, x) * select(steep, 0.5 - a, a)
    z = turn * turn
    sine = fma(turn * z, series(elementary.SIN64, z), turn)
    cosine = fma(z * z, series(elementary.COS64, z), fma(z, -0.5, const(1, z)))
    high, low = select(steep, cosine, sine), select(steep, sine, cosine)
    cotangent = low / high
    return high, select(r < 0, -cotangent, cotangent)


def digamma(x: Expr) -> Expr:
    """The derivative of log gamma; at 0 an infinity of the opposite sign, NaN at other poles."""
    zero, one = const(0, x), const(1, x)
    reflected = x < zero
    y = select(reflected, one - x, x)
    total: Expr = zero
    for _ in range(_SHIFT):
        low = y < _SHIFT
        total = select(low, total - one / y, total)
        y = select(low, y + one, y)
    inverse = one / y
    z = inverse * inverse
    tail = fma(z, series(_DIGAMMA, z), inverse * -0.5)
    result = total + (log(y) + tail)
    _, cotangent = _half_turn(x)
    result = select(reflected, fma(cotangent, -math.pi, result), result)
    pole = reflected & x.eq(op("floor", x))
    result = select(pole, const(math.nan, x), result)
    at_zero = -1 / x
    result = select(x.eq(zero), at_zero, result)
    return select(x.eq(math.inf), x, result)
