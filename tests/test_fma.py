"""Fused multiply-add rounds once, everywhere."""

from __future__ import annotations

from fractions import Fraction

import numpy as np
import pytest

from ridgeline.fma import fma


def _reference(a: float, b: float, c: float, kind: type) -> float:
    if not np.all(np.isfinite([a, b, c])):
        with np.errstate(all="ignore"):
            return float(np.float64(a) * np.float64(b) + np.float64(c))
    total = Fraction(a) * Fraction(b) + Fraction(c)
    if not total:
        return float(kind(a) * kind(b) + kind(c)) if a * b == 0 else 0.0
    return _rounded(total, kind)


def _rounded(value: Fraction, kind: type) -> float:
    """Round to nearest even by comparing exactly with the neighbours."""
    info = np.finfo(kind)
    with np.errstate(over="ignore"):
        try:
            guess = kind(float(value))
        except OverflowError:
            guess = info.max if value > 0 else info.min
        options = [np.nextafter(guess, kind(-np.inf)), guess, np.nextafter(guess, kind(np.inf))]
    limit = Fraction(2) ** (1024 if kind is np.float64 else 128)
    exact = [
        Fraction(float(o)) if np.isfinite(o) else (limit if o > 0 else -limit) for o in options
    ]
    integer = np.int32 if kind is np.float32 else np.int64
    odd = [int(np.array(o).view(integer)) & 1 for o in options]
    best = min(range(3), key=lambda i: (abs(exact[i] - value), odd[i]))
    return float(options[best])


@pytest.mark.parametrize("kind", [np.float32, np.float64])
def test_rounds_once(kind: type) -> None:
    rng = np.random.default_rng(5)
    info = np.finfo(kind)
    count = 3000
    exponents = rng.integers(info.minexp // 2 - 30, info.maxexp // 2 + 3, (2, count))
    a, b = np.ldexp(rng.uniform(-2, 2, (2, count)), exponents).astype(kind)
    with np.errstate(all="ignore"):
        near = -(a.astype(np.float64) * b) * (1 + rng.integers(-3, 4, count) * float(info.eps) / 2)
        c = np.where(rng.random(count) < 0.7, near, rng.uniform(-2, 2, count)).astype(kind)
    edges = np.array(
        [0.0, -0.0, 1, -1, info.max, info.tiny, info.smallest_subnormal, np.inf, np.nan]
    )
    grid = np.array(np.meshgrid(edges, edges, edges)).reshape(3, -1).astype(kind)
    a, b, c = (np.concatenate([x, y]) for x, y in zip((a, b, c), grid))
    found = fma(a, b, c)
    expected = [_reference(float(x), float(y), float(z), kind) for x, y, z in zip(a, b, c)]
    np.testing.assert_array_equal(found, np.array(expected, kind))
    signs = np.signbit(found) == np.signbit(np.array(expected, kind))
    assert np.all(signs | np.isnan(found))


def test_broadcasts_and_keeps_the_type() -> None:
    result = fma(np.ones((2, 1), np.float32), np.float32(3), np.ones(4, np.float32))
    assert result.shape == (2, 4) and result.dtype == np.float32 and np.all(result == 4)
