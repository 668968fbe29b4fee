"""Rearrangements of channels and pixels."""

from __future__ import annotations

import math

from ridgeline.errors import ShapeError
from ridgeline.tensors.tensor import Tensor


def pixel_shuffle(input: Tensor, upscale_factor: int) -> Tensor:
    """[…, c r², h, w] as […, c, h r, w r]."""
    r = upscale_factor
    lead, (channels, height, width) = tuple(input.shape[:-3]), tuple(input.shape[-3:])
    if r < 1 or channels % (r * r):
        raise ShapeError(f"pixel_shuffle: {channels} channels do not hold {r}×{r} pixels each")
    parts = input.reshape((math.prod(lead), channels // (r * r), r, r, height, width))
    spread = parts.permute(0, 1, 4, 2, 5, 3)
    return spread.reshape((*lead, channels // (r * r), height * r, width * r))


def pixel_unshuffle(input: Tensor, downscale_factor: int) -> Tensor:
    """[…, c, h r, w r] as […, c r², h, w]."""
    r = downscale_factor
    lead, (channels, height, width) = tuple(input.shape[:-3]), tuple(input.shape[-3:])
    if r < 1 or height % r or width % r:
        raise ShapeError(f"pixel_unshuffle: {height}×{width} pixels do not divide by {r}")
    parts = input.reshape((math.prod(lead), channels, height // r, r, width // r, r))
    packed = parts.permute(0, 1, 3, 5, 2, 4)
    return packed.reshape((*lead, channels * r * r, height // r, width // r))


def channel_shuffle(input: Tensor, groups: int) -> Tensor:
    """Channels of `groups` groups taken in turn."""
    batch, channels = input.shape[:2]
    if channels % groups:
        raise ShapeError(f"channel_shuffle: {groups} groups do not divide {channels} channels")
    rest = tuple(input.shape[2:])
    parts = input.reshape((batch, groups, channels // groups, *rest))
    return parts.transpose(1, 2).reshape(tuple(input.shape))
