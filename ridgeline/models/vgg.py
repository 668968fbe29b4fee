"""VGG-11, 13, 16 and 19 for images [n, 3, h, w], with torchvision's names of parameters."""

from __future__ import annotations

from collections.abc import Sequence

from ridgeline import nn
from ridgeline.errors import BadValueError
from ridgeline.tensors.tensor import Tensor

WIDTHS = (64, 128, 256, 512, 512)
CONVOLUTIONS = {11: (1, 1, 2, 2, 2), 13: (2, 2, 2, 2, 2), 16: (2, 2, 3, 3, 3), 19: (2, 2, 4, 4, 4)}


class VGG(nn.Module):
    """Stages of 3×3 convolutions, each ended by pooling, then three linear layers."""

    def __init__(
        self,
        convolutions: Sequence[int],
        num_classes: int = 1000,
        batch_norm: bool = False,
        dropout: float = 0.5,
        widths: Sequence[int] = WIDTHS,
        hidden: int = 4096,
    ) -> None:
        super().__init__()
        layers: list[nn.Module] = []
        before = 3
        for count, width in zip(convolutions, widths):
            for _ in range(count):
                layers.append(nn.Conv2d(before, width, 3, padding=1))
                if batch_norm:
                    layers.append(nn.BatchNorm2d(width))
                layers.append(nn.ReLU(inplace=True))
                before = width
            layers.append(nn.MaxPool2d(2, 2))
        self.features = nn.Sequential(*layers)
        self.avgpool = nn.AdaptiveAvgPool2d((7, 7))
        self.classifier = nn.Sequential(
            nn.Linear(before * 7 * 7, hidden),
            nn.ReLU(inplace=True),
            nn.Dropout(dropout),
            nn.Linear(hidden, hidden),
            nn.ReLU(inplace=True),
            nn.Dropout(dropout),
            nn.Linear(hidden, num_classes),
        )
        self.apply(_initial)

    def forward(self, images: Tensor) -> Tensor:
        result: Tensor = self.classifier(self.avgpool(self.features(images)).flatten(1))
        return result


def _initial(module: nn.Module) -> None:
    """He's normal distribution for convolutions, narrow normal weights for linear layers."""
    if isinstance(module, nn.Conv2d):
        nn.init.kaiming_normal_(module.weight, mode="fan_out", nonlinearity="relu")
    elif isinstance(module, nn.Linear):
        nn.init.normal_(module.weight, 0.0, 0.01)
    else:
        return
    if module.bias is not None:
        nn.init.zeros_(module.bias)


def vgg(layers: int = 16, num_classes: int = 1000, batch_norm: bool = False) -> VGG:
    """VGG with 11, 13, 16 or 19 layers that have weights."""
    if layers not in CONVOLUTIONS:
        raise BadValueError(f"a VGG has 11, 13, 16 or 19 layers, not {layers}")
    return VGG(CONVOLUTIONS[layers], num_classes, batch_norm)
