"""AlexNet, VGG and SqueezeNet, with torchvision's names of weights."""

from __future__ import annotations

from functools import partial
from typing import Any

from ridgeline import nn
from ridgeline.tensors.public import cat
from ridgeline.tensors.tensor import Tensor
from ridgeline.vision.models.registry import named


class AlexNet(nn.Module):
    """Five convolutions and three linear layers."""

    def __init__(self, num_classes: int = 1000, dropout: float = 0.5) -> None:
        super().__init__()
        relu = partial(nn.ReLU, inplace=True)
        self.features = nn.Sequential(
            nn.Conv2d(3, 64, 11, 4, 2), relu(), nn.MaxPool2d(3, 2), nn.Conv2d(64, 192, 5, 1, 2),
            relu(), nn.MaxPool2d(3, 2), nn.Conv2d(192, 384, 3, 1, 1), relu(),
            nn.Conv2d(384, 256, 3, 1, 1), relu(), nn.Conv2d(256, 256, 3, 1, 1), relu(),
            nn.MaxPool2d(3, 2),
        )  # fmt: skip
        self.avgpool = nn.AdaptiveAvgPool2d((6, 6))
        self.classifier = nn.Sequential(
            nn.Dropout(dropout), nn.Linear(256 * 36, 4096), relu(), nn.Dropout(dropout),
            nn.Linear(4096, 4096), relu(), nn.Linear(4096, num_classes),
        )  # fmt: skip

    def forward(self, x: Tensor) -> Tensor:
        """Scores [n, classes] of pictures [n, 3, height, width]."""
        found: Tensor = self.classifier(self.avgpool(self.features(x)).flatten(1))
        return found


_VGG = {  # channels of each group of convolutions, between which the size is halved
    "vgg11": ([64], [128], [256] * 2, [512] * 2, [512] * 2),
    "vgg13": ([64] * 2, [128] * 2, [256] * 2, [512] * 2, [512] * 2),
    "vgg16": ([64] * 2, [128] * 2, [256] * 3, [512] * 3, [512] * 3),
    "vgg19": ([64] * 2, [128] * 2, [256] * 4, [512] * 4, [512] * 4),
}


class VGG(nn.Module):
    """Groups of 3x3 convolutions and three linear layers."""

    def __init__(
        self, features: nn.Module, num_classes: int = 1000, init_weights: bool = True,
        dropout: float = 0.5,
    ) -> None:  # fmt: skip
        super().__init__()
        self.features, self.avgpool = features, nn.AdaptiveAvgPool2d((7, 7))
        self.classifier = nn.Sequential(
            nn.Linear(512 * 49, 4096), nn.ReLU(True), nn.Dropout(dropout), nn.Linear(4096, 4096),
            nn.ReLU(True), nn.Dropout(dropout), nn.Linear(4096, num_classes),
        )  # fmt: skip
        for module in self.modules() if init_weights else ():
            if isinstance(module, nn.Conv2d):
                nn.init.kaiming_normal_(module.weight, mode="fan_out", nonlinearity="relu")
            elif isinstance(module, nn.Linear):
                nn.init.normal_(module.weight, 0, 0.01)
            if isinstance(module, nn.Conv2d | nn.Linear) and module.bias is not None:
                nn.init.constant_(module.bias, 0)

    def forward(self, x: Tensor) -> Tensor:
        """Scores [n, classes] of pictures [n, 3, height, width]."""
        found: Tensor = self.classifier(self.avgpool(self.features(x)).flatten(1))
        return found


def _vgg(name: str, norm: bool, **options: Any) -> VGG:
    layers: list[nn.Module] = []
    width = 3
    for group in _VGG[name]:
        for channels in group:
            layers.append(nn.Conv2d(width, channels, 3, padding=1))
            if norm:
                layers.append(nn.BatchNorm2d(channels))
            layers.append(nn.ReLU(inplace=True))
            width = channels
        layers.append(nn.MaxPool2d(2, 2))
    return VGG(nn.Sequential(*layers), **options)


class Fire(nn.Module):
    """Few channels, then many: half of them by single pixels."""

    def __init__(self, inplanes: int, squeeze: int, expand1x1: int, expand3x3: int) -> None:
        super().__init__()
        self.squeeze = nn.Conv2d(inplanes, squeeze, 1)
        self.squeeze_activation = nn.ReLU(inplace=True)
        self.expand1x1 = nn.Conv2d(squeeze, expand1x1, 1)
        self.expand1x1_activation = nn.ReLU(inplace=True)
        self.expand3x3 = nn.Conv2d(squeeze, expand3x3, 3, padding=1)
        self.expand3x3_activation = nn.ReLU(inplace=True)

    def forward(self, x: Tensor) -> Tensor:
        """Both halves side by side."""
        x = self.squeeze_activation(self.squeeze(x))
        one = self.expand1x1_activation(self.expand1x1(x))
        return cat([one, self.expand3x3_activation(self.expand3x3(x))], 1)


class SqueezeNet(nn.Module):
    """Fire modules under a convolution that gives the scores."""

    def __init__(self, version: str = "1_0", num_classes: int = 1000, dropout: float = 0.5) -> None:
        super().__init__()
        first = nn.Conv2d(3, 96, 7, 2) if version == "1_0" else nn.Conv2d(3, 64, 3, 2)
        pooled = (2, 6, 11) if version == "1_0" else (2, 5, 8)
        sizes = [
            (16, 64),
            (16, 64),
            (32, 128),
            (32, 128),
            (48, 192),
            (48, 192),
            (64, 256),
            (64, 256),
        ]
        layers: list[nn.Module] = [first, nn.ReLU(inplace=True)]
        width = 96 if version == "1_0" else 64
        for squeeze, expand in sizes:
            if len(layers) in pooled:
                layers.append(nn.MaxPool2d(3, 2, ceil_mode=True))
            layers.append(Fire(width, squeeze, expand, expand))
            width = 2 * expand
        self.features = nn.Sequential(*layers)
        self.classifier = nn.Sequential(
            nn.Dropout(dropout), nn.Conv2d(512, num_classes, 1), nn.ReLU(inplace=True),
            nn.AdaptiveAvgPool2d((1, 1)),
        )  # fmt: skip

    def forward(self, x: Tensor) -> Tensor:
        """Scores [n, classes] of pictures [n, 3, height, width]."""
        found: Tensor = self.classifier(self.features(x)).flatten(1)
        return found


alexnet = named("alexnet", AlexNet, "AlexNet.")
squeezenet1_0 = named("squeezenet1_0", partial(SqueezeNet, "1_0"), "SqueezeNet 1.0.")
squeezenet1_1 = named("squeezenet1_1", partial(SqueezeNet, "1_1"), "SqueezeNet 1.1.")
vgg11, vgg13, vgg16, vgg19 = (
    named(name, partial(_vgg, name, False), f"{name.upper()}.") for name in _VGG
)
vgg11_bn, vgg13_bn, vgg16_bn, vgg19_bn = (
    named(f"{name}_bn", partial(_vgg, name, True), f"{name.upper()} with batch normalisation.")
    for name in _VGG
)
