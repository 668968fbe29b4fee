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
    add,
    clamp,
    const,
    div,
    eq,
    fma,
    format_of,
    lt,
    mul,
    negative,
    op,
    select,
    series,
    sub,
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
    below = lt(q, zero)
    lower = op("floor", q)
    held = clamp(q, None, 1e308)
    above = _sum(s, select(below, sub(q, lower), held))
    beneath = _beneath(s, q, lower)
    half = mul(s, const(0.5, s))
    odd = op("ne", op("floor", half), half)
    mirrored = add(above, select(odd, negative(beneath), beneath))
    whole = op("and", eq(op("floor", s), s), lt(s, endless))
    value = op("guarded", below, select(whole, mirrored, const(math.nan, q)), above)
    limit = select(lt(one, q), zero, select(eq(q, one), one, endless))
    value = select(op("and", eq(s, endless), lt(zero, q)), limit, value)
    value = select(op("and", eq(q, endless), eq(s, s)), zero, value)
    pole = op("and", op("le", q, zero), eq(lower, q))
    value = select(op("and", pole, eq(s, s)), endless, value)
    value = select(lt(s, one), const(math.nan, q), value)
    return select(eq(s, one), endless, value)


def _sum(s: Expr, q: Expr) -> Expr:
    """The whole sum for a q above 0, from the smallest term on."""
    total = _rest(s, add(q, const(_TERMS, q)))
    for k in reversed(range(_TERMS)):
        total = add(total, _power(add(q, const(k, q)) if k else q, s))
    return total


def _beneath(s: Expr, q: Expr, lower: Expr) -> Expr:
    """The sum of |q + k|**-s over the k for which q + k is below 0."""
    first = sub(add(lower, const(1, q)), q)  # the distance of the last of them from 0, exact
    first = select(lt(q, const(0, q)), first, const(1, q))
    count = negative(lower)
    end = sub(_rest(s, add(first, const(_TERMS, q))), _rest(s, add(first, count)))
    total = select(lt(count, const(_TERMS, q)), const(0, q), end)
    for k in reversed(range(_TERMS)):
        term = _power(add(first, const(k, q)), s)
        total = select(lt(const(k, q), count), add(total, term), total)
    return total


def _rest(s: Expr, a: Expr) -> Expr:
    """The sum from a on, by Euler and Maclaurin, for an a of 8 or more."""
    held = clamp(s, None, _LARGEST_REST)
    step = div(const(1, a), a)
    total: Expr = const(_MACLAURIN[-1], a)
    for k in range(len(_MACLAURIN) - 1, 0, -1):
        twice = mul(
            mul(add(held, const(2 * k - 1, a)), step), mul(add(held, const(2 * k, a)), step)
        )
        total = fma(total, twice, _MACLAURIN[k - 1])
    corrections = fma(mul(held, step), total, 0.5)
    slope = sub(s, const(1, s))
    return mul(_power(a, slope), fma(step, corrections, div(const(1, a), slope)))


def _power(a: Expr, s: Expr) -> Expr:
    """a**-s for positive a and s."""
    if isinstance(s, Const) and 0 < s.value <= _LARGEST_PRODUCT and s.value == int(s.value):
        return _product(div(const(1, a), a), int(s.value))
    return op("inverse_power", a, s)


def inverse_power(a: Expr, s: Expr) -> Expr:
    """a**-s for positive a and s, within 4 ulp."""
    high, low = _logarithm(a)
    exponent = mul(s, high)
    rest = fma(s, high, negative(exponent))
    rest = clamp(fma(s, low, rest), -0.5, 0.5)  # where it is more the result is 0 or infinite
    return mul(exp(negative(exponent)), sub(const(1, a), rest))


def _product(x: Expr, count: int) -> Expr:
    """x**count for a count of at least 1."""
    if count == 1:
        return x
    half = _product(x, count // 2)
    square = mul(half, half)
    return mul(square, x) if count % 2 else square


def _logarithm(a: Expr) -> tuple[Expr, Expr]:
    """log a in two parts, with about sixty good bits; a is positive."""
    form = format_of(a)
    lift = form.mantissa + 1
    subnormal = lt(a, const(2.0 ** (1 - form.bias), a))
    e, m, _ = split(select(subnormal, mul(a, const(2.0**lift, a)), a), form)
    e = select(subnormal, sub(e, const(lift, e)), e)
    one = const(1, a)
    f, below = sub(m, one), add(m, one)
    inverse = div(one, below)
    s = mul(f, inverse)
    # what the sum m + 1 and the quotient have lost
    left = sub(fma(negative(s), below, f), mul(s, sub(m, sub(below, one))))
    z = mul(s, s)
    small = fma(mul(s, z), series(table.LOG64, z), mul(mul(left, inverse), const(2, a)))
    ln2, ln2_rest = table.LN2_64
    whole = mul(e, const(ln2, e))
    small = add(small, fma(e, ln2_rest, fma(e, ln2, negative(whole))))
    twice = add(s, s)
    sum_ = add(whole, twice)
    small = add(small, sub(twice, sub(sum_, whole)))
    high = add(sum_, small)
    return high, sub(small, sub(high, sum_))
