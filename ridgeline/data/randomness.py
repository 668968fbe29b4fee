"""Random numbers for data: a stream per (seed, epoch, batch), the same on every machine.

NumPy promises stable bits from a bit generator, but not from `permutation` or `uniform`; so both
are made here from the bits. A stream depends on its key alone, never on what was drawn before:
that is what makes a resumed epoch equal to an uninterrupted one.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray


class RandomStream:
    """Draws from one keyed stream of bits."""

    def __init__(self, *key: int) -> None:
        self.key = key
        self._bits = np.random.PCG64(np.random.SeedSequence(key))

    @property
    def was_used(self) -> bool:
        """True after the first draw."""
        return bool(self._bits.state != np.random.PCG64(np.random.SeedSequence(self.key)).state)

    def permutation(self, count: int) -> NDArray[np.int64]:
        """The numbers 0…count-1 in random order."""
        return np.argsort(self._bits.random_raw(count), kind="stable").astype(np.int64)

    def uniform(self, low: float, high: float, count: int) -> NDArray[np.float64]:
        """`count` numbers in [low, high), 53 random bits each."""
        unit = (self._bits.random_raw(count) >> np.uint64(11)).astype(np.float64) * 2.0**-53
        return low + (high - low) * unit

    def integers(self, high: int, count: int) -> NDArray[np.int64]:
        """`count` numbers in 0…high-1; the bias is below 2**-53 times `high`."""
        return np.floor(self.uniform(0.0, float(high), count)).astype(np.int64)

    def normal(self, count: int) -> NDArray[np.float64]:
        """`count` standard normal numbers, by Box and Muller's formula."""
        pairs = (count + 1) // 2
        radius = np.sqrt(-2 * np.log1p(-self.uniform(0.0, 1.0, pairs)))
        angle = self.uniform(0.0, 2 * np.pi, pairs)
        return np.concatenate([radius * np.cos(angle), radius * np.sin(angle)])[:count]
