"""Garbage of reference cycles: steps leave none, and where users do, it keeps no loop unmatched."""

from __future__ import annotations

import gc
from collections.abc import Callable, Iterator
from typing import Any

import pytest

import ridgeline as rl
from ridgeline import nn
from ridgeline.config import config
from ridgeline.nn import functional as F
from ridgeline.tape.earnest import Earnest
from tests.tape.test_tape import data, is_matched, run


@pytest.fixture(autouse=True)
def compiled(nothing_recorded: None) -> Iterator[None]:
    with config.override(tier="compiled", tape=True):
        yield


class Pinball(rl.autograd.Function):
    @staticmethod
    def forward(ctx: Any, error: rl.Tensor, quantile: float) -> rl.Tensor:
        ctx.save_for_backward(error)
        ctx.quantile = quantile
        return rl.maximum(error * quantile, error * (quantile - 1)).mean()

    @staticmethod
    def backward(ctx: Any, gradient: rl.Tensor) -> Any:
        (error,) = ctx.saved_tensors
        slope = rl.where(error > 0, ctx.quantile, ctx.quantile - 1)
        return gradient * slope / error.numel(), None


def own_rules() -> Callable[[int], Any]:
    layer, x = nn.Linear(3, 3), data(4, 3)

    def step(number: int) -> Any:
        Pinball.apply(rl.checkpoint(layer, x) - x, 0.3).backward()
        return [p.grad.tolist() for p in layer.parameters() if p.grad is not None]

    return step


def products() -> Callable[[int], Any]:
    a, b, c = data(3, 4), data(4, 5), data(5, 2)

    def step(number: int) -> Any:
        chained = rl.linalg.multi_dot([a, b, c]) + rl.einsum("ij,jk,kl->il", a, b, c)
        return chained.tolist()

    return step


def growing() -> Callable[[int], Any]:
    x, layer = data(64, 4), nn.Linear(4, 4)

    def step(number: int) -> Any:
        with rl.no_grad():
            return F.softmax(layer(x[: 3 + number % 40]), -1).sum(0).tolist()

    return step


@pytest.mark.parametrize("make", [own_rules, products, growing])
@pytest.mark.parametrize("tape", [True, False])
def test_steps_leave_none(make: Callable[[], Callable[[int], Any]], tape: bool) -> None:
    step = make()
    with config.override(tape=tape, tier="interpreter" if make is growing else "compiled"):
        for number in range(6):
            step(number)
        gc.collect()
        gc.disable()
        try:
            for number in range(6, 9):
                step(number)
            assert gc.collect() == 0
        finally:
            gc.enable()


class Ring:
    """An object that refers to itself, with a tensor."""

    def __init__(self, value: rl.Tensor) -> None:
        self.own, self.value = self, value


def test_a_collection_in_a_missed_flush_changes_nothing_of_it(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """What a flush found held is what is computed and learnt, and matched the next time."""
    x, w = data(3, 4), data(4, 5)
    make = Earnest.make

    def collecting(self: Earnest) -> None:
        make(self)
        gc.collect()

    monkeypatch.setattr(Earnest, "make", collecting)

    def step(number: int) -> Any:
        hidden = x @ w
        result = hidden.relu().sum()
        if number >= 4:
            Ring(hidden)
        del hidden
        return result.item()

    gc.disable()
    try:
        results, programs = run(step, 7)
    finally:
        gc.enable()
    assert len(set(results)) == 1
    assert is_matched(programs[:4]) and is_matched(programs, 2), programs


def test_finalizers_that_make_calls_wherever_garbage_is_collected() -> None:
    """A collection may come in the middle of a call that is matched; what it runs makes others."""
    x, y = data(3, 4), data(4)

    def step(number: int) -> float:
        z = (x * y + float(number)).relu().reshape(2, 6)
        a, b = z.chunk(2, dim=1)
        largest, places = z.max(dim=1)
        z[0, 1] = 0.25
        z += 1
        total = (a @ b.T).sum() + largest.sum() + places.sum() + z[:, 2:4].mean(dim=-1).sum()
        return float(total)

    wanted = [step(number % 4) for number in range(12)][:4]
    right: list[bool] = []

    class Cycle:
        def __init__(self) -> None:
            self.own, self.made = self, x * 3

        def __del__(self) -> None:
            right.append(step(1) == wanted[1])

    thresholds = gc.get_threshold()
    gc.set_threshold(7, 2, 2)
    try:
        for number in range(80):
            Cycle()
            assert step(number % 4) == wanted[number % 4]
    finally:
        gc.set_threshold(*thresholds)
    gc.collect()
    assert len(right) == 80 and all(right)
    assert gc.isenabled()
