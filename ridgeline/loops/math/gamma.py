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
    add,
    clamp,
    const,
    div,
    eq,
    fma,
    le,
    lt,
    magnitude,
    mul,
    negative,
    op,
    select,
    series,
    sub,
)

_ZEROS_END, _MIDDLE_END = 3.0, 12.0
_SHIFT = 10
_STIRLING = (1 / 12, -1 / 360, 1 / 1260, -1 / 1680, 1 / 1188, -691 / 360360, 1 / 156)
_DIGAMMA = (
    -1 / 12, 1 / 120, -1 / 252, 1 / 240, -1 / 132, 691 / 32760, -1 / 12, 3617 / 8160,
)  # fmt: skip


def lgamma(x: Expr) -> Expr:
    """log|gamma(x)|; infinite at its poles."""
    low = lt(x, const(0.5, x))
    right = _right(select(low, sub(const(1, x), x), x))
    sine, _ = _half_turn(x)
    reflected = sub(sub(const(math.log(math.pi), x), log(sine)), right)
    result = select(low, reflected, right)
    whole = eq(x, op("floor", x))
    endless = op("and", whole, le(x, const(0, x)))  # at -inf too, which is whole
    return select(endless, const(math.inf, x), result)


def _right(x: Expr) -> Expr:
    """log gamma for x from 1/2 on; below 1 from one step further."""
    one, half = const(1, x), const(0.5, x)
    early = lt(x, one)
    t = select(early, x, sub(clamp(x, None, _ZEROS_END), one))
    by_zeros = mul(
        mul(t, sub(t, one)), div(series(table.LGAMMA64, t), series(table.LGAMMA64_BELOW, t))
    )
    by_zeros = select(early, sub(by_zeros, log(x)), by_zeros)
    m = sub(clamp(x, _ZEROS_END, _MIDDLE_END), const(_ZEROS_END, x))
    middle = div(series(table.LGAMMA_MID64, m), series(table.LGAMMA_MID64_BELOW, m))
    far = clamp(x, _MIDDLE_END, None)
    inverse = div(one, far)
    tail = fma(inverse, series(_STIRLING, mul(inverse, inverse)), 0.5 * math.log(2 * math.pi))
    stirling = add(mul(sub(far, half), sub(log(far), one)), sub(tail, half))
    stirling = select(eq(x, const(math.inf, x)), x, stirling)
    result = select(lt(x, const(_MIDDLE_END, x)), middle, stirling)
    return select(lt(x, const(_ZEROS_END, x)), by_zeros, result)


def _half_turn(x: Expr) -> tuple[Expr, Expr]:
    """|sin(pi x)|, and the cotangent of pi x, from the distance to the nearest integer."""
    r = sub(x, op("round", x))
    a = magnitude(r)
    steep = lt(const(0.25, x), a)
    turn = mul(const(math.pi, x), select(steep, sub(const(0.5, x), a), a))
    z = mul(turn, turn)
    sine = fma(mul(turn, z), series(elementary.SIN64, z), turn)
    cosine = fma(mul(z, z), series(elementary.COS64, z), fma(z, -0.5, const(1, z)))
    high, low = select(steep, cosine, sine), select(steep, sine, cosine)
    cotangent = div(low, high)
    return high, select(lt(r, const(0, x)), negative(cotangent), cotangent)


def digamma(x: Expr) -> Expr:
    """The derivative of log gamma; at 0 an infinity of the opposite sign, NaN at other poles."""
    zero, one = const(0, x), const(1, x)
    reflected = lt(x, zero)
    y = select(reflected, sub(one, x), x)
    total: Expr = zero
    for _ in range(_SHIFT):
        low = lt(y, const(_SHIFT, x))
        total = select(low, sub(total, div(one, y)), total)
        y = select(low, add(y, one), y)
    inverse = div(one, y)
    z = mul(inverse, inverse)
    tail = fma(z, series(_DIGAMMA, z), mul(inverse, const(-0.5, x)))
    result = add(total, add(log(y), tail))
    _, cotangent = _half_turn(x)
    result = select(reflected, fma(cotangent, -math.pi, result), result)
    pole = op("and", reflected, eq(x, op("floor", x)))
    result = select(pole, const(math.nan, x), result)
    at_zero = div(const(-1, x), x)
    result = select(eq(x, zero), at_zero, result)
    return select(eq(x, const(math.inf, x)), x, result)
