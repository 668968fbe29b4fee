"""Communicators of simulated ranks against NumPy, and what happens where ranks disagree."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Any

import ml_dtypes
import numpy as np
import pytest

import ridgeline as rl
from ridgeline import distributed as dist
from ridgeline.communicators.reducing import starts

SIZES = (1, 2, 3, 4, 7)


def given(rank: int, shape: tuple[int, ...] = (7, 3), dtype: Any = np.float64) -> np.ndarray:
    return np.random.default_rng(rank).integers(-9, 9, shape).astype(dtype)


@pytest.mark.parametrize("size", SIZES)
@pytest.mark.parametrize("dtype", [np.float64, np.float32, ml_dtypes.bfloat16, np.int16])
@pytest.mark.parametrize("reduction", ["sum", "min", "max", "product"])
def test_all_reduce(size: int, dtype: Any, reduction: str) -> None:
    def work() -> np.ndarray:
        world = dist.world()
        return world.all_reduce(given(world.rank, (5,), dtype), reduction)

    got = dist.run(work, ranks=size)
    step = {"sum": np.sum, "min": np.min, "max": np.max, "product": np.prod}[reduction]
    wide = np.stack([given(rank, (5,), dtype).astype(np.float64) for rank in range(size)])
    with np.errstate(over="ignore"):
        want = step(wide, axis=0).astype(np.int64 if dtype is np.int16 else dtype).astype(dtype)
    for each in got:
        assert each.dtype == dtype
        np.testing.assert_array_equal(each, want)


@pytest.mark.parametrize("size", SIZES)
def test_rows_go_where_they_belong(size: int) -> None:
    counts = [rank % 3 for rank in range(size)]
    everything = [given(rank) for rank in range(size)]

    def work() -> Any:
        world = dist.world()
        rank, mine = world.rank, given(world.rank)
        gathered = world.all_gather(mine[: counts[rank]], counts)
        scattered = world.reduce_scatter(mine)
        copied = world.broadcast(mine, size - 1)
        exchanged = world.all_to_all(np.full((size, 2), rank), (1,) * size, (1,) * size)
        return gathered, scattered, copied, exchanged

    total = sum(everything)
    places = starts([7 // size + (rank < 7 % size) for rank in range(size)])
    for rank, (gathered, scattered, copied, exchanged) in enumerate(dist.run(work, ranks=size)):
        want = np.concatenate([each[:n] for each, n in zip(everything, counts, strict=True)])
        np.testing.assert_array_equal(gathered, want)
        np.testing.assert_array_equal(scattered, total[places[rank] : places[rank + 1]])
        np.testing.assert_array_equal(copied, everything[-1])
        np.testing.assert_array_equal(exchanged[:, 0], np.arange(size))


def test_order_of_a_sum_is_that_of_the_ranks() -> None:
    values = [1e16, 1.0, -1e16, 1.0]
    want = ((values[0] + values[1]) + values[2]) + values[3]
    for _ in range(5):
        got = dist.run(
            lambda: dist.world().all_reduce(np.array(values[dist.world().rank])), ranks=4
        )
        assert got == [want] * 4


def test_groups_are_split_by_colour_and_ordered_by_key() -> None:
    def work() -> tuple[int, ...]:
        world = dist.world()
        group = world.split(world.rank % 2, -world.rank, "tp")
        inner = group.split(0, axis="inner")
        total = inner.all_reduce(np.array(world.rank))
        return group.rank, group.size, inner.rank, int(total), world.counters.bytes("inner")

    assert dist.run(work, ranks=5) == [
        (2, 3, 2, 6, 8), (1, 2, 1, 4, 8), (1, 3, 1, 6, 8), (0, 2, 0, 4, 8), (0, 3, 0, 6, 8),
    ]  # fmt: skip


def test_messages_come_in_order_and_by_tag() -> None:
    def work() -> list[float]:
        world = dist.world()
        right, left = (world.rank + 1) % world.size, (world.rank - 1) % world.size
        for tag in (0, 1):
            for step in range(3):
                world.send(np.array([world.rank + 10.0 * step + 100 * tag]), right, tag)
        return [world.recv(np.empty(1), left, tag).wait()[0] for tag in (1, 0) for _ in range(3)]

    assert dist.run(work, ranks=3)[1] == [100, 110, 120, 0, 10, 20]


def test_a_started_call_waits_for_the_others() -> None:
    def work() -> float:
        world = dist.world()
        out = np.empty(3)
        call = dist.Call("all_reduce", (3,), "float64", "sum")
        handle = world.start(call, np.ones(3), out)
        world.barrier()
        assert handle.done() and handle.wait() is out
        return float(out.sum())

    assert dist.run(work, ranks=3) == [9.0] * 3


def _different() -> None:
    world = dist.world()
    world.all_gather(np.zeros(3)) if world.rank == 1 else world.all_reduce(np.zeros(3))


def _other_shape() -> None:
    dist.world().all_reduce(np.zeros(3 + dist.world().rank))


def _alone() -> None:
    if dist.world().rank == 0:
        dist.world().barrier()


def _circle() -> None:
    world = dist.world()
    world.recv(np.zeros(3), (world.rank + 1) % world.size).wait()


def _wrong_rows() -> None:
    world = dist.world()
    world.all_to_all(np.zeros(world.size + world.rank), (1,) * (world.size - 1) + (1 + world.rank,))


@pytest.mark.parametrize(
    "work, words",
    [
        (_different, r"rank \d (all_gather|all_reduce)\(float64\[3\].* at .*test_threads.py:\d+"),
        (_other_shape, r"different collectives.*float64\[[345]\]"),
        (_alone, r"rank 0 waits in barrier\(\) along world at .*: it has returned"),
        (_circle, r"no rank can go on: rank 0 waits in recv\(float64\[3\], from=1\)"),
        (_wrong_rows, r"rank \d gives rank \d \d rows"),
    ],
)
def test_ranks_that_disagree_end_with_a_message(work: Callable[[], None], words: str) -> None:
    with pytest.raises(dist.CommunicationError, match=words):
        dist.run(work, ranks=3)


def test_what_a_rank_raises_is_raised() -> None:
    def work() -> None:
        if dist.world().rank == 2:
            raise KeyError("mine")
        dist.world().barrier()

    with pytest.raises(KeyError, match="mine") as caught:
        dist.run(work, ranks=3)
    assert "on simulated rank 2 of 3" in caught.value.__notes__
    assert threading.active_count() < 50


def test_random_state_and_modes_belong_to_a_rank() -> None:
    def work() -> tuple[list[float], bool]:
        rank = dist.world().rank
        first = rl.rand(1)
        if rank == 1:
            rl.manual_seed(5)
            rl.set_grad_enabled(False)
        dist.world().barrier()
        x = rl.ones(1, requires_grad=True)
        return [first.item(), rl.rand(1).item()], (x * 2).requires_grad

    rl.manual_seed(3)
    want = [rl.rand(1).item(), rl.rand(1).item()]
    rl.manual_seed(3)
    (zero, zero_grad), (one, one_grad), (two, two_grad) = dist.run(work, ranks=3)
    assert zero == two == want and one[0] == want[0] and one[1] != want[1]
    assert zero_grad and two_grad and not one_grad
    assert rl.rand(1).item() == want[0]  # the caller's stream has not moved


@pytest.mark.parametrize("ranks", [0, -1, True, 2.0])
def test_run_needs_ranks(ranks: Any) -> None:
    with pytest.raises(rl.RidgelineError, match="at least one rank"):
        dist.run(print, ranks=ranks)


def test_messages_go_to_receives_in_the_order_in_which_those_were_started() -> None:
    def work() -> list[float]:
        world = dist.world()
        other = 1 - world.rank
        took = [world.recv(np.empty(1), other) for _ in range(3)]
        for number in range(3):
            world.send(np.array([float(number)]), other)
        found = {n: float(took[n].wait()[0]) for n in (2, 0, 1)}
        return [found[n] for n in range(3)]

    assert dist.run(work, ranks=2) == [[0.0, 1.0, 2.0]] * 2
