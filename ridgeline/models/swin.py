"""Swin: attention inside windows of an image, which every other block shifts by half of one."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Any

import numpy as np

from ridgeline import nn
from ridgeline.errors import ShapeError
from ridgeline.models.described import DescribedModel
from ridgeline.models.norms import norm
from ridgeline.models.parts import Parts
from ridgeline.models.transformer import Attention, PassInfo, Past, TransformerBlock, initialise
from ridgeline.nn.functional import pad
from ridgeline.tensors.public import cat, zeros
from ridgeline.tensors.tensor import Tensor, tensor


class WindowAttention(Attention):
    """Attention of patches [batch, side * side, width] to those in the same window."""

    def __init__(self, parts: Parts, window: int, shift: int) -> None:
        super().__init__(parts)
        self.window, self.shift = window, shift
        self.table = nn.Parameter(zeros(((2 * window - 1) ** 2, parts.heads)))

    def forward(self, x: Tensor, what: PassInfo, past: Past | None = None) -> Tensor:
        batch, length, width = (int(n) for n in x.shape)
        side = math.isqrt(length)
        if side * side != length:
            raise ShapeError(f"{length} patches are no square image")
        window, shift = min(self.window, side), 0 if side <= self.window else self.shift
        more = -side % window
        full, count = side + more, (side + more) // window
        x = pad(x.reshape((batch, side, side, width)), (0, 0, 0, more, 0, more))
        if shift:
            x = x.roll((-shift, -shift), (1, 2))
        x = x.reshape((batch, count, window, count, window, width)).transpose(2, 3)
        mask = self.table[tensor(_distances(window))].permute(2, 0, 1).unsqueeze(0)
        if shift:  # patches that only rolling brought together do not see each other
            apart = tensor(_apart(full, window, shift)).repeat(batch, 1, 1).unsqueeze(1)
            mask = mask + apart.to(dtype=mask.dtype)
        found = super().forward(x.reshape((-1, window * window, width)), PassInfo(mask=mask))
        found = found.reshape((batch, count, count, window, window, width)).transpose(2, 3)
        found = found.reshape((batch, full, full, width))
        if shift:
            found = found.roll((shift, shift), (1, 2))
        return found[:, :side, :side].reshape((batch, length, width))


def _distances(window: int) -> Any:
    """For each two places of a window, the row of the table with their distance."""
    rows, columns = np.divmod(np.arange(window * window), window)
    down, right = (n[:, None] - n[None, :] + window - 1 for n in (rows, columns))
    return down * (2 * window - 1) + right


def _apart(side: int, window: int, shift: int) -> Any:
    """What is added to scores inside each window, [windows, places, places]."""
    positions = np.arange(side)
    region = (positions >= side - window).astype(int) + (positions >= side - shift)
    whole = region[:, None] * 3 + region
    count = side // window
    parts = whole.reshape(count, window, count, window).swapaxes(1, 2).reshape(count * count, -1)
    return np.where(parts[:, None] != parts[:, :, None], -100.0, 0.0).astype(np.float32)


class Merging(nn.Module):
    """Four neighbouring patches joined into one, twice as wide."""

    def __init__(self, parts: Parts) -> None:
        super().__init__()
        self.norm = norm(parts, 4 * parts.width)
        self.joined = nn.Linear(4 * parts.width, 2 * parts.width, False)

    def forward(self, x: Tensor) -> Tensor:
        batch, length, width = (int(n) for n in x.shape)
        side = math.isqrt(length)
        x = pad(x.reshape((batch, side, side, width)), (0, 0, 0, side % 2, 0, side % 2))
        four = [x[:, row::2, column::2] for column in range(2) for row in range(2)]
        result: Tensor = self.joined(self.norm(cat(four, -1).flatten(1, 2)))
        return result


class Swin(DescribedModel):
    """Images [n, channels, size, size] in; scores of the classes out, or states and their mean."""

    ignored = r"relative_position_index$|mask_token$"

    def __init__(self, config: Any) -> None:
        super().__init__(config)
        c, self.form, parts = self.description.settings, self.description.form, self.parts
        depths = c.get("depths", "Sequence[int]", [2, 2, 6, 2])
        heads = c.get("num_heads", "Sequence[int]", [3, 6, 12, 24])
        if len(depths) != len(heads):
            raise c.refused("num_heads", heads, [f"{len(depths)} counts, as depths has"])
        patch, window = c.count("patch_size", 4), c.count("window_size", 7)
        self.patches = nn.Conv2d(c.count("num_channels", 3), parts.width, patch, patch)
        self.patches_norm = norm(parts)
        stages = []
        for number, (depth, count) in enumerate(zip(depths, heads)):
            stage, wide = nn.Module(), parts.width << number
            ratio = c.real("mlp_ratio", 4.0)
            own = replace(parts, width=wide, heads=count, inner=int(ratio * wide))
            stage.blocks = nn.ModuleList(TransformerBlock(own) for _ in range(depth))
            for index, block in enumerate(stage.blocks):
                block.attention = WindowAttention(own, window, index % 2 * (window // 2))
            last = number == len(depths) - 1
            stage.merging = None if last else Merging(own)
            stages.append(stage)
        self.stages = nn.ModuleList(stages)
        self.norm = norm(own)
        if self.form == "classes":
            self.classifier = nn.Linear(own.width, self.description.labels)
        initialise(self, parts.spread)

    def forward(self, images: Tensor) -> Any:
        x = self.patches_norm(self.patches(images).flatten(2).transpose(1, 2))
        for stage in self.stages:
            for block in stage.blocks:
                x = block(x, PassInfo())
            x = x if stage.merging is None else stage.merging(x)
        x = self.norm(x)
        pooled = x.mean(1)
        return self.classifier(pooled) if self.form == "classes" else (x, pooled)
