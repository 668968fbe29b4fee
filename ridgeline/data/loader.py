"""DataLoader: batches of tensors in a seeded order, from any point of any epoch.

The batches of an epoch are a function of (seed, epoch) and what is random in a batch of (seed,
epoch, batch): a loader whose state was saved after some batch goes on with the next one, and
gives exactly what it would have given without the interruption, with any number of workers.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from itertools import islice
from typing import Any

from ridgeline.data.collate import default_collate as default_collate, to_tensors
from ridgeline.data.dataset import IterableDataset
from ridgeline.data.making import BatchMaker, Group, OwnRows, SharedGroup
from ridgeline.data.pool import WorkerPool
from ridgeline.data.sampler import (
    BatchSampler,
    RandomSampler,
    SequentialSampler,
    batches_of,
    parts_of,
    seed_of,
)
from ridgeline.data.transforms import Transform
from ridgeline.errors import BadValueError

MOST_PREFETCHED = 64  # per worker; the tasks in flight must fit into a socket


class DataLoader:
    """Iterating gives one epoch of batches; each iteration is the next epoch.

    A dataset is an IterableDataset, or anything with a length and samples by index. With
    `batch_size=None` every sample is a batch by itself. `transform(images, stream)` is applied to
    the first array of every batch. `num_workers` processes make batches ahead of time,
    `prefetch_factor` each; every worker iterates its own copy of an IterableDataset, as in torch
    (see `get_worker_info`). `epoch` and `position` say where the loader stands; `state_dict()`
    holds both. What is random follows `seed`, else the seed of `generator`, else that of
    `manual_seed`. With a `mesh` of ranks, batches are those of the whole mesh, and each rank makes
    its share of their samples; all of them where samples draw random numbers, or a `transform` or
    `collate_fn` makes something of the whole. `pin_memory` and its device change nothing: copies
    are pinned by themselves.
    """

    def __init__(
        self,
        dataset: Any,
        batch_size: int | None = 1,
        shuffle: bool | None = None,
        sampler: Iterable[int] | None = None,
        batch_sampler: BatchSampler | Iterable[Sequence[int]] | None = None,
        num_workers: int = 0,
        collate_fn: Callable[[Any], Any] | None = None,
        pin_memory: bool = False,
        drop_last: bool = False,
        timeout: float = 0.0,
        worker_init_fn: Callable[[int], None] | None = None,
        multiprocessing_context: str | None = None,
        generator: Any = None,
        *,
        prefetch_factor: int | None = None,
        persistent_workers: bool = False,
        pin_memory_device: str = "",
        in_order: bool = True,
        seed: int | None = None,
        transform: Transform | None = None,
        mesh: Any = None,
    ) -> None:
        prefetch_factor = 2 if prefetch_factor is None else prefetch_factor
        self.pin_memory, self.generator = pin_memory, generator
        seed = seed_of(generator, seed)
        _check_count("num_workers", num_workers, 0)
        _check_count("prefetch_factor", prefetch_factor, 1, MOST_PREFETCHED)
        if not timeout >= 0:
            raise BadValueError(f"timeout must be at least 0 seconds, not {timeout!r}")
        if multiprocessing_context not in (None, "forkserver", "spawn"):
            raise BadValueError(
                f"workers cannot be started by {multiprocessing_context!r}",
                help="forkserver or spawn; fork would copy the threads of this process",
            )
        self.dataset, self.batch_size, self.drop_last = dataset, batch_size, drop_last
        self.collate_fn, self.seed, self.transform = collate_fn, seed, transform
        self.num_workers, self.prefetch_factor = num_workers, prefetch_factor
        self.persistent_workers, self.timeout = persistent_workers, timeout
        self.worker_init_fn, self.multiprocessing_context = worker_init_fn, multiprocessing_context
        self.sampler = _sampler(dataset, bool(shuffle), sampler, batch_sampler, seed)
        self.batch_sampler: Any = batch_sampler
        if batch_sampler is not None and (batch_size not in (1, None) or drop_last):
            raise BadValueError("a batch_sampler decides batch_size and drop_last itself")
        if batch_sampler is None and batch_size is not None:
            self.batch_sampler = BatchSampler(self.sampler or (), batch_size, drop_last)
        self.epoch = self.position = 0
        self.mesh = mesh
        self._resumed = False
        self._latest: object = None
        self._pool: WorkerPool | None = None
        self._turns = self._tickets = 0

    def __len__(self) -> int:
        if isinstance(self.dataset, IterableDataset):
            raise TypeError("a loader over an IterableDataset has no length")
        counted = self.sampler if self.batch_sampler is None else self.batch_sampler
        return len(counted)

    def __iter__(self) -> Iterator[Any]:
        if self.position and not self._resumed:  # the last iteration was left early
            self.epoch, self.position = self.epoch + 1, 0
        self._resumed = False
        self._latest = token = object()
        return self._batches(self.epoch, self.position, token)

    def _batches(self, epoch: int, start: int, token: object) -> Iterator[Any]:
        number = start
        made = self._made_by_workers if self.num_workers else self._made_here
        batches = made(epoch, start)
        try:
            for batch in batches:
                number += 1
                if self._latest is token:
                    self.epoch, self.position = epoch, number
                if isinstance(batch, OwnRows):
                    yield self.mesh.with_rows(batch.batch, batch.rows)
                    continue
                shown = batch if self.collate_fn is not None else to_tensors(batch)
                yield shown if self.mesh is None else self.mesh.share_of(shown)
        finally:
            batches.close()
        if self._latest is token:
            self.epoch, self.position = epoch + 1, 0

    def _groups(self, epoch: int, start: int) -> Iterator[Group]:
        """What each batch of an epoch is made of, from one on: its indices."""
        if self.batch_sampler is None:
            parts = parts_of(self.sampler, epoch, 1)
            return islice((index for part in parts for index in part.tolist()), start, None)
        groups = islice(batches_of(self.batch_sampler, epoch), start, None)
        if self.mesh is None:
            return groups
        mesh = self.mesh
        return (SharedGroup(group, mesh.own_places(len(group))) for group in groups)

    def _maker(self) -> BatchMaker:
        return BatchMaker(
            self.dataset, self.batch_size, self.drop_last, self.collate_fn, self.transform,
            self.seed,
        )  # fmt: skip

    def _made_here(self, epoch: int, start: int) -> Any:
        maker = self._maker()
        if isinstance(self.dataset, IterableDataset):
            groups: Iterable[Group] = islice(maker.stream_groups(), start, None)
        else:
            groups = self._groups(epoch, start)
        for number, group in enumerate(groups, start):
            yield maker.make(group, epoch, number)

    def _made_by_workers(self, epoch: int, start: int) -> Any:
        pool, self._pool = self._pool, None  # a second iteration meanwhile has its own workers
        if pool is None:
            pool = WorkerPool(
                self._maker(), self.num_workers, self.worker_init_fn,
                self.multiprocessing_context, self.timeout,
            )  # fmt: skip
        healthy = False
        try:
            if isinstance(self.dataset, IterableDataset):
                yield from islice(self._stream_batches(pool, epoch), start, None)
            else:
                yield from self._index_batches(pool, epoch, start)
            healthy = True
        except GeneratorExit:  # left early: what is under way will be ignored
            healthy = True
            raise
        finally:
            if healthy and self.persistent_workers and self._pool is None:
                self._pool = pool
            else:
                pool.close()

    def _index_batches(self, pool: WorkerPool, epoch: int, start: int) -> Iterator[Any]:
        """Batch after batch, each made by the worker whose turn it is."""
        ahead = self.prefetch_factor * self.num_workers
        waiting: deque[tuple[int, int]] = deque()  # who makes a batch, and under which ticket
        for number, group in enumerate(self._groups(epoch, start), start):
            self._tickets += 1
            waiting.append((number % self.num_workers, self._tickets))
            pool.ask(*waiting[-1], (epoch, number, group, 0))
            if len(waiting) > ahead:
                yield pool.answer(*waiting.popleft())[1]
        while waiting:
            yield pool.answer(*waiting.popleft())[1]

    def _stream_batches(self, pool: WorkerPool, epoch: int) -> Iterator[Any]:
        """Round and round the workers, each with its own pass over the stream, until all end."""
        self._turns += 1
        waiting: dict[int, list[int]] = {number: [] for number in range(self.num_workers)}
        position = dict.fromkeys(waiting, 0)

        def ask(number: int) -> None:
            self._tickets += 1
            waiting[number].append(self._tickets)
            key = position[number] * self.num_workers + number  # what its randomness depends on
            position[number] += 1
            pool.ask(number, self._tickets, (epoch, key, None, self._turns))

        for _ in range(self.prefetch_factor):
            for number in waiting:
                ask(number)
        while waiting:
            for number in list(waiting):
                found, batch = pool.answer(number, waiting[number].pop(0))
                if not found:
                    del waiting[number]
                    continue
                ask(number)
                yield batch

    def close(self) -> None:
        """End persistent workers; without a call they end with the loader."""
        if self._pool is not None:
            self._pool.close()
            self._pool = None

    def state_dict(self) -> dict[str, int]:
        """Where the loader stands: the epoch, and how many of its batches were handed out."""
        return {"seed": self.seed, "epoch": self.epoch, "position": self.position}

    def load_state_dict(self, state: Mapping[str, int]) -> None:
        """Go on from a saved place; the seed must be the one the place was saved under."""
        if state["seed"] != self.seed:
            raise BadValueError(
                f"the saved place belongs to seed {state['seed']}, this loader has {self.seed}",
                help="make the loader with the same seed",
            )
        self.epoch, self.position, self._resumed = state["epoch"], state["position"], True


def _check_count(name: str, value: Any, least: int, most: int | None = None) -> None:
    wrong = not isinstance(value, int) or isinstance(value, bool) or value < least
    if wrong or (most is not None and value > most):
        until = f" and at most {most}" if most is not None else ""
        raise BadValueError(
            f"{name} must be a whole number of at least {least}{until}, not {value!r}"
        )


def _sampler(dataset: Any, shuffle: bool, sampler: Any, batch_sampler: Any, seed: int) -> Any:
    if isinstance(dataset, IterableDataset):
        if shuffle or sampler is not None or batch_sampler is not None:
            raise BadValueError("an IterableDataset has its own order: no shuffle, no sampler")
        return None
    if len(dataset) == 0:
        raise BadValueError("the dataset is empty", help="a loader needs at least one sample")
    if shuffle + (sampler is not None) + (batch_sampler is not None) > 1:
        raise BadValueError("pass either shuffle=True, a sampler or a batch_sampler, not both")
    if sampler is None and batch_sampler is None:
        return RandomSampler(dataset, seed=seed) if shuffle else SequentialSampler(dataset)
    return sampler
