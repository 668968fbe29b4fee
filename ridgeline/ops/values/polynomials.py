"""Orthogonal polynomials by their three-term recurrences, with the degree as an operand."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from ridgeline.errors import ArgumentError
from ridgeline.scalars import Array

Step = Callable[[int, Array, Array, Array], Array]  # (degree reached, x, last, before last)


def _chebyshev(degree: int, x: Array, last: Array, before: Array) -> Array:
    return 2 * x * last - before


_RULES: dict[str, tuple[Callable[[Array], Array], Step]] = {
    "chebyshev_polynomial_t": (lambda x: x, _chebyshev),
    "chebyshev_polynomial_u": (lambda x: 2 * x, _chebyshev),
    "chebyshev_polynomial_v": (lambda x: 2 * x - 1, _chebyshev),
    "chebyshev_polynomial_w": (lambda x: 2 * x + 1, _chebyshev),
    "hermite_polynomial_h": (
        lambda x: 2 * x,
        lambda n, x, last, before: 2 * x * last - 2 * (n - 1) * before,
    ),
    "hermite_polynomial_he": (
        lambda x: x,
        lambda n, x, last, before: x * last - (n - 1) * before,
    ),
    "laguerre_polynomial_l": (
        lambda x: 1 - x,
        lambda n, x, last, before: ((2 * n - 1 - x) * last - (n - 1) * before) / n,
    ),
    "legendre_polynomial_p": (
        lambda x: x,
        lambda n, x, last, before: ((2 * n - 1) * x * last - (n - 1) * before) / n,
    ),
}
_HIGHEST = 1_000_000  # a recurrence runs through all degrees below
NAMES = tuple(_RULES)
SHIFTED = tuple(f"shifted_{name}" for name in NAMES if name.startswith("chebyshev"))


def polynomial(name: str, x: Array, n: Array) -> Array:
    """The polynomial of degree trunc(n) at x; 0 where the degree is negative."""
    if name.startswith("shifted_"):
        return polynomial(name.removeprefix("shifted_"), 2 * x - 1, n)
    first, step = _RULES[name]
    degree = np.where(np.isfinite(n), np.trunc(n), -1)
    before, last = np.ones_like(x), first(x)
    result = np.where(degree == 0, before, np.where(degree == 1, last, 0.0))
    highest = int(degree.max(initial=0))
    if highest > _HIGHEST:
        raise ArgumentError(f"{name}: a degree of {highest} is beyond {_HIGHEST}")
    for reached in range(2, highest + 1):
        before, last = last, step(reached, x, last, before)
        result = np.where(degree == reached, last, result)
    return result
