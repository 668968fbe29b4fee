"""DataLoader: batches of tensors in a seeded order, from any point of any epoch.

The batches of an epoch are a function of (seed, epoch) and each batch's random transform of
(seed, epoch, batch): a loader whose state was saved after some batch goes on with the next one,
and gives exactly what it would have given without the interruption.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from itertools import islice
from typing import Any

import numpy as np

from ridgeline.data.collate import collate_arrays, to_tensors
from ridgeline.data.dataset import IterableDataset
from ridgeline.data.randomness import Stream
from ridgeline.data.sampler import Indices, RandomSampler, Sampler, SequentialSampler
from ridgeline.data.transforms import Transform
from ridgeline.errors import RidgelineError


class DataLoader:
    """Iterating gives one epoch of batches; each iteration is the next epoch.

    A dataset is an IterableDataset, or anything with a length and samples by index.
    `transform(images, stream)` is applied to the first array of every batch. `epoch` and
    `position` say where the loader stands; `state_dict()` holds both.
    """

    def __init__(
        self,
        dataset: Any,
        batch_size: int = 1,
        shuffle: bool = False,
        sampler: Sampler | None = None,
        collate_fn: Callable[[Sequence[Any]], Any] | None = None,
        drop_last: bool = False,
        *,
        seed: int = 0,
        transform: Transform | None = None,
    ) -> None:
        if not isinstance(batch_size, int) or batch_size < 1:
            raise RidgelineError(f"batch_size must be a whole number above 0, not {batch_size!r}")
        self.dataset, self.batch_size, self.drop_last = dataset, batch_size, drop_last
        self.collate_fn, self.seed, self.transform = collate_fn, seed, transform
        self.sampler = _sampler(dataset, shuffle, sampler, seed)
        self.epoch = self.position = 0
        self._resumed = False
        self._latest: object = None

    def __len__(self) -> int:
        if self.sampler is None:
            raise TypeError("a loader over an IterableDataset has no length")
        whole, rest = divmod(len(self.sampler), self.batch_size)
        return whole if self.drop_last or not rest else whole + 1

    def __iter__(self) -> Iterator[Any]:
        if self.position and not self._resumed:  # the last iteration was left early
            self.epoch, self.position = self.epoch + 1, 0
        self._resumed = False
        self._latest = token = object()
        return self._batches(self.epoch, self.position, token)

    def _batches(self, epoch: int, start: int, token: object) -> Iterator[Any]:
        number = start
        for samples in islice(self._groups(epoch), start, None):
            batch = self._made(samples, Stream(self.seed, epoch, number))
            number += 1
            if self._latest is token:
                self.position = number
            yield batch
        if self._latest is token:
            self.epoch, self.position = epoch + 1, 0

    def _groups(self, epoch: int) -> Iterator[Any]:
        """What each batch is made of: indices, or the samples of a stream."""
        if isinstance(self.dataset, IterableDataset):
            stream = iter(self.dataset)
            while group := list(islice(stream, self.batch_size)):
                if len(group) == self.batch_size or not self.drop_last:
                    yield group
            return
        assert self.sampler is not None
        order = self.sampler.indices(epoch)
        for number in range(len(self)):
            yield order[number * self.batch_size : (number + 1) * self.batch_size]

    def _made(self, samples: Indices | list[Any], stream: Stream) -> Any:
        gather = getattr(self.dataset, "batch", None)
        if isinstance(samples, np.ndarray) and gather is not None and self.collate_fn is None:
            batch = gather(samples)
        else:
            if isinstance(samples, np.ndarray):
                samples = [self.dataset[int(i)] for i in samples]
            if self.collate_fn is not None:
                return self.collate_fn(samples)
            batch = collate_arrays(samples)
        if self.transform is not None:
            batch = _transformed(batch, self.transform, stream)
        return to_tensors(batch)

    def state_dict(self) -> dict[str, int]:
        """Where the loader stands: the epoch, and how many of its batches were handed out."""
        return {"seed": self.seed, "epoch": self.epoch, "position": self.position}

    def load_state_dict(self, state: Mapping[str, int]) -> None:
        """Go on from a saved place; the seed must be the one the place was saved under."""
        if state["seed"] != self.seed:
            raise RidgelineError(
                f"the saved place belongs to seed {state['seed']}, this loader has {self.seed}",
                help="make the loader with the same seed",
            )
        self.epoch, self.position, self._resumed = state["epoch"], state["position"], True


def _sampler(dataset: Any, shuffle: bool, sampler: Sampler | None, seed: int) -> Sampler | None:
    if isinstance(dataset, IterableDataset):
        if shuffle or sampler is not None:
            raise RidgelineError("an IterableDataset has its own order: no shuffle, no sampler")
        return None
    if len(dataset) == 0:
        raise RidgelineError("the dataset is empty", help="a loader needs at least one sample")
    if sampler is None:
        return RandomSampler(dataset, seed=seed) if shuffle else SequentialSampler(dataset)
    if shuffle:
        raise RidgelineError("pass either shuffle=True or a sampler, not both")
    return sampler


def _transformed(batch: Any, transform: Transform, stream: Stream) -> Any:
    if isinstance(batch, tuple):
        return (transform(batch[0], stream), *batch[1:])
    return transform(batch, stream)
