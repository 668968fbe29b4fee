"""Whole numbers among the arguments of a jitted function: one trace stands for many of them."""

from __future__ import annotations

from functools import lru_cache
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

import ridgeline as rl
from ridgeline.config import config


@pytest.fixture(params=["interpreter", "compiled"], autouse=True)
def tier(request: pytest.FixtureRequest) -> Any:
    with config.override(tier=request.param):
        yield


def test_places_in_a_cache() -> None:
    cache, expected = rl.zeros(12, 3), np.zeros((12, 3), np.float32)

    @rl.jit
    def decode(x: rl.Tensor, position: int) -> tuple[rl.Tensor, int]:
        cache[position : position + 1] = x
        return cache[: position + 1].sum(0) * position, position + 1

    for position in (0, 1, 2, 3, 7, 4, 5, 9):
        x = np.full((1, 3), position + 0.5, np.float32)
        total, after = decode(rl.tensor(x), position)
        expected[position] = x
        np.testing.assert_allclose(
            total.numpy(), expected[: position + 1].sum(0) * position, rtol=1e-6
        )
        np.testing.assert_array_equal(cache.numpy(), expected)
        assert after == position + 1 and type(after) is int
    assert decode.traces == 2


def test_lengths_and_scales_and_negative_numbers() -> None:
    @rl.jit
    def f(x: rl.Tensor, count: int, shift: int) -> rl.Tensor:
        return x[:count].repeat(2) * shift + rl.arange(2 * count) // max(count, 3)

    for count, shift in ((4, 3), (5, 3), (7, 9), (9, 2), (2, 5), (6, -4), (8, 2)):
        x = np.arange(10, dtype=np.int64)
        found = f(rl.tensor(x), count, shift).numpy()
        expected = np.tile(x[:count], 2) * shift + np.arange(2 * count) // max(count, 3)
        np.testing.assert_array_equal(found, expected)
    assert f.traces <= 6


def test_branches_hold_for_all_numbers_on_their_side() -> None:
    @rl.jit
    def logged(x: rl.Tensor, step: int) -> rl.Tensor:
        if step % 4 == 0:
            x = x * 10
        return x + step

    for step in range(1, 13):
        expected = np.ones(2) * (10 if step % 4 == 0 else 1) + step
        np.testing.assert_array_equal(logged(rl.ones(2), step).numpy(), expected)
    assert logged.traces == 3


def test_division_by_zero_is_python_s() -> None:
    f = rl.jit(lambda x, n: x * (7 // n) + 7 % n)
    for n in (2, 3, 4):
        np.testing.assert_array_equal(f(rl.ones(2), n).numpy(), np.full(2, 7 // n + 7 % n))
    with pytest.raises(ZeroDivisionError):
        f(rl.ones(2), 0)
    assert f(rl.ones(1), 5).item() == 3


@lru_cache(maxsize=64)
def _cached(number: int) -> float:
    return {1: 5.0, 2: 7.0}.get(number, 1.0)


class Blocks:
    """Finds things by number in every way that Python has."""

    def __init__(self) -> None:
        self.block_1, self.block_2, self.block_3 = 10.0, 20.0, 30.0
        self.table = {1: 2.0, 2: 3.0, (1, 1): 4.0}
        self.last = 0


def _by_loop(blocks: Blocks, x: rl.Tensor, n: int) -> rl.Tensor:
    for _ in range(n):
        x = x + 1
    return x


def _by_match(blocks: Blocks, x: rl.Tensor, n: int) -> rl.Tensor:
    match n:
        case 1:
            return x
        case 2:
            return x + 5
    return x * 3


WAYS = {
    "loop": _by_loop,
    "match": _by_match,
    "f-string": lambda b, x, n: x * getattr(b, f"block_{n}"),
    "format": lambda b, x, n: x * len("{}".format("a" * n)),
    "percent": lambda b, x, n: x * getattr(b, "block_%s" % n),  # noqa: UP031
    "str": lambda b, x, n: x * getattr(b, "block_" + str(n)),
    "get": lambda b, x, n: x * b.table.get(n, 100.0),
    "key": lambda b, x, n: x * (b.table[n] if n in b.table else 9.0),  # noqa: SIM401
    "pair": lambda b, x, n: x * b.table.get((n, n), 50.0),
    "set": lambda b, x, n: x * (2.0 if n in {1, 3} else 1.0),
    "kind": lambda b, x, n: x * (2.0 if isinstance(n, int) else 1.0),
    "type": lambda b, x, n: x * (2.0 if type(n) is int else 1.0),
    "cached": lambda b, x, n: x * _cached(n),
    "numpy": lambda b, x, n: x * float(np.float64(n) ** 0.5),
    "list": lambda b, x, n: x * [1.0, 2.0, 3.0, 4.0, 5.0][n],
    "true division": lambda b, x, n: x * (n / 3),
    "power": lambda b, x, n: x * 2**n + x**n,
}


@pytest.mark.parametrize("way", WAYS)
def test_numbers_that_python_needs_are_numbers(way: str) -> None:
    function, blocks = WAYS[way], Blocks()
    replayed = rl.jit(lambda x, n: function(blocks, x, n))
    for n in (1, 2, 3, 2, 1):
        x = rl.arange(1.0, 4.0)
        np.testing.assert_allclose(
            replayed(x, n).numpy(), function(blocks, x, n).numpy(), rtol=1e-6
        )


def test_what_is_stored_is_a_number() -> None:
    state = SimpleNamespace(last=0, seen={}, all=[])

    @rl.jit
    def f(x: rl.Tensor, n: int) -> rl.Tensor:
        state.last = n
        state.seen[n] = n + 1
        state.all.append(n)
        return x * n

    for n in (1, 2, 3, 4):
        np.testing.assert_array_equal(f(rl.ones(2), n).numpy(), np.full(2, n))
        assert type(state.last) is int
        assert all(type(part) is int for pair in state.seen.items() for part in pair)
        assert all(type(part) is int for part in state.all)


def test_gradients_flow_past_numbers_that_change() -> None:
    weight = rl.ones(6, requires_grad=True)

    @rl.jit
    def loss(x: rl.Tensor, n: int) -> rl.Tensor:
        return (weight[:n] * x[:n] * n).sum()

    for n in (2, 3, 5, 4):
        weight.grad = None
        loss(rl.arange(6.0), n).backward()
        expected = np.where(np.arange(6) < n, np.arange(6.0) * n, 0)
        np.testing.assert_array_equal(weight.grad.numpy(), expected)
    assert loss.traces == 2


def _made_inside(lr: float) -> rl.Tensor:
    """An optimizer and its schedule belong to the call."""
    w = rl.ones(2).requires_grad_()
    optimizer = rl.optim.Adam([w], lr=lr, betas=(0.5, 0.9))
    scheduler = rl.optim.lr_scheduler.ExponentialLR(optimizer, 0.5)
    for _ in range(3):
        optimizer.zero_grad()
        (w * w).sum().backward()
        optimizer.step()
        scheduler.step()
        optimizer.param_groups[0]["betas"] = (0.9, 0.99)
    optimizer.param_groups[0].update(lr=optimizer.param_groups[0]["lr"] * 2)
    return w.detach() * optimizer.param_groups[0]["lr"]


def test_a_rate_that_a_function_sets_is_the_rate_from_then_on() -> None:
    jitted = rl.jit(_made_inside)
    for lr in (0.1, 0.1, 0.3, 0.1):
        assert jitted(lr).tolist() == pytest.approx(_made_inside(lr).tolist(), rel=1e-6)


@pytest.mark.parametrize("make", [
    lambda o: rl.optim.lr_scheduler.ExponentialLR(o, 0.5),
    lambda o: rl.optim.lr_scheduler.StepLR(o, 3, 0.1),
    lambda o: rl.optim.lr_scheduler.LambdaLR(o, lambda epoch: 1.0),
])  # fmt: skip
def test_a_step_of_the_schedule_inside_follows_the_step_with_the_old_rate(make: Any) -> None:
    def run(decorate: Any) -> list[Any]:
        w = rl.ones(2).requires_grad_()
        optimizer = rl.optim.SGD([w], lr=0.1)
        scheduler = make(optimizer)

        def step() -> rl.Tensor:
            optimizer.zero_grad()
            loss = (w * w).sum()
            loss.backward()
            optimizer.step()
            scheduler.step()
            return loss

        jitted = decorate(step)
        losses = [jitted().item() for _ in range(8)]
        return [*losses, *w.tolist(), scheduler.last_epoch, optimizer.param_groups[0]["lr"]]

    assert run(rl.jit) == pytest.approx(run(lambda step: step), rel=1e-6)
