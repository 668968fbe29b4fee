"""GradScaler against torch.amp's: scales, skipped steps, state, errors; also under jit."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import ridgeline as rl
from ridgeline import nn, optim
from ridgeline.amp import GradScaler, ScalerError

torch = pytest.importorskip("torch")
SETTINGS = {"init_scale": 16.0, "growth_factor": 2.0, "backoff_factor": 0.25, "growth_interval": 3}
FACTORS = (1.0, 1.0, np.inf, 1.0, 1.0, 1.0, np.nan, np.inf, 1.0, 1.0, 1.0, 1.0)


def ours(optimizer: Any, jit: bool) -> tuple[list[float], list[np.ndarray]]:
    weight = rl.tensor([1.0, -2.0]).requires_grad_()
    scaler, chosen = GradScaler("cpu", **SETTINGS), optimizer(optim, [weight])

    def step(factor: rl.Tensor) -> None:
        chosen.zero_grad()
        scaler.scale((weight * weight * factor).sum()).backward()
        scaler.step(chosen)
        scaler.update()

    run = rl.jit(step) if jit else step
    scaler._state()
    scales, values = [], []
    for factor in FACTORS:
        run(rl.tensor(factor, dtype=rl.float32))
        scales.append(scaler.get_scale())
        values.append(weight.detach().numpy().copy())
    return scales, values


def theirs(optimizer: Any) -> tuple[list[float], list[np.ndarray]]:
    weight = torch.tensor([1.0, -2.0], requires_grad=True)
    scaler, chosen = torch.amp.GradScaler("cpu", **SETTINGS), optimizer(torch.optim, [weight])
    scales, values = [], []
    for factor in FACTORS:
        chosen.zero_grad()
        scaler.scale((weight * weight * factor).sum()).backward()
        scaler.step(chosen)
        scaler.update()
        scales.append(scaler.get_scale())
        values.append(weight.detach().numpy().copy())
    return scales, values


@pytest.mark.parametrize("jit", [False, True], ids=["plain", "jit"])
@pytest.mark.parametrize("name", ["SGD", "Adam"])
def test_scales_and_weights_are_torchs(name: str, jit: bool) -> None:
    def make(library: Any, parameters: Any) -> Any:
        more = {"momentum": 0.9} if name == "SGD" else {}
        return getattr(library, name)(parameters, lr=0.01, **more)

    (own, mine), (expected, reference) = ours(make, jit), theirs(make)
    assert own == expected
    np.testing.assert_allclose(mine, reference, rtol=2e-6)


def test_clipping_between_unscale_and_step() -> None:
    layer = nn.Linear(3, 1)
    optimizer, scaler = optim.SGD(layer.parameters(), lr=1.0), GradScaler("cpu", init_scale=1024.0)
    scaler.scale(layer(rl.ones(1, 3) * 100).sum()).backward()
    scaler.unscale_(optimizer)
    norm = float(nn.utils.clip_grad_norm_(layer.parameters(), 1.0))
    assert norm == pytest.approx(np.sqrt(3 * 100.0**2 + 1), rel=1e-5)
    before = layer.weight.detach().numpy().copy()
    scaler.step(optimizer)
    scaler.update()
    moved = before - layer.weight.detach().numpy()
    np.testing.assert_allclose(moved, np.full((1, 3), 100 / norm), rtol=1e-4)


def test_state_goes_from_one_to_another() -> None:
    first = GradScaler("cpu", **SETTINGS)
    weight = rl.tensor([1.0]).requires_grad_()
    optimizer = optim.SGD([weight], lr=0.1)
    first.scale(weight.sum()).backward()
    first.step(optimizer)
    first.update()
    second = GradScaler("cpu")
    second.load_state_dict(first.state_dict())
    assert second.state_dict() == first.state_dict()
    assert second.state_dict()["_growth_tracker"] == 1


def test_disabled_does_nothing() -> None:
    scaler = GradScaler("cpu", enabled=False)
    weight = rl.tensor([1.0]).requires_grad_()
    optimizer = optim.SGD([weight], lr=0.5)
    scaler.scale(weight.sum()).backward()
    scaler.unscale_(optimizer)
    scaler.step(optimizer)
    scaler.update()
    assert weight.item() == 0.5 and scaler.get_scale() == 1.0 and scaler.state_dict() == {}


def test_out_of_order() -> None:
    scaler, weight = GradScaler("cpu"), rl.tensor([1.0]).requires_grad_()
    optimizer = optim.SGD([weight], lr=0.5)
    with pytest.raises(ScalerError, match="no gradient"):
        scaler.step(optimizer)
    scaler.scale(weight.sum()).backward()
    scaler.step(optimizer)
    with pytest.raises(ScalerError, match="already called"):
        scaler.step(optimizer)
    with pytest.raises(ScalerError, match="before step"):
        scaler.unscale_(optimizer)
    scaler.update()
    with pytest.raises(ScalerError, match="after step"):
        scaler.update()


def test_a_jitted_step_sees_settings_that_are_loaded() -> None:
    def run(decorate: Callable[..., Any]) -> list[float]:
        scaler, weight = GradScaler("cpu", 1.0, growth_interval=1), rl.tensor([1.0])
        weight.requires_grad_()
        optimizer = optim.SGD([weight], lr=0.5)

        def step() -> None:
            optimizer.zero_grad()
            scaler.scale(weight.sum()).backward()
            scaler.step(optimizer)
            scaler.update()

        made, scales = decorate(step), list[float]()
        for growth in (2.0, 2.0, 3.0, 3.0):
            scaler.load_state_dict({**scaler.state_dict(), "growth_factor": growth})
            made()
            scales.append(scaler.get_scale())
        return scales

    assert run(rl.jit) == run(lambda f: f) == [2, 4, 12, 36]
