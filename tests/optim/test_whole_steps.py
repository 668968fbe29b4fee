"""A step that an exception ends halfway changes nothing, however its calls are run."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest

import ridgeline as rl
from ridgeline import nn, optim
from ridgeline.config import config

STEPS, PARAMETERS = 9, 4


class Stopped(BaseException):
    """What ends a step, as an interrupt does."""


class Momentum(optim.Optimizer):
    """A rule of a user's own, whose calls are matched from step to step."""

    def __init__(self, params: Any) -> None:
        super().__init__(params, {"lr": 0.1})
        self.updates_left = -1  # before the rule is stopped; none where negative

    def _start(self, parameter: Any, group: Any) -> Any:
        return {"velocity": rl.zeros_like(parameter)}

    def _update(self, parameter: Any, gradient: Any, state: Any, group: Any) -> None:
        state["velocity"].mul_(0.9).add_(gradient)
        if not self.updates_left:
            raise Stopped
        parameter.sub_(group["lr"] * state["velocity"])
        self.updates_left -= 1


class World:
    """A network in training."""

    def __init__(self) -> None:
        rl.manual_seed(0)
        self.model = nn.Sequential(nn.Linear(3, 5), nn.Tanh(), nn.Linear(5, 2))
        self.optimizer = Momentum(self.model.parameters())
        self.batch = rl.tensor(np.linspace(-1, 1, 12, dtype="f4").reshape(4, 3))

    def step(self) -> None:
        self.optimizer.zero_grad()
        (self.model(self.batch) ** 2).mean().backward()
        self.optimizer.step()

    def state(self) -> list[Any]:
        held = [p.detach() for p in self.model.parameters()]
        held += [state["velocity"] for state in self.optimizer.state.values()]
        return [tensor.numpy().copy() for tensor in held]


@pytest.fixture(params=["compiled", "interpreter"], autouse=True)
def tier(request: Any, nothing_recorded: None) -> Iterator[None]:
    with config.override(tier=request.param, tape=True):
        yield


@pytest.mark.parametrize("updates", range(PARAMETERS))
def test_a_step_that_is_stopped_is_none(updates: int) -> None:
    straight, stopped = World(), World()
    for number in range(STEPS):
        straight.step()
        if number > STEPS // 2:  # the calls are known by then
            stopped.optimizer.updates_left = updates
            with pytest.raises(Stopped):
                stopped.step()
            stopped.optimizer.updates_left = -1
        stopped.step()
        for found, wanted in zip(stopped.state(), straight.state()):
            np.testing.assert_array_equal(found, wanted)
