"""Steps with checkpointed functions: what ties their results to a graph is one matched call."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest

import ridgeline as rl
from ridgeline import nn
from ridgeline.config import config
from tests.tape.test_continued import agree as agree_for_long, is_matched
from tests.tape.test_tape import data
from tests.tape.test_user_rules import Rectified

Call = Callable[..., Any]


@pytest.fixture(autouse=True)
def compiled(nothing_recorded: None) -> Iterator[None]:
    with config.override(tier="compiled", tape=True):
        yield


def training(applied: Callable[[Any, Any, int], Any]) -> Callable[[], Callable[[int], Any]]:
    """Steps of two layers, of which the second is in a block."""

    def make() -> Callable[[int], Any]:
        first, block = nn.Linear(4, 3), nn.Sequential(nn.Linear(3, 5), nn.GELU(), nn.Linear(5, 3))
        optimizer = rl.optim.SGD([*first.parameters(), *block.parameters()], lr=0.1)
        x = data(6, 4)

        def step(number: int) -> Any:
            loss = applied(block, first(x), number).square().sum()
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            return [loss.item(), *first.weight.detach().flatten().tolist()]

        return step

    return make


def with_a_rule(block: Call, h: Any) -> Any:
    return Rectified.apply(block(h), 0.25) + h


@pytest.mark.parametrize(
    "applied",
    [
        lambda block, h, number: rl.checkpoint(block, h) + h,
        lambda block, h, number: rl.checkpoint(block, h, policy="selective"),
        lambda block, h, number: rl.checkpoint(with_a_rule, block, h),
        lambda block, h, number: rl.checkpoint(lambda g: rl.checkpoint(block, g) + 1, h),
        lambda block, h, number: rl.checkpoint(lambda g: [block(g), g, 7], h)[0],
        lambda block, h, number: nn.functional.dropout(rl.checkpoint(block, h), 0.5),
    ],
    ids=["full", "selective", "rule", "nested", "structure", "dropout"],
)
def test_blocks_that_are_matched(applied: Callable[[Any, Any, int], Any]) -> None:
    assert is_matched(agree_for_long(training(applied)), 2)


def test_values_that_are_read_before_the_backward_pass() -> None:
    def applied(block: Call, h: Any, number: int) -> Any:
        made = rl.checkpoint(block, h)
        if number in (7, 9):
            assert made.sum().item() == made.sum().item()
        return made

    agree_for_long(training(applied), 1e-5)


def test_calls_that_are_made_in_earnest_after_all() -> None:
    def applied(block: Call, h: Any, number: int) -> Any:
        made = rl.checkpoint(block, h)
        return made * 2 if number in (6, 8) else made

    agree_for_long(training(applied))


def test_views_that_are_given() -> None:
    def applied(block: Call, h: Any, number: int) -> Any:
        return rl.checkpoint(lambda g: g.exp(), h[:, :2]).sum() + rl.checkpoint(block, h)

    agree_for_long(training(applied))


def test_an_argument_that_is_written_to() -> None:
    def writes(x: Any) -> Any:
        made = x.exp()
        x.mul_(2)
        return made * x

    found = []
    for call in (rl.checkpoint, lambda function, x: function(x)):
        variable = data(5).requires_grad_()
        call(writes, variable * 3).sum().backward()
        assert variable.grad is not None
        found.append(variable.grad.numpy())
    np.testing.assert_allclose(*found, rtol=1e-6)
