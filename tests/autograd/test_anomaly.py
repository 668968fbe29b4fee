"""detect_anomaly names the op, the pass and the line that made the first NaN."""

from __future__ import annotations

import numpy as np
import pytest

import ridgeline as rl
from ridgeline import nn
from ridgeline.autograd import AnomalyError, detect_anomaly, set_detect_anomaly


def test_forward() -> None:
    x = rl.tensor([1.0, -1.0], requires_grad=True)
    with detect_anomaly(), pytest.raises(AnomalyError, match=r"sqrt giving .* forward") as caught:
        y = x.sqrt()  # the bad line
        (y * 2).sum().item()
    assert "y = x.sqrt()  # the bad line" in caught.value.note
    assert "test_anomaly.py" in caught.value.note


def test_backward() -> None:
    x = rl.tensor([0.0, 1.0], requires_grad=True)
    with detect_anomaly(), pytest.raises(AnomalyError, match="in the backward pass") as caught:
        root = x.sqrt()  # slope infinite at 0
        (root * 0).sum().backward()
    assert "x.sqrt()  # slope infinite" in caught.value.note
    with detect_anomaly(), pytest.raises(AnomalyError, match="backward"):
        rl.autograd.grad((x.sqrt() * 0).sum(), x)


def test_what_is_masked_is_no_anomaly() -> None:
    x = rl.tensor([-1.0, 4.0], requires_grad=True)
    with detect_anomaly():
        y = rl.where(x > 0, x.sqrt(), 0.0)
        assert y.tolist() == [0.0, 2.0]
        attention = rl.tensor([1.0, 2.0]).masked_fill(rl.tensor([True, False]), float("-inf"))
        assert attention.softmax(0).tolist() == [0.0, 1.0]


def test_infinities_where_asked() -> None:
    x = rl.tensor([100.0])
    with detect_anomaly():
        assert rl.exp(x).tolist() == [float("inf")]
    with detect_anomaly(infinite=True), pytest.raises(AnomalyError, match=r"exp .* infinite value"):
        rl.exp(x).tolist()


def test_a_tensor_that_is_bad_already() -> None:
    x = rl.tensor([float("nan")])
    with detect_anomaly(), pytest.raises(AnomalyError, match="holds NaN before the forward pass"):
        (x + 1).tolist()


def test_inside_modules_and_jitted_functions() -> None:
    model = nn.Sequential(nn.Linear(2, 2), nn.Softplus())
    with rl.no_grad():
        model[0].weight.fill_(float("inf"))
    step = rl.jit(lambda x: model(x).log().sum())
    x = rl.tensor(np.array([[1.0, -1.0]], np.float32))
    assert np.isnan(step(x).item())
    with detect_anomaly(), pytest.raises(AnomalyError, match=r"contract|add|mul"):
        step(x).item()
    assert np.isnan(step(x).item()), "the mode ends with the block"


def test_switching() -> None:
    x = rl.tensor([-1.0])
    set_detect_anomaly(True)
    try:
        with pytest.raises(AnomalyError):
            x.log().tolist()
        with set_detect_anomaly(False):
            assert np.isnan(x.log().item())
        with pytest.raises(AnomalyError):
            x.sqrt().tolist()
    finally:
        set_detect_anomaly(False)
    assert np.isnan(x.log().item())
