"""Models: sizes and names as published, and gradients that reach every parameter."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest

from ridgeline import nn
from ridgeline.config import config
from ridgeline.data.dataset import as_array
from ridgeline.models import ResNet, lenet5, mlp, resnet18, resnet34, resnet50
from ridgeline.models.pretrained import numbered
from ridgeline.nn.describe import count_parameters
from ridgeline.tensors.tensor import tensor


@pytest.mark.parametrize(
    ("model", "count"),
    [
        (lenet5, 81_194),
        (lambda: mlp([784, 256, 10]), 203_530),
        (resnet18, 11_689_512),
        (resnet34, 21_797_672),
        (resnet50, 25_557_032),
    ],
    ids=["lenet5", "mlp", "resnet18", "resnet34", "resnet50"],
)
def test_published_sizes(model: Callable[[], nn.Module], count: int) -> None:
    assert count_parameters(model()) == count


def test_resnet_has_torchvisions_names() -> None:
    names = list(resnet18(10).state_dict())
    assert names[:2] == ["conv1.weight", "bn1.weight"] and names[-2:] == ["fc.weight", "fc.bias"]
    assert "layer2.0.downsample.1.running_var" in names and "layer4.1.bn2.bias" in names
    assert "layer3.5.conv3.weight" in resnet50(10).state_dict()


def test_every_parameter_gets_a_gradient() -> None:
    model = ResNet(depths=(1, 1), hidden_sizes=(64, 128), layer_type="basic", id2label=numbered(4))
    images = np.random.default_rng(0).standard_normal((2, 3, 32, 32)).astype(np.float32)
    with config.override(tier="interpreter"):
        scores = model(tensor(images))
        scores.sum().backward()
        assert tuple(scores.shape) == (2, 4)
        for name, parameter in model.named_parameters():
            assert parameter.grad is not None and np.isfinite(as_array(parameter.grad)).all(), name
