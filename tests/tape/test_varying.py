"""Python floats that are others in every step: inputs of programs, and no new calls."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from typing import Any

import pytest

import ridgeline as rl
from ridgeline.config import config
from tests.tape.test_continued import STEPS, agree
from tests.tape.test_tape import data, is_matched


@pytest.fixture(autouse=True)
def compiled(nothing_recorded: None) -> Iterator[None]:
    with config.override(tier="compiled", tape=True):
        yield


def test_numbers_that_change_with_the_step() -> None:
    def make() -> Callable[[int], Any]:
        x = data(4)

        def step(number: int) -> Any:
            rate = 0.5**number
            return ((x * rate + 1.5) / (number + 0.25) - 0.125 * number).tolist()

        return step

    assert is_matched(agree(make), 2)


def test_one_number_for_several_calls_and_then_two() -> None:
    def make() -> Callable[[int], Any]:
        x, y = data(4), data(5)

        def step(number: int) -> Any:
            one = 0.1 * number
            other = one if number < 8 else one + 1.0
            return [*(x * one).tolist(), *(y * other + (x * one).sum()).tolist()]

        return step

    assert is_matched(agree(make), 2)


def test_a_number_that_is_structure_elsewhere() -> None:
    def make() -> Callable[[int], Any]:
        x = data(4)
        slope = 0.25

        def step(number: int) -> Any:
            varies = slope if number < 6 else 0.5 + number
            return (rl.nn.functional.leaky_relu(x, slope) * varies + x.abs() ** varies).tolist()

        return step

    agree(make)


def test_numbers_that_are_no_numbers_now_and_then() -> None:
    def make() -> Callable[[int], Any]:
        x = data(4)

        def step(number: int) -> Any:
            scale = {5: math.inf, 7: -0.0, 8: math.nan, 9: 0.0, 10: 1e300}.get(number, 1.5)
            return (x * scale).abs().tolist()

        return step

    agree(make)


def test_signs_of_zero_are_told_apart() -> None:
    x = rl.ones(1)
    signs = [math.copysign(1, (x * (-0.0 if n % 2 else 0.0)).item()) for n in range(10)]
    assert signs == [1.0, -1.0] * 5


def test_gradients_through_numbers_of_before_a_flush() -> None:
    def make() -> Callable[[int], Any]:
        w, x = data(3).requires_grad_(), data(3)

        def step(number: int) -> Any:
            w.grad = None
            out = (w * (0.5 * number + 0.25)).tanh() * x
            seen = out.sum().item()
            (out * (seen + number / 3)).sum().backward()
            with rl.no_grad():
                w.sub_(w.grad * (0.1 / (number + 1)))
            return [seen, *w.tolist()]

        return step

    assert is_matched(agree(make), 2)


def test_numbers_on_whole_tensors_and_in_writes() -> None:
    def make() -> Callable[[int], Any]:
        state, whole = rl.zeros(3), rl.tensor([1, 2, 3])

        def step(number: int) -> Any:
            state.mul_(0.9 + 0.01 * number).add_(number / 7)
            return [*state.tolist(), *(whole * (0.5 * number)).tolist(), *(1.5 - whole).tolist()]

        return step

    assert is_matched(agree(make), 2)


def test_a_call_is_made_again_with_its_numbers() -> None:
    x = data(3)
    for number in range(STEPS):
        made = x * (0.5 + number)
        if number == STEPS - 1:
            made = made.exp()  # no flush came here before: the product is recorded
        wanted = [v * (0.5 + number) for v in x.tolist()]
        found = made.log().tolist() if number == STEPS - 1 else made.tolist()
        assert found == pytest.approx(wanted, rel=1e-5)
