"""ResNet-18, 34 and 50 for images [n, 3, h, w], with torchvision's names of parameters."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any, ClassVar, Self

from ridgeline import nn
from ridgeline.errors import BadValueError
from ridgeline.models.names import FileForm
from ridgeline.models.pretrained import ModelConfig, Pretrained, numbered, same
from ridgeline.tensors.tensor import Tensor


def _conv(before: int, after: int, size: int, stride: int = 1) -> nn.Conv2d:
    return nn.Conv2d(before, after, size, stride, size // 2, bias=False)


class BasicBlock(nn.Module):
    """Two 3×3 convolutions and a shortcut."""

    expansion, convolutions = 1, 2

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

    expansion, convolutions = 4, 3

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


@dataclass(frozen=True)
class ResNetConfig(ModelConfig):
    """Settings, with the defaults of ResNet-50."""

    model_type: ClassVar[str] = "resnet"
    prefixes: ClassVar = {"ResNetForImageClassification": "resnet."}
    layers: ClassVar[str] = "depths"
    fixed: ClassVar = {
        "hidden_act": "relu", "downsample_in_first_stage": False, "downsample_in_bottleneck": False,
    }  # fmt: skip

    num_channels: int = 3
    embedding_size: int = 64
    hidden_sizes: Sequence[int] = (256, 512, 1024, 2048)
    depths: Sequence[int] = (3, 4, 6, 3)
    layer_type: str = "bottleneck"
    id2label: dict[str, str] = field(default_factory=partial(numbered, 1000))

    def __post_init__(self) -> None:
        ModelConfig.__post_init__(self)
        if not self.depths or len(self.depths) != len(self.hidden_sizes):
            raise BadValueError(
                f"{len(self.depths)} depths do not go with {len(self.hidden_sizes)} hidden sizes"
            )

    @classmethod
    def read(cls, values: Mapping[str, Any], where: str) -> Self:
        """The settings in a file, which leaves out its labels where they are the usual two."""
        return super().read({"id2label": numbered(2), **values}, where)

    @property
    def block(self) -> type[BasicBlock] | type[Bottleneck]:
        """What the stages are made of."""
        kinds: dict[str, type[BasicBlock] | type[Bottleneck]] = {
            "basic": BasicBlock, "bottleneck": Bottleneck,
        }  # fmt: skip
        if self.layer_type not in kinds:
            raise BadValueError(f"a ResNet has basic or bottleneck blocks, not {self.layer_type!r}")
        return kinds[self.layer_type]


class ResNet(Pretrained):
    """A stem, stages of blocks, a mean over the image, and a linear layer."""

    config_type = ResNetConfig
    config: ResNetConfig

    def __init__(self, config: ResNetConfig | None = None, **settings: object) -> None:
        config = replace(config or ResNetConfig(), **settings)  # type: ignore[arg-type]
        super().__init__(config)
        before, block = config.embedding_size, config.block
        self.conv1 = nn.Conv2d(config.num_channels, before, 7, 2, 3, bias=False)
        self.bn1, self.relu = nn.BatchNorm2d(before), nn.ReLU(inplace=True)
        self.maxpool = nn.MaxPool2d(3, 2, 1)
        for number, (after, count) in enumerate(zip(config.hidden_sizes, config.depths)):
            stage = _stage(block, before, after // block.expansion, count, 1 + (number > 0))
            setattr(self, f"layer{number + 1}", stage)
            before = after
        self.avgpool = nn.AdaptiveAvgPool2d((1, 1))
        self.fc = nn.Linear(before, config.labels)
        self.apply(_initial)

    def forward(self, x: Tensor) -> Tensor:
        x = self.maxpool(self.relu(self.bn1(self.conv1(x))))
        for number in range(len(self.config.depths)):
            x = getattr(self, f"layer{number + 1}")(x)
        result: Tensor = self.fc(self.avgpool(x).flatten(1))
        return result

    def stored(self) -> Iterator[FileForm]:
        prefix = self.config.prefix
        yield from _pair(f"{prefix}embedder.embedder", "conv1", "bn1")
        for stage, count in enumerate(self.config.depths):
            for number in range(count):
                theirs = f"{prefix}encoder.stages.{stage}.layers.{number}"
                ours = f"layer{stage + 1}.{number}"
                if self.get_submodule(ours).downsample is not None:
                    inner = f"{ours}.downsample"
                    yield from _pair(f"{theirs}.shortcut", f"{inner}.0", f"{inner}.1")
                for part in range(self.config.block.convolutions):
                    own = f"{ours}.conv{part + 1}", f"{ours}.bn{part + 1}"
                    yield from _pair(f"{theirs}.layer.{part}", *own)
        yield from same({"classifier.1": "fc"})


def _pair(theirs: str, convolution: str, norm: str) -> Iterator[FileForm]:
    """A convolution and the batch norm after it."""
    yield from same({f"{theirs}.convolution": convolution}, ("weight",))
    state = ("weight", "bias", "running_mean", "running_var", "num_batches_tracked")
    yield from same({f"{theirs}.normalization": norm}, state)


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


def _basic(depths: Sequence[int], classes: int) -> ResNet:
    labels, widths = numbered(classes), (64, 128, 256, 512)
    return ResNet(depths=depths, hidden_sizes=widths, layer_type="basic", id2label=labels)


def resnet18(num_classes: int = 1000) -> ResNet:
    """ResNet-18."""
    return _basic((2, 2, 2, 2), num_classes)


def resnet34(num_classes: int = 1000) -> ResNet:
    """ResNet-34."""
    return _basic((3, 4, 6, 3), num_classes)


def resnet50(num_classes: int = 1000) -> ResNet:
    """ResNet-50."""
    return ResNet(id2label=numbered(num_classes))
