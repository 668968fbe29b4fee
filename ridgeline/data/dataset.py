"""Datasets: what a loader draws samples from.

A map-style `Dataset` has a length and gives the sample at an index; an `IterableDataset` only
gives one sample after the other. Samples are NumPy arrays, tensors, numbers, or tuples and dicts
of them. A dataset that can gather a whole batch at once offers `batch(indices)`; the loader then
does not collate sample by sample.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import accumulate, chain
from typing import Any, Generic, TypeVar

import numpy as np
from numpy.typing import NDArray

from ridgeline.data.randomness import RandomStream
from ridgeline.data.sampler import seed_of
from ridgeline.errors import BadValueError, ShapeError
from ridgeline.record.values import read_array
from ridgeline.tensors.tensor import Tensor

Sample = TypeVar("Sample", covariant=True)


class Dataset(Generic[Sample]):
    """A collection addressed by index."""

    def __getitem__(self, index: int) -> Sample:
        raise NotImplementedError(f"{type(self).__name__} does not define __getitem__")

    def __len__(self) -> int:
        raise NotImplementedError(f"{type(self).__name__} does not define __len__")

    def __add__(self, other: Dataset[Any]) -> ConcatDataset:
        return ConcatDataset([self, other])


class IterableDataset(Generic[Sample]):
    """A stream of samples, without indices."""

    def __iter__(self) -> Iterator[Sample]:
        raise NotImplementedError(f"{type(self).__name__} does not define __iter__")


class TensorDataset(Dataset[tuple[Any, ...]]):
    """Arrays or tensors of equal length; sample i is the tuple of their i-th rows."""

    def __init__(self, *tensors: Any) -> None:
        if not tensors:
            raise BadValueError("TensorDataset needs at least one array or tensor")
        self.tensors = tensors
        self._arrays = tuple(as_array(t) for t in tensors)
        if any(not a.shape for a in self._arrays):
            raise ShapeError("TensorDataset needs arrays with at least one axis, got a scalar")
        if len({len(a) for a in self._arrays}) > 1:
            shapes = ", ".join(str(list(a.shape)) for a in self._arrays)
            raise ShapeError(f"TensorDataset needs arrays of equal length, got shapes {shapes}")

    def __getitem__(self, index: int) -> tuple[Any, ...]:
        return tuple(t[index] for t in self.tensors)

    def __len__(self) -> int:
        return len(self._arrays[0])

    def batch(self, indices: NDArray[np.int64]) -> tuple[Any, ...]:
        """The rows at `indices` of every array."""
        return tuple(a[indices] for a in self._arrays)


class Subset(Dataset[Any]):
    """The samples of another dataset at some indices."""

    def __init__(self, dataset: Dataset[Any], indices: Sequence[int]) -> None:
        self.dataset = dataset
        self.indices = np.asarray(indices, np.int64)

    def __getitem__(self, index: int) -> Any:
        return self.dataset[int(self.indices[index])]

    def __len__(self) -> int:
        return len(self.indices)


class ConcatDataset(Dataset[Any]):
    """Several datasets, one after the other."""

    def __init__(self, datasets: Sequence[Dataset[Any]]) -> None:
        self.datasets = list(datasets)
        if not self.datasets:
            raise BadValueError("ConcatDataset needs at least one dataset")
        self.ends = list(accumulate(len(d) for d in self.datasets))

    def __getitem__(self, index: int) -> Any:
        position = index + len(self) if index < 0 else index
        if not 0 <= position < len(self):
            raise IndexError(f"index {index} is out of range for {len(self)} samples")
        which = int(np.searchsorted(self.ends, position, side="right"))
        start = self.ends[which - 1] if which else 0
        return self.datasets[which][position - start]

    def __len__(self) -> int:
        return self.ends[-1]


class StackDataset(Dataset[Any]):
    """Several datasets side by side: tuples of their samples, or dicts by name."""

    def __init__(self, *args: Dataset[Any], **kwargs: Dataset[Any]) -> None:
        self.datasets: Any = kwargs or args
        self._parts = [*(kwargs.values() or args)]
        if not self._parts or len({len(part) for part in self._parts}) > 1:
            raise BadValueError("StackDataset needs datasets of one length")

    def __getitem__(self, index: int) -> Any:
        found = [part[index] for part in self._parts]
        return dict(zip(self.datasets, found)) if isinstance(self.datasets, dict) else tuple(found)

    def __len__(self) -> int:
        return len(self._parts[0])


class ChainDataset(IterableDataset[Any]):
    """Several streams, one after the other."""

    def __init__(self, datasets: Sequence[IterableDataset[Any]]) -> None:
        self.datasets = datasets

    def __iter__(self) -> Iterator[Any]:
        return chain.from_iterable(self.datasets)


def random_split(
    dataset: Dataset[Any],
    lengths: Sequence[int | float],
    generator: Any = None,
    *,
    seed: int | None = None,
) -> list[Subset]:
    """Disjoint random parts of the given lengths, or fractions that sum to 1."""
    total = len(dataset)
    counts = [int(n) for n in lengths]
    if all(isinstance(n, float) for n in lengths) and abs(sum(lengths) - 1) < 1e-9:
        counts = [int(total * n) for n in lengths]
        for extra in range(total - sum(counts)):  # the remainder goes round, as in torch
            counts[extra % len(counts)] += 1
    if sum(counts) != total:
        raise BadValueError(f"the parts {list(lengths)} do not add up to {total} samples")
    order = RandomStream(seed_of(generator, seed)).permutation(total)
    ends = list(accumulate(counts))
    return [Subset(dataset, order[end - n : end].tolist()) for n, end in zip(counts, ends)]


def as_array(value: Any) -> NDArray[Any]:
    """A NumPy array with the value's elements; a tensor's are copied."""
    if isinstance(value, Tensor):
        # `numpy()` would share the memory, which makes every later write to the tensor dearer
        return np.array(read_array(value.detach(), "as_array"))
    return np.asarray(value)
