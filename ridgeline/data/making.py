"""Making one batch: samples fetched, collated and transformed, the same in every process.

What is random in a batch draws from `current_stream()`, a stream keyed by the loader's seed, the
epoch and the number of the batch: it does not matter which process makes the batch, or when.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextvars import ContextVar
from dataclasses import dataclass
from itertools import islice
from typing import Any

import numpy as np

from ridgeline.data.collate import collate_arrays
from ridgeline.data.randomness import RandomStream
from ridgeline.data.sampler import Indices
from ridgeline.data.transforms import Transform
from ridgeline.errors import BadValueError


@dataclass(frozen=True)
class SharedGroup:
    """The indices of a batch that ranks share, and which of its places this rank's samples have."""

    whole: Indices
    own: Indices


@dataclass(frozen=True)
class OwnRows:
    """This rank's samples of a batch, and how many the whole batch has."""

    batch: Any
    rows: int


# indices, those that ranks share, the samples of a stream, or one index
Group = Indices | SharedGroup | list[Any] | int
_stream: ContextVar[RandomStream] = ContextVar("stream")


def current_stream() -> RandomStream:
    """The random stream of the batch that is being made; for use in a dataset's `__getitem__`."""
    found = _stream.get(None)
    return RandomStream(0) if found is None else found


@dataclass(frozen=True)
class BatchMaker:
    """What a process needs to make batches of a dataset."""

    dataset: Any
    batch_size: int | None
    drop_last: bool
    collate_fn: Callable[[Sequence[Any]], Any] | None
    transform: Transform | None
    seed: int

    def make(self, group: Group, epoch: int, number: int) -> Any:
        """One batch of arrays, or what `collate_fn` makes of the samples."""
        if isinstance(group, SharedGroup):
            return self._share(group, epoch, number)
        stream = RandomStream(self.seed, epoch, number)
        token = _stream.set(stream)
        try:
            batch = self._collated(group)
            if self.transform is not None and self.collate_fn is None:
                batch = _transformed(batch, self.transform, stream)
            return batch
        finally:
            _stream.reset(token)

    def _share(self, group: SharedGroup, epoch: int, number: int) -> Any:
        """A rank's own samples where they do not depend on the others; else the whole batch.

        What is drawn for a sample, or made of all of them, depends on those before it.
        """
        rows = len(group.whole)
        if self.transform is not None or self.collate_fn is not None or not rows:
            return self.make(group.whole, epoch, number)
        stream = RandomStream(self.seed, epoch, number)
        token = _stream.set(stream)
        try:
            places = group.own if len(group.own) else np.zeros(1, np.int64)
            batch = self._collated(group.whole[places])
        finally:
            _stream.reset(token)
        if stream.was_used or not _is_arrays(batch):
            return self.make(group.whole, epoch, number)
        return OwnRows(_first(batch, len(group.own)), rows)

    def _collated(self, group: Indices | list[Any] | int) -> Any:
        gather = getattr(self.dataset, "batch", None)
        if isinstance(group, np.ndarray):
            if gather is not None and self.collate_fn is None:
                return gather(group)
            group = [self.dataset[int(i)] for i in group]
        if isinstance(group, int | np.integer):  # no batches: samples as they are
            sample = self.dataset[int(group)]
            return sample if self.collate_fn is None else self.collate_fn(sample)
        if self.collate_fn is not None:
            return self.collate_fn(group)
        return collate_arrays(group) if self.batch_size is not None else group[0]

    def stream_groups(self) -> Iterator[list[Any]]:
        """An IterableDataset's samples, batch by batch."""
        samples, size = iter(self.dataset), self.batch_size or 1
        while group := list(islice(samples, size)):
            if len(group) == size or not self.drop_last:
                yield group


def _is_arrays(batch: Any) -> bool:
    """True for arrays of samples, in tuples and dicts."""
    if isinstance(batch, dict):
        return all(map(_is_arrays, batch.values()))
    if isinstance(batch, tuple):
        return all(map(_is_arrays, batch))
    return isinstance(batch, np.ndarray) and batch.ndim > 0


def _first(batch: Any, count: int) -> Any:
    """The first samples of a batch."""
    if isinstance(batch, dict):
        return {key: _first(value, count) for key, value in batch.items()}
    if isinstance(batch, tuple):
        return tuple(_first(value, count) for value in batch)
    return batch[:count]


def _transformed(batch: Any, transform: Transform, stream: RandomStream) -> Any:
    if isinstance(batch, tuple):
        return (transform(batch[0], stream), *batch[1:])
    if isinstance(batch, dict | list | str):
        raise BadValueError(
            "a loader's transform applies to the first array of a tuple, or to a lone array",
            note=f"the batches are {type(batch).__name__}",
            help="transform the samples in the dataset",
        )
    return transform(batch, stream)
