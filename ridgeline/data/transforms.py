"""Transforms of whole image batches, vectorised in NumPy and deterministic by their stream.

A transform takes images [n, c, h, w] and a `Stream`, and gives images. The loader hands every
batch a stream of its own, so the result does not depend on the order in which batches are made.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from ridgeline.data.randomness import Stream
from ridgeline.data.resample import Floats, warp
from ridgeline.errors import RidgelineError


class Transform(Protocol):
    """What a loader applies to the images of a batch."""

    def __call__(self, images: Floats, stream: Stream) -> Floats:
        """Transformed images of the same count."""
        ...


class Compose:
    """Several transforms, one after the other, drawing from the same stream."""

    def __init__(self, transforms: Sequence[Transform]) -> None:
        self.transforms = tuple(transforms)

    def __call__(self, images: Floats, stream: Stream) -> Floats:
        for transform in self.transforms:
            images = transform(images, stream)
        return images

    def __repr__(self) -> str:
        return f"Compose({', '.join(map(repr, self.transforms))})"


class Normalize:
    """(image - mean) / std, by channel."""

    def __init__(self, mean: float | Sequence[float], std: float | Sequence[float]) -> None:
        self.mean = np.asarray(mean, np.float32).reshape(-1, 1, 1)
        self.std = np.asarray(std, np.float32).reshape(-1, 1, 1)
        if not np.all(self.std > 0):
            raise RidgelineError(f"Normalize needs standard deviations above 0, got {std}")

    def __call__(self, images: Floats, stream: Stream) -> Floats:
        return np.asarray((images - self.mean) / self.std, np.float32)

    def __repr__(self) -> str:
        return f"Normalize(mean={self.mean.ravel().tolist()}, std={self.std.ravel().tolist()})"


class RandomAffine:
    """A random rotation, scale, shear and shift per image, resampled once.

    Angles are in degrees, drawn from ±`degrees` and ±`shear`; the scale of each axis is drawn
    from 1 ± `scale`, the shift from ±`translate` pixels. `fill` is what lies outside the image.
    """

    def __init__(
        self,
        degrees: float = 0.0,
        translate: float = 0.0,
        scale: float = 0.0,
        shear: float = 0.0,
        fill: float = 0.0,
    ) -> None:
        if not 0 <= scale < 1:
            raise RidgelineError(f"RandomAffine needs 0 <= scale < 1, got {scale}")
        self.degrees, self.translate, self.scale = degrees, translate, scale
        self.shear, self.fill = shear, fill

    def matrices(self, count: int, stream: Stream) -> NDArray[np.float64]:
        """`count` random maps [2, 3] from a target point to the source point it shows."""
        angle = np.deg2rad(stream.uniform(-self.degrees, self.degrees, count))
        slope = np.tan(np.deg2rad(stream.uniform(-self.shear, self.shear, count)))
        grow_y = 1 / stream.uniform(1 - self.scale, 1 + self.scale, count)
        grow_x = 1 / stream.uniform(1 - self.scale, 1 + self.scale, count)
        cosine, sine = np.cos(angle), np.sin(angle)
        maps = np.empty((count, 2, 3))
        maps[:, 0, 0], maps[:, 0, 1] = cosine * grow_y, (sine + slope * cosine) * grow_y
        maps[:, 1, 0], maps[:, 1, 1] = -sine * grow_x, (cosine - slope * sine) * grow_x
        maps[:, :, 2] = stream.uniform(-self.translate, self.translate, 2 * count).reshape(-1, 2)
        return maps

    def __call__(self, images: Floats, stream: Stream) -> Floats:
        return warp(images, self.matrices(len(images), stream), self.fill)

    def __repr__(self) -> str:
        return (
            f"RandomAffine(degrees={self.degrees}, translate={self.translate}, "
            f"scale={self.scale}, shear={self.shear}, fill={self.fill})"
        )


class RandomHorizontalFlip:
    """Each image mirrored left to right with probability `p`."""

    def __init__(self, p: float = 0.5) -> None:
        self.p = p

    def __call__(self, images: Floats, stream: Stream) -> Floats:
        flip = stream.uniform(0.0, 1.0, len(images)) < self.p
        return np.where(flip[:, None, None, None], images[..., ::-1], images)

    def __repr__(self) -> str:
        return f"RandomHorizontalFlip(p={self.p})"


class RandomCrop:
    """A random window of `size` pixels out of each image, after `padding` with `fill`."""

    def __init__(self, size: int, padding: int = 0, fill: float = 0.0) -> None:
        self.size, self.padding, self.fill = size, padding, fill

    def __call__(self, images: Floats, stream: Stream) -> Floats:
        edge = [(0, 0), (0, 0), (self.padding,) * 2, (self.padding,) * 2]
        padded = np.pad(images, edge, constant_values=self.fill)
        room_y, room_x = padded.shape[2] - self.size, padded.shape[3] - self.size
        if min(room_y, room_x) < 0:
            raise RidgelineError(
                f"cannot crop {self.size}×{self.size} out of images of {padded.shape[2:]} pixels"
            )
        windows = np.lib.stride_tricks.sliding_window_view(padded, (self.size,) * 2, (2, 3))
        count = len(images)
        tops, lefts = stream.integers(room_y + 1, count), stream.integers(room_x + 1, count)
        return np.ascontiguousarray(windows[np.arange(count), :, tops, lefts])

    def __repr__(self) -> str:
        return f"RandomCrop({self.size}, padding={self.padding}, fill={self.fill})"
