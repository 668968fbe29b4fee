"""The error function's relatives: erfc, erfcx, their inverses, and the normal law."""

from __future__ import annotations

import math

import numpy as np

from ridgeline.values.wide import ROOT2, ROOT_PI, Array, number

_FAR = 10.0  # from here on erfcx is its asymptotic series
_erf = np.vectorize(math.erf, otypes=[np.float64])
_erfc = np.vectorize(math.erfc, otypes=[np.float64])


def erf(x: Array) -> Array:
    """The error function, to the digits of float64 at any argument."""
    near = x.astype(np.float64)
    return np.asarray(_erf(near) + _slope(x) * (x - near))


def erfc(x: Array) -> Array:
    """1 - erf(x), to the digits of float64 in the right tail as well."""
    near = x.astype(np.float64)
    # of what an argument has beyond float64 the tail makes much
    return np.asarray(_erfc(near) - _slope(x) * np.where(np.isfinite(near), x - near, 0))


def _slope(x: Array) -> Array:
    """The derivative of erf."""
    return np.asarray(2 / number(ROOT_PI, x) * np.exp(-x * x))


def erfcx(x: Array) -> Array:
    """exp(x*x) * erfc(x), without overflow on the right."""
    near = np.where(x < _FAR, x, 0)
    direct = np.exp(near * near) * erfc(near)
    far = np.where(x < _FAR, x.dtype.type(_FAR), x)
    inverse = 0.5 / (far * far)
    series, term = np.ones_like(far), np.ones_like(far)
    for k in range(1, 25):
        term = -term * (2 * k - 1) * inverse
        series = series + term
    tail = series / (far * number(ROOT_PI, x))
    return np.where(x < _FAR, direct, np.where(np.isnan(x), x, tail))


def ndtr(x: Array) -> Array:
    """The normal distribution function."""
    return erfc(-x / number(ROOT2, x)) / 2


def log_ndtr(x: Array) -> Array:
    """The logarithm of the normal distribution function."""
    root2 = number(ROOT2, x)
    low = x < -1
    tail = np.where(low, x, -1)
    left = np.log(erfcx(-tail / root2) / 2) - tail * tail / 2
    return np.where(low, left, np.log1p(-erfc(np.where(low, 0, x) / root2) / 2))


def ndtri(p: Array) -> Array:
    """The inverse of the normal distribution function."""
    root2 = number(ROOT2, p)
    upper = p > 0.5
    side = np.where(upper, 1 - p, p)
    inside = (side > 0) & (side <= 0.5)
    target = np.log(np.where(inside, side, 0.5))
    # Newton's steps on the concave log_ndtr, from below, never overshoot
    x = -np.sqrt(-2 * target)
    for _ in range(12):
        slope = 2 / number(ROOT_PI, p) / root2 / erfcx(-x / root2)
        x = x - (log_ndtr(x) - target) / slope
    x = np.where(inside, x, np.where(side == 0, -np.inf, np.nan))
    central = np.abs(p - 0.5) < 0.25
    centre = root2 * _central_erfinv(np.where(central, 2 * p - 1, 0))
    return np.where(central, centre, np.where(upper, -x, x))


def erfinv(y: Array) -> Array:
    """The inverse of the error function."""
    size = np.abs(y)
    central = size < 0.5
    tail = -ndtri(np.where(central, 0.125, (1 - size) / 2)) / number(ROOT2, y)
    centre = _central_erfinv(np.where(central, y, 0))
    return np.where(central, centre, np.copysign(tail, y))


def _central_erfinv(y: Array) -> Array:
    """The inverse about 0, by Newton's steps; all digits also where it is close to 0."""
    half_root = number(ROOT_PI, y) / 2
    x = y * half_root
    for _ in range(6):
        x = x - (erf(x) - y) * half_root * np.exp(x * x)
    return np.asarray(x)
