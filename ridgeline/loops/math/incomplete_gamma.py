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
    add,
    bitcast,
    clamp,
    const,
    div,
    eq,
    fma,
    format_of,
    le,
    lt,
    mul,
    negative,
    op,
    quotient,
    select,
    series,
    sub,
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
    value = select(is_lower, small, sub(const(1, x), small))
    return _edges(a, x, inside, value, 0.0, 1.0)


def gammaincc(a: Expr, x: Expr) -> Expr:
    """The upper function Q."""
    inside, a_held, x_held = _inside(a, x)
    small, is_lower = _small(a_held, x_held)
    value = select(is_lower, sub(const(1, x), small), small)
    near = op("and", lt(a, const(1, a)), lt(x, const(_FRACTION_FROM, x)))
    return _edges(a, x, inside, select(near, _near(a_held, x_held), value), 1.0, 0.0)


def _inside(a: Expr, x: Expr) -> tuple[Expr, Expr, Expr]:
    """Where both operands are positive and finite, and the operands, 1 elsewhere."""
    zero, endless, one = const(0, x), const(math.inf, x), const(1, x)
    inside = op("and", lt(zero, a), lt(zero, x))
    inside = op("and", inside, op("and", lt(a, endless), lt(x, endless)))
    return inside, select(inside, a, one), select(inside, x, one)


def _edges(a: Expr, x: Expr, inside: Expr, value: Expr, at_zero: float, at_end: float) -> Expr:
    zero, endless = const(0, x), const(math.inf, x)
    start, end = const(at_zero, x), const(at_end, x)
    finite = lt(a, endless)
    # at a = 0 and at x = inf all weight lies left of x, at x = 0 and a = inf right of it
    left = op("and", lt(zero, x), op("or", eq(a, zero), op("and", eq(x, endless), finite)))
    right = op("and", lt(zero, a), op("or", eq(x, zero), op("not", finite)))
    right = op("and", right, lt(x, endless))
    outside = select(left, end, select(right, start, const(math.nan, x)))
    defined = op("and", le(zero, a), le(zero, x))
    return select(inside, value, select(defined, outside, const(math.nan, x)))


def _small(a: Expr, x: Expr) -> tuple[Expr, Expr]:
    """The smaller one of P and Q, or nearly so, and whether it is P."""
    exponent, rest = _exponent(a, x)
    decay = mul(exp(negative(exponent)), sub(const(1, x), clamp(rest, -0.5, 0.5)))
    density = mul(decay, _peak(a))
    lowest = select(lt(a, const(_FRACTION_FROM, a)), const(_FRACTION_FROM, a), a)
    is_lower = lt(x, lowest)
    value = select(is_lower, mul(density, _series(a, x)), mul(density, _fraction(a, x)))
    uniform = op("and", le(const(_UNIFORM_FROM, a), a), le(exponent, mul(a, const(0.5, a))))
    left = lt(x, a)
    return select(uniform, mul(decay, _uniform(a, left, exponent)), value), is_lower


def _exponent(a: Expr, x: Expr) -> tuple[Expr, Expr]:
    """x - a - a log(x/a), which is never negative, and what its rounding lost."""
    high, low = _log_of_quotient(x, a)
    product = mul(a, high)
    product_rest = fma(a, low, fma(a, high, negative(product)))
    far, far_rest = _two_sum(x, negative(a))
    exponent, rest = _two_sum(far, negative(product))  # which cancel where x is close to a
    exponent, rest = _two_sum(exponent, add(rest, sub(far_rest, product_rest)))
    return clamp(exponent, 0.0, None), rest


def _log_of_quotient(x: Expr, a: Expr) -> tuple[Expr, Expr]:
    """log(x/a) in two parts, to about seventy bits.

    x/a is 2**e * m, and m = x/b about 1: its logarithm is 2 (s + s^3/3 + s^5/5 + …), where s is
    (x - b)/(x + b).
    """
    tiny = lt(x, const(2.0**-960, x))
    x = select(tiny, mul(x, const(2.0**_LIFT, x)), x)
    ratio = clamp(div(x, a), 2.0**-1000, 2.0**1000)  # beyond, a times its logarithm is nothing
    e, _, bits = split(ratio, format_of(x))
    b = mul(a, bitcast(bits, x.dtype))
    e = select(tiny, sub(e, const(_LIFT, e)), e)
    difference = sub(x, b)  # exactly
    total, total_rest = _two_sum(x, b)
    s = div(difference, total)
    s_rest = div(sub(fma(negative(s), total, difference), mul(s, total_rest)), total)
    square = mul(s, s)
    square_rest = fma(mul(s, const(2, s)), s_rest, fma(s, s, negative(square)))
    cube = mul(s, square)
    cube_rest = fma(s, square_rest, fma(s_rest, square, fma(s, square, negative(cube))))
    share, share_rest = _TWO_THIRDS
    third = mul(cube, const(share, s))
    third_rest = fma(cube, share_rest, fma(cube, share, negative(third)))
    third_rest = fma(cube_rest, share, third_rest)
    tail = mul(mul(cube, square), series(_ATANH, square))
    whole = mul(e, const(LN2_64[0], e))
    whole_rest = fma(e, LN2_64[1], fma(e, LN2_64[0], negative(whole)))
    high, low = _two_sum(whole, add(s, s))
    high, third_low = _two_sum(high, third)
    low = add(add(low, third_low), fma(s_rest, 2.0, add(whole_rest, add(third_rest, tail))))
    return _two_sum(high, low)


def _two_sum(a: Expr, b: Expr) -> tuple[Expr, Expr]:
    """The rounded sum, and what it lost."""
    total = add(a, b)
    other = sub(total, a)
    return total, add(sub(a, sub(total, other)), sub(b, other))


def _peak(a: Expr) -> Expr:
    """a**a exp(-a) / gamma(a + 1): the density where it is largest."""
    held = clamp(a, None, 1.0)
    low = exp(sub(mul(held, log(held)), add(held, _lgamma_after_one(held))))
    inverse = div(const(1, a), clamp(a, 1.0, None))
    stirling = quotient(table.STIRLING64, table.STIRLING64_BELOW, inverse)
    root = op("sqrt", mul(inverse, const(0.5 / math.pi, a)))
    return select(lt(a, const(1, a)), low, div(root, stirling))


def _lgamma_after_one(a: Expr) -> Expr:
    """log gamma(1 + a) for an a up to 1."""
    held = clamp(a, None, 1.0)
    product = mul(held, sub(held, const(1, a)))
    return mul(product, quotient(table.LGAMMA64, table.LGAMMA64_BELOW, held))


def _series(a: Expr, x: Expr) -> Expr:
    """1 + x/(a + 1) (1 + x/(a + 2) (1 + …)) as one quotient, in units in which it is moderate."""
    unit = div(const(1, a), clamp(a, 1.0, None))
    first, step = mul(a, unit), mul(x, unit)
    top: Expr = const(1, a)
    below: Expr = const(1, a)
    for k in range(_TERMS, 0, -1):
        below = mul(below, fma(unit, float(k), first))
        top = fma(step, top, below)
    return div(top, below)


def _fraction(a: Expr, x: Expr) -> Expr:
    """a / (x + 1 - a - 1(1 - a)/(x + 3 - a - 2(2 - a)/…)) as one quotient, in units of x."""
    unit = div(const(1, x), x)
    start = mul(sub(x, a), unit)
    share = mul(a, unit)
    square, product = mul(unit, unit), mul(share, unit)
    top: Expr = fma(unit, 2.0 * _STEPS + 1, start)
    below: Expr = const(1, x)
    for k in range(_STEPS, 0, -1):
        factor = mul(fma(square, float(-k), product), const(k, x))
        term = fma(unit, 2.0 * k - 1, start)
        top, below = fma(term, top, mul(factor, below)), top
    return div(mul(share, below), top)


def _uniform(a: Expr, left: Expr, exponent: Expr) -> Expr:
    """The smaller function over exp(-exponent), from a = 12 on, for one up to a/2."""
    inverse = div(const(1, a), clamp(a, _UNIFORM_FROM, None))
    size = op("sqrt", clamp(mul(add(exponent, exponent), inverse), None, 1.0))
    eta = select(left, negative(size), size)
    t = fma(inverse, 2 * _UNIFORM_FROM, -1.0)
    rest: Expr = series(table.INCOMPLETE64[-1], eta)
    for coefficients in reversed(table.INCOMPLETE64[:-1]):
        rest = fma(rest, t, series(coefficients, eta))
    rest = mul(rest, op("sqrt", mul(inverse, const(0.5 / math.pi, a))))
    half = mul(scaled_erfc(op("sqrt", exponent)), const(0.5, a))
    return add(half, select(left, negative(rest), rest))


def _near(a: Expr, x: Expr) -> Expr:
    """Q for an a below 1 and an x below 1.1: 1 - x**a / gamma(a + 1) (1 - a x V)."""
    growth = fma(a, log(x), negative(_lgamma_after_one(a)))
    total: Expr = div(const(1, a), add(a, const(_NEAR_TERMS, a)))
    for k in range(_NEAR_TERMS - 1, 0, -1):
        term = div(const(1, a), add(a, const(k, a)))
        total = fma(mul(x, const(-1 / (k + 1), x)), total, term)
    change = expm1(growth)
    rest = mul(mul(a, x), total)
    return fma(rest, change, sub(rest, change))
