"""torchvision.utils: several pictures as one, and tensors as picture files."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import IO, Any

import numpy as np

from ridgeline.record.modes import no_grad
from ridgeline.tensors.public import cat, full, stack
from ridgeline.tensors.tensor import Tensor
from ridgeline.vision import functional


@no_grad()  # type: ignore[untyped-decorator]
def make_grid(
    tensor: Tensor | Sequence[Tensor],
    nrow: int = 8,
    padding: int = 2,
    normalize: bool = False,
    value_range: tuple[float, float] | None = None,
    scale_each: bool = False,
    pad_value: float = 0.0,
) -> Tensor:
    """Pictures [n, c, h, w] in rows of `nrow`, with margins; with `normalize` spread to 0…1."""
    images = tensor if isinstance(tensor, Tensor) else stack(list(tensor))
    while images.dim() < 4:
        images = images[None]
    if images.shape[1] == 1:
        images = cat([images] * 3, 1)
    if normalize:
        groups = images.unbind(0) if scale_each else [images]
        parts = [_spread(group, value_range) for group in groups]
        images = stack(parts) if scale_each else parts[0]
    count, channels, height, width = images.shape
    if count == 1:
        return images[0]
    columns = min(nrow, count)
    rows = -(-count // columns)
    high, wide = height + padding, width + padding
    size = (channels, rows * high + padding, columns * wide + padding)
    grid = full(size, pad_value, dtype=images.dtype, device=images.device)
    for index in range(count):
        top, left = index // columns * high + padding, index % columns * wide + padding
        grid[:, top : top + height, left : left + width] = images[index]
    return grid


def _spread(images: Tensor, value_range: tuple[float, float] | None) -> Tensor:
    low, high = value_range or (float(images.min()), float(images.max()))
    return (images.clamp(low, high) - low) / max(high - low, 1e-5)


def save_image(
    tensor: Tensor | Sequence[Tensor],
    fp: str | Path | IO[bytes],
    format: str | None = None,
    **kwargs: Any,
) -> None:
    """Write pictures as one file; `kwargs` are those of `make_grid`."""
    grid = make_grid(tensor, **kwargs)
    pixels = (np.asarray(grid.cpu().float()) * 255 + 0.5).clip(0, 255).astype(np.uint8)
    functional.to_pil_image(np.moveaxis(pixels, 0, -1)).save(fp, format=format)
