"""Loaders: what they give, that the order follows the seed, and that they resume anywhere."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import cycle, islice
from typing import Any

import numpy as np
import pytest

from ridgeline.data import (
    ConcatDataset,
    DataLoader,
    Dataset,
    IterableDataset,
    RandomSampler,
    Subset,
    TensorDataset,
    WeightedRandomSampler,
    random_split,
)
from ridgeline.data.dataset import as_array
from ridgeline.data.transforms import RandomAffine
from ridgeline.errors import RidgelineError, ShapeError

ROWS = np.arange(20, dtype=np.float32).reshape(10, 2)
PAIRS = TensorDataset(ROWS, np.arange(10))


class Squares(Dataset[dict[str, Any]]):
    """Dicts of numbers, text and arrays."""

    def __len__(self) -> int:
        return 5

    def __getitem__(self, index: int) -> dict[str, Any]:
        return {"n": index, "half": index / 2, "name": str(index), "pair": np.full(2, index)}


class Naturals(IterableDataset[int]):
    def __iter__(self) -> Iterator[int]:
        return iter(range(7))


def labels(loader: DataLoader) -> list[list[int]]:
    return [as_array(batch[1]).tolist() for batch in loader]


def test_batches_in_order() -> None:
    batches = list(DataLoader(PAIRS, 4))
    assert [tuple(x.shape) for x, _ in batches] == [(4, 2), (4, 2), (2, 2)]
    assert as_array(batches[1][0]).tolist() == ROWS[4:8].tolist()
    assert len(DataLoader(PAIRS, 4)) == 3 and len(DataLoader(PAIRS, 4, drop_last=True)) == 2


def test_shuffling_follows_seed_and_epoch() -> None:
    one, two = DataLoader(PAIRS, 3, shuffle=True, seed=5), DataLoader(PAIRS, 3, True, seed=5)
    first = labels(one)
    assert first == labels(two)
    second = labels(one)
    assert second != first and sorted(n for batch in second for n in batch) == list(range(10))
    assert labels(DataLoader(PAIRS, 3, shuffle=True, seed=6)) != first


def test_resumes_after_any_batch() -> None:
    def loader() -> DataLoader:
        images = np.random.default_rng(0).random((10, 1, 6, 6)).astype(np.float32)
        data = TensorDataset(images, np.arange(10))
        return DataLoader(data, 3, shuffle=True, seed=1, transform=RandomAffine(20, 1))

    whole = loader()
    wanted = [[as_array(part).tolist() for part in batch] for _ in range(3) for batch in whole]
    for stop in range(len(wanted) + 1):
        first, got = loader(), []
        while len(got) < stop:
            for batch in first:
                got.append([as_array(part).tolist() for part in batch])
                if len(got) == stop:
                    break
        second = loader()
        second.load_state_dict(first.state_dict())
        while second.epoch < 3:
            got += [[as_array(part).tolist() for part in batch] for batch in second]
        assert got == wanted, stop


def test_an_iteration_left_early_is_followed_by_the_next_epoch() -> None:
    loader = DataLoader(PAIRS, 3, shuffle=True, seed=2)
    next(iter(loader))
    second = labels(loader)
    other = DataLoader(PAIRS, 3, shuffle=True, seed=2)
    labels(other)
    assert second == labels(other)


def test_state_of_another_seed_is_refused() -> None:
    with pytest.raises(RidgelineError, match="seed 1"):
        DataLoader(PAIRS, 3, seed=2).load_state_dict({"seed": 1, "epoch": 0, "position": 0})


def test_collates_structures() -> None:
    batch = next(iter(DataLoader(Squares(), 3)))
    assert as_array(batch["n"]).tolist() == [0, 1, 2] and batch["name"] == ["0", "1", "2"]
    assert as_array(batch["half"]).dtype == np.float64 and tuple(batch["pair"].shape) == (3, 2)
    summed = DataLoader(Squares(), 5, collate_fn=lambda samples: sum(s["n"] for s in samples))
    assert list(summed) == [10]


def test_iterable_datasets() -> None:
    loader = DataLoader(Naturals(), 3)
    assert [as_array(b).tolist() for b in loader] == [[0, 1, 2], [3, 4, 5], [6]]
    loader = DataLoader(Naturals(), 3, drop_last=True)
    assert [as_array(b).tolist() for b in loader] == [[0, 1, 2], [3, 4, 5]]
    with pytest.raises(RidgelineError, match="its own order"):
        DataLoader(Naturals(), 3, shuffle=True)
    with pytest.raises(TypeError, match="no length"):
        len(loader)


def test_subsets_and_sums_of_datasets() -> None:
    both = PAIRS + Subset(PAIRS, [3, 1])
    assert isinstance(both, ConcatDataset) and len(both) == 12
    assert both[10][1] == 3 and both[-1][1] == 1
    with pytest.raises(IndexError):
        both[12]
    parts = random_split(PAIRS, [0.7, 0.3], seed=4)
    assert [len(p) for p in parts] == [7, 3]
    assert sorted(int(s[1]) for p in parts for s in p) == list(range(10))  # type: ignore[attr-defined]
    with pytest.raises(RidgelineError, match="do not add up"):
        random_split(PAIRS, [3, 3])


def test_samplers() -> None:
    drawn = RandomSampler(PAIRS, replacement=True, num_samples=100, seed=0).indices(0)
    assert len(drawn) == 100 and set(drawn) <= set(range(10))
    weighted = WeightedRandomSampler([0, 1, 3], 2000).indices(0)
    counts = np.bincount(weighted, minlength=3)
    assert counts[0] == 0 and 0.7 < counts[2] / 2000 < 0.8
    with pytest.raises(RidgelineError, match="different samples"):
        RandomSampler(PAIRS, num_samples=11)


def test_mistakes_are_named() -> None:
    with pytest.raises(RidgelineError, match="empty"):
        DataLoader(TensorDataset(np.empty((0, 2))), 2)
    with pytest.raises(RidgelineError, match="batch_size"):
        DataLoader(PAIRS, 0)
    with pytest.raises(ShapeError, match="equal length"):
        TensorDataset(ROWS, np.arange(3))
    with pytest.raises(RidgelineError, match="not both"):
        DataLoader(PAIRS, 2, shuffle=True, sampler=RandomSampler(PAIRS))
    ragged = [np.zeros(2), np.zeros(3)]
    with pytest.raises(ShapeError, match="different shapes"):
        list(DataLoader(ragged, 2))  # type: ignore[arg-type]


def test_orders_that_are_too_long_to_be_held_are_drawn_as_they_are_needed() -> None:
    many = RandomSampler(PAIRS, replacement=True, num_samples=10**12, seed=3)
    few = RandomSampler(PAIRS, replacement=True, num_samples=70_000, seed=3)
    first = next(iter(DataLoader(PAIRS, batch_size=4, sampler=many)))
    again = next(iter(DataLoader(PAIRS, batch_size=4, sampler=few)))
    assert [a.tolist() for a in first] == [a.tolist() for a in again]
    assert list(islice(many, 70_000)) == few.indices(0).tolist()
    assert len(DataLoader(PAIRS, batch_size=4, sampler=many)) == 10**12 // 4


@pytest.mark.parametrize("workers", [0, 1])
def test_a_sampler_may_go_on_for_ever(workers: int) -> None:
    class Endless:
        def __iter__(self) -> Any:
            return cycle(range(len(PAIRS)))

    class Backwards(RandomSampler):
        def __iter__(self) -> Any:
            return iter(range(len(PAIRS) - 1, -1, -1))

    loader = DataLoader(PAIRS, batch_size=3, sampler=Endless(), num_workers=workers)
    taken = list(islice(loader, len(PAIRS)))
    assert len(taken) == len(PAIRS) and all(len(batch[0]) == 3 for batch in taken)
    turned = [batch[0] for batch in DataLoader(PAIRS, batch_size=1, sampler=Backwards(PAIRS))]
    straight = [batch[0] for batch in DataLoader(PAIRS, batch_size=1)]
    assert [t.tolist() for t in turned] == [s.tolist() for s in reversed(straight)]
