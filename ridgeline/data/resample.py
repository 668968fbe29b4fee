"""Resampling of small images in NumPy: exact separable upscaling, and affine warps by batch."""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ridgeline.errors import BadValueError

Floats = NDArray[np.float32]


def _linear(distance: NDArray[Any]) -> NDArray[Any]:
    hat: NDArray[Any] = np.maximum(0.0, 1.0 - np.abs(distance))
    return hat


def _cubic(distance: NDArray[Any]) -> NDArray[Any]:
    """Catmull and Rom's cubic: through every sample, with a continuous slope."""
    d = np.abs(distance)
    near = (1.5 * d - 2.5) * d * d + 1.0
    far = ((-0.5 * d + 2.5) * d - 4.0) * d + 2.0
    return np.where(d < 1.0, near, np.where(d < 2.0, far, 0.0))


KERNELS: dict[str, tuple[Callable[[NDArray[Any]], NDArray[Any]], int]] = {
    "bilinear": (_linear, 1),
    "cubic": (_cubic, 2),
}


def _kernel(method: str) -> tuple[Callable[[NDArray[Any]], NDArray[Any]], int]:
    if method not in KERNELS:
        raise BadValueError(
            f"there is no resampling method {method!r}", help=f"methods: {', '.join(KERNELS)}"
        )
    return KERNELS[method]


@cache
def _weights(source: int, target: int, method: str) -> Floats:
    """The [target, source] matrix of one axis: pixel centres aligned, the edge pixel repeated."""
    kernel, reach = _kernel(method)
    centres = (np.arange(target) + 0.5) * (source / target) - 0.5
    taps = np.arange(-reach, source + reach)
    spread = kernel(centres[:, None] - taps[None, :])
    matrix = np.zeros((target, source))
    for tap, weights in zip(np.clip(taps, 0, source - 1), spread.T):
        matrix[:, tap] += weights
    return matrix.astype(np.float32)


def upscale(images: Floats, size: int, method: str = "cubic") -> Floats:
    """Images [n, h, w] enlarged to [n, size, size], one matrix product per axis."""
    if size < max(images.shape[1:]):
        raise BadValueError(
            f"cannot upscale {images.shape[1]}×{images.shape[2]} pixels to {size}×{size}",
            help="use a size of at least the image's own",
        )
    rows = _weights(images.shape[1], size, method)
    columns = _weights(images.shape[2], size, method)
    return np.asarray(rows @ images @ columns.T, np.float32)


@cache
def _averages(source: int, target: int, method: str) -> Floats:
    """The [target, source] matrix of one axis for any ratio: the kernel is as wide as a target
    pixel, so that shrinking averages, and is cut off at the edge."""
    kernel, reach = _kernel(method)
    ratio = source / target
    width = max(ratio, 1.0)
    centres = (np.arange(target) + 0.5) * ratio
    first = np.floor(np.maximum(centres - reach * width, -0.5) + 0.5)
    last = np.floor(np.minimum(centres + reach * width, source) + 0.5)
    taps = np.arange(source)
    matrix = kernel((taps[None, :] + 0.5 - centres[:, None]) / width)
    matrix = np.where((taps >= first[:, None]) & (taps < last[:, None]), matrix, 0.0)
    return np.asarray(matrix / matrix.sum(1, keepdims=True), np.float32)


def resize(images: Floats, height: int, width: int, method: str = "bilinear") -> Floats:
    """Images [n, c, h, w] at another size, as Pillow and torch's antialiased forms compute it."""
    if min(height, width) < 1:
        raise BadValueError(f"cannot resize images to {height}×{width} pixels")
    rows = _averages(images.shape[2], height, method)
    columns = _averages(images.shape[3], width, method)
    return np.asarray(rows @ images @ columns.T, np.float32)


def warp(images: Floats, matrices: NDArray[Any], fill: float = 0.0) -> Floats:
    """Sample images [n, c, h, w] at affinely moved points, bilinearly; `fill` lies outside.

    `matrices` [n, 2, 3] take a target point (y, x, 1), measured in pixels from the centre of the
    image, to the source point that it shows.
    """
    count, channels, height, width = images.shape
    middle_y, middle_x = (height - 1) / 2, (width - 1) / 2
    grid_y, grid_x = np.meshgrid(
        np.arange(height, dtype=np.float32) - middle_y,
        np.arange(width, dtype=np.float32) - middle_x,
        indexing="ij",
    )
    targets = np.stack([grid_y.ravel(), grid_x.ravel(), np.ones(grid_y.size, np.float32)])
    sources = matrices.astype(np.float32) @ targets
    # A border of `fill` on every side: points beyond it clamp into it, so no masks are needed.
    padded = np.full((count, channels, height + 3, width + 3), fill, np.float32)
    padded[:, :, 1:-2, 1:-2] = images
    y = np.clip(sources[:, 0] + np.float32(middle_y + 1), 0, height + 1)
    x = np.clip(sources[:, 1] + np.float32(middle_x + 1), 0, width + 1)
    top, left = y.astype(np.int32), x.astype(np.int32)
    y -= top
    x -= left
    corner = top * (width + 3) + left
    corner += (np.arange(count, dtype=np.int32) * ((height + 3) * (width + 3)))[:, None]
    planes = padded.transpose(1, 0, 2, 3).reshape(channels, -1)
    result = np.empty((channels, count, height * width), np.float32)
    for plane, into in zip(planes, result):
        above = plane[corner] * (1 - x) + plane[corner + 1] * x
        below = plane[corner + width + 3] * (1 - x) + plane[corner + width + 4] * x
        into[...] = above + (below - above) * y
    return np.ascontiguousarray(result.transpose(1, 0, 2)).reshape(images.shape)
