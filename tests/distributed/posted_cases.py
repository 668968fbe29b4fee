"""What ranks under MPI do in collectives of compiled programs; one case a start, by name."""

from __future__ import annotations

import signal
import sys
import threading
import time
from typing import Any

import ml_dtypes
import numpy as np
import pytest

import ridgeline as rl
from ridgeline import distributed as dist
from ridgeline.communicators.calls import CommunicationError
from ridgeline.distributed import functional

LARGE = 1 << 15  # elements from which on a sum goes in two calls, whatever their type


def total(shape: tuple[int, ...], dtype: Any = np.float64, reduction: str = "sum") -> np.ndarray:
    """What all ranks give, joined in float64."""
    given = np.stack([values(rank, shape, dtype) for rank in range(size())]).real.astype(float)
    joined = {"sum": np.sum, "mean": np.mean, "max": np.max, "min": np.min}[reduction](given, 0)
    return np.asarray(joined)


def values(rank: int, shape: tuple[int, ...], dtype: Any = np.float64) -> np.ndarray:
    """Small whole numbers, of which every sum is exact."""
    return np.random.default_rng(rank).integers(-4, 5, shape).astype(dtype)


def size() -> int:
    return dist.world().size


@rl.jit
def means(x: Any, scale: Any) -> Any:
    """Three collectives, one of them large, with work between."""
    first = functional.all_reduce(x * scale, "mean")
    gathered = functional.all_gather(x[:2])
    return functional.all_reduce((first * 2).sum()) + gathered.sum(), first


def check_means(scale: float) -> None:
    world = dist.world()
    shape = (LARGE // 4, 5)
    x = rl.tensor(values(world.rank, shape))
    found, first = means(x, scale)
    mean = total(shape, reduction="mean") * scale
    rows = sum(values(rank, shape)[:2].sum() for rank in range(world.size))
    np.testing.assert_allclose(first.numpy(), mean, rtol=1e-12, atol=1e-12)
    np.testing.assert_allclose(found.item(), (mean * 2).sum() * world.size + rows, rtol=1e-9)


def large_sums() -> None:
    """Many at once, over two groups, of every type, in lengths that ranks do not divide."""
    world = dist.world()
    half = world.split(0, -world.rank, "other")
    for dtype in (np.float64, np.float32, np.float16, ml_dtypes.bfloat16, np.int32, np.complex64):
        for reduction in ("sum", "mean", "max", "min"):
            if np.dtype(dtype).kind in "ic" and reduction != "sum":
                continue
            shapes = [(LARGE,), (LARGE + 1,), (7, LARGE // 7 + 3), (LARGE * 2 + 5, 1)]
            groups = [world, half, world, half]
            started = [
                group.start(
                    dist.Call("all_reduce", shape, np.dtype(dtype).name, reduction),
                    values(world.rank, shape, dtype),
                    np.empty(shape, dtype) if number % 2 else None,
                )
                for number, (group, shape) in enumerate(zip(groups, shapes, strict=True))
            ]
            for work, shape in zip(reversed(started), reversed(shapes), strict=True):
                found = work.wait()
                want = total(shape, dtype, reduction)
                exact = np.finfo(np.float16).eps if np.dtype(dtype).itemsize == 2 else 1e-6
                np.testing.assert_allclose(found.astype(complex), want, rtol=8 * exact, atol=0)
    mine = values(world.rank, (LARGE,))
    assert world.all_reduce(mine, out=mine) is mine  # over what was given
    np.testing.assert_array_equal(mine, total((LARGE,)))


def programs() -> None:
    """Steps of compiled programs, with numbers that change."""
    for step in range(6):
        check_means(step + 0.5)


def messages_before_sums() -> None:
    """Messages that are long in coming hold up no sum that is started after them."""
    world = dist.world()
    boxes = [np.empty(3) for _ in range(6)]
    if world.rank == 0:
        waiting = [world.recv(box, 1, tag) for tag, box in enumerate(boxes)]
    found = world.all_reduce(values(world.rank, (LARGE,)))
    np.testing.assert_array_equal(found, total((LARGE,)))
    if world.rank == 1:
        for tag in range(6):
            world.send(np.full(3, float(tag)), 0, tag).wait()
    if world.rank == 0:
        assert [work.wait()[0] for work in waiting] == list(range(6))


def splits_between() -> None:
    """A group is made while sums are under way, for which some ranks wait before they come."""
    world = dist.world()
    call = dist.Call("all_reduce", (LARGE,), "float64", "sum")
    work = world.start(call, values(world.rank, (LARGE,)))
    if world.rank:
        work.wait()
    other = world.split(0, world.rank)
    np.testing.assert_array_equal(work.wait(), total((LARGE,)))
    assert other.all_reduce(np.ones(1))[0] == world.size


def differ() -> None:
    """Ranks run programs with other collectives: all of them hear it, and go on."""
    rank = dist.world().rank

    @rl.jit
    def step(x: Any) -> Any:
        y = functional.all_reduce(x) * 2
        return functional.all_reduce(y[: 3 + rank], "max").sum() + functional.all_reduce(x).sum()

    check_means(1.0)
    for _ in range(2):
        with pytest.raises(CommunicationError, match="run programs with different") as raised:
            step(rl.ones(LARGE)).item()
        assert "float32[3], max" in str(raised.value) and "float32[4], max" in str(raised.value)
        assert "(number 2 of 3)" in str(raised.value)
        check_means(2.0)


def together() -> None:
    """Two threads of each rank run programs at the same time, each over a group of its own."""
    world = dist.world()
    failed: list[BaseException] = []

    def run(group: Any) -> None:
        @rl.jit
        def step(x: Any) -> Any:
            y = functional.all_reduce(x, group=group)
            return functional.all_reduce(y.sum(), "mean", group=group)

        try:
            for number in range(20):
                x = rl.tensor(values(world.rank, (LARGE,)) + number)
                want = (total((LARGE,)) + number * world.size).sum()
                assert step(x).item() == want
        except BaseException as error:
            failed.append(error)

    threads = [threading.Thread(target=run, args=(world.split(0, 0, name),)) for name in "ab"]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not failed, failed


def interrupted() -> None:
    """A rank that is interrupted in the middle of its collectives cannot call others."""
    world = dist.world()
    check_means(1.0)
    if world.rank == 0:
        main = threading.main_thread().ident
        assert main is not None
        threading.Timer(1.0, signal.pthread_kill, (main, signal.SIGINT)).start()
        with pytest.raises(KeyboardInterrupt):
            means(rl.tensor(values(0, (LARGE // 4, 5))), 1.0)
    else:
        time.sleep(600)
    world.all_reduce(np.ones(3))


def silent() -> None:
    """A rank does not come to the collective of a program."""
    check_means(1.0)
    if dist.world().rank == 1:
        time.sleep(600)
    check_means(2.0)


if __name__ == "__main__":
    with rl.config.override(tier="compiled"):
        for name in sys.argv[1:]:
            globals()[name]()
            if dist.world().rank == 0:
                print("done:", name, flush=True)
