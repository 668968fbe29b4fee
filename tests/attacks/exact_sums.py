"""Numbers that are hard to add up, and what their sums are exactly."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from ridgeline.scalars import Array

Rng = np.random.Generator


def _staircase(rng: Rng, n: int, unit: float) -> Array:
    """One, then numbers that each is too small for, then some that blocks of these are too small
    for, and so on: whatever is added up in order loses them all."""
    steps = rng.integers(2, 64)
    levels = np.arange(n) // steps
    return np.where(np.arange(n) == 0, 1.0, 0.49 * unit / (1.0 + levels % 5))


def _growing(rng: Rng, n: int, unit: float) -> Array:
    return np.exp2(np.linspace(0, -math.log2(unit), n)) * (1 + rng.random(n))


KINDS: dict[str, Callable[[Rng, int, float], Array]] = {
    "normal": lambda rng, n, unit: rng.standard_normal(n),
    "uniform": lambda rng, n, unit: rng.random(n),
    "equal": lambda rng, n, unit: np.full(n, 0.1 + rng.random()),
    "far from zero": lambda rng, n, unit: 1000 + rng.random(n),
    "heavy tails": lambda rng, n, unit: np.exp(3 * rng.standard_normal(n)),
    "growing": _growing,
    "shrinking": lambda rng, n, unit: _growing(rng, n, unit)[::-1],
    "staircase": _staircase,
    "large and small in turn": lambda rng, n, unit: np.where(np.arange(n) % 2, 0.7 * unit, 1.0),
    "cancelling": lambda rng, n, unit: (
        np.repeat(rng.standard_normal(-(-n // 2)) * 100, 2)[:n]
        * np.where(np.arange(n) % 2, -1.0, 1.0)
        + unit * 1000
    ),
}


@dataclass(frozen=True, slots=True)
class Sum:
    """A sum of n numbers: its value, and the sum of their magnitudes."""

    value: float
    magnitude: float
    n: int
    own: float = 0.0  # units by which each number may be off before it is added

    def bound(self, unit: float) -> float:
        """The error that a sum may have in a type whose numbers are `unit` apart at 1."""
        return (math.log2(max(self.n, 2)) + 8 + self.own) * unit * self.magnitude


def exact(terms: Array, own: float = 0.0) -> Sum:
    """The sum of numbers as it is."""
    values = terms.astype(np.float64).ravel().tolist()
    return Sum(math.fsum(values), math.fsum(map(abs, values)), len(values), own)
