"""Transforms that change an image's size: resizing and windows."""

from __future__ import annotations

import math

import numpy as np

from ridgeline.data.randomness import RandomStream
from ridgeline.data.resample import Floats, resize
from ridgeline.errors import BadValueError


class Resize:
    """Images of `size` pixels: (height, width), or a number for the shorter side."""

    def __init__(self, size: int | tuple[int, int], method: str = "bilinear") -> None:
        self.size, self.method = size, method

    def __call__(self, images: Floats, stream: RandomStream) -> Floats:
        if isinstance(self.size, tuple):
            return resize(images, *self.size, self.method)
        height, width = images.shape[2:]
        short = min(height, width)
        return resize(images, self.size * height // short, self.size * width // short, self.method)

    def __repr__(self) -> str:
        return f"Resize({self.size}, {self.method!r})"


class CenterCrop:
    """The window of `size` × `size` pixels in the middle."""

    def __init__(self, size: int) -> None:
        self.size = size

    def __call__(self, images: Floats, stream: RandomStream) -> Floats:
        height, width = images.shape[2:]
        _check_room(self.size, height, width)
        top, left = round((height - self.size) / 2), round((width - self.size) / 2)
        return images[:, :, top : top + self.size, left : left + self.size]

    def __repr__(self) -> str:
        return f"CenterCrop({self.size})"


class RandomCrop:
    """A random window of `size` pixels out of each image, after `padding` with `fill`."""

    def __init__(self, size: int, padding: int = 0, fill: float = 0.0) -> None:
        self.size, self.padding, self.fill = size, padding, fill

    def __call__(self, images: Floats, stream: RandomStream) -> Floats:
        edge = [(0, 0), (0, 0), (self.padding,) * 2, (self.padding,) * 2]
        padded = np.pad(images, edge, constant_values=self.fill)
        room_y, room_x = padded.shape[2] - self.size, padded.shape[3] - self.size
        _check_room(self.size, *padded.shape[2:])
        windows = np.lib.stride_tricks.sliding_window_view(padded, (self.size,) * 2, (2, 3))
        count = len(images)
        tops, lefts = stream.integers(room_y + 1, count), stream.integers(room_x + 1, count)
        return np.ascontiguousarray(windows[np.arange(count), :, tops, lefts])

    def __repr__(self) -> str:
        return f"RandomCrop({self.size}, padding={self.padding}, fill={self.fill})"


class RandomResizedCrop:
    """A window of random area and aspect per image, resized to `size` × `size`.

    The area is a share of the image drawn from `scale`, the aspect (width to height) is drawn
    from `ratio` on a logarithmic scale; both are clipped to what fits into the image.
    """

    def __init__(
        self,
        size: int,
        scale: tuple[float, float] = (0.08, 1.0),
        ratio: tuple[float, float] = (3 / 4, 4 / 3),
        method: str = "bilinear",
    ) -> None:
        if not 0 < scale[0] <= scale[1] <= 1 or not 0 < ratio[0] <= ratio[1]:
            raise BadValueError(f"RandomResizedCrop cannot use scale={scale}, ratio={ratio}")
        self.size, self.scale, self.ratio, self.method = size, scale, ratio, method

    def __call__(self, images: Floats, stream: RandomStream) -> Floats:
        count, _, height, width = images.shape
        areas = stream.uniform(*self.scale, count) * (height * width)
        aspects = np.exp(stream.uniform(math.log(self.ratio[0]), math.log(self.ratio[1]), count))
        heights = np.clip(np.rint(np.sqrt(areas / aspects)), 1, height).astype(np.int64)
        widths = np.clip(np.rint(np.sqrt(areas * aspects)), 1, width).astype(np.int64)
        tops = np.floor(stream.uniform(0, 1, count) * (height - heights + 1)).astype(np.int64)
        lefts = np.floor(stream.uniform(0, 1, count) * (width - widths + 1)).astype(np.int64)
        made = np.empty((*images.shape[:2], self.size, self.size), np.float32)
        for n, (y, x, h, w) in enumerate(zip(tops, lefts, heights, widths)):
            window = images[n : n + 1, :, y : y + h, x : x + w]
            made[n] = resize(window, self.size, self.size, self.method)[0]
        return made

    def __repr__(self) -> str:
        return f"RandomResizedCrop({self.size}, scale={self.scale}, ratio={self.ratio})"


def _check_room(size: int, height: int, width: int) -> None:
    if size > min(height, width):
        raise BadValueError(f"cannot crop {size}×{size} out of images of {height}×{width} pixels")
