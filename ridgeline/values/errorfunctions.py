"""The error function's relatives in float64: erfc, erfcx, their inverses, and the normal law."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

import numpy as np

from ridgeline.fma import fma

if TYPE_CHECKING:
    from ridgeline.scalars import Array

_ROOT2 = math.sqrt(2)
_ROOT2_BELOW = -9.667293313452913e-17  # what the root of 2 has beyond float64
_erf = np.vectorize(math.erf, otypes=[np.float64])
_erfc = np.vectorize(math.erfc, otypes=[np.float64])


def erfc(x: Array) -> Array:
    """1 - erf(x), accurate in the right tail."""
    return np.asarray(_erfc(x))


def erfcx(x: Array) -> Array:
    """exp(x*x) * erfc(x), without overflow on the right."""
    near = np.where(x < 10, x, 0.0)
    direct = np.exp(near * near) * erfc(near)
    far = np.where(x < 10, 10.0, x)
    inverse = 0.5 / (far * far)
    series, term = np.ones_like(far), np.ones_like(far)
    for k in range(1, 25):
        term = -term * (2 * k - 1) * inverse
        series = series + term
    return np.where(x < 10, direct, np.where(np.isnan(x), x, series / (far * math.sqrt(math.pi))))


def log_ndtr(x: Array) -> Array:
    """The logarithm of the normal distribution function."""
    low = x < -1
    tail = np.where(low, x, -1.0)
    left = np.log(erfcx(-tail / _ROOT2) / 2) - tail * tail / 2
    right = np.where(low, 0.0, x)
    near = right / _ROOT2
    # what the quotient lost, of which erfc makes much in the tail
    lost = (fma(-near, np.full_like(near, _ROOT2), right) - near * _ROOT2_BELOW) / _ROOT2
    slope = 2 / math.sqrt(math.pi) * np.exp(-near * near)
    above = erfc(near) - np.where(slope > 0, slope * lost, 0.0)
    return np.where(low, left, np.log1p(-above / 2))


def ndtri(p: Array) -> Array:
    """The inverse of the normal distribution function."""
    upper = p > 0.5
    side = np.where(upper, 1 - p, p)
    inside = (side > 0) & (side <= 0.5)
    target = np.log(np.where(inside, side, 0.5))
    # Newton's steps on the concave log_ndtr, from below, never overshoot
    x = -np.sqrt(-2 * target)
    for _ in range(12):
        slope = math.sqrt(2 / math.pi) / erfcx(-x / _ROOT2)
        x = x - (log_ndtr(x) - target) / slope
    x = np.where(inside, x, np.where(side == 0, -np.inf, np.nan))
    return np.where(upper, -x, x)


def erfinv(y: Array) -> Array:
    """The inverse of the error function."""
    size = np.abs(y)
    centre = np.where(size < 0.5, y, 0.0)
    x = centre * math.sqrt(math.pi) / 2
    for _ in range(6):
        x = x - (_erf(x) - centre) * (math.sqrt(math.pi) / 2) * np.exp(x * x)
    tail = -ndtri(np.where(size < 0.5, 0.25, (1 - size) / 2)) / _ROOT2
    return np.where(size < 0.5, x, np.copysign(tail, y))
