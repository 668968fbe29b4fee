"""ConvNeXt: wide depthwise convolutions with what transformers have around them."""

from __future__ import annotations

from typing import Any

from ridgeline import nn
from ridgeline.models.described import DescribedModel
from ridgeline.models.feed_forward import activation
from ridgeline.tensors.public import ones, zeros
from ridgeline.tensors.tensor import Tensor


class ChannelNorm(nn.LayerNorm):
    """LayerNorm over the channels of images [n, channels, h, w]."""

    def forward(self, input: Tensor) -> Tensor:
        return super().forward(input.permute(0, 2, 3, 1)).permute(0, 3, 1, 2)


class ResponseNorm(nn.Module):
    """Channels [n, h, w, channels] weighed by how strong each is beside the others."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.weight = nn.Parameter(zeros((1, 1, 1, width)))
        self.bias = nn.Parameter(zeros((1, 1, 1, width)))

    def forward(self, x: Tensor) -> Tensor:
        strength = x.square().sum((1, 2), keepdim=True).sqrt()
        share = strength / (strength.mean(-1, keepdim=True) + 1e-6)
        return self.weight * (x * share) + self.bias + x


class ConvNeXtBlock(nn.Module):
    """A 7×7 convolution of each channel, then two linear layers, added to what goes in."""

    def __init__(self, width: int, act: str, scaled: bool, second: bool) -> None:
        super().__init__()
        self.near, self.norm = nn.Conv2d(width, width, 7, padding=3, groups=width), _norm(width)
        self.up, self.down = nn.Linear(width, 4 * width), nn.Linear(4 * width, width)
        self.response = ResponseNorm(4 * width) if second else None
        self.scale = nn.Parameter(ones((width,))) if scaled else None
        self.activation = activation(act)

    def forward(self, x: Tensor) -> Tensor:
        inner = self.activation(self.up(self.norm(self.near(x).permute(0, 2, 3, 1))))
        inner = self.down(inner if self.response is None else self.response(inner))
        inner = inner if self.scale is None else inner * self.scale
        result: Tensor = x + inner.permute(0, 3, 1, 2)
        return result


def _norm(width: int) -> nn.LayerNorm:
    return nn.LayerNorm(width, 1e-6)


class ConvNeXt(DescribedModel):
    """Images [n, channels, h, w] in; scores of the classes out, or features and their mean."""

    def __init__(self, config: Any) -> None:
        super().__init__(config)
        c, self.form = self.description.settings, self.description.form
        widths = c.get("hidden_sizes", "Sequence[int]", [96, 192, 384, 768])
        depths = c.get("depths", "Sequence[int]", [3, 3, 9, 3])
        if len(widths) != len(depths):
            raise c.refused("hidden_sizes", widths, [f"{len(depths)} widths, as depths has"])
        second = self.description.family.stem.endswith("V2")
        scaled = not second and c.real("layer_scale_init_value", 1e-6) > 0
        patch = c.count("patch_size", 4)
        self.patches = nn.Conv2d(c.count("num_channels", 3), widths[0], patch, patch)
        self.patches_norm = ChannelNorm(widths[0], 1e-6)
        stages, before = [], widths[0]
        for number, (width, depth) in enumerate(zip(widths, depths)):
            act = self.parts.activation
            stage = nn.Module()
            if number:
                stage.norm, stage.halved = ChannelNorm(before, 1e-6), nn.Conv2d(before, width, 2, 2)
            stage.blocks = nn.Sequential(
                *(ConvNeXtBlock(width, act, scaled, second) for _ in range(depth))
            )
            stages.append(stage)
            before = width
        self.stages = nn.ModuleList(stages)
        self.norm = nn.LayerNorm(before, self.parts.eps)
        if self.form == "classes":
            self.classifier = nn.Linear(before, self.description.labels)

    def forward(self, images: Tensor) -> Any:
        x = self.patches_norm(self.patches(images))
        for number, stage in enumerate(self.stages):
            x = stage.halved(stage.norm(x)) if number else x
            x = stage.blocks(x)
        pooled = self.norm(x.mean((2, 3)))
        return self.classifier(pooled) if self.form == "classes" else (x, pooled)
