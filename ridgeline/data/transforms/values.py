"""Transforms of pixel values: erasing, brightness and contrast, noise."""

from __future__ import annotations

import math

import numpy as np

from ridgeline.data.randomness import RandomStream
from ridgeline.data.resample import Floats
from ridgeline.errors import BadValueError


class RandomErasing:
    """A random box of each image, with probability `p`, replaced by `fill`.

    The box covers a share of the image drawn from `scale`, with an aspect drawn from `ratio`.
    """

    def __init__(
        self,
        p: float = 0.5,
        scale: tuple[float, float] = (0.02, 0.33),
        ratio: tuple[float, float] = (0.3, 3.3),
        fill: float = 0.0,
    ) -> None:
        if not 0 < scale[0] <= scale[1] <= 1 or not 0 < ratio[0] <= ratio[1]:
            raise BadValueError(f"RandomErasing cannot use scale={scale}, ratio={ratio}")
        self.p, self.scale, self.ratio, self.fill = p, scale, ratio, fill

    def __call__(self, images: Floats, stream: RandomStream) -> Floats:
        count, _, height, width = images.shape
        chosen = stream.uniform(0.0, 1.0, count) < self.p
        areas = stream.uniform(*self.scale, count) * (height * width)
        aspects = np.exp(stream.uniform(math.log(self.ratio[0]), math.log(self.ratio[1]), count))
        heights = np.clip(np.rint(np.sqrt(areas * aspects)), 1, height)
        widths = np.clip(np.rint(np.sqrt(areas / aspects)), 1, width)
        tops = np.floor(stream.uniform(0.0, 1.0, count) * (height - heights + 1))
        lefts = np.floor(stream.uniform(0.0, 1.0, count) * (width - widths + 1))
        y, x = np.arange(height)[None, :, None], np.arange(width)[None, None, :]
        top, left = tops[:, None, None], lefts[:, None, None]
        inside = (y >= top) & (y < top + heights[:, None, None])
        inside = inside & (x >= left) & (x < left + widths[:, None, None])
        box = (inside & chosen[:, None, None])[:, None]
        return np.where(box, np.float32(self.fill), images)

    def __repr__(self) -> str:
        return f"RandomErasing(p={self.p}, scale={self.scale}, ratio={self.ratio})"


class ColorJitter:
    """Brightness and contrast of each image changed by factors drawn from 1 ± the given."""

    def __init__(self, brightness: float = 0.0, contrast: float = 0.0) -> None:
        if min(brightness, contrast) < 0:
            raise BadValueError("ColorJitter needs amounts of at least 0")
        self.brightness, self.contrast = brightness, contrast

    def __call__(self, images: Floats, stream: RandomStream) -> Floats:
        light = self._factors(self.brightness, images, stream)
        spread = self._factors(self.contrast, images, stream)
        bright = images * light
        middle = bright.mean((1, 2, 3), keepdims=True, dtype=np.float32)
        return np.asarray(np.clip(bright * spread + middle * (1 - spread), 0, 1), np.float32)

    @staticmethod
    def _factors(amount: float, images: Floats, stream: RandomStream) -> Floats:
        drawn = stream.uniform(max(0.0, 1 - amount), 1 + amount, len(images))
        return drawn.astype(np.float32)[:, None, None, None]

    def __repr__(self) -> str:
        return f"ColorJitter(brightness={self.brightness}, contrast={self.contrast})"


class GaussianNoise:
    """Normal noise of deviation `sigma` added to every pixel."""

    def __init__(self, sigma: float) -> None:
        self.sigma = sigma

    def __call__(self, images: Floats, stream: RandomStream) -> Floats:
        noise = stream.normal(images.size).reshape(images.shape)
        return images + (self.sigma * noise).astype(np.float32)

    def __repr__(self) -> str:
        return f"GaussianNoise({self.sigma})"
