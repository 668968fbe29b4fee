"""Collectives of tensors: values and derivatives against NumPy, in every way to run."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import ridgeline as rl
from ridgeline import distributed as dist
from ridgeline.config import config
from ridgeline.distributed import functional

SIZE, ROWS = 3, 6
WHOLE = np.random.default_rng(0).normal(size=(SIZE, ROWS, 4))
COUNTS = (1, 3, 2)
WAYS = ("undecorated", "eager", "jitted", "interpreted")
Step = Callable[[Any], Any]


def parts(a: np.ndarray, axis: int = 0) -> list[np.ndarray]:
    return np.split(a, SIZE, axis)


# what each rank gets of what all ranks give: the function, and the same in NumPy
CASES: dict[str, tuple[Step, Callable[[np.ndarray], list[np.ndarray]]]] = {
    "sum": (functional.all_reduce, lambda a: [a.sum(0)] * SIZE),
    "mean": (lambda x: functional.all_reduce(x, "mean"), lambda a: [a.mean(0)] * SIZE),
    "max": (lambda x: functional.all_reduce(x, "max"), lambda a: [a.max(0)] * SIZE),
    "min": (lambda x: functional.all_reduce(x, "min"), lambda a: [a.min(0)] * SIZE),
    "gather": (functional.all_gather, lambda a: [np.concatenate(a)] * SIZE),
    "gather columns": (
        lambda x: functional.all_gather(x, -1),
        lambda a: [np.concatenate(a, 1)] * SIZE,
    ),
    "scatter": (functional.reduce_scatter, lambda a: parts(a.sum(0))),
    "scatter mean": (
        lambda x: functional.reduce_scatter(x, "mean"),
        lambda a: parts(a.mean(0)),
    ),
    "scatter unevenly": (
        lambda x: functional.reduce_scatter(x, counts=COUNTS),
        lambda a: np.split(a.sum(0), [1, 4]),
    ),
    "exchange": (
        functional.all_to_all,
        lambda a: [np.concatenate(each) for each in zip(*map(parts, a), strict=True)],
    ),
    "broadcast": (lambda x: functional.broadcast(x, 1), lambda a: [a[1]] * SIZE),
    "shift": (functional.shift, lambda a: [a[(rank - 1) % SIZE] for rank in range(SIZE)]),
    "shift back": (
        lambda x: functional.shift(x, -1),
        lambda a: [a[(rank + 1) % SIZE] for rank in range(SIZE)],
    ),
}


def run_in(way: str, step: Step, *args: Any) -> Any:
    if way == "eager":
        with rl.eager():
            return step(*args)
    return rl.jit(step)(*args) if way == "jitted" else step(*args)


@pytest.fixture
def tier(request: pytest.FixtureRequest) -> Any:
    before = config.tier
    config.tier = "interpreter" if request.param == "interpreted" else "auto"
    yield request.param
    config.tier = before


@pytest.mark.parametrize("tier", WAYS, indirect=True)
@pytest.mark.parametrize("name", CASES)
def test_values(name: str, tier: str) -> None:
    step, want = CASES[name]

    def work() -> np.ndarray:
        x = rl.tensor(WHOLE[dist.world().rank])
        return run_in(tier, lambda x: step(x * 2 + 1) - 1, x).numpy()

    for got, expected in zip(dist.run(work, ranks=SIZE), want(WHOLE * 2 + 1), strict=True):
        np.testing.assert_allclose(got, expected - 1, rtol=1e-13)


@pytest.mark.parametrize("name", CASES)
@pytest.mark.parametrize("way", ["undecorated", "jitted"])
def test_derivatives_are_those_of_the_sum_over_ranks(name: str, way: str) -> None:
    """Against differences of what all ranks compute together, both ways."""
    step, want = CASES[name]
    weights = [np.random.default_rng(9 + r).normal(size=w.shape) for r, w in enumerate(want(WHOLE))]
    direction = np.random.default_rng(5).normal(size=WHOLE.shape)

    def total(a: np.ndarray) -> float:
        return sum(float((w * y).sum()) for w, y in zip(weights, want(a), strict=True))

    def gradient(x: Any, w: Any) -> Any:
        return rl.grad(lambda x: (step(x) * w).sum())(x)

    def work() -> tuple[np.ndarray, float]:
        rank = dist.world().rank
        x, w = rl.tensor(WHOLE[rank]), rl.tensor(weights[rank])
        moved = rl.jvp(step, (x,), (rl.tensor(direction[rank]),))[1]
        return run_in(way, gradient, x, w).numpy(), float((moved * w).sum().item())

    small = 1e-6
    slope = (total(WHOLE + small * direction) - total(WHOLE - small * direction)) / (2 * small)
    found = dist.run(work, ranks=SIZE)
    reverse = sum(float((g * d).sum()) for (g, _), d in zip(found, direction, strict=True))
    np.testing.assert_allclose(reverse, slope, rtol=1e-7)
    np.testing.assert_allclose(sum(moved for _, moved in found), slope, rtol=1e-7)


@pytest.mark.parametrize("name", CASES)
def test_batches(name: str) -> None:
    step, want = CASES[name]
    batch = np.random.default_rng(1).normal(size=(SIZE, 2, ROWS, 4))

    def work() -> np.ndarray:
        return rl.vmap(step)(rl.tensor(batch[dist.world().rank])).numpy()

    each = [want(batch[:, index]) for index in range(2)]
    for rank, got in enumerate(dist.run(work, ranks=SIZE)):
        np.testing.assert_allclose(got, np.stack([e[rank] for e in each]), rtol=1e-13)


def test_a_read_on_one_rank_alone_communicates_with_nobody() -> None:
    def work() -> list[float]:
        world, seen = dist.world(), []
        x = rl.full((4,), float(world.rank), requires_grad=True)
        for _ in range(5):
            loss = functional.all_reduce((x * x).sum())
            loss.backward()
            if world.rank == 0:
                seen += [loss.item(), float(x.grad.sum().item())]
            with rl.no_grad():
                x += 1
        before = world.counters.calls()
        if world.rank == 1:
            seen.append(float((loss * 2).item()))
        assert world.counters.calls() == before
        return seen

    zero, one = dist.run(work, ranks=2)
    assert zero[0] == 4.0 and len(zero) == 10 and len(one) == 1


def test_ranks_share_what_is_compiled() -> None:
    from ridgeline.compiler import program

    def work() -> np.ndarray:
        step = rl.jit(lambda x: functional.all_reduce(x.exp().sum(0)) * 1.75)
        return step(rl.full((3, 5), float(dist.world().rank))).numpy()

    before = set(program._programs._entries)  # a table that may be full, and then forgets some
    dist.run(work, ranks=4)
    assert len(set(program._programs._entries) - before) == 1


def test_a_function_that_is_jitted_once_serves_all_ranks() -> None:
    step = rl.jit(lambda x: functional.all_reduce(x * 2) + rl.rand(3))

    def work() -> list[np.ndarray]:
        rl.manual_seed(dist.world().rank)
        return [step(rl.full((3,), float(dist.world().rank))).numpy() for _ in range(2)]

    noise = []
    for rank in range(3):
        rl.manual_seed(rank)
        noise.append([rl.rand(3).numpy() for _ in range(2)])
    for rank, got in enumerate(dist.run(work, ranks=3)):
        np.testing.assert_allclose(got, 6 + np.stack(noise[rank]), rtol=1e-6)


def test_bytes_are_those_of_the_rows() -> None:
    def work() -> dict[tuple[str, str], int]:
        world = dist.world()
        group = world.split(0, world.rank, "dp")
        x = rl.ones(6, 5)
        functional.all_reduce(x, group=group)
        functional.all_gather(x, 1, group=group)
        functional.reduce_scatter(x, group=group)
        functional.all_to_all(x, group=group)
        functional.broadcast(x, group=group)
        return {key: entry.bytes for key, entry in world.counters.traffic.items()}

    small, large = 6 * 5 * 4, 6 * 5 * 4 * SIZE
    want = {"all_reduce": small, "all_gather": large, "reduce_scatter": small,
            "all_to_all": small, "broadcast": small}  # fmt: skip
    for got in dist.run(work, ranks=SIZE):
        assert got == {("dp", kind): size for kind, size in want.items()}


@pytest.mark.parametrize(
    "step, words",
    [
        (lambda x: functional.reduce_scatter(x[:5]), "5 rows cannot be shared out evenly over 3"),
        (lambda x: functional.all_reduce(x, "median"), "no reduction 'median'"),
        (lambda x: functional.broadcast(x, 3), "ranks are 0 to 2"),
        (lambda x: functional.all_gather(x, 2), "no axis 2"),
        (lambda x: functional.all_gather(x.sum()), "no axis 0"),
        (lambda x: functional.all_reduce(3.0), "takes a tensor, not float"),
        (lambda x: functional.all_reduce((x * x).bool()), "cannot reduce bool by sum"),
    ],
)
def test_wrong_calls_say_what_is_wrong(step: Step, words: str) -> None:
    with pytest.raises(rl.RidgelineError, match=words):
        dist.run(lambda: step(rl.ones(6, 4, requires_grad=False)), ranks=3)
