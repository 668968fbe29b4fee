"""The regularised incomplete gamma functions P(a, x) and Q(a, x) = 1 - P, in float64.

Whichever of the two is small is computed, and the other is what it leaves of 1:

- around x = a, from a = 12 on: the normal distribution and a correction (Temme's expansion), a
  polynomial in eta and 1/a, where a * eta**2 / 2 is the exponent of the density at x;
- left of that, the power series of P, 42 terms of it;
- right of that, from x = 1.1 on, the continued fraction of Q, 100 steps of it.

Below 1.1 and for a below 1, where P is close to 1, Q has a series of its own. The exponent of the
density, which may be as large as 700, is computed in two parts.
"""

from __future__ import annotations

import math

from ridgeline.loops.ir import Expr
from ridgeline.loops.math.error_function import scaled_erfc
from ridgeline.loops.math.exponential import exp, expm1
from ridgeline.loops.math.logarithm import log, split
from ridgeline.loops.math.tables import gamma as table
from ridgeline.loops.math.tables.elementary import LN2_64
from ridgeline.loops.math.toolbox import (
    bitcast,
    clamp,
    const,
    fma,
    format_of,
    op,
    quotient,
    select,
    series,
)

_UNIFORM_FROM = 12.0
_FRACTION_FROM = 1.1
_TERMS, _STEPS, _NEAR_TERMS = 42, 100, 20
_LIFT = 60
_TWO_THIRDS = (2 / 3, 3.700743415417188e-17)
_ATANH = tuple(2 / (2 * k + 5) for k in range(11))  # of squares up to 0.03


def gammainc(a: Expr, x: Expr) -> Expr:
    """The lower function P."""
    inside, a_held, x_held = _inside(a, x)
    small, is_lower = _small(a_held, x_held)
    value = select(is_lower, small, 1 - small)
    return _edges(a, x, inside, value, 0.0, 1.0)


def gammaincc(a: Expr, x: Expr) -> Expr:
    """The upper function Q."""
    inside, a_held, x_held = _inside(a, x)
    small, is_lower = _small(a_held, x_held)
    value = select(is_lower, 1 - small, small)
    near = (a < 1) & (x < _FRACTION_FROM)
    return _edges(a, x, inside, select(near, _near(a_held, x_held), value), 1.0, 0.0)


def _inside(a: Expr, x: Expr) -> tuple[Expr, Expr, Expr]:
    """Where both operands are positive and finite, and the operands, 1 elsewhere."""
    zero, endless, one = const(0, x), const(math.inf, x), const(1, x)
    inside = (zero < a) & (zero < x)
    inside = inside & ((a < endless) & (x < endless))
    return inside, select(inside, a, one), select(inside, x, one)


def _edges(a: Expr, x: Expr, inside: Expr, value: Expr, at_zero: float, at_end: float) -> Expr:
    zero, endless = const(0, x), const(math.inf, x)
    start, end = const(at_zero, x), const(at_end, x)
    finite = a < endless
    # at a = 0 and at x = inf all weight lies left of x, at x = 0 and a = inf right of it
    left = (zero < x) & (a.eq(zero) | x.eq(endless) & finite)
    right = (zero < a) & (x.eq(zero) | ~finite)
    right = right & (x < endless)
    outside = select(left, end, select(right, start, const(math.nan, x)))
    defined = (zero <= a) & (zero <= x)
    return select(inside, value, select(defined, outside, const(math.nan, x)))


def _small(a: Expr, x: Expr) -> tuple[Expr, Expr]:
    """The smaller one of P and Q, or nearly so, and whether it is P."""
    exponent, rest = _exponent(a, x)
    decay = exp(-exponent) * (1 - clamp(rest, -0.5, 0.5))
    density = decay * _peak(a)
    lowest = select(a < _FRACTION_FROM, const(_FRACTION_FROM, a), a)
    is_lower = x < lowest
    value = select(is_lower, density * _series(a, x), density * _fraction(a, x))
    uniform = (const(_UNIFORM_FROM, a) <= a) & (exponent <= a * 0.5)
    left = x < a
    return select(uniform, decay * _uniform(a, left, exponent), value), is_lower


def _exponent(a: Expr, x: Expr) -> tuple[Expr, Expr]:
    """x - a - a log(x/a), which is never negative, and what its rounding lost."""
    high, low = _log_of_quotient(x, a)
    product = a * high
    product_rest = fma(a, low, fma(a, high, -product))
    far, far_rest = _two_sum(x, -a)
    exponent, rest = _two_sum(far, -product)  # which cancel where x is close to a
    exponent, rest = _two_sum(exponent, rest + (far_rest - product_rest))
    return clamp(exponent, 0.0, None), rest


def _log_of_quotient(x: Expr, a: Expr) -> tuple[Expr, Expr]:
    """log(x/a) in two parts, to about seventy bits.

    x/a is 2**e * m, and m = x/b about 1: its logarithm is 2 (s + s^3/3 + s^5/5 + …), where s is
    (x - b)/(x + b).
    """
    tiny = x < 2.0 ** (-960)
    x = select(tiny, x * 2.0**_LIFT, x)
    ratio = clamp(x / a, 2.0**-1000, 2.0**1000)  # beyond, a times its logarithm is nothing
    e, _, bits = split(ratio, format_of(x))
    b = a * bitcast(bits, x.dtype)
    e = select(tiny, e - _LIFT, e)
    difference = x - b  # exactly
    total, total_rest = _two_sum(x, b)
    s = difference / total
    s_rest = (fma(-s, total, difference) - s * total_rest) / total
    square = s * s
    square_rest = fma(s * 2, s_rest, fma(s, s, -square))
    cube = s * square
    cube_rest = fma(s, square_rest, fma(s_rest, square, fma(s, square, -cube)))
    share, share_rest = _TWO_THIRDS
    third = cube * share
    third_rest = fma(cube, share_rest, fma(cube, share, -third))
    third_rest = fma(cube_rest, share, third_rest)
    tail = cube * square * series(_ATANH, square)
    whole = e * LN2_64[0]
    whole_rest = fma(e, LN2_64[1], fma(e, LN2_64[0], -whole))
    high, low = _two_sum(whole, s + s)
    high, third_low = _two_sum(high, third)
    low = low + third_low + fma(s_rest, 2.0, whole_rest + (third_rest + tail))
    return _two_sum(high, low)


def _two_sum(a: Expr, b: Expr) -> tuple[Expr, Expr]:
    """The rounded sum, and what it lost."""
    total = a + b
    other = total - a
    return total, a - (total - other) + (b - other)


def _peak(a: Expr) -> Expr:
    """a**a exp(-a) / gamma(a + 1): the density where it is largest."""
    held = clamp(a, None, 1.0)
    low = exp(held * log(held) - (held + _lgamma_after_one(held)))
    inverse = 1 / clamp(a, 1.0, None)
    stirling = quotient(table.STIRLING64, table.STIRLING64_BELOW, inverse)
    root = op("sqrt", inverse * (0.5 / math.pi))
    return select(a < 1, low, root / stirling)


def _lgamma_after_one(a: Expr) -> Expr:
    """log gamma(1 + a) for an a up to 1."""
    held = clamp(a, None, 1.0)
    product = held * (held - 1)
    return product * quotient(table.LGAMMA64, table.LGAMMA64_BELOW, held)


def _series(a: Expr, x: Expr) -> Expr:
    """1 + x/(a + 1) (1 + x/(a + 2) (1 + …)) as one quotient, in units in which it is moderate."""
    unit = 1 / clamp(a, 1.0, None)
    first, step = a * unit, x * unit
    top: Expr = const(1, a)
    below: Expr = const(1, a)
    for k in range(_TERMS, 0, -1):
        below = below * fma(unit, float(k), first)
        top = fma(step, top, below)
    return top / below


def _fraction(a: Expr, x: Expr) -> Expr:
    """a / (x + 1 - a - 1(1 - a)/(x + 3 - a - 2(2 - a)/…)) as one quotient, in units of x."""
    unit = 1 / x
    start = (x - a) * unit
    share = a * unit
    square, product = unit * unit, share * unit
    top: Expr = fma(unit, 2.0 * _STEPS + 1, start)
    below: Expr = const(1, x)
    for k in range(_STEPS, 0, -1):
        factor = fma(square, float(-k), product) * k
        term = fma(unit, 2.0 * k - 1, start)
        top, below = fma(term, top, factor * below), top
    return share * below / top


def _uniform(a: Expr, left: Expr, exponent: Expr) -> Expr:
    """The smaller function over exp(-exponent), from a = 12 on, for one up to a/2."""
    inverse = 1 / clamp(a, _UNIFORM_FROM, None)
    size = op("sqrt", clamp((exponent + exponent) * inverse, None, 1.0))
    eta = select(left, -size, size)
    t = fma(inverse, 2 * _UNIFORM_FROM, -1.0)
    rest: Expr = series(table.INCOMPLETE64[-1], eta)
    for coefficients in reversed(table.INCOMPLETE64[:-1]):
        rest = fma(rest, t, series(coefficients, eta))
    rest = rest * op("sqrt", inverse * (0.5 / math.pi))
    half = scaled_erfc(op("sqrt", exponent)) * 0.5
    return half + select(left, -rest, rest)


def _near(a: Expr, x: Expr) -> Expr:
    """Q for an a below 1 and an x below 1.1: 1 - x**a / gamma(a + 1) (1 - a x V)."""
    growth = fma(a, log(x), -_lgamma_after_one(a))
    total: Expr = 1 / (a + _NEAR_TERMS)
    for k in range(_NEAR_TERMS - 1, 0, -1):
        term = 1 / (a + k)
        total = fma(x * (-1 / (k + 1)), total, term)
    change = expm1(growth)
    rest = a * x * total
    return fma(rest, change, rest - change)
