"""Every layer against torch's: keys, shapes, outputs, gradients and buffers."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch

import ridgeline.nn.functional as functional
from ridgeline import nn
from tests.nn.oracle import compare

Inputs = Callable[[], tuple[Any, ...]]


def x(*shape: int) -> Inputs:
    """One input of normal numbers with a gradient."""
    return lambda: (torch.randn(*shape, requires_grad=True),)


def pair(*shape: int) -> Inputs:
    return lambda: (torch.randn(*shape, requires_grad=True), torch.randn(*shape))


def classes(*shape: int) -> Inputs:
    """Scores and class indices."""
    rest = (*shape[:1], *shape[2:])
    return lambda: (torch.randn(*shape, requires_grad=True), torch.randint(0, shape[1], rest))


CASES: dict[str, tuple[str, tuple[Any, ...], dict[str, Any], Inputs]] = {}


def case(name: str, inputs: Inputs, *args: Any, label: str = "", **kwargs: Any) -> None:
    key = f"{name}{'-' + label if label else ''}"
    assert key not in CASES, key
    CASES[key] = (name, args, kwargs, inputs)


for plain in ("ReLU", "ReLU6", "SELU", "SiLU", "Mish", "Hardsigmoid", "Hardswish", "Sigmoid",
              "LogSigmoid", "Tanh", "Tanhshrink", "Softsign", "LeakyReLU", "ELU", "CELU", "GELU",
              "Hardtanh", "Hardshrink", "Softshrink", "Softplus", "GLU", "Identity", "PReLU",
              "Softmax2d", "Flatten"):  # fmt: skip
    case(plain, x(2, 4, 3, 6))
case("GELU", x(3, 5), "tanh", label="tanh")
case("LeakyReLU", x(3, 5), 0.2, label="slope")
case("ELU", x(3, 5), 0.7, label="alpha")
case("Softplus", x(3, 5), 2.0, 1.0, label="beta")
case("Threshold", x(3, 5), 0.1, 20.0)
case("PReLU", x(2, 4, 3), 4, label="channels")
case("Softmax", x(3, 5), 1)
case("Softmin", x(3, 5), 1)
case("LogSoftmax", x(3, 5), 1)
case("Linear", x(4, 3), 3, 5)
case("Linear", x(2, 4, 3), 3, 5, bias=False, label="batched")
case("Bilinear", lambda: (torch.randn(4, 3), torch.randn(4, 2)), 3, 2, 5)
case("Conv1d", x(2, 4, 9), 4, 6, 3, stride=2, padding=1)
case("Conv2d", x(2, 1, 8, 8), 1, 6, 3)
case("Conv2d", x(2, 4, 9, 8), 4, 6, (3, 2), stride=(2, 1), padding=(1, 0), dilation=(1, 2),
     groups=2, label="grouped")  # fmt: skip
case("Conv2d", x(2, 3, 7, 7), 3, 2, 3, padding="same", bias=False, label="same")
case("Conv2d", x(3, 7, 7), 3, 2, 3, label="single")
case("Conv2d", x(2, 3, 7, 7), 3, 2, 3, padding=1, padding_mode="reflect", label="reflect")
case("Conv3d", x(1, 2, 4, 5, 6), 2, 3, 2)
case("ConvTranspose1d", x(2, 4, 5), 4, 6, 3, stride=2, padding=1, output_padding=1)
case("ConvTranspose2d", x(2, 4, 5, 4), 4, 6, 3, stride=2, groups=2, dilation=2)
case("ConvTranspose3d", x(1, 2, 3, 3, 3), 2, 3, 2)
case("AvgPool1d", x(2, 3, 9), 3, 2, 1)
case("AvgPool2d", x(2, 3, 8, 9), 2)
case("AvgPool2d", x(2, 3, 8, 9), 3, 2, 1, ceil_mode=True, count_include_pad=False, label="ceil")
case("AvgPool3d", x(1, 2, 4, 4, 4), 2)
case("MaxPool1d", x(2, 3, 9), 3, 2, 1)
case("MaxPool2d", x(2, 3, 8, 9), 2)
case("MaxPool2d", x(2, 3, 8, 9), 3, 2, 1, 2, label="dilated")
case("MaxPool3d", x(1, 2, 4, 4, 4), 2)
case("AdaptiveAvgPool2d", x(2, 3, 8, 6), (4, 3))
case("AdaptiveMaxPool2d", x(2, 3, 7, 5), (3, 2))
case("LayerNorm", x(3, 4, 5), (4, 5))
case("LayerNorm", x(3, 5), 5, elementwise_affine=False, label="plain")
case("RMSNorm", x(3, 5), 5)
case("GroupNorm", x(2, 6, 4), 3, 6)
case("BatchNorm1d", x(8, 3), 3)
case("BatchNorm2d", x(4, 3, 5, 5), 3)
case("BatchNorm2d", x(4, 3, 5, 5), 3, momentum=None, affine=False, label="average")
case("InstanceNorm2d", x(4, 3, 5, 5), 3, affine=True, track_running_stats=True)
case("LocalResponseNorm", x(2, 6, 3, 3), 3)
case("Embedding", lambda: (torch.randint(0, 7, (3, 4)),), 7, 5, padding_idx=2)
case("ZeroPad2d", x(1, 2, 3, 3), (1, 2, 0, 1))
case("ConstantPad1d", x(2, 3, 4), 2, 1.5)
case("ReflectionPad2d", x(1, 2, 4, 4), 2)
case("ReplicationPad1d", x(2, 3, 4), 2)
case("CircularPad2d", x(1, 2, 4, 4), 1)
case("PixelShuffle", x(1, 8, 3, 3), 2)
case("PixelUnshuffle", x(1, 2, 6, 6), 2)
case("Unflatten", x(2, 12), 1, (3, 4))
for loss in ("L1Loss", "MSELoss", "SmoothL1Loss", "HuberLoss"):
    case(loss, pair(4, 3))
    case(loss, pair(4, 3), reduction="sum", label="sum")
case("CrossEntropyLoss", classes(6, 5))
case("CrossEntropyLoss", classes(4, 5, 3), label_smoothing=0.1, label="smooth")
case("CrossEntropyLoss", classes(4, 5), reduction="none", ignore_index=2, label="ignore")
case("CrossEntropyLoss", lambda: (torch.randn(4, 5, requires_grad=True),
     torch.rand(4, 5).softmax(1)), label="probabilities")  # fmt: skip
case("NLLLoss", classes(6, 5))
case("BCEWithLogitsLoss", lambda: (torch.randn(4, 3, requires_grad=True), torch.rand(4, 3)))
case("KLDivLoss", lambda: (torch.randn(4, 3, requires_grad=True), torch.rand(4, 3)),
     reduction="batchmean")  # fmt: skip
case("SoftMarginLoss", lambda: (torch.randn(4, 3, requires_grad=True),
     torch.randn(4, 3).sign()))  # fmt: skip
case("PoissonNLLLoss", lambda: (torch.randn(4, 3, requires_grad=True), torch.rand(4, 3)))
case("MarginRankingLoss", lambda: (torch.randn(5, requires_grad=True), torch.randn(5),
     torch.randn(5).sign()), 0.3)  # fmt: skip
case("TripletMarginLoss", lambda: tuple(torch.randn(4, 3, requires_grad=True) for _ in range(3)))


@pytest.mark.parametrize("key", CASES)
def test_layer(key: str) -> None:
    name, args, kwargs, inputs = CASES[key]
    torch.manual_seed(0)
    theirs = getattr(torch.nn, name)(*args, **kwargs)
    layer = getattr(nn, name)(*args, **kwargs)
    wanted = getattr(layer, "function", "")
    if wanted and not hasattr(functional, wanted):
        pytest.skip(f"nn.functional.{wanted} does not exist yet")
    compare(layer, theirs, *inputs())


def test_evaluation_uses_running_statistics() -> None:
    torch.manual_seed(1)
    theirs, layer = torch.nn.BatchNorm1d(3), nn.BatchNorm1d(3)
    theirs(torch.randn(10, 3) * 2 + 1)
    compare(layer.eval(), theirs.eval(), torch.randn(4, 3, requires_grad=True))
