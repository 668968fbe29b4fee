"""ResNet, ResNeXt and Wide ResNet, with torchvision's names of weights."""

from __future__ import annotations

from functools import partial
from typing import Any

from ridgeline import nn
from ridgeline.tensors.tensor import Tensor
from ridgeline.vision.models.registry import named


def conv3x3(inputs: int, outputs: int, stride: int = 1, groups: int = 1, dilation: int = 1) -> Any:
    """A convolution over nine pixels that keeps the size."""
    return nn.Conv2d(inputs, outputs, 3, stride, dilation, dilation, groups, bias=False)


def conv1x1(inputs: int, outputs: int, stride: int = 1) -> Any:
    """A convolution over single pixels."""
    return nn.Conv2d(inputs, outputs, 1, stride, bias=False)


class BasicBlock(nn.Module):
    """Two convolutions beside a shortcut."""

    expansion = 1

    def __init__(
        self, inplanes: int, planes: int, stride: int = 1, downsample: Any = None,
        groups: int = 1, base_width: int = 64, dilation: int = 1, norm_layer: Any = nn.BatchNorm2d,
    ) -> None:  # fmt: skip
        super().__init__()
        self.conv1, self.bn1 = conv3x3(inplanes, planes, stride), norm_layer(planes)
        self.relu = nn.ReLU(inplace=True)
        self.conv2, self.bn2 = conv3x3(planes, planes), norm_layer(planes)
        self.downsample, self.stride = downsample, stride

    def forward(self, x: Tensor) -> Tensor:
        """The block's own part added to its input."""
        out = self.bn2(self.conv2(self.relu(self.bn1(self.conv1(x)))))
        made: Tensor = self.relu(out + (x if self.downsample is None else self.downsample(x)))
        return made


class Bottleneck(nn.Module):
    """A convolution between two that change the width, beside a shortcut."""

    expansion = 4

    def __init__(
        self, inplanes: int, planes: int, stride: int = 1, downsample: Any = None,
        groups: int = 1, base_width: int = 64, dilation: int = 1, norm_layer: Any = nn.BatchNorm2d,
    ) -> None:  # fmt: skip
        super().__init__()
        width = int(planes * (base_width / 64.0)) * groups
        self.conv1, self.bn1 = conv1x1(inplanes, width), norm_layer(width)
        self.conv2, self.bn2 = conv3x3(width, width, stride, groups, dilation), norm_layer(width)
        self.conv3, self.bn3 = conv1x1(width, planes * 4), norm_layer(planes * 4)
        self.relu = nn.ReLU(inplace=True)
        self.downsample, self.stride = downsample, stride

    def forward(self, x: Tensor) -> Tensor:
        """The block's own part added to its input."""
        out = self.relu(self.bn2(self.conv2(self.relu(self.bn1(self.conv1(x))))))
        out = self.bn3(self.conv3(out))
        made: Tensor = self.relu(out + (x if self.downsample is None else self.downsample(x)))
        return made


class ResNet(nn.Module):
    """Four groups of blocks, each at half the size of the one before."""

    def __init__(
        self, block: Any, layers: list[int], num_classes: int = 1000,
        zero_init_residual: bool = False, groups: int = 1, width_per_group: int = 64,
        replace_stride_with_dilation: list[bool] | None = None, norm_layer: Any = None,
    ) -> None:  # fmt: skip
        super().__init__()
        norm = norm_layer or nn.BatchNorm2d
        self._parts: dict[str, Any] = {
            "groups": groups,
            "base_width": width_per_group,
            "norm_layer": norm,
        }
        self.inplanes, self.dilation = 64, 1
        dilated = replace_stride_with_dilation or [False] * 3
        self.conv1 = nn.Conv2d(3, 64, 7, 2, 3, bias=False)
        self.bn1, self.relu = norm(64), nn.ReLU(inplace=True)
        self.maxpool = nn.MaxPool2d(3, 2, 1)
        self.layer1 = self._layer(block, 64, layers[0], 1, False)
        self.layer2 = self._layer(block, 128, layers[1], 2, dilated[0])
        self.layer3 = self._layer(block, 256, layers[2], 2, dilated[1])
        self.layer4 = self._layer(block, 512, layers[3], 2, dilated[2])
        self.avgpool = nn.AdaptiveAvgPool2d((1, 1))
        self.fc = nn.Linear(512 * block.expansion, num_classes)
        for module in self.modules():
            if isinstance(module, nn.Conv2d):
                nn.init.kaiming_normal_(module.weight, mode="fan_out", nonlinearity="relu")
            elif zero_init_residual and isinstance(module, Bottleneck | BasicBlock):
                last = module.bn3 if isinstance(module, Bottleneck) else module.bn2
                nn.init.constant_(last.weight, 0)

    def _layer(self, block: Any, planes: int, count: int, stride: int, dilate: bool) -> Any:
        before = self.dilation
        if dilate:
            self.dilation, stride = self.dilation * stride, 1
        wide, downsample = planes * block.expansion, None
        if stride != 1 or self.inplanes != wide:
            norm = self._parts["norm_layer"]
            downsample = nn.Sequential(conv1x1(self.inplanes, wide, stride), norm(wide))
        blocks = [block(self.inplanes, planes, stride, downsample, dilation=before, **self._parts)]
        self.inplanes = wide
        for _ in range(1, count):
            blocks.append(block(wide, planes, dilation=self.dilation, **self._parts))
        return nn.Sequential(*blocks)

    def forward(self, x: Tensor) -> Tensor:
        """Scores [n, classes] of pictures [n, 3, height, width]."""
        x = self.maxpool(self.relu(self.bn1(self.conv1(x))))
        x = self.layer4(self.layer3(self.layer2(self.layer1(x))))
        found: Tensor = self.fc(self.avgpool(x).flatten(1))
        return found


def _resnet(block: Any, layers: list[int], **fixed: Any) -> Any:
    return partial(ResNet, block, layers, **fixed)


resnet18 = named("resnet18", _resnet(BasicBlock, [2, 2, 2, 2]), "ResNet-18.")
resnet34 = named("resnet34", _resnet(BasicBlock, [3, 4, 6, 3]), "ResNet-34.")
resnet50 = named("resnet50", _resnet(Bottleneck, [3, 4, 6, 3]), "ResNet-50.")
resnet101 = named("resnet101", _resnet(Bottleneck, [3, 4, 23, 3]), "ResNet-101.")
resnet152 = named("resnet152", _resnet(Bottleneck, [3, 8, 36, 3]), "ResNet-152.")
resnext50_32x4d = named(
    "resnext50_32x4d", _resnet(Bottleneck, [3, 4, 6, 3], groups=32, width_per_group=4),
    "ResNeXt-50 with 32 groups.",
)  # fmt: skip
resnext101_32x8d = named(
    "resnext101_32x8d", _resnet(Bottleneck, [3, 4, 23, 3], groups=32, width_per_group=8),
    "ResNeXt-101 with 32 groups.",
)  # fmt: skip
wide_resnet50_2 = named(
    "wide_resnet50_2", _resnet(Bottleneck, [3, 4, 6, 3], width_per_group=128),
    "ResNet-50 at twice the width.",
)  # fmt: skip
wide_resnet101_2 = named(
    "wide_resnet101_2", _resnet(Bottleneck, [3, 4, 23, 3], width_per_group=128),
    "ResNet-101 at twice the width.",
)  # fmt: skip
