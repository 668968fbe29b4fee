"""Where a token stands, as a transformer is told: rotations, slopes, sines, distances."""

from __future__ import annotations

import math
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from ridgeline import nn
from ridgeline.dtypes import float32, int64
from ridgeline.models.parts import Relative, Rotary
from ridgeline.nn.functional.choose import choose
from ridgeline.tensors.public import arange, cat, stack, zeros
from ridgeline.tensors.tensor import Tensor

Turns = NDArray[Any]  # of float32


class Rotation(NamedTuple):
    """Cosines and sines of the angles of every position, [(batch, 1,) length, turned size]."""

    cosines: Tensor
    sines: Tensor
    interleaved: bool = False

    def __call__(self, x: Tensor) -> Tensor:
        """Turn each pair of elements by its angle; elements behind those turned stay."""
        size, cosines, sines = self.cosines.shape[-1], self.cosines, self.sines
        rest = x[..., size:] if x.shape[-1] > size else None
        x = x if rest is None else x[..., :size]
        if self.interleaved:
            turned = stack([-x[..., 1::2], x[..., ::2]], -1).flatten(-2)
        else:
            turned = cat([-x[..., size // 2 :], x[..., : size // 2]], -1)
        found = x * cosines.to(dtype=x.dtype) + turned * sines.to(dtype=x.dtype)
        return found if rest is None else cat([found, rest], -1)


def rotation(positions: Tensor, turns: Tensor, rotary: Rotary) -> Rotation:
    """The rotation of tokens at positions [length], or [batch, length] where rows differ."""
    angles = positions.to(dtype=turns.dtype).unsqueeze(-1) * turns
    pair = stack([angles, angles], -1).flatten(-2) if rotary.interleaved else cat([angles] * 2, -1)
    if positions.dim() == 2:
        pair = pair.unsqueeze(1)  # all heads alike
    cosines, sines = pair.cos(), pair.sin()
    if rotary.amplitude != 1.0:
        cosines, sines = cosines * rotary.amplitude, sines * rotary.amplitude
    return Rotation(cosines, sines, rotary.interleaved)


def frequencies(rotary: Rotary, positions: int = 0) -> Turns:
    """Turns per position of each pair of elements, in a text of so many positions."""
    share = np.arange(0, rotary.size, 2, dtype=np.float32) / np.float32(rotary.size)
    turns: Turns = (1.0 / rotary.theta**share).astype(np.float32)
    if rotary.kind == "linear":
        turns = turns / np.float32(rotary.factor)
    if rotary.kind == "llama3":
        turned = rotary.original * turns / (2 * math.pi)  # whole turns within the original length
        kept = np.clip((turned - rotary.low) / (rotary.high - rotary.low), 0.0, 1.0)
        turns = ((1 - kept) * turns / rotary.factor + kept * turns).astype(np.float32)
    if rotary.kind == "yarn":
        kept = 1 - _ramp(rotary)
        turns = (turns / rotary.factor * (1 - kept) + turns * kept).astype(np.float32)
    if rotary.kind == "longrope":
        divisors = rotary.long if positions > rotary.original else rotary.short
        turns = turns / np.array(divisors, np.float32)
    return turns  # "dynamic" stretches nothing within the positions there are


def _ramp(rotary: Rotary) -> Turns:
    """From 0 at pairs that turn fast to 1 at those that turn slowly."""

    def pair(count: float) -> float:
        """The pair that turns so many times within the original length."""
        length = rotary.original / (count * 2 * math.pi)
        return rotary.size * math.log(length) / (2 * math.log(rotary.theta))

    low, high = pair(rotary.fast), pair(rotary.slow)
    if rotary.truncate:
        low, high = math.floor(low), math.ceil(high)
    low, high = max(low, 0), min(high, rotary.size - 1)
    positions = np.arange(rotary.size // 2, dtype=np.float32)
    ramp: Turns = np.clip((positions - low) / (high - low or 0.001), 0, 1).astype(np.float32)
    return ramp


def slopes(heads: int) -> Turns:
    """ALiBi: by how much each head's scores fall with every position of distance."""
    whole = 1 << (heads.bit_length() - 1)
    powers = [2 ** (-8 * (n + 1) / whole) for n in range(whole)]
    between = [2 ** (-4 * (2 * n + 1) / whole) for n in range(heads - whole)]
    return np.array(powers + between, np.float32)


def sinusoids(positions: int, width: int) -> Turns:
    """Sines, then cosines, of positions at wavelengths in a geometric row."""
    turns = frequencies(Rotary(width))
    angles = np.arange(positions)[:, None] * turns.astype(np.float64)
    return np.concatenate([np.sin(angles), np.cos(angles)], 1).astype(np.float32)


class RelativeBias(nn.Module):
    """A number for every head and distance between tokens; far ones share a bucket."""

    def __init__(self, relative: Relative, heads: int) -> None:
        super().__init__()
        self.relative, self.weight = relative, nn.Parameter(zeros((relative.buckets, heads)))
        nn.init.normal_(self.weight, 0.0, 0.02)

    def forward(self, rows: Tensor | int, columns: int) -> Tensor:
        """What is added to the scores, [1, heads, rows, columns]; rows are a count or places."""
        own = rows if isinstance(rows, Tensor) else arange(rows)
        return self.weight[self._buckets(arange(columns) - own.unsqueeze(-1))].permute(2, 0, 1)[
            None
        ]

    def _buckets(self, distance: Tensor) -> Tensor:
        """Half of the buckets are of one distance each, the others grow with it."""
        own, count = self.relative, self.relative.buckets
        start: Tensor | int = 0
        if own.two_sided:
            count //= 2
            start = (distance > 0) * count
            distance = distance.abs()
        else:
            distance = (-distance).clamp(min=0)
        exact = count // 2
        near = distance < exact
        growth = (count - exact) / math.log(own.farthest / exact)
        logs = (distance.clamp(min=1).to(dtype=float32) / exact).log() * growth
        far = (exact + logs.to(dtype=int64)).clamp(max=count - 1)
        return start + choose(near, distance, far)
