"""The Hurwitz zeta function, in float64: the sum of (q + k)**-s over k >= 0, for s > 1.

Eight terms are added up, and Euler and Maclaurin's series stands for the rest; its error is then
below a last place for every s, because where it converges badly the rest is small against the first
term. Below 0, where s must be whole, terms on both sides of 0 are counted from there: those above
as for a q between 0 and 1, and the finite sum of those below as the difference of two such sums.

The error stays within 8 ulp up to an s of 8, and within s ulp beyond: as much as rounding q may
have changed the true value.
"""

from __future__ import annotations

import math

from ridgeline.loops.ir import Const, Expr
from ridgeline.loops.math.exponential import exp
from ridgeline.loops.math.logarithm import split
from ridgeline.loops.math.tables import elementary as table
from ridgeline.loops.math.toolbox import (
    clamp,
    const,
    fma,
    format_of,
    op,
    select,
    series,
)

_TERMS = 8
_LARGEST_PRODUCT = 8  # known whole exponents up to here are products
_LARGEST_REST = 400.0  # of steeper powers the rest is 0
# B_2k / (2k)!
_MACLAURIN = (
    1 / 12, -1 / 720, 1 / 30240, -1 / 1209600, 1 / 47900160, -691 / 1307674368000,
    1 / 74724249600, -3617 / 10670622842880000, 43867 / 5109094217170944000,
    -174611 / 802857662698291200000,
)  # fmt: skip


def zeta(s: Expr, q: Expr) -> Expr:
    """Infinite at s = 1 and at the poles q = 0, -1, …; NaN where it is not real or s < 1."""
    zero, one, endless = const(0, q), const(1, q), const(math.inf, q)
    below = q < zero
    lower = op("floor", q)
    held = clamp(q, None, 1e308)
    above = _sum(s, select(below, q - lower, held))
    beneath = _beneath(s, q, lower)
    half = s * 0.5
    odd = op("floor", half).ne(half)
    mirrored = above + select(odd, -beneath, beneath)
    whole = op("floor", s).eq(s) & (s < endless)
    value = op("guarded", below, select(whole, mirrored, const(math.nan, q)), above)
    limit = select(one < q, zero, select(q.eq(one), one, endless))
    value = select(s.eq(endless) & (zero < q), limit, value)
    value = select(q.eq(endless) & s.eq(s), zero, value)
    pole = (q <= zero) & lower.eq(q)
    value = select(pole & s.eq(s), endless, value)
    value = select(s < one, const(math.nan, q), value)
    return select(s.eq(one), endless, value)


def _sum(s: Expr, q: Expr) -> Expr:
    """The whole sum for a q above 0, from the smallest term on."""
    total = _rest(s, q + _TERMS)
    for k in reversed(range(_TERMS)):
        total = total + _power(q + k if k else q, s)
    return total


def _beneath(s: Expr, q: Expr, lower: Expr) -> Expr:
    """The sum of |q + k|**-s over the k for which q + k is below 0."""
    first = lower + 1 - q  # the distance of the last of them from 0, exact
    first = select(q < 0, first, const(1, q))
    count = -lower
    end = _rest(s, first + _TERMS) - _rest(s, first + count)
    total = select(count < _TERMS, const(0, q), end)
    for k in reversed(range(_TERMS)):
        term = _power(first + k, s)
        total = select(const(k, q) < count, total + term, total)
    return total


def _rest(s: Expr, a: Expr) -> Expr:
    """The sum from a on, by Euler and Maclaurin, for an a of 8 or more."""
    held = clamp(s, None, _LARGEST_REST)
    step = 1 / a
    total: Expr = const(_MACLAURIN[-1], a)
    for k in range(len(_MACLAURIN) - 1, 0, -1):
        twice = (held + (2 * k - 1)) * step * ((held + 2 * k) * step)
        total = fma(total, twice, _MACLAURIN[k - 1])
    corrections = fma(held * step, total, 0.5)
    slope = s - 1
    return _power(a, slope) * fma(step, corrections, 1 / slope)


def _power(a: Expr, s: Expr) -> Expr:
    """a**-s for positive a and s."""
    if isinstance(s, Const) and 0 < s.value <= _LARGEST_PRODUCT and s.value == int(s.value):
        return _product(1 / a, int(s.value))
    return op("inverse_power", a, s)


def inverse_power(a: Expr, s: Expr) -> Expr:
    """a**-s for positive a and s, within 4 ulp."""
    high, low = _logarithm(a)
    exponent = s * high
    rest = fma(s, high, -exponent)
    rest = clamp(fma(s, low, rest), -0.5, 0.5)  # where it is more the result is 0 or infinite
    return exp(-exponent) * (1 - rest)


def _product(x: Expr, count: int) -> Expr:
    """x**count for a count of at least 1."""
    if count == 1:
        return x
    half = _product(x, count // 2)
    square = half * half
    return square * x if count % 2 else square


def _logarithm(a: Expr) -> tuple[Expr, Expr]:
    """log a in two parts, with about sixty good bits; a is positive."""
    form = format_of(a)
    lift = form.mantissa + 1
    subnormal = a < 2.0 ** (1 - form.bias)
    e, m, _ = split(select(subnormal, a * 2.0**lift, a), form)
    e = select(subnormal, e - lift, e)
    one = const(1, a)
    f, below = m - one, m + one
    inverse = one / below
    s = f * inverse
    # what the sum m + 1 and the quotient have lost
    left = fma(-s, below, f) - s * (m - (below - one))
    z = s * s
    small = fma(s * z, series(table.LOG64, z), left * inverse * 2)
    ln2, ln2_rest = table.LN2_64
    whole = e * ln2
    small = small + fma(e, ln2_rest, fma(e, ln2, -whole))
    twice = s + s
    sum_ = whole + twice
    small = small + (twice - (sum_ - whole))
    high = sum_ + small
    return high, small - (high - sum_)
