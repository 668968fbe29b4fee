"""What a transform is, and those that touch every pixel alike.

A transform takes images [n, c, h, w] and a `Stream`, and gives images. The loader hands every
batch a stream of its own, so the result does not depend on the order in which batches are made.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from ridgeline.data.randomness import RandomStream
from ridgeline.data.resample import Floats
from ridgeline.errors import BadValueError, ShapeError


class Transform(Protocol):
    """What a loader applies to the images of a batch."""

    def __call__(self, images: Floats, stream: RandomStream) -> Floats:
        """Transformed images of the same count."""
        ...


class Compose:
    """Several transforms, one after the other, drawing from the same stream."""

    def __init__(self, transforms: Sequence[Transform]) -> None:
        self.transforms = tuple(transforms)

    def __call__(self, images: Floats, stream: RandomStream) -> Floats:
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
            raise BadValueError(f"Normalize needs standard deviations above 0, got {std}")

    def __call__(self, images: Floats, stream: RandomStream) -> Floats:
        return np.asarray((images - self.mean) / self.std, np.float32)

    def __repr__(self) -> str:
        return f"Normalize(mean={self.mean.ravel().tolist()}, std={self.std.ravel().tolist()})"


class ToTensor:
    """Bytes [n, h, w] or [n, h, w, c], as image files hold them, as float32 [n, c, h, w] in 0…1."""

    def __call__(self, images: NDArray[Any], stream: RandomStream) -> Floats:
        if images.dtype != np.uint8 or images.ndim not in (3, 4):
            raise ShapeError(
                f"ToTensor needs bytes [n, h, w] or [n, h, w, c], got {images.dtype} "
                f"{list(images.shape)}"
            )
        planes = images[..., None] if images.ndim == 3 else images
        return np.ascontiguousarray(planes.transpose(0, 3, 1, 2), np.float32) / np.float32(255)

    def __repr__(self) -> str:
        return "ToTensor()"
