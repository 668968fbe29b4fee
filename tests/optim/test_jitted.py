"""Optimizers inside jit: the numbers of the plain step, and re-traces only where they must be."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from ridgeline import nn, optim
from ridgeline.config import config
from ridgeline.data.dataset import as_array
from ridgeline.tensors.tensor import tensor
from ridgeline.tracing.jit import jit

RULES: dict[str, Callable[[Any], optim.Optimizer]] = {
    "sgd": lambda p: optim.SGD(p, lr=0.1, momentum=0.9, weight_decay=0.01, nesterov=True),
    "dampened": lambda p: optim.SGD(p, lr=0.1, momentum=0.9, dampening=0.3),
    "adamw": lambda p: optim.AdamW(p, lr=0.01),
    "nadam": lambda p: optim.NAdam(p, lr=0.01),
    "radam": lambda p: optim.RAdam(p, lr=0.01, betas=(0.8, 0.9)),
    "asgd": lambda p: optim.ASGD(p, lr=0.01, t0=2),
}


@pytest.fixture(autouse=True)
def interpreted() -> Any:
    """Capture and guards are what is tested here, so no machine code is needed."""
    with config.override(tier="interpreter"):
        yield


class Training:
    """A small model, its optimizer, and one step of training."""

    def __init__(self, rule: Callable[[Any], optim.Optimizer], jitted: bool) -> None:
        source = np.random.default_rng(0)
        self.model = nn.Linear(3, 2)
        weights = source.standard_normal((2, 3)).astype(np.float32)
        self.model.load_state_dict({"weight": weights, "bias": np.zeros(2, np.float32)})
        self.optimizer = rule(self.model.parameters())
        self.x = tensor(source.standard_normal((4, 3)).astype(np.float32))
        self.y = tensor(source.standard_normal((4, 2)).astype(np.float32))

        def step(x: Any, y: Any) -> Any:
            self.optimizer.zero_grad()
            loss = nn.functional.mse_loss(self.model(x), y)
            loss.backward()
            nn.utils.clip_grad_norm_(self.model.parameters(), 1.0)
            self.optimizer.step()
            return loss

        self.step = jit(step) if jitted else step

    def go(self, steps: int) -> list[float]:
        """Losses of some steps, then all weights."""
        losses = [float(self.step(self.x, self.y)) for _ in range(steps)]
        return losses + [v for p in self.model.parameters() for v in as_array(p).ravel().tolist()]

    def traces(self) -> int:
        return self.step.traces  # type: ignore[attr-defined,no-any-return]


@pytest.mark.parametrize("name", RULES)
def test_a_captured_step_gives_the_plain_numbers(name: str) -> None:
    plain, captured = (Training(RULES[name], jitted) for jitted in (False, True))
    assert np.allclose(plain.go(6), captured.go(6), rtol=1e-6)
    assert captured.traces() <= 2  # with and without gradients from the step before


@pytest.mark.parametrize(
    ("name", "key", "values"),
    [
        ("sgd", "lr", [0.2, 0.05, 1.0]),
        ("sgd", "momentum", [0.8, 0.7, 0.95]),
        ("sgd", "weight_decay", [0.1, 0.2, 0.3]),
        ("adamw", "lr", [0.2, 0.05, 1]),
        ("adamw", "betas", [(0.8, 0.99), (0.7, 0.9), (0.85, 0.9)]),
        ("adamw", "eps", [1e-3, 1e-2, 1e-4]),
    ],
)
def test_changed_numbers_do_not_retrace(name: str, key: str, values: list[Any]) -> None:
    plain, captured = (Training(RULES[name], jitted) for jitted in (False, True))
    captured.go(2)
    plain.go(2)
    before = captured.traces()
    for value in values:
        for training in (plain, captured):
            training.optimizer.param_groups[0][key] = value
        assert np.allclose(plain.go(2), captured.go(2), rtol=1e-5, atol=1e-7)
    assert captured.traces() == before


def test_a_schedule_does_not_retrace() -> None:
    plain, captured = (Training(RULES["sgd"], jitted) for jitted in (False, True))
    schedules = [
        optim.lr_scheduler.OneCycleLR(t.optimizer, 0.3, total_steps=9) for t in (plain, captured)
    ]
    for _ in range(8):
        assert np.allclose(plain.go(1), captured.go(1), rtol=1e-5, atol=1e-7)
        for schedule in schedules:
            schedule.step()
    assert captured.traces() <= 2


@pytest.mark.parametrize(
    "change",
    [
        lambda t: t.optimizer.param_groups[0].update(momentum=0.0, nesterov=False),
        lambda t: t.optimizer.param_groups[0].update(nesterov=False),
        lambda t: t.optimizer.param_groups[0].update(weight_decay=0.0),
        lambda t: t.model.bias.requires_grad_(False),
    ],
)
def test_changed_branches_give_the_right_numbers(change: Any) -> None:
    plain, captured = (Training(RULES["sgd"], jitted) for jitted in (False, True))
    assert np.allclose(plain.go(2), captured.go(2), rtol=1e-6)
    change(plain)
    change(captured)
    assert np.allclose(plain.go(3), captured.go(3), rtol=1e-5, atol=1e-7)


def test_a_loaded_state_is_seen() -> None:
    plain, captured = (Training(RULES["adamw"], jitted) for jitted in (False, True))
    plain.go(3)
    captured.go(3)
    fresh = Training(RULES["adamw"], False).optimizer.state_dict()
    for training in (plain, captured):
        training.optimizer.load_state_dict(fresh)
    assert np.allclose(plain.go(3), captured.go(3), rtol=1e-5, atol=1e-7)


def test_settings_are_inputs_once_however_many_parameters_there_are() -> None:
    counts = []
    for layers in (1, 4):
        model = nn.Sequential(*[nn.Linear(3, 3) for _ in range(layers)])
        optimizer = optim.AdamW(model.parameters(), lr=0.01)

        @jit
        def step(x: Any, model: Any = model, optimizer: Any = optimizer) -> None:
            optimizer.zero_grad()
            model(x).sum().backward()
            optimizer.step()

        step(tensor(np.ones((2, 3), np.float32)))
        counts.append(len(step._traces[0].executable.numbers))
    assert counts[0] == counts[1] > 0
