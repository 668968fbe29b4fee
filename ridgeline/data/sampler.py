"""Samplers: the order in which a loader visits a dataset.

A sampler is a pure function of the epoch: `indices(epoch)` gives the order, so a run can be taken
up again anywhere without replaying what came before. torch's form, something that gives indices
when iterated, is taken too; it is told the epoch first where it has `set_epoch`.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from itertools import islice
from typing import Any, Generic, TypeVar

import numpy as np
from numpy.typing import NDArray

from ridgeline.communicators.process_group import communicator_of, is_initialized
from ridgeline.data.randomness import RandomStream
from ridgeline.errors import BadValueError
from ridgeline.float_errors import float_errors_ignored
from ridgeline.functions.random import chosen_generator

Indices = NDArray[np.int64]
_PART = 1 << 16  # indices that are drawn at once
Drawn = TypeVar("Drawn", covariant=True)


class Sampler(Generic[Drawn]):
    """What gives indices when iterated over: torch's form, to be derived from."""

    def __init__(self, data_source: Any = None) -> None:
        """Subclasses hold what they need."""

    def __iter__(self) -> Iterator[Drawn]:
        raise NotImplementedError(f"{type(self).__name__} does not define __iter__")


class EpochSampler(Sampler[int]):
    """The indices of one epoch, in order; iterating gives one epoch after the other."""

    _passes = 0

    def indices(self, epoch: int) -> Indices:
        """The indices to visit in `epoch`."""
        raise NotImplementedError

    def parts(self, epoch: int) -> Iterator[Indices]:
        """The same in parts, for orders that are too long to be held."""
        yield self.indices(epoch)

    def __iter__(self) -> Iterator[int]:
        self._passes += 1
        return (index for part in self.parts(self._passes - 1) for index in part.tolist())

    def __len__(self) -> int:
        raise NotImplementedError


def seed_of(generator: Any, seed: int | None) -> int:
    """The seed of what is random in data: given, a generator's, that of `manual_seed`, or 0."""
    if seed is not None:
        return seed
    source = chosen_generator() if generator is None else generator
    return int(source.initial_seed()) if source.chosen or generator is not None else 0


class SequentialSampler(EpochSampler):
    """Every sample once, in the dataset's order."""

    def __init__(self, data_source: Any) -> None:
        self.count = len(data_source)

    def indices(self, epoch: int) -> Indices:
        """0, 1, 2 and so on, whatever the epoch."""
        return np.arange(self.count, dtype=np.int64)

    def __len__(self) -> int:
        return self.count


class RandomSampler(EpochSampler):
    """A fresh random order each epoch, or `num_samples` draws with replacement."""

    def __init__(
        self,
        data_source: Any,
        replacement: bool = False,
        num_samples: int | None = None,
        generator: Any = None,
        seed: int | None = None,
    ) -> None:
        self.count, self.replacement = len(data_source), replacement
        self.seed = seed_of(generator, seed)
        self.num_samples = self.count if num_samples is None else num_samples
        if not replacement and self.num_samples > self.count:
            raise BadValueError(
                f"cannot draw {self.num_samples} different samples out of {self.count}",
                help="pass replacement=True",
            )

    def indices(self, epoch: int) -> Indices:
        """The order of one epoch, a function of the seed and the epoch alone."""
        if self.replacement:
            return np.concatenate([*self.parts(epoch), np.empty(0, np.int64)])
        return RandomStream(self.seed, epoch).permutation(self.count)[: self.num_samples]

    def parts(self, epoch: int) -> Iterator[Indices]:
        """Draws with replacement are made as they are needed: there may be billions."""
        if not self.replacement:
            yield self.indices(epoch)
            return
        stream = RandomStream(self.seed, epoch)
        for first in range(0, self.num_samples, _PART):
            yield stream.integers(self.count, min(_PART, self.num_samples - first))

    def __len__(self) -> int:
        return self.num_samples


class WeightedRandomSampler(EpochSampler):
    """Draws in proportion to weights, with replacement unless that is switched off."""

    def __init__(
        self,
        weights: Sequence[float],
        num_samples: int,
        replacement: bool = True,
        generator: Any = None,
        seed: int | None = None,
    ) -> None:
        self.weights = np.asarray(weights, np.float64)
        if self.weights.ndim != 1 or not np.all(self.weights >= 0) or not self.weights.sum() > 0:
            raise BadValueError("WeightedRandomSampler needs weights of at least 0, one above 0")
        self.num_samples, self.seed = num_samples, seed_of(generator, seed)
        self.replacement = replacement
        if not replacement and num_samples > np.count_nonzero(self.weights):
            raise BadValueError(f"there are fewer than {num_samples} samples to draw once each")

    def indices(self, epoch: int) -> Indices:
        """The draws of one epoch, by inversion of the cumulated weights."""
        ends = np.cumsum(self.weights)
        if not self.replacement:  # the first to come of as many exponential waiting times
            unit = RandomStream(self.seed, epoch).uniform(0.0, 1.0, len(self.weights))
            with float_errors_ignored():
                return np.argsort(-np.log1p(-unit) / self.weights)[: self.num_samples]
        drawn = RandomStream(self.seed, epoch).uniform(0.0, float(ends[-1]), self.num_samples)
        return np.searchsorted(ends, drawn, side="right").astype(np.int64)

    def __len__(self) -> int:
        return self.num_samples


class SubsetRandomSampler(EpochSampler):
    """Some indices, in a fresh random order each epoch."""

    def __init__(
        self, indices: Sequence[int], generator: Any = None, seed: int | None = None
    ) -> None:
        self.chosen, self.seed = np.asarray(indices, np.int64), seed_of(generator, seed)

    def indices(self, epoch: int) -> Indices:
        """The order of one epoch."""
        return self.chosen[RandomStream(self.seed, epoch).permutation(len(self.chosen))]

    def __len__(self) -> int:
        return len(self.chosen)


class DistributedSampler(EpochSampler):
    """Every `num_replicas`-th sample from `rank` on, in an order that all ranks share.

    By default these are the ranks of the process group, and the calling one.
    """

    def __init__(
        self,
        dataset: Any,
        num_replicas: int | None = None,
        rank: int | None = None,
        shuffle: bool = True,
        seed: int = 0,
        drop_last: bool = False,
    ) -> None:
        self.dataset, self.shuffle, self.seed, self.drop_last = dataset, shuffle, seed, drop_last
        group = communicator_of(None) if is_initialized() else None
        known = (1, 0) if group is None else (group.size, group.rank)
        self.num_replicas = known[0] if num_replicas is None else num_replicas
        self.rank = known[1] if rank is None else rank
        self.epoch = 0
        if not 0 <= self.rank < self.num_replicas:
            raise BadValueError(f"rank {rank} is not one of {self.num_replicas}")
        whole, rest = divmod(len(dataset), self.num_replicas)
        self.num_samples = whole + (rest > 0 and not drop_last)

    def set_epoch(self, epoch: int) -> None:
        """The epoch whose order comes next."""
        self.epoch = epoch

    def __iter__(self) -> Iterator[int]:
        return iter(self.indices(self.epoch).tolist())

    def indices(self, epoch: int) -> Indices:
        """This rank's part of one epoch; the first samples come again where it is not even."""
        count = len(self.dataset)
        stream = RandomStream(self.seed, epoch)
        order = stream.permutation(count) if self.shuffle else np.arange(count, dtype=np.int64)
        return np.resize(order, self.num_samples * self.num_replicas)[
            self.rank :: self.num_replicas
        ]

    def __len__(self) -> int:
        return self.num_samples


class BatchSampler(Sampler[list[int]]):
    """The indices of a sampler in groups of `batch_size`."""

    def __init__(self, sampler: Iterable[int], batch_size: int, drop_last: bool = False) -> None:
        if not isinstance(batch_size, int) or batch_size < 1:
            raise BadValueError(f"batch_size must be a whole number above 0, not {batch_size!r}")
        self.sampler, self.batch_size, self.drop_last = sampler, batch_size, drop_last

    def batches(self, epoch: int) -> list[Indices]:
        """The groups of one epoch."""
        return list(self.groups(epoch))

    def groups(self, epoch: int) -> Iterator[Indices]:
        """The same one after the other: a sampler may go on for ever."""
        rest = np.empty(0, np.int64)
        for part in parts_of(self.sampler, epoch, self.batch_size):
            known = np.concatenate([rest, part]) if len(rest) else part
            whole = len(known) // self.batch_size * self.batch_size
            for first in range(0, whole, self.batch_size):
                yield known[first : first + self.batch_size]
            rest = known[whole:]
        if len(rest) and not self.drop_last:
            yield rest

    _passes = 0

    def __iter__(self) -> Iterator[list[int]]:
        self._passes += 1
        return (group.tolist() for group in self.groups(self._passes - 1))

    def _count(self, samples: int) -> int:
        whole, rest = divmod(samples, self.batch_size)
        return whole if self.drop_last or not rest else whole + 1

    def __len__(self) -> int:
        return self._count(len(self.sampler))  # type: ignore[arg-type]


def parts_of(sampler: Any, epoch: int, count: int) -> Iterator[Indices]:
    """The order of an epoch in parts, from either form of sampler: `count` at a time of torch's."""
    if isinstance(sampler, EpochSampler) and _is_walked_here(sampler):
        yield from sampler.parts(epoch)
    elif hasattr(sampler, "indices") and not isinstance(sampler, EpochSampler):
        yield np.asarray(sampler.indices(epoch), np.int64)
    else:
        _set_epoch(sampler, epoch)
        drawn = iter(sampler)
        while part := list(islice(drawn, count)):
            yield np.asarray(part, np.int64)


def batches_of(batch_sampler: Any, epoch: int) -> Iterator[Indices]:
    """The groups of an epoch, from either form of batch sampler."""
    if isinstance(batch_sampler, BatchSampler) and _is_walked_here(batch_sampler):
        yield from batch_sampler.groups(epoch)
    elif hasattr(batch_sampler, "batches") and not isinstance(batch_sampler, BatchSampler):
        yield from batch_sampler.batches(epoch)
    else:
        _set_epoch(batch_sampler, epoch)
        for group in batch_sampler:
            yield np.asarray(group, np.int64)


def _is_walked_here(sampler: Any) -> bool:
    """Whether a sampler of ours is iterated as it was written, not as a class of a user's says."""
    return str(type(sampler).__iter__.__module__) == __name__


def _set_epoch(sampler: Any, epoch: int) -> None:
    if hasattr(sampler, "set_epoch"):
        sampler.set_epoch(epoch)
