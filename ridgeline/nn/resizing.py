"""Layers that change an image's size, take it apart into windows, and measure distances."""

from __future__ import annotations

from typing import Any

from ridgeline.nn.applied import Applied

Window = int | tuple[int, ...]


class Upsample(Applied):
    """Images [n, c, …] at another size, given as such or as a factor."""

    function = "interpolate"
    size: Any = None
    scale_factor: Any = None
    mode: str = "nearest"
    align_corners: bool | None = None
    recompute_scale_factor: bool | None = None

    def extra_repr(self) -> str:
        chosen = "size" if self.scale_factor is None else "scale_factor"
        return f"{chosen}={getattr(self, chosen)}, mode={self.mode!r}"


class UpsamplingNearest2d(Upsample):
    """Images [n, c, h, w] at another size, each element repeated."""

    def __init__(self, size: Any = None, scale_factor: Any = None) -> None:
        super().__init__(size, scale_factor, "nearest")


class UpsamplingBilinear2d(Upsample):
    """Images [n, c, h, w] at another size, between corners that stay."""

    def __init__(self, size: Any = None, scale_factor: Any = None) -> None:
        super().__init__(size, scale_factor, "bilinear", True)


class Unfold(Applied):
    """Windows of images [n, c, h, w] as columns."""

    function = "unfold"
    kernel_size: Window
    dilation: Window = 1
    padding: Window = 0
    stride: Window = 1


class Fold(Applied):
    """Columns added back into images at their windows' places."""

    function = "fold"
    output_size: Window
    kernel_size: Window
    dilation: Window = 1
    padding: Window = 0
    stride: Window = 1


class CosineSimilarity(Applied):
    """The cosine of the angle between two tensors along an axis."""

    function = "cosine_similarity"
    inputs = "x1 x2"
    dim: int = 1
    eps: float = 1e-08


class PairwiseDistance(Applied):
    """The p-norm of the difference of two tensors along the last axis."""

    function = "pairwise_distance"
    inputs = "x1 x2"
    p: float = 2.0
    eps: float = 1e-06
    keepdim: bool = False
