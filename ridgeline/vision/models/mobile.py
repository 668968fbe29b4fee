"""MobileNet 2 and 3 and EfficientNet: inverted bottlenecks, with torchvision's names of weights."""

from __future__ import annotations

import math
from functools import partial
from typing import Any

from ridgeline import nn
from ridgeline.tensors.tensor import Tensor
from ridgeline.vision.models.registry import divisible, named
from ridgeline.vision.ops.misc import Conv2dNormActivation, SqueezeExcitation, StochasticDepth


def _started(net: nn.Module) -> None:
    """Weights of a new network."""
    for module in net.modules():
        if isinstance(module, nn.Conv2d):
            nn.init.kaiming_normal_(module.weight, mode="fan_out")
        elif isinstance(module, nn.Linear):
            nn.init.normal_(module.weight, 0, 0.01)
        if isinstance(module, nn.Conv2d | nn.Linear) and module.bias is not None:
            nn.init.zeros_(module.bias)


class _Classifier(nn.Module):
    """Features, their mean over a picture, and scores."""

    features: nn.Module
    classifier: nn.Module

    def forward(self, x: Tensor) -> Tensor:
        """Scores [n, classes] of pictures [n, 3, height, width]."""
        found: Tensor = self.classifier(self._pooled(self.features(x)).flatten(1))
        return found

    def _pooled(self, x: Tensor) -> Tensor:
        pooled: Tensor = self.avgpool(x)
        return pooled


class InvertedResidual(nn.Module):
    """Of MobileNet 2: wide between two narrow ends, beside a shortcut where sizes agree."""

    def __init__(self, inp: int, oup: int, stride: int, expand_ratio: int) -> None:
        super().__init__()
        hidden = round(inp * expand_ratio)
        layers: list[nn.Module] = []
        if expand_ratio != 1:
            layers.append(Conv2dNormActivation(inp, hidden, 1, activation_layer=nn.ReLU6))
        layers += [
            Conv2dNormActivation(hidden, hidden, 3, stride, groups=hidden,
                                 activation_layer=nn.ReLU6),
            nn.Conv2d(hidden, oup, 1, bias=False), nn.BatchNorm2d(oup),
        ]  # fmt: skip
        self.conv, self._adds = nn.Sequential(*layers), stride == 1 and inp == oup

    def forward(self, x: Tensor) -> Tensor:
        """The block's own part, added to its input where that fits."""
        made: Tensor = x + self.conv(x) if self._adds else self.conv(x)
        return made


class MobileNetV2(_Classifier):
    """Inverted bottlenecks under one wide convolution."""

    def __init__(
        self, num_classes: int = 1000, width_mult: float = 1.0, dropout: float = 0.2
    ) -> None:
        super().__init__()
        width, last = divisible(32 * width_mult), divisible(1280 * max(1.0, width_mult))
        layers: list[nn.Module] = [Conv2dNormActivation(3, width, 3, 2, activation_layer=nn.ReLU6)]
        for ratio, channels, count, stride in (
            (1, 16, 1, 1), (6, 24, 2, 2), (6, 32, 3, 2), (6, 64, 4, 2), (6, 96, 3, 1),
            (6, 160, 3, 2), (6, 320, 1, 1),
        ):  # fmt: skip
            for number in range(count):
                made = divisible(channels * width_mult)
                layers.append(InvertedResidual(width, made, 1 if number else stride, ratio))
                width = made
        layers.append(Conv2dNormActivation(width, last, 1, activation_layer=nn.ReLU6))
        self.features = nn.Sequential(*layers)
        self.classifier = nn.Sequential(nn.Dropout(dropout), nn.Linear(last, num_classes))
        _started(self)

    def _pooled(self, x: Tensor) -> Tensor:
        return x.mean((2, 3))


_batch_norm = partial(nn.BatchNorm2d, eps=0.001, momentum=0.01)
# of each block: kernel, wide channels, channels, squeezed?, hard swish?, stride
_LARGE = (
    (3, 16, 16, 0, 0, 1), (3, 64, 24, 0, 0, 2), (3, 72, 24, 0, 0, 1), (5, 72, 40, 1, 0, 2),
    (5, 120, 40, 1, 0, 1), (5, 120, 40, 1, 0, 1), (3, 240, 80, 0, 1, 2), (3, 200, 80, 0, 1, 1),
    (3, 184, 80, 0, 1, 1), (3, 184, 80, 0, 1, 1), (3, 480, 112, 1, 1, 1), (3, 672, 112, 1, 1, 1),
    (5, 672, 160, 1, 1, 2), (5, 960, 160, 1, 1, 1), (5, 960, 160, 1, 1, 1),
)  # fmt: skip
_SMALL = (
    (3, 16, 16, 1, 0, 2), (3, 72, 24, 0, 0, 2), (3, 88, 24, 0, 0, 1), (5, 96, 40, 1, 1, 2),
    (5, 240, 40, 1, 1, 1), (5, 240, 40, 1, 1, 1), (5, 120, 48, 1, 1, 1), (5, 144, 48, 1, 1, 1),
    (5, 288, 96, 1, 1, 2), (5, 576, 96, 1, 1, 1), (5, 576, 96, 1, 1, 1),
)  # fmt: skip


class _Block(nn.Module):
    """An inverted bottleneck whose channels may be weighted, beside a shortcut where that fits."""

    def __init__(self, layers: list[nn.Module], adds: bool, chance: float = 0.0) -> None:
        super().__init__()
        self.block, self._adds = nn.Sequential(*layers), adds
        self.stochastic_depth = StochasticDepth(chance, "row")

    def forward(self, input: Tensor) -> Tensor:
        """The block's own part, added to its input where that fits."""
        made: Tensor = self.block(input)
        return self.stochastic_depth(made) + input if self._adds else made


def _inverted(
    inputs: int, kernel: int, wide: int, outputs: int, squeezed: int, stride: int, act: Any,
    norm: Any, gate: Any, chance: float = 0.0,
) -> _Block:  # fmt: skip
    layers: list[nn.Module] = []
    if wide != inputs:
        layers.append(Conv2dNormActivation(inputs, wide, 1, norm_layer=norm, activation_layer=act))
    layers.append(
        Conv2dNormActivation(wide, wide, kernel, stride, groups=wide, norm_layer=norm,
                             activation_layer=act)
    )  # fmt: skip
    if squeezed:
        layers.append(SqueezeExcitation(wide, squeezed, **gate))
    layers.append(Conv2dNormActivation(wide, outputs, 1, norm_layer=norm, activation_layer=None))
    return _Block(layers, stride == 1 and inputs == outputs, chance)


class MobileNetV3(_Classifier):
    """Inverted bottlenecks by a table, with hard activations."""

    def __init__(
        self, blocks: Any, last: int, num_classes: int = 1000, dropout: float = 0.2
    ) -> None:
        super().__init__()
        layers: list[nn.Module] = [
            Conv2dNormActivation(3, 16, 3, 2, norm_layer=_batch_norm, activation_layer=nn.Hardswish)
        ]
        width, gate = 16, {"scale_activation": nn.Hardsigmoid}
        for kernel, wide, outputs, squeezed, swish, stride in blocks:
            act = nn.Hardswish if swish else nn.ReLU
            few = divisible(wide // 4) if squeezed else 0
            layers.append(
                _inverted(width, kernel, wide, outputs, few, stride, act, _batch_norm, gate)
            )
            width = outputs
        layers.append(
            Conv2dNormActivation(width, 6 * width, 1, norm_layer=_batch_norm,
                                 activation_layer=nn.Hardswish)
        )  # fmt: skip
        self.features, self.avgpool = nn.Sequential(*layers), nn.AdaptiveAvgPool2d(1)
        self.classifier = nn.Sequential(
            nn.Linear(6 * width, last), nn.Hardswish(inplace=True), nn.Dropout(dropout),
            nn.Linear(last, num_classes),
        )  # fmt: skip
        _started(self)


# of each stage: ratio, kernel, stride, inputs, outputs, blocks
_STAGES = (
    (1, 3, 1, 32, 16, 1), (6, 3, 2, 16, 24, 2), (6, 5, 2, 24, 40, 2), (6, 3, 2, 40, 80, 3),
    (6, 5, 1, 80, 112, 3), (6, 5, 2, 112, 192, 4), (6, 3, 1, 192, 320, 1),
)  # fmt: skip


class EfficientNet(_Classifier):
    """Inverted bottlenecks, wider and deeper by two factors."""

    def __init__(
        self, width_mult: float, depth_mult: float, dropout: float, norm_layer: Any = None,
        num_classes: int = 1000, stochastic_depth_prob: float = 0.2,
    ) -> None:  # fmt: skip
        super().__init__()
        norm = norm_layer or nn.BatchNorm2d
        counts = [math.ceil(stage[-1] * depth_mult) for stage in _STAGES]
        first = divisible(32 * width_mult)
        layers: list[nn.Module] = [
            Conv2dNormActivation(3, first, 3, 2, norm_layer=norm, activation_layer=nn.SiLU)
        ]
        number, width, gate = 0, first, {"activation": partial(nn.SiLU, inplace=True)}
        for (ratio, kernel, stride, inputs, outputs, _), count in zip(_STAGES, counts):
            blocks = []
            width, made = divisible(inputs * width_mult), divisible(outputs * width_mult)
            for place in range(count):
                chance = stochastic_depth_prob * number / sum(counts)
                blocks.append(
                    _inverted(width, kernel, divisible(width * ratio), made, max(1, width // 4),
                              1 if place else stride, nn.SiLU, norm, gate, chance)
                )  # fmt: skip
                width, number = made, number + 1
            layers.append(nn.Sequential(*blocks))
        layers.append(
            Conv2dNormActivation(width, 4 * width, 1, norm_layer=norm, activation_layer=nn.SiLU)
        )
        self.features, self.avgpool = nn.Sequential(*layers), nn.AdaptiveAvgPool2d(1)
        self.classifier = nn.Sequential(
            nn.Dropout(dropout, inplace=True), nn.Linear(4 * width, num_classes)
        )
        _started(self)


def _efficientnet(
    width: float, depth: float, chance: float, norm: Any = None, **options: Any
) -> Any:
    dropout = options.pop("dropout", chance)
    return EfficientNet(width, depth, dropout, options.pop("norm_layer", norm), **options)


mobilenet_v2 = named("mobilenet_v2", MobileNetV2, "MobileNet 2.")
mobilenet_v3_large = named(
    "mobilenet_v3_large", partial(MobileNetV3, _LARGE, 1280), "MobileNet 3, large."
)
mobilenet_v3_small = named(
    "mobilenet_v3_small", partial(MobileNetV3, _SMALL, 1024), "MobileNet 3, small."
)
_slow = partial(nn.BatchNorm2d, eps=0.001, momentum=0.01)
_FACTORS: tuple[tuple[Any, ...], ...] = (
    (1.0, 1.0, 0.2), (1.0, 1.1, 0.2), (1.1, 1.2, 0.3), (1.2, 1.4, 0.3), (1.4, 1.8, 0.4),
    (1.6, 2.2, 0.4, _slow), (1.8, 2.6, 0.5, _slow), (2.0, 3.1, 0.5, _slow),
)  # fmt: skip
(
    efficientnet_b0, efficientnet_b1, efficientnet_b2, efficientnet_b3, efficientnet_b4,
    efficientnet_b5, efficientnet_b6, efficientnet_b7,
) = (
    named(f"efficientnet_b{number}", partial(_efficientnet, *factors), f"EfficientNet-B{number}.")
    for number, factors in enumerate(_FACTORS)
)  # fmt: skip
