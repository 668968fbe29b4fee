"""torchvision.transforms.v2: the transforms again, with those that are there alone.

Tensors and pictures are changed as by the first version; boxes, masks and other kinds of targets
that v2 changes along with a picture are not known here.
"""

from __future__ import annotations

from typing import Any

from ridgeline import dtypes
from ridgeline.distributions import Beta
from ridgeline.dtypes import DType
from ridgeline.tensors.public import one_hot, rand
from ridgeline.tensors.tensor import Tensor
from ridgeline.vision import functional as functional, transforms
from ridgeline.vision.transforms import *  # noqa: F403
from ridgeline.vision.transforms import Transform as Transform, _Function

__all__ = [
    *transforms.__all__,
    "CutMix",
    "MixUp",
    "ToDtype",
    "ToImage",
    "ToPureTensor",
    "Transform",
]

__path__: list[str] = []  # `functional` is beside it


class ToImage(_Function):
    """A picture or an array as a tensor of its own bytes."""

    def __init__(self) -> None:
        super().__init__(functional.to_image)


class ToPureTensor(_Function):
    """A tensor as it is: there are no other kinds here."""

    def __init__(self) -> None:
        super().__init__(lambda inpt: inpt)


class ToDtype(_Function):
    """Another element type; with `scale`, bytes in 0…255 become floats in 0…1 and back."""

    def __init__(self, dtype: DType, scale: bool = False) -> None:
        super().__init__(functional.to_dtype, dtype=dtype, scale=scale)


class _Mixed:
    """A batch mixed with itself moved by one, and its labels as shares of classes."""

    def __init__(
        self, *, alpha: float = 1.0, num_classes: int | None = None, **options: Any
    ) -> None:
        self.alpha, self.num_classes = alpha, num_classes

    def mixed(self, images: Tensor, share: float) -> tuple[Tensor, float]:
        """The mixed pictures, and the share that stayed."""
        raise NotImplementedError

    def __call__(self, images: Tensor, labels: Tensor) -> tuple[Tensor, Tensor]:
        images, share = self.mixed(images, float(Beta(self.alpha, self.alpha).sample()))
        if labels.dim() == 1:
            labels = one_hot(labels, self.num_classes or -1)
        labels = labels.to(images.dtype if images.is_floating_point() else dtypes.float32)
        return images, labels.roll(1, 0) * (1 - share) + labels * share

    forward = __call__

    def __repr__(self) -> str:
        return f"{type(self).__name__}(alpha={self.alpha}, num_classes={self.num_classes})"


class MixUp(_Mixed):
    """Pictures blended in pairs."""

    def mixed(self, images: Tensor, share: float) -> tuple[Tensor, float]:
        """The blend by the share."""
        return images.roll(1, 0) * (1 - share) + images * share, share


class CutMix(_Mixed):
    """A rectangle of each picture from the one before it."""

    def mixed(self, images: Tensor, share: float) -> tuple[Tensor, float]:
        """The pictures with the rectangle, whose area is the share that left."""
        height, width = images.shape[-2:]
        row, column = (int(float(rand(())) * side) for side in (height, width))
        half = 0.5 * (1 - share) ** 0.5
        top, bottom = max(row - int(half * height), 0), min(row + int(half * height), height)
        left, right = max(column - int(half * width), 0), min(column + int(half * width), width)
        made = images.clone()
        made[..., top:bottom, left:right] = images.roll(1, 0)[..., top:bottom, left:right]
        return made, 1 - (bottom - top) * (right - left) / (height * width)
