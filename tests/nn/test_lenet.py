"""LeNet-5 over 100 training steps: loss and every gradient as good as torch's.

Three trainings start from the same weights: ours and torch's in float32, and torch's in float64 as
the truth. Rounding differences grow along a training, in both alike; so errors against float64 are
joined over all steps by their root mean square, and ours may be twice torch's plus a few ulp.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch

from ridgeline import nn, optim
from ridgeline.config import config
from ridgeline.data.dataset import as_array
from ridgeline.models import lenet5
from ridgeline.record.modes import eager
from ridgeline.runtime.cpu import executor
from ridgeline.tensors.tensor import tensor
from ridgeline.tracing.jit import jit
from tests.nn.oracle import FEW, ULP, number

STEPS, BATCH, BATCHES = 100, 16, 4
SHORT = 20  # steps for the ways that run in Python op by op
SETTINGS = {"lr": 0.02, "momentum": 0.9, "weight_decay": 1e-3, "nesterov": True}


def torch_lenet() -> torch.nn.Sequential:
    layer = torch.nn
    return layer.Sequential(
        layer.Conv2d(1, 6, 3), layer.ReLU(), layer.AvgPool2d(2),
        layer.Conv2d(6, 16, 3), layer.ReLU(), layer.AvgPool2d(2), layer.Flatten(),
        layer.Linear(576, 120), layer.ReLU(), layer.Linear(120, 84), layer.ReLU(),
        layer.Linear(84, 10),
    )  # fmt: skip


def batches() -> list[tuple[np.ndarray, np.ndarray]]:
    source = np.random.default_rng(3)
    return [
        (source.standard_normal((BATCH, 1, 32, 32)).astype(np.float32),
         source.integers(0, 10, BATCH))
        for _ in range(BATCHES)
    ]  # fmt: skip


def record(
    model: Any, step: Callable[..., Any], convert: Callable[[Any], Any], steps: int = STEPS
) -> list[list[np.ndarray]]:
    """The loss and every gradient of each step."""
    data = [(convert(x), convert(y)) for x, y in batches()]
    seen = []
    for count in range(steps):
        loss = step(*data[count % BATCHES])
        values = [loss, *(p.grad for p in model.parameters())]
        seen.append([np.array(number(v), np.float64) for v in values])
    return seen


def torch_run(dtype: torch.dtype) -> list[list[np.ndarray]]:
    torch.manual_seed(0)
    model = torch_lenet().to(dtype)
    optimizer = torch.optim.SGD(model.parameters(), **SETTINGS)

    def step(x: Any, y: Any) -> Any:
        optimizer.zero_grad()
        loss = torch.nn.functional.cross_entropy(model(x), y)
        loss.backward()
        optimizer.step()
        return loss

    def convert(array: np.ndarray) -> torch.Tensor:
        made = torch.tensor(array)
        return made.to(dtype) if made.is_floating_point() else made

    return record(model, step, convert)


def our_run(way: str) -> list[list[np.ndarray]]:
    torch.manual_seed(0)
    model = lenet5()
    model.load_state_dict({k: v.numpy() for k, v in torch_lenet().state_dict().items()})
    optimizer = optim.SGD(model.parameters(), **SETTINGS)

    def step(x: Any, y: Any) -> Any:
        optimizer.zero_grad()
        loss = nn.functional.cross_entropy(model(x), y)
        loss.backward()
        optimizer.step()
        return loss

    if way == "jit":
        return record(model, jit(step), tensor)
    if way == "deferred":
        with config.override(tier="compiled"):
            return record(model, step, tensor)
    with config.override(tier="interpreter"), eager(way == "eager"):
        return record(model, step, tensor, SHORT)


@pytest.fixture(scope="module")
def peers() -> tuple[list[list[np.ndarray]], list[list[np.ndarray]]]:
    return torch_run(torch.float32), torch_run(torch.float64)


def test_state_has_torchs_keys_and_shapes() -> None:
    ours = [(k, tuple(v.shape)) for k, v in lenet5().state_dict().items()]
    theirs = [(k, tuple(v.shape)) for k, v in torch_lenet().state_dict().items()]
    assert ours == theirs


def rms(errors: list[np.ndarray]) -> float:
    """The root of the mean square over steps and elements."""
    return float(np.sqrt(np.mean([np.mean(e * e) for e in errors])))


@pytest.mark.parametrize("way", ["interpreted", "eager", "deferred", "jit"])
def test_a_hundred_steps(way: str, peers: tuple[Any, Any]) -> None:
    theirs, exact = peers
    mine = our_run(way)
    names = ["loss", *lenet5().state_dict()]
    for place, name in enumerate(names):
        truth = [step[place] for step in exact]
        error = rms([step[place] - t for step, t in zip(mine, truth)])
        peer = rms([step[place] - t for step, t in zip(theirs, truth)])
        allowed = 2 * peer + FEW * ULP * rms(truth)
        assert error <= allowed, f"{name}: error {error:.3g}, torch's {peer:.3g}"


def test_the_first_step_matches_element_by_element(peers: tuple[Any, Any]) -> None:
    """Before rounding can grow, every gradient agrees to a few ulp of its largest element."""
    mine = our_run_first()
    for ours, theirs in zip(mine, peers[1][0]):
        scale = float(np.max(np.abs(theirs)))
        assert np.max(np.abs(ours - theirs)) <= 32 * ULP * scale


def our_run_first() -> list[np.ndarray]:
    torch.manual_seed(0)
    model = lenet5()
    model.load_state_dict({k: v.numpy() for k, v in torch_lenet().state_dict().items()})
    x, y = batches()[0]
    loss = nn.functional.cross_entropy(model(tensor(x)), tensor(y))
    loss.backward()
    gradients = [as_array(p.grad) for p in model.parameters()]
    return [np.asarray(v, np.float64) for v in (as_array(loss), *gradients)]


def test_a_jitted_step_is_one_native_call() -> None:
    model = lenet5()
    optimizer = optim.SGD(model.parameters(), lr=0.05, momentum=0.9)

    @jit
    def step(x: Any, y: Any) -> Any:
        optimizer.zero_grad()
        loss = nn.functional.cross_entropy(model(x), y)
        loss.backward()
        optimizer.step()
        return loss

    x = tensor(np.zeros((4, 1, 32, 32), np.float32))
    y = tensor(np.zeros(4, np.int64))
    step(x, y)
    step(x, y)
    before = executor.calls()
    for _ in range(5):
        step(x, y)
    assert executor.calls() == before + 5
