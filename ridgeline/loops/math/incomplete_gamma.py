"""The regularised incomplete gamma functions P(a, x) and Q(a, x) = 1 - P, in float64.

Whichever of the two is small is computed, and the other is what it leaves of 1:

- around x = a, from a = 12 on: the normal distribution and a correction (Temme's expansion), a
  polynomial in eta and 1/a, where a * eta**2 / 2 is the exponent of the density at x;
- left of that, the power series of P, 42 terms of it;
- right of that, from x = 1.5 on, the continued fraction of Q, 74 steps of it.

Below 1.5 and for a below 1, where P is close to 1, Q has a series of its own. Errors are within
32 ulp times 1 + E/8, where E is the exponent of the density, rounded before its exponential
is taken.
"""

from __future__ import annotations

import math

from ridgeline.loops.ir import Expr
from ridgeline.loops.math.error_function import scaled_erfc
from ridgeline.loops.math.exponential import exp, expm1
from ridgeline.loops.math.logarithm import log
from ridgeline.loops.math.tables import gamma as table
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
    quotient,
    select,
    series,
    sub,
)

_UNIFORM_FROM = 12.0
_FRACTION_FROM = 1.5
_TERMS, _STEPS, _NEAR_TERMS = 42, 74, 22


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
    ratio, excess = _excess(a, x)
    decay = exp(negative(mul(a, excess)))
    density = _density(a, x, decay)
    lowest = select(lt(a, const(_FRACTION_FROM, a)), const(_FRACTION_FROM, a), a)
    is_lower = lt(x, lowest)
    value = select(is_lower, mul(density, _series(a, x)), mul(density, _fraction(a, x)))
    uniform = op("and", le(const(_UNIFORM_FROM, a), a), le(excess, const(0.5, a)))
    return select(uniform, mul(decay, _uniform(a, ratio, excess)), value), is_lower


def _excess(a: Expr, x: Expr) -> tuple[Expr, Expr]:
    """r = x/a - 1, and r - log(1 + r)."""
    ratio = div(sub(x, a), a)
    s = div(ratio, add(ratio, const(2, x)))
    z = mul(s, s)
    near = mul(s, fma(negative(z), quotient(table.LOG_WIDE64, table.LOG_WIDE64_BELOW, z), ratio))
    far = sub(ratio, log(div(x, a)))
    wide = lt(const(0.29, x), z)
    return ratio, select(wide, far, near)


def _density(a: Expr, x: Expr, decay: Expr) -> Expr:
    """x**a exp(-x) / gamma(a + 1); `decay` is exp of x - a - a log(x/a), negated."""
    below = exp(sub(mul(a, log(x)), add(x, _lgamma_after_one(a))))
    inverse = div(const(1, a), clamp(a, 1.0, None))
    stirling = quotient(table.STIRLING64, table.STIRLING64_BELOW, inverse)
    root = op("sqrt", mul(inverse, const(0.5 / math.pi, a)))
    return select(lt(a, const(1, a)), below, mul(decay, div(root, stirling)))


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


def _uniform(a: Expr, ratio: Expr, excess: Expr) -> Expr:
    """The smaller function over exp(-a * excess), from a = 12 on, for an excess up to 1/2."""
    inverse = div(const(1, a), clamp(a, _UNIFORM_FROM, None))
    size = op("sqrt", clamp(add(excess, excess), None, 1.0))
    lower = lt(ratio, const(0, a))
    eta = select(lower, negative(size), size)
    t = fma(inverse, 2 * _UNIFORM_FROM, -1.0)
    rest: Expr = series(table.INCOMPLETE64[-1], eta)
    for coefficients in reversed(table.INCOMPLETE64[:-1]):
        rest = fma(rest, t, series(coefficients, eta))
    rest = mul(rest, op("sqrt", mul(inverse, const(0.5 / math.pi, a))))
    half = mul(scaled_erfc(op("sqrt", mul(a, magnitude(excess)))), const(0.5, a))
    return add(half, select(lower, negative(rest), rest))


def _near(a: Expr, x: Expr) -> Expr:
    """Q for an a below 1 and an x below 1.5: 1 - x**a / gamma(a + 1) (1 - a x V)."""
    growth = sub(mul(a, log(x)), _lgamma_after_one(a))
    total: Expr = div(const(1, a), add(a, const(_NEAR_TERMS, a)))
    for k in range(_NEAR_TERMS - 1, 0, -1):
        term = div(const(1, a), add(a, const(k, a)))
        total = fma(mul(x, const(-1 / (k + 1), x)), total, term)
    change = expm1(growth)
    rest = mul(mul(a, x), total)
    return fma(rest, change, sub(rest, change))
