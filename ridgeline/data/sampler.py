"""Samplers: the order in which a loader visits a dataset.

A sampler is a pure function of the epoch: `indices(epoch)` gives the order, so a run can be taken
up again anywhere without replaying what came before. torch's form, something that gives indices
when iterated, is taken too; it is told the epoch first where it has `set_epoch`.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from ridgeline.data.randomness import RandomStream
from ridgeline.errors import BadValueError

Indices = NDArray[np.int64]


class Sampler(Protocol):
    """The indices of one epoch, in order."""

    def indices(self, epoch: int) -> Indices:
        """The indices to visit in `epoch`."""
        ...

    def __len__(self) -> int: ...


class SequentialSampler:
    """Every sample once, in the dataset's order."""

    def __init__(self, data_source: Any) -> None:
        self.count = len(data_source)

    def indices(self, epoch: int) -> Indices:
        """0, 1, 2 and so on, whatever the epoch."""
        return np.arange(self.count, dtype=np.int64)

    def __len__(self) -> int:
        return self.count


class RandomSampler:
    """A fresh random order each epoch, or `num_samples` draws with replacement."""

    def __init__(
        self,
        data_source: Any,
        replacement: bool = False,
        num_samples: int | None = None,
        seed: int = 0,
    ) -> None:
        self.count, self.replacement, self.seed = len(data_source), replacement, seed
        self.num_samples = self.count if num_samples is None else num_samples
        if not replacement and self.num_samples > self.count:
            raise BadValueError(
                f"cannot draw {self.num_samples} different samples out of {self.count}",
                help="pass replacement=True",
            )

    def indices(self, epoch: int) -> Indices:
        """The order of one epoch, a function of the seed and the epoch alone."""
        stream = RandomStream(self.seed, epoch)
        if self.replacement:
            return stream.integers(self.count, self.num_samples)
        return stream.permutation(self.count)[: self.num_samples]

    def __len__(self) -> int:
        return self.num_samples


class WeightedRandomSampler:
    """Draws in proportion to weights, with replacement."""

    def __init__(self, weights: Sequence[float], num_samples: int, seed: int = 0) -> None:
        self.weights = np.asarray(weights, np.float64)
        if self.weights.ndim != 1 or not np.all(self.weights >= 0) or not self.weights.sum() > 0:
            raise BadValueError("WeightedRandomSampler needs weights of at least 0, one above 0")
        self.num_samples, self.seed = num_samples, seed

    def indices(self, epoch: int) -> Indices:
        """The draws of one epoch, by inversion of the cumulated weights."""
        ends = np.cumsum(self.weights)
        drawn = RandomStream(self.seed, epoch).uniform(0.0, float(ends[-1]), self.num_samples)
        return np.searchsorted(ends, drawn, side="right").astype(np.int64)

    def __len__(self) -> int:
        return self.num_samples


class BatchSampler:
    """The indices of a sampler in groups of `batch_size`."""

    def __init__(
        self, sampler: Sampler | Iterable[int], batch_size: int, drop_last: bool = False
    ) -> None:
        if not isinstance(batch_size, int) or batch_size < 1:
            raise BadValueError(f"batch_size must be a whole number above 0, not {batch_size!r}")
        self.sampler, self.batch_size, self.drop_last = sampler, batch_size, drop_last

    def batches(self, epoch: int) -> list[Indices]:
        """The groups of one epoch."""
        order = indices_of(self.sampler, epoch)
        count = self._count(len(order))
        return [order[n * self.batch_size : (n + 1) * self.batch_size] for n in range(count)]

    def _count(self, samples: int) -> int:
        whole, rest = divmod(samples, self.batch_size)
        return whole if self.drop_last or not rest else whole + 1

    def __len__(self) -> int:
        return self._count(len(self.sampler))  # type: ignore[arg-type]


def indices_of(sampler: Any, epoch: int) -> Indices:
    """The order of an epoch, from either form of sampler."""
    if hasattr(sampler, "indices"):
        return np.asarray(sampler.indices(epoch), np.int64)
    _set_epoch(sampler, epoch)
    return np.asarray(list(sampler), np.int64)


def batches_of(batch_sampler: Any, epoch: int) -> list[Indices]:
    """The groups of an epoch, from either form of batch sampler."""
    if hasattr(batch_sampler, "batches"):
        found: list[Indices] = batch_sampler.batches(epoch)
        return found
    _set_epoch(batch_sampler, epoch)
    return [np.asarray(group, np.int64) for group in batch_sampler]


def _set_epoch(sampler: Any, epoch: int) -> None:
    if hasattr(sampler, "set_epoch"):
        sampler.set_epoch(epoch)
