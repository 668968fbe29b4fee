"""torchvision.ops' pooling of regions: a box of a feature map as a grid of fixed size."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from ridgeline.nn.module import Module
from ridgeline.tensors.public import arange, cat, full_like, where
from ridgeline.tensors.tensor import Tensor


def _pair(size: Any) -> tuple[int, int]:
    return (size, size) if isinstance(size, int) else (size[0], size[1])


def _rows(boxes: Tensor | Sequence[Tensor]) -> Tensor:
    """Boxes [n, 5] with the number of their picture first, from a list with one item a picture."""
    if isinstance(boxes, Tensor):
        return boxes
    marked = [cat([full_like(b[:, :1], n), b], 1) for n, b in enumerate(boxes)]
    return cat(marked)


def _sample_places(
    start: Tensor, length: Tensor, bins: int, samples: Tensor, size: int
) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """Along one axis of every box: the pixels on either side of each sample, how near the second
    one is, and which samples count, all [boxes, bins, samples]."""
    most = int(samples.max()) if samples.numel() else 0
    number = arange(most, device=start.device)
    width = (length / bins).reshape(-1, 1, 1)
    each = number.to(start.dtype) + 0.5
    inside = each / samples.to(start.dtype).reshape(-1, 1, 1)
    first = arange(bins, device=start.device).to(start.dtype).reshape(1, -1, 1)
    positions = start.reshape(-1, 1, 1) + (first + inside) * width
    counted = (number < samples.reshape(-1, 1, 1)) & (positions >= -1) & (positions <= size)
    positions = positions.clamp(0, size - 1)
    low = positions.detach().floor().clamp(0, max(size - 2, 0))
    high = (low + 1).clamp(max=size - 1)
    return low.long(), high.long(), positions - low, counted


def roi_align(
    input: Tensor,
    boxes: Tensor | Sequence[Tensor],
    output_size: Any,
    spatial_scale: float = 1.0,
    sampling_ratio: int = -1,
    aligned: bool = False,
) -> Tensor:
    """Boxes of feature maps [n, c, h, w] as grids, each bin the mean of interpolated samples.

    With `sampling_ratio` -1 a bin has as many samples as the pixels it covers.
    """
    rows, bins = _rows(boxes).to(input.dtype), _pair(output_size)
    corners = rows[:, 1:] * spatial_scale - (0.5 if aligned else 0.0)
    sides = corners[:, 2:] - corners[:, :2]
    sides = sides if aligned else sides.clamp(min=1)
    axes = []
    for axis, size in ((1, input.shape[2]), (0, input.shape[3])):
        length, number = sides[:, axis], bins[1 - axis]
        samples = (
            full_like(length, sampling_ratio) if sampling_ratio > 0 else (length / number).ceil()
        ).long()
        axes.append((*_sample_places(corners[:, axis], length, number, samples, size), samples))
    (top, bottom, down, rows_in, n_rows), (left, right, across, columns_in, n_columns) = axes
    picture = rows[:, 0].long().reshape(-1, 1, 1, 1, 1)

    def pixels(y: Tensor, x: Tensor) -> Tensor:
        y, x = y.unsqueeze(-1).unsqueeze(-1), x.unsqueeze(1).unsqueeze(1)
        return input[picture, :, y, x]  # [boxes, bins, samples, bins, samples, channels]

    down, across = down[..., None, None, None], across[:, None, None, ..., None]
    upper = pixels(top, left) * (1 - across) + pixels(top, right) * across
    lower = pixels(bottom, left) * (1 - across) + pixels(bottom, right) * across
    counted = rows_in[..., None, None, None] & columns_in[:, None, None, ..., None]
    values = where(counted, upper * (1 - down) + lower * down, 0.0).sum((2, 4))
    counts = (n_rows * n_columns).clamp(min=1).to(input.dtype)
    found: Tensor = values / counts.reshape(-1, 1, 1, 1)
    return found.permute(0, 3, 1, 2)


def roi_pool(
    input: Tensor,
    boxes: Tensor | Sequence[Tensor],
    output_size: Any,
    spatial_scale: float = 1.0,
) -> Tensor:
    """Boxes of feature maps [n, c, h, w] as grids, each bin its largest pixel; empty ones zero."""
    rows, bins = _rows(boxes).to(input.dtype), _pair(output_size)
    corners = (rows[:, 1:] * spatial_scale + 0.5).floor()
    values = input[rows[:, 0].long()]
    for axis, size in ((0, input.shape[3]), (1, input.shape[2])):  # columns, then rows
        start = corners[:, axis].reshape(-1, 1, 1)
        length = (corners[:, axis + 2].reshape(-1, 1, 1) - start + 1).clamp(min=1)
        number = arange(bins[1 - axis], device=input.device).reshape(1, -1, 1).to(input.dtype)
        step = length / bins[1 - axis]
        first = ((number * step).floor() + start).clamp(0, size)
        last = (((number + 1) * step).ceil() + start).clamp(0, size)
        pixel = arange(size, device=input.device)
        inside = ((pixel >= first) & (pixel < last)).unsqueeze(1).unsqueeze(1)
        spread = where(
            inside, values.transpose(-1, -2 if axis else -1).unsqueeze(-2), -float("inf")
        )
        values = spread.amax(-1)
        values = values.transpose(-1, -2) if axis else values
    found: Tensor = where(values == -float("inf"), 0.0, values)
    return found


class RoIAlign(Module):
    """`roi_align` as a layer."""

    def __init__(
        self, output_size: Any, spatial_scale: float, sampling_ratio: int, aligned: bool = False
    ) -> None:
        super().__init__()
        self.output_size, self.spatial_scale = output_size, spatial_scale
        self.sampling_ratio, self.aligned = sampling_ratio, aligned

    def forward(self, input: Tensor, rois: Tensor | Sequence[Tensor]) -> Tensor:
        """The boxes as grids."""
        options = (self.output_size, self.spatial_scale, self.sampling_ratio, self.aligned)
        return roi_align(input, rois, *options)


class RoIPool(Module):
    """`roi_pool` as a layer."""

    def __init__(self, output_size: Any, spatial_scale: float) -> None:
        super().__init__()
        self.output_size, self.spatial_scale = output_size, spatial_scale

    def forward(self, input: Tensor, rois: Tensor | Sequence[Tensor]) -> Tensor:
        """The boxes as grids."""
        return roi_pool(input, rois, self.output_size, self.spatial_scale)
