"""Why calls were recorded and not matched: in plain words, with the user's line."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest

import ridgeline as rl
from ridgeline.config import config


@pytest.fixture(autouse=True)
def compiled(nothing_recorded: None) -> Iterator[None]:
    with config.override(tier="compiled", tape=True):
        yield


def reason(step: Callable[[int], Any]) -> str:
    """Why the last of some steps was not matched."""
    for number in range(6):
        with rl.record_flushes() as log:
            step(number)
    (flush,) = log.flushes
    assert (flush.program == "matched") is (flush.unmatched == "")
    assert flush.unmatched in str(log)
    return flush.unmatched


def test_what_is_matched_has_no_reason() -> None:
    x = rl.ones(3)
    assert reason(lambda number: ((x * 2.0).exp() + 1.0).sum().item()) == ""


def test_another_call_than_before() -> None:
    x = rl.ones(3)

    def step(number: int) -> None:
        y = x * 2.0
        (y.exp() if number < 5 else y.sin()).sum().item()

    said = reason(step)
    assert said.startswith("sin() came, where exp() came before")
    assert "test_deviations.py:" in said


def test_an_argument_that_is_another() -> None:
    x = rl.ones(3, 4)

    def step(number: int) -> None:
        ((x * 2.0).sum(0 if number < 5 else 1)).tolist()

    assert "the argument 1, which was 0 before" in reason(step)


def test_operands_and_modes() -> None:
    x = rl.ones(3)

    def step(number: int) -> None:
        y = x * 2.0
        other = rl.tensor(np.ones(3 if number < 5 else 1, np.float32))
        (y + other).sum().item()

    assert "float32[1], where float32[3] came before" in reason(step)


def test_results_that_are_held() -> None:
    x, held = rl.ones(3), list[rl.Tensor]()

    def step(number: int) -> None:
        y = x * 2.0
        total = y.exp().sum()
        if number == 5:
            held.append(y)
        del y
        total.item()

    assert "other results are held than before" in reason(step)


def test_hooks_are_named() -> None:
    w = rl.ones(3, requires_grad=True)

    def step(number: int) -> None:
        y = w * 2.0
        y.register_hook(lambda gradient: gradient)
        w.grad = None
        y.sum().backward()
        w.grad.sum().item()

    assert "hook" in reason(step)
