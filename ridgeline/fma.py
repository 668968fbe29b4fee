"""Fused multiply-add in NumPy, rounded once as the hardware instruction does."""

from __future__ import annotations

from fractions import Fraction
from typing import Any

import numpy as np
import numpy.typing as npt

from ridgeline.float_errors import float_errors_ignored

Array = npt.NDArray[Any]
_SPLITTER = float(2**27 + 1)
_SMALL, _LARGE = 2.0**-900, 2.0**900  # between these no step below can overflow or underflow


def fma(a: Array, b: Array, c: Array) -> Array:
    """a * b + c with one rounding, for float32 and float64."""
    a, b, c = np.broadcast_arrays(a, b, c)
    with float_errors_ignored():
        return _fma32(a, b, c) if a.dtype == np.float32 else _fma64(a, b, c)


def _fma32(a: Array, b: Array, c: Array) -> Array:
    product = a.astype(np.float64) * b  # exact: 24 + 24 bits
    return _odd_sum(product, c.astype(np.float64)).astype(np.float32)


def _two_sum(a: Array, b: Array) -> tuple[Array, Array]:
    """The rounded sum and its exact error (Knuth)."""
    total = a + b
    other = total - a
    return total, (a - (total - other)) + (b - other)


def _odd_sum(a: Array, b: Array) -> Array:
    """a + b rounded to odd, so that rounding it again to fewer bits rounds only once in effect."""
    total, error = _two_sum(a, b)
    even = (np.asarray(total).view(np.int64) & 1) == 0
    adjust = even & (error != 0) & np.isfinite(total)
    return np.where(adjust, np.nextafter(total, np.copysign(np.inf, error)), total)


def _split(a: Array) -> tuple[Array, Array]:
    scaled = _SPLITTER * a
    high = scaled - (scaled - a)
    return high, a - high


def _fma64(a: Array, b: Array, c: Array) -> Array:
    """Boldo and Melquiond's algorithm where it applies, exact fractions elsewhere."""
    product = a * b
    (a1, a2), (b1, b2) = _split(a), _split(b)
    error = ((a1 * b1 - product) + a1 * b2 + a2 * b1) + a2 * b2
    low, lower = _two_sum(c, error)
    high, rest = _two_sum(product, low)
    result = np.array(high + _odd_sum(rest, lower))
    magnitudes = np.abs(np.stack([a, b, product, result]))
    safe = np.all((magnitudes > _SMALL) & (magnitudes < _LARGE), axis=0)
    safe &= (np.abs(c) < _LARGE) & ((np.abs(c) > _SMALL) | (c == 0))
    plain = ~(np.isfinite(a) & np.isfinite(b) & np.isfinite(c)) | (a == 0) | (b == 0)
    result = np.where(plain, product + c, result)
    for index in np.argwhere(~safe & ~plain):
        at = tuple(index)
        result[at] = _exact(float(a[at]), float(b[at]), float(c[at]))
    return result


def _exact(a: float, b: float, c: float) -> float:
    total = Fraction(a) * Fraction(b) + Fraction(c)
    if not total:
        return 0.0  # a nonzero product cancelled exactly
    try:
        return float(total)
    except OverflowError:
        return np.inf if total > 0 else -np.inf
