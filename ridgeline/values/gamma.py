"""The gamma family in float64: lgamma, digamma, Hurwitz zeta, incomplete gamma."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

import numpy as np

from ridgeline.values.errorfunctions import erfc

if TYPE_CHECKING:
    from ridgeline.scalars import Array

# B_2k of Euler-Maclaurin and of the asymptotic series
_BERNOULLI = (
    1 / 6, -1 / 30, 1 / 42, -1 / 30, 5 / 66, -691 / 2730, 7 / 6, -3617 / 510, 43867 / 798,
    -174611 / 330, 854513 / 138, -236364091 / 2730,
)  # fmt: skip
_EULER = 0.5772156649015329
_ZETA = (
    1.6449340668482264, 1.2020569031595942, 1.0823232337111382, 1.03692775514337,
    1.0173430619844488, 1.008349277381923, 1.0040773561979443,
)  # fmt: skip
_SHIFT = 10.0  # from here on the asymptotic series are exact to the last bit
_EPSILON = 1e-17
_NEAR = 1.5  # below it the continued fraction takes long
_NORMAL_FROM = 1e6  # from this a on, the normal distribution and a correction are all
_LIMIT = 20_000  # terms after which an incomplete gamma function gives up


def _one_lgamma(x: float) -> float:
    if math.isinf(x) or (x <= 0 and x == math.floor(x)):
        return math.inf
    try:
        return math.lgamma(x)
    except OverflowError:
        return math.inf


_lgamma = np.vectorize(_one_lgamma, otypes=[np.float64])


def lgamma(x: Array) -> Array:
    """log |gamma(x)|."""
    return np.asarray(_lgamma(x))


def digamma(x: Array) -> Array:
    """The derivative of log gamma(x); at 0 an infinity of the opposite sign, NaN at other poles."""
    reflected = x < 0
    y = np.where(reflected, 1 - x, x)
    total = np.zeros_like(y)
    for _ in range(int(_SHIFT)):
        low = y < _SHIFT
        total -= np.where(low, 1 / np.where(low & (y != 0), y, 1), 0)
        y = np.where(low, y + 1, y)
    inverse = 1 / (y * y)
    series = np.zeros_like(y)
    for k in range(len(_BERNOULLI), 0, -1):
        series = inverse * (series + _BERNOULLI[k - 1] / (2 * k))
    result = total + np.log(y) - 0.5 / y - series
    turned = x - np.rint(x)
    result = np.where(reflected, result - np.pi / np.tan(np.pi * turned), result)
    result = np.where(reflected & (x == np.floor(x)), np.nan, result)
    result = np.where(x == 0, np.copysign(np.inf, -x), result)
    return np.where(x == np.inf, np.inf, result)


def zeta(x: Array, q: Array) -> Array:
    """The Hurwitz zeta function: the sum of (k + q) ** -x over k >= 0."""
    x, q = np.broadcast_arrays(x, q)
    lower, below = np.floor(q), q < 0
    defined = (x > 1) & (lower != q) & (x == np.floor(x)) & np.isfinite(x) & below
    defined |= (x > 1) & (q > 0)
    s, a = np.where(defined, x, 2.0), np.where(defined & np.isfinite(q), q, 1.0)
    down = np.floor(a)
    total = _zeta_above(s, np.where(a < 0, a - down, a))
    # of the terms below 0, those beyond q are none of the sum
    beneath = _zeta_above(s, np.where(a < 0, down + 1 - a, 1.0))
    beneath = beneath - _zeta_above(s, np.where(a < 0, 1 - a, 1.0))
    total = np.where(a < 0, total + np.where(s % 2 == 1, -beneath, beneath), total)
    total = np.where(x == np.inf, np.where(q > 1, 0.0, np.where(q == 1, 1.0, np.inf)), total)
    total = np.where(q == np.inf, 0.0, total)
    total = np.where(defined, total, np.nan)
    total = np.where((x > 1) & (q <= 0) & (lower == q), np.inf, total)
    return np.where(x == 1, np.inf, total)


def _zeta_above(s: Array, q: Array) -> Array:
    """For s > 1 and q > 0: some terms, and Euler and Maclaurin's series for the rest."""
    terms = 20
    a = q + terms
    held = np.minimum(s, 400.0)  # of steeper powers the rest is 0
    corrections = np.zeros_like(s)
    for k in range(len(_BERNOULLI), 0, -1):
        weight = _BERNOULLI[k - 1] / math.factorial(2 * k)
        last = (held + 2 * k - 1) * (held + 2 * k) / (a * a)
        corrections = weight + corrections * last
    total = np.power(a, 1 - s) * (1 / (s - 1) + (0.5 + held / a * corrections) / a)
    for k in reversed(range(terms)):
        total = total + np.power(q + k, -s)
    return np.asarray(total)


def gammainc(a: Array, x: Array) -> Array:
    """The regularised lower incomplete gamma function."""
    return _incomplete(a, x, lower=True)


def gammaincc(a: Array, x: Array) -> Array:
    """The regularised upper incomplete gamma function."""
    return _incomplete(a, x, lower=False)


def _incomplete(a: Array, x: Array, lower: bool) -> Array:
    a, x = np.broadcast_arrays(a, x)
    inside = (a > 0) & (x > 0) & np.isfinite(a) & np.isfinite(x)
    safe_a, safe_x = np.where(inside, a, 1.0), np.where(inside, x, 1.0)
    small, is_lower = _smaller(safe_a, safe_x)
    result = np.where(is_lower == lower, small, 1 - small)
    if not lower:
        near = (safe_a < 1) & (safe_x < _NEAR)
        result = np.where(near, _upper_near(safe_a, np.minimum(safe_x, _NEAR)), result)
    at_zero, at_end = (0.0, 1.0) if lower else (1.0, 0.0)
    bad = (a < 0) | (x < 0) | np.isnan(a) | np.isnan(x) | ((a == 0) & (x == 0))
    bad |= np.isinf(a) & np.isinf(x)
    result = np.where((x == 0) | np.isinf(a), at_zero, result)
    result = np.where((np.isinf(x) & ~np.isinf(a)) | ((a == 0) & (x > 0)), at_end, result)
    return np.where(bad, np.nan, result)


def _smaller(a: Array, x: Array) -> tuple[Array, Array]:
    """The smaller one of both functions, or nearly so, and where it is the lower one."""
    ratio = (x - a) / a
    excess = ratio - np.where(np.abs(ratio) < 0.5, np.log1p(ratio), np.log(x / a))
    density = _density(a, x, excess)
    is_lower, large = x < np.maximum(a, _NEAR), a > _NORMAL_FROM
    series = _series(a, np.where(is_lower, x, 1.0), is_lower & ~large) * density
    fraction = _fraction(a, np.where(is_lower, a + 2, x), ~is_lower & ~large) * density * a
    return np.where(
        large, _normal(a, ratio, excess), np.where(is_lower, series, fraction)
    ), is_lower


def _density(a: Array, x: Array, excess: Array) -> Array:
    """x**a exp(-x) / gamma(a + 1), by Stirling's formula from 1 on."""
    high = np.maximum(a, 1.0)
    formula = (high - 0.5) * np.log(high) - high + 0.5 * math.log(2 * math.pi)
    rest = np.zeros_like(a)
    for k in range(len(_BERNOULLI), 0, -1):
        rest = rest / (high * high) + _BERNOULLI[k - 1] / (2 * k * (2 * k - 1))
    rest = np.where(high < _SHIFT, lgamma(high) - formula, rest / high)
    above = np.exp(-high * excess - rest) / np.sqrt(2 * np.pi * high)
    low = np.minimum(a, 1.0)
    below = np.exp(low * np.log(x) - x - lgamma(low + 1))
    return np.asarray(np.where(a < 1, below, above))


def _normal(a: Array, ratio: Array, excess: Array) -> Array:
    """The smaller function by the normal distribution, with the first correction."""
    eta = np.sign(ratio) * np.sqrt(2 * np.maximum(excess, 0.0))
    held = np.clip(eta, -1.0, 1.0)
    rest = -1 / 3 + held * (1 / 12 + held * (-2 / 135 + held * (1 / 864 + held / 2835)))
    tail = np.exp(-a * excess) / np.sqrt(2 * np.pi * a) * rest * np.where(ratio < 0, -1.0, 1.0)
    return np.asarray(0.5 * erfc(np.abs(eta) * np.sqrt(a / 2)) + tail)


def _upper_near(a: Array, x: Array) -> Array:
    """The upper function where the lower one is close to 1."""
    low = np.minimum(a, 1.0)
    total, power = np.zeros_like(x), np.ones_like(x)
    for k in range(1, 30):
        total = total + power / (low + k)
        power = power * -x / (k + 1)
    change = np.expm1(low * np.log(x) - _lgamma_after_one(low))
    rest = low * x * total
    return np.asarray(rest * change + rest - change)


def _lgamma_after_one(a: Array) -> Array:
    """log gamma(1 + a), by its series at 1 for an a that 1 + a would round."""
    value = np.zeros_like(a)
    for k in range(len(_ZETA) + 1, 1, -1):
        value = a * (_ZETA[k - 2] / k * (-1) ** k + value)
    return np.where(a < 0.01, a * (value - _EULER), lgamma(a + 1))


def _series(a: Array, x: Array, wanted: Array) -> Array:
    term = np.ones_like(a)
    total, n = term.copy(), a.copy()
    for _ in range(_LIMIT):
        n = n + 1
        term = term * x / n
        total = total + term
        if not np.any(wanted & (term > total * _EPSILON)):
            break
    return total


def _fraction(a: Array, x: Array, wanted: Array) -> Array:
    """Lentz's method for the continued fraction of the upper function."""
    tiny = 1e-300
    b = x + 1 - a
    c = np.full_like(x, 1 / tiny)
    d = 1 / np.where(b == 0, tiny, b)
    value = d.copy()
    for i in range(1, _LIMIT):
        factor = -i * (i - a)
        b = b + 2
        d = factor * d + b
        d = 1 / np.where(np.abs(d) < tiny, tiny, d)
        c = b + factor / c
        c = np.where(np.abs(c) < tiny, tiny, c)
        change = c * d
        wanted = wanted & (np.abs(change - 1) > 1e-16)  # else roundings add up
        value = np.where(wanted, value * change, value)
        if not np.any(wanted):
            break
    return value
