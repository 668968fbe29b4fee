"""What ranks under MPI are asked to do, many cases in one start; the ranks of threads agree."""

from __future__ import annotations

from typing import Any

import ml_dtypes
import numpy as np

import ridgeline as rl
from ridgeline import distributed as dist
from ridgeline.distributed import functional


def given(rank: int, shape: tuple[int, ...] = (7, 3), dtype: Any = np.float64) -> np.ndarray:
    return np.random.default_rng(rank).integers(-9, 9, shape).astype(dtype)


def arrays(in_order: bool = False) -> list[np.ndarray]:
    """Every call of a communicator, over several types and groups.

    With `in_order` messages are received in the order in which they were sent.
    """
    world = dist.world()
    rank, size = world.rank, world.size
    half = world.split(rank % 2, -rank, "half")
    found: list[np.ndarray] = []
    for dtype in (np.float64, np.float32, ml_dtypes.bfloat16, np.int16, np.complex64):
        mine = given(rank, dtype=dtype)
        found += [world.all_reduce(mine), world.all_reduce(mine, "mean"), half.all_reduce(mine)]
        if np.dtype(dtype).kind != "c":
            found += [world.all_reduce(mine, "max"), world.all_reduce(mine, "min")]
        counts = [index % 3 for index in range(size)]
        found += [world.all_gather(mine[: counts[rank]], counts), world.reduce_scatter(mine)]
        found += [world.broadcast(mine, size - 1), half.all_gather(mine)]
        parts = [rank + 1] * size
        given_rows = np.repeat(mine[:1], sum(parts), 0)
        found.append(world.all_to_all(given_rows, parts, [index + 1 for index in range(size)]))
        right, left = (rank + 1) % size, (rank - 1) % size
        sent = [world.send(mine + step, right, tag) for step in range(2) for tag in (3, 4)]
        tags = (3, 4, 3, 4) if in_order else (4, 4, 3, 3)
        took = [world.recv(np.empty_like(mine), left, tag) for tag in tags]
        found += [each.wait() for each in took]
        for each in sent:
            each.wait()
    started = [
        world.start(dist.Call("all_reduce", (4,), "float64", "sum"), np.full(4, rank + i * 0.5))
        for i in range(20)
    ]
    found += [each.wait() for each in reversed(started)]
    world.barrier()
    return found


def training() -> list[np.ndarray]:
    """Losses and weights of ranks that average their gradients; undecorated and jitted."""
    world = dist.world()
    found: list[np.ndarray] = []
    for jitted in (False, True):
        rl.manual_seed(1)
        model = rl.nn.Sequential(rl.nn.Linear(4, 8), rl.nn.Tanh(), rl.nn.Linear(8, 1)).double()
        optimizer = rl.optim.AdamW(model.parameters(), lr=0.1)

        def step(x: Any, model: Any = model, optimizer: Any = optimizer) -> Any:
            loss = functional.all_reduce(model(x).square().mean(), "mean")
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            return loss

        run = rl.jit(step) if jitted else step
        for index in range(4):
            x = rl.tensor(np.random.default_rng(index * 10 + world.rank).normal(size=(5, 4)))
            loss = run(x)
            if world.rank == 0:
                loss.item()  # a read on one rank alone
            found.append(loss.detach().numpy())
        found += [each.detach().numpy() for each in model.parameters()]
    return found


def counted() -> list[tuple[str, str, int, int]]:
    """What was sent."""
    traffic = dist.world().counters.traffic
    return [(*key, entry.calls, entry.bytes) for key, entry in sorted(traffic.items())]


def everything() -> tuple[list[np.ndarray], list[np.ndarray], list[tuple[str, str, int, int]]]:
    return arrays(), training(), counted()


if __name__ == "__main__":
    import pickle
    import sys
    from pathlib import Path

    Path(sys.argv[1], f"{dist.world().rank}.pickle").write_bytes(pickle.dumps(everything()))
