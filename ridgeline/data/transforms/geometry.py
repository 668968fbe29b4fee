"""Transforms that move whole images: affine maps and mirrorings."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from ridgeline.data.randomness import RandomStream
from ridgeline.data.resample import Floats, warp
from ridgeline.errors import BadValueError


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
            raise BadValueError(f"RandomAffine needs 0 <= scale < 1, got {scale}")
        self.degrees, self.translate, self.scale = degrees, translate, scale
        self.shear, self.fill = shear, fill

    def matrices(self, count: int, stream: RandomStream) -> NDArray[np.float64]:
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

    def __call__(self, images: Floats, stream: RandomStream) -> Floats:
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

    def __call__(self, images: Floats, stream: RandomStream) -> Floats:
        flip = stream.uniform(0.0, 1.0, len(images)) < self.p
        return np.where(flip[:, None, None, None], images[..., ::-1], images)

    def __repr__(self) -> str:
        return f"RandomHorizontalFlip(p={self.p})"


class RandomVerticalFlip:
    """Each image turned upside down with probability `p`."""

    def __init__(self, p: float = 0.5) -> None:
        self.p = p

    def __call__(self, images: Floats, stream: RandomStream) -> Floats:
        flip = stream.uniform(0.0, 1.0, len(images)) < self.p
        return np.where(flip[:, None, None, None], images[..., ::-1, :], images)

    def __repr__(self) -> str:
        return f"RandomVerticalFlip(p={self.p})"
