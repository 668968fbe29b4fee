"""ResNet-18, 34 and 50 for images [n, 3, h, w], with torchvision's names of parameters."""

from __future__ import annotations

from collections.abc import Sequence

from ridgeline import nn
from ridgeline.tensors.tensor import Tensor


def _conv(before: int, after: int, size: int, stride: int = 1) -> nn.Conv2d:
    return nn.Conv2d(before, after, size, stride, size // 2, bias=False)


class BasicBlock(nn.Module):
    """Two 3×3 convolutions and a shortcut."""

    expansion = 1

    def __init__(self, before: int, width: int, stride: int, downsample: nn.Module | None) -> None:
        super().__init__()
        self.conv1, self.bn1 = _conv(before, width, 3, stride), nn.BatchNorm2d(width)
        self.relu = nn.ReLU(inplace=True)
        self.conv2, self.bn2 = _conv(width, width, 3), nn.BatchNorm2d(width)
        self.downsample = downsample

    def forward(self, x: Tensor) -> Tensor:
        shortcut = x if self.downsample is None else self.downsample(x)
        inner = self.relu(self.bn1(self.conv1(x)))
        result: Tensor = self.relu(self.bn2(self.conv2(inner)) + shortcut)
        return result


class Bottleneck(nn.Module):
    """A 3×3 convolution between two 1×1 ones, and a shortcut."""

    expansion = 4

    def __init__(self, before: int, width: int, stride: int, downsample: nn.Module | None) -> None:
        super().__init__()
        after = width * self.expansion
        self.conv1, self.bn1 = _conv(before, width, 1), nn.BatchNorm2d(width)
        self.conv2, self.bn2 = _conv(width, width, 3, stride), nn.BatchNorm2d(width)
        self.conv3, self.bn3 = _conv(width, after, 1), nn.BatchNorm2d(after)
        self.relu = nn.ReLU(inplace=True)
        self.downsample = downsample

    def forward(self, x: Tensor) -> Tensor:
        shortcut = x if self.downsample is None else self.downsample(x)
        inner = self.relu(self.bn1(self.conv1(x)))
        inner = self.relu(self.bn2(self.conv2(inner)))
        result: Tensor = self.relu(self.bn3(self.conv3(inner)) + shortcut)
        return result


class ResNet(nn.Module):
    """A stem, stages of blocks, a mean over the image, and a linear layer."""

    def __init__(
        self,
        block: type[BasicBlock] | type[Bottleneck],
        layers: Sequence[int],
        num_classes: int = 1000,
    ) -> None:
        super().__init__()
        self.conv1 = nn.Conv2d(3, 64, 7, 2, 3, bias=False)
        self.bn1, self.relu = nn.BatchNorm2d(64), nn.ReLU(inplace=True)
        self.maxpool = nn.MaxPool2d(3, 2, 1)
        self.stages, before = len(layers), 64
        for number, count in enumerate(layers):
            width, stride = 64 << number, 1 if number == 0 else 2
            stage = _stage(block, before, width, count, stride)
            setattr(self, f"layer{number + 1}", stage)
            before = width * block.expansion
        self.avgpool = nn.AdaptiveAvgPool2d((1, 1))
        self.fc = nn.Linear(before, num_classes)
        self.apply(_initial)

    def forward(self, x: Tensor) -> Tensor:
        x = self.maxpool(self.relu(self.bn1(self.conv1(x))))
        for number in range(self.stages):
            x = getattr(self, f"layer{number + 1}")(x)
        result: Tensor = self.fc(self.avgpool(x).flatten(1))
        return result


def _stage(
    block: type[BasicBlock] | type[Bottleneck], before: int, width: int, count: int, stride: int
) -> nn.Sequential:
    after = width * block.expansion
    downsample = None
    if stride != 1 or before != after:
        downsample = nn.Sequential(_conv(before, after, 1, stride), nn.BatchNorm2d(after))
    first = block(before, width, stride, downsample)
    return nn.Sequential(first, *(block(after, width, 1, None) for _ in range(count - 1)))


def _initial(module: nn.Module) -> None:
    """He's normal distribution by fan out, as torchvision starts its convolutions."""
    if isinstance(module, nn.Conv2d):
        nn.init.kaiming_normal_(module.weight, mode="fan_out", nonlinearity="relu")


def resnet18(num_classes: int = 1000) -> ResNet:
    """ResNet-18."""
    return ResNet(BasicBlock, (2, 2, 2, 2), num_classes)


def resnet34(num_classes: int = 1000) -> ResNet:
    """ResNet-34."""
    return ResNet(BasicBlock, (3, 4, 6, 3), num_classes)


def resnet50(num_classes: int = 1000) -> ResNet:
    """ResNet-50."""
    return ResNet(Bottleneck, (3, 4, 6, 3), num_classes)
