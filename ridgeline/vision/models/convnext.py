"""ConvNeXt, with torchvision's names of weights."""

from __future__ import annotations

from functools import partial
from typing import Any

from ridgeline import nn
from ridgeline.nn import functional
from ridgeline.tensors.public import ones
from ridgeline.tensors.tensor import Tensor
from ridgeline.vision.models.registry import named
from ridgeline.vision.ops.misc import Conv2dNormActivation, Permute, StochasticDepth


class LayerNorm2d(nn.LayerNorm):
    """Normalisation over the channels of [n, c, h, w]."""

    def forward(self, x: Tensor) -> Tensor:
        """The same pictures, normalised pixel by pixel."""
        last = x.permute(0, 2, 3, 1)
        made = functional.layer_norm(last, self.normalized_shape, self.weight, self.bias, self.eps)
        return made.permute(0, 3, 1, 2)


_norm = partial(LayerNorm2d, eps=1e-6)


class CNBlock(nn.Module):
    """A wide window for each channel, then a feed-forward part, scaled, beside a shortcut."""

    def __init__(self, dim: int, layer_scale: float, stochastic_depth_prob: float) -> None:
        super().__init__()
        self.block = nn.Sequential(
            nn.Conv2d(dim, dim, 7, padding=3, groups=dim), Permute([0, 2, 3, 1]),
            nn.LayerNorm(dim, eps=1e-6), nn.Linear(dim, 4 * dim), nn.GELU(),
            nn.Linear(4 * dim, dim), Permute([0, 3, 1, 2]),
        )  # fmt: skip
        self.layer_scale = nn.Parameter(ones(dim, 1, 1) * layer_scale)
        self.stochastic_depth = StochasticDepth(stochastic_depth_prob, "row")

    def forward(self, input: Tensor) -> Tensor:
        """The block's own part added to its input."""
        made: Tensor = self.stochastic_depth(self.layer_scale * self.block(input)) + input
        return made


class ConvNeXt(nn.Module):
    """Four groups of blocks, each at half the size of the one before."""

    def __init__(
        self, widths: list[int], depths: list[int], stochastic_depth_prob: float = 0.0,
        layer_scale: float = 1e-6, num_classes: int = 1000,
    ) -> None:  # fmt: skip
        super().__init__()
        layers: list[nn.Module] = [
            Conv2dNormActivation(3, widths[0], 4, 4, 0, norm_layer=_norm, activation_layer=None,
                                 bias=True)
        ]  # fmt: skip
        number, total = 0, sum(depths)
        for stage, (width, depth) in enumerate(zip(widths, depths)):
            blocks = []
            for _ in range(depth):
                chance = stochastic_depth_prob * number / (total - 1.0)
                blocks.append(CNBlock(width, layer_scale, chance))
                number += 1
            layers.append(nn.Sequential(*blocks))
            if stage + 1 < len(widths):
                layers.append(
                    nn.Sequential(_norm(width), nn.Conv2d(width, widths[stage + 1], 2, 2))
                )
        self.features, self.avgpool = nn.Sequential(*layers), nn.AdaptiveAvgPool2d(1)
        self.classifier = nn.Sequential(
            _norm(widths[-1]), nn.Flatten(1), nn.Linear(widths[-1], num_classes)
        )
        for module in self.modules():
            if isinstance(module, nn.Conv2d | nn.Linear):
                nn.init.trunc_normal_(module.weight, std=0.02)
                if module.bias is not None:
                    nn.init.zeros_(module.bias)

    def forward(self, x: Tensor) -> Tensor:
        """Scores [n, classes] of pictures [n, 3, height, width]."""
        found: Tensor = self.classifier(self.avgpool(self.features(x)))
        return found


def _convnext(widths: list[int], depths: list[int], chance: float, **options: Any) -> ConvNeXt:
    return ConvNeXt(widths, depths, options.pop("stochastic_depth_prob", chance), **options)


_SMALL = [96, 192, 384, 768]
convnext_tiny = named(
    "convnext_tiny", partial(_convnext, _SMALL, [3, 3, 9, 3], 0.1), "ConvNeXt Tiny."
)
convnext_small = named(
    "convnext_small", partial(_convnext, _SMALL, [3, 3, 27, 3], 0.4), "ConvNeXt Small."
)
convnext_base = named(
    "convnext_base", partial(_convnext, [128, 256, 512, 1024], [3, 3, 27, 3], 0.5), "ConvNeXt Base."
)
convnext_large = named(
    "convnext_large", partial(_convnext, [192, 384, 768, 1536], [3, 3, 27, 3], 0.5),
    "ConvNeXt Large.",
)  # fmt: skip
