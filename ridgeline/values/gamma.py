"""The gamma family: lgamma, digamma, Hurwitz zeta, incomplete gamma."""

from __future__ import annotations

import math
from functools import cache

import numpy as np

from ridgeline.float_errors import float_errors_ignored
from ridgeline.values.errorfunctions import erfc
from ridgeline.values.wide import EULER, PI, Array, number

# B_2k of Euler-Maclaurin and of the asymptotic series
_BERNOULLI = (
    (1, 6), (-1, 30), (1, 42), (-1, 30), (5, 66), (-691, 2730), (7, 6), (-3617, 510),
    (43867, 798), (-174611, 330), (854513, 138), (-236364091, 2730),
)  # fmt: skip
_SHIFT = 10  # from here on the asymptotic series are exact to the last bit
_ROOT_TERMS = 34  # of the series of log gamma at 2, up to a distance of 1/4
_NEAR = 1.5  # below it the continued fraction takes long
_NORMAL_FROM = 1e6  # from this a on, the normal distribution and three corrections are all
# Temme's corrections: series in eta, of which more are 0 where the others are not
_CORRECTIONS = (
    (-1 / 3, 1 / 12, -2 / 135, 1 / 864, 1 / 2835, -139 / 777600, 3.919263178522438e-5),
    (-1 / 540, -1 / 288, 1 / 378, -9.902263374485597e-4, 2.05761316872428e-4),
    (4.133597883597883e-3, -2.681327160493827e-3, 7.716049382716049e-4),
)
_LIMIT = 20_000  # terms after which an incomplete gamma function gives up


def _bernoulli(k: int, like: Array) -> Array:
    top, below = _BERNOULLI[k - 1]
    return np.asarray(like.dtype.type(top) / below)


def lgamma(x: Array) -> Array:
    """log |gamma(x)|, reflected to 1 - x left of 1/2."""
    reflected = x < 0.5
    right = _lgamma_right(np.where(reflected, 1 - x, x))
    pi = number(PI, x)
    sine = np.abs(np.sin(pi * (x - np.rint(x))))
    with float_errors_ignored():
        left = np.log(pi / sine) - right
    small = np.abs(x) < 1e-20  # where 1 - x would lose it
    left = np.where(small, -np.log(np.where(small & (x != 0), np.abs(x), 1)), left)
    pole = (x <= 0) & (x == np.floor(x))
    return np.where(pole | np.isinf(x), np.inf, np.where(reflected, left, right))


def _lgamma_right(x: Array) -> Array:
    """log gamma from 1/2 on: series at its zeros 1 and 2, Stirling's formula elsewhere."""
    by_one, by_two = x - 1, x - 2
    near_one, near_two = np.abs(by_one) < 0.25, np.abs(by_two) < 0.25
    rooted = _lgamma_after_two(np.where(near_two, by_two, 0))
    rooted = np.where(near_one, _lgamma_after_one(np.where(near_one, by_one, 0)), rooted)
    y, product = x, np.ones_like(x)
    for _ in range(_SHIFT):
        low = y < _SHIFT
        product = np.where(low, product * y, product)
        y = np.where(low, y + 1, y)
    half_log = np.log(2 * number(PI, x)) / 2
    stirling = (y - 0.5) * (np.log(y) - 1) - 0.5 + half_log + _stirling_rest(y) - np.log(product)
    return np.where(near_one | near_two, rooted, stirling)


def _stirling_rest(y: Array) -> Array:
    """What Stirling's formula lacks, from y = 10 on."""
    inverse, rest = 1 / (y * y), np.zeros_like(y)
    for k in range(len(_BERNOULLI), 0, -1):
        rest = rest * inverse + _bernoulli(k, y) / (2 * k * (2 * k - 1))
    return rest / y


def _lgamma_after_two(t: Array) -> Array:
    """log gamma(2 + t) for a t of at most 1/4, whose zero at 0 is exact."""
    total = np.zeros_like(t)
    for k in range(_ROOT_TERMS, 1, -1):
        total = t * (_zeta_after_one(k, t.dtype) / k * (-1) ** k + total)
    return np.asarray(t * (total + (1 - number(EULER, t))))


@cache
def _zeta_after_one(k: int, dtype: np.dtype) -> Array:
    """zeta(k) - 1."""
    return _zeta_above(np.asarray(k, dtype), np.asarray(2, dtype))


def _lgamma_after_one(t: Array) -> Array:
    """log gamma(1 + t) for a t of at most 1/4, also where 1 + t would lose it."""
    return _lgamma_after_two(t) - np.log1p(t)


def digamma(x: Array) -> Array:
    """The derivative of log gamma(x); at 0 an infinity of the opposite sign, NaN at other poles."""
    reflected = x < 0
    y = np.where(reflected, 1 - x, x)
    total = np.zeros_like(y)
    for _ in range(_SHIFT):
        low = y < _SHIFT
        total -= np.where(low, 1 / np.where(low & (y != 0), y, 1), 0)
        y = np.where(low, y + 1, y)
    inverse = 1 / (y * y)
    series = np.zeros_like(y)
    for k in range(len(_BERNOULLI), 0, -1):
        series = inverse * (series + _bernoulli(k, y) / (2 * k))
    result = total + np.log(y) - 0.5 / y - series
    pi = number(PI, x)
    turned = x - np.rint(x)
    result = np.where(reflected, result - pi / np.tan(pi * turned), result)
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
        weight = _bernoulli(k, a) / math.factorial(2 * k)
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
    safe_a, safe_x = np.where(inside, a, 1), np.where(inside, x, 1)
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
    ratio, excess = _excess(a, x)
    density = _density(a, x, excess)
    is_lower, large = x < np.maximum(a, _NEAR), a > _NORMAL_FROM
    series = _series(a, np.where(is_lower, x, 1), is_lower & ~large) * density
    fraction = _fraction(a, np.where(is_lower, a + 2, x), ~is_lower & ~large) * density * a
    return np.where(
        large, _normal(a, ratio, excess), np.where(is_lower, series, fraction)
    ), is_lower


def _excess(a: Array, x: Array) -> tuple[Array, Array]:
    """r = x/a - 1, and r - log(1 + r), which is r s - 2 s^3 (1/3 + s^2/5 + ...) near 0."""
    ratio = (x - a) / a
    wide = np.abs(ratio) > 0.5
    s = np.where(wide, 0, ratio / (ratio + 2))
    square, series = s * s, np.zeros_like(s)
    for k in range(18, 0, -1):
        series = square * (series + s.dtype.type(2) / (2 * k + 1))
    return ratio, np.where(wide, ratio - np.log(x / a), s * (ratio - series))


def _density(a: Array, x: Array, excess: Array) -> Array:
    """x**a exp(-x) / gamma(a + 1), by Stirling's formula from 1 on."""
    high, tau = np.maximum(a, 1), 2 * number(PI, a)
    formula = (high - 0.5) * np.log(high) - high + 0.5 * np.log(tau)
    rest = np.where(high < _SHIFT, lgamma(high) - formula, _stirling_rest(np.maximum(a, _SHIFT)))
    above = np.exp(-high * excess - rest) / np.sqrt(tau * high)
    low = np.minimum(a, 1)
    below = np.exp(low * np.log(x) - x - _lgamma_up_to_two(low))
    return np.asarray(np.where(a < 1, below, above))


def _normal(a: Array, ratio: Array, excess: Array) -> Array:
    """The smaller function by the normal distribution, with corrections."""
    eta = np.sign(ratio) * np.sqrt(2 * np.maximum(excess, 0))
    held = np.clip(eta, -0.1, 0.1)  # beyond, the functions are 0 and 1
    rest = sum(np.polyval(row[::-1], held) / a**k for k, row in enumerate(_CORRECTIONS))
    tail = np.exp(-a * excess) / np.sqrt(2 * number(PI, a) * a) * rest
    return np.asarray(0.5 * erfc(np.abs(eta) * np.sqrt(a / 2)) + np.where(ratio < 0, -tail, tail))


def _upper_near(a: Array, x: Array) -> Array:
    """The upper function where the lower one is close to 1."""
    low = np.minimum(a, 1)
    total, power = np.zeros_like(x), np.ones_like(x)
    for k in range(1, 30):
        total = total + power / (low + k)
        power = power * -x / (k + 1)
    change = np.expm1(low * np.log(x) - _lgamma_up_to_two(low))
    rest = low * x * total
    return np.asarray(rest * change + rest - change)


def _lgamma_up_to_two(a: Array) -> Array:
    """log gamma(1 + a) for an a up to 1."""
    return np.where(a < 0.25, _lgamma_after_one(np.minimum(a, 0.25)), lgamma(a + 1))


def _series(a: Array, x: Array, wanted: Array) -> Array:
    term = np.ones_like(a)
    total, n = term.copy(), a.copy()
    least = np.finfo(a.dtype).eps / 16
    for _ in range(_LIMIT):
        n = n + 1
        term = term * x / n
        total = total + term
        if not np.any(wanted & (term > total * least)):
            break
    return total


def _fraction(a: Array, x: Array, wanted: Array) -> Array:
    """Lentz's method for the continued fraction of the upper function."""
    tiny, least = 1e-300, np.finfo(a.dtype).eps
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
        wanted = wanted & (np.abs(change - 1) > least)  # else roundings add up
        value = np.where(wanted, value * change, value)
        if not np.any(wanted):
            break
    return value
