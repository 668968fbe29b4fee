"""Layers that only change shapes: Flatten, Unflatten, shuffles of channels and pixels, padding."""

from __future__ import annotations

from typing import Any

from ridgeline.nn import functional
from ridgeline.nn.applied import Applied
from ridgeline.nn.module import Module
from ridgeline.tensors.tensor import Tensor


class Flatten(Module):
    """The axes from start_dim to end_dim as one."""

    def __init__(self, start_dim: int = 1, end_dim: int = -1) -> None:
        super().__init__()
        self.start_dim, self.end_dim = start_dim, end_dim

    def forward(self, input: Tensor) -> Tensor:
        return input.flatten(self.start_dim, self.end_dim)

    def extra_repr(self) -> str:
        return f"start_dim={self.start_dim}, end_dim={self.end_dim}"


class Unflatten(Module):
    """One axis as several."""

    def __init__(self, dim: int, unflattened_size: Any) -> None:
        super().__init__()
        self.dim, self.unflattened_size = dim, tuple(unflattened_size)

    def forward(self, input: Tensor) -> Tensor:
        return input.unflatten(self.dim, self.unflattened_size)

    def extra_repr(self) -> str:
        return f"dim={self.dim}, unflattened_size={self.unflattened_size}"


class PixelShuffle(Applied):
    """[n, c r², h, w] as [n, c, h r, w r]."""

    function = "pixel_shuffle"
    upscale_factor: int


class PixelUnshuffle(Applied):
    """[n, c, h r, w r] as [n, c r², h, w]."""

    function = "pixel_unshuffle"
    downscale_factor: int


class ChannelShuffle(Applied):
    """Channels of `groups` groups taken in turn."""

    function = "channel_shuffle"
    groups: int


class _Pad(Module):
    """Padding of the last `axes` axes in one mode; one number, or a pair per axis, last first."""

    axes: int
    mode: str

    def __init__(self, padding: int | tuple[int, ...]) -> None:
        super().__init__()
        self.padding = (padding,) * (2 * self.axes) if isinstance(padding, int) else tuple(padding)

    def forward(self, input: Tensor) -> Tensor:
        return functional.pad(input, self.padding, mode=self.mode)

    def extra_repr(self) -> str:
        return f"{self.padding}"


class ConstantPad1d(_Pad):
    """A constant on both sides of the last axis."""

    axes, mode = 1, "constant"

    def __init__(self, padding: int | tuple[int, ...], value: float) -> None:
        super().__init__(padding)
        self.value = value

    def forward(self, input: Tensor) -> Tensor:
        return functional.pad(input, self.padding, mode="constant", value=self.value)

    def extra_repr(self) -> str:
        return f"padding={self.padding}, value={self.value}"


class ConstantPad2d(ConstantPad1d):
    """A constant around the last two axes."""

    axes = 2


class ConstantPad3d(ConstantPad1d):
    """A constant around the last three axes."""

    axes = 3


class ZeroPad1d(ConstantPad1d):
    """Zeros on both sides of the last axis."""

    def __init__(self, padding: int | tuple[int, ...]) -> None:
        super().__init__(padding, 0.0)

    def extra_repr(self) -> str:
        return f"{self.padding}"


class ZeroPad2d(ZeroPad1d):
    """Zeros around the last two axes."""

    axes = 2


class ZeroPad3d(ZeroPad1d):
    """Zeros around the last three axes."""

    axes = 3


class ReflectionPad1d(_Pad):
    """The neighbouring values mirrored at the edge, which is not repeated."""

    axes, mode = 1, "reflect"


class ReflectionPad2d(ReflectionPad1d):
    """The same, around two axes."""

    axes = 2


class ReflectionPad3d(ReflectionPad1d):
    """The same, around three axes."""

    axes = 3


class ReplicationPad1d(_Pad):
    """The edge value repeated."""

    axes, mode = 1, "replicate"


class ReplicationPad2d(ReplicationPad1d):
    """The same, around two axes."""

    axes = 2


class ReplicationPad3d(ReplicationPad1d):
    """The same, around three axes."""

    axes = 3


class CircularPad1d(_Pad):
    """The values of the other end."""

    axes, mode = 1, "circular"


class CircularPad2d(CircularPad1d):
    """The same, around two axes."""

    axes = 2


class CircularPad3d(CircularPad1d):
    """The same, around three axes."""

    axes = 3
