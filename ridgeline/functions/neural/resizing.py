"""Resizing of images: every mode is a matrix along each axis, so it is a contraction."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ridgeline.dtypes import float32, uint8
from ridgeline.errors import BadValueError, DTypeError, ShapeError
from ridgeline.functions.adaptive import adaptive_avg_pool
from ridgeline.functions.arithmetic import add, clamp
from ridgeline.functions.concrete import given
from ridgeline.functions.linear import matmul
from ridgeline.functions.movement import transpose
from ridgeline.functions.pointwise import floor
from ridgeline.functions.registry import functional
from ridgeline.graph.node import Node
from ridgeline.ops.elementwise import cast
from ridgeline.record.cells import known

_AXES = {"linear": 1, "bilinear": 2, "bicubic": 2, "trilinear": 3}
_A = -0.75  # the slope of torch's cubic


def _along(input: Node, axis: int, matrix: NDArray[Any]) -> Node:
    """The matrix [new, old] applied along one axis."""
    weights = given(matrix.T, input.types[0])
    return transpose(matmul(transpose(input, axis, -1), weights), axis, -1)


def _hat(distance: NDArray[Any]) -> NDArray[Any]:
    hat: NDArray[Any] = np.maximum(0.0, 1.0 - np.abs(distance))
    return hat


def _cubic(slope: float) -> Callable[[NDArray[Any]], NDArray[Any]]:
    def kernel(distance: NDArray[Any]) -> NDArray[Any]:
        d = np.abs(distance)
        near = ((slope + 2) * d - (slope + 3)) * d * d + 1
        far = ((slope * d - 5 * slope) * d + 8 * slope) * d - 4 * slope
        return np.where(d <= 1, near, np.where(d < 2, far, 0.0))

    return kernel


def _centres(old: int, new: int, step: float, align_corners: bool) -> NDArray[np.float64]:
    """Where each new pixel lies among the old ones."""
    positions = np.arange(new, dtype=np.float64)
    if align_corners:
        return positions * ((old - 1) / (new - 1)) if new > 1 else positions * 0.0
    return (positions + 0.5) * step - 0.5


def _nearest(old: int, new: int, step: float, exact: bool) -> NDArray[np.float64]:
    positions = np.arange(new, dtype=np.float64) + (0.5 if exact else 0.0)
    # torch multiplies in float32, which decides between neighbours at exact halves
    found = np.floor((positions.astype(np.float32) * np.float32(step)).astype(np.float64))
    matrix = np.zeros((new, old))
    matrix[np.arange(new), np.clip(found.astype(np.int64), 0, old - 1)] = 1
    return matrix


def _smooth(
    old: int, new: int, step: float, cubic: bool, align_corners: bool
) -> NDArray[np.float64]:
    centres = _centres(old, new, step, align_corners)
    if not cubic and not align_corners:
        centres = np.maximum(centres, 0.0)
    reach = 2 if cubic else 1
    taps = np.floor(centres)[:, None] + np.arange(1 - reach, reach + 1)
    weights = (_cubic(_A) if cubic else _hat)(centres[:, None] - taps)
    matrix = np.zeros((new, old))
    rows = np.broadcast_to(np.arange(new)[:, None], taps.shape)
    np.add.at(matrix, (rows, np.clip(taps, 0, old - 1).astype(np.int64)), weights)
    return matrix


def _antialiased(old: int, new: int, step: float, cubic: bool, align: bool) -> NDArray[np.float64]:
    """As torch's antialias: the kernel widened when shrinking, and its weights made to sum to 1."""
    if align:
        step = (old - 1) / (new - 1) if new > 1 else 0.0
    width = max(step, 1.0)
    centres = step * (np.arange(new) + 0.5)
    distance = (np.arange(old) + 0.5 - centres[:, None]) / width
    weights = (_cubic(-0.5) if cubic else _hat)(distance)
    support = (2.0 if cubic else 1.0) * width
    low = np.maximum((centres - support + 0.5).astype(np.int64), 0)[:, None]
    high = np.minimum((centres + support + 0.5).astype(np.int64), old)[:, None]
    columns = np.arange(old)[None]
    weights = np.where((columns >= low) & (columns < high), weights, 0.0)
    result: NDArray[np.float64] = weights / weights.sum(axis=1, keepdims=True)
    return result


def _sizes(
    input: Node, size: Any, scale_factor: Any, recompute: bool | None
) -> tuple[list[int], list[float]]:
    """The new size of every spatial axis, and old pixels per new one."""
    axes = len(input.shape) - 2
    old = [known(n) for n in input.shape[2:]]
    if (size is None) == (scale_factor is None):
        raise BadValueError("interpolate needs either size or scale_factor")
    if size is not None:
        new = [int(size)] * axes if isinstance(size, int) else [int(n) for n in size]
        factors = None
    else:
        many = isinstance(scale_factor, tuple | list)
        factors = [float(f) for f in scale_factor] if many else [float(scale_factor)] * axes
        new = [math.floor(n * f) for n, f in zip(old, factors)]
    if len(new) != axes or min(new, default=1) < 1:
        raise ShapeError(f"interpolate cannot make {new} of shape {list(input.shape)}")
    if factors is not None and not recompute:
        return new, [1 / f for f in factors]
    return new, [o / n for o, n in zip(old, new)]


@functional(wide="input")
def interpolate(
    input: Node,
    size: Any = None,
    scale_factor: Any = None,
    mode: str = "nearest",
    align_corners: bool | None = None,
    recompute_scale_factor: bool | None = None,
    antialias: bool = False,
) -> Node:
    """Images [n, c, …] at another size."""
    axes = len(input.shape) - 2
    if mode not in ("nearest", "nearest-exact", "area") and _AXES.get(mode) != axes:
        raise ShapeError(f"interpolate mode {mode!r} does not fit shape {list(input.shape)}")
    new, steps = _sizes(input, size, scale_factor, recompute_scale_factor)
    if input.dtype.is_integer and not mode.startswith("nearest"):
        if input.dtype is not uint8 or mode == "area":
            raise DTypeError(
                f"interpolate mode {mode!r} takes floats, or bytes, not {input.dtype.name}",
                help="convert with .float()",
            )
        options = (mode, align_corners, recompute_scale_factor, antialias)
        smooth = interpolate(cast(input, float32), size, scale_factor, *options)
        return cast(clamp(floor(add(smooth, 0.5)), 0, 255), uint8)
    if mode == "area":
        return adaptive_avg_pool(input, tuple(new), spatial=axes)
    for number, (count, step) in enumerate(zip(new, steps)):
        old = known(input.shape[2 + number])
        if mode.startswith("nearest"):
            matrix = _nearest(old, count, step, mode == "nearest-exact")
        else:
            make = _antialiased if antialias else _smooth
            matrix = make(old, count, step, mode == "bicubic", bool(align_corners))
        input = _along(input, 2 + number, matrix)
    return input


@functional()
def upsample(
    input: Node,
    size: Any = None,
    scale_factor: Any = None,
    mode: str = "nearest",
    align_corners: bool | None = None,
) -> Node:
    """interpolate under its old name."""
    return interpolate(input, size, scale_factor, mode, align_corners)


@functional()
def upsample_bilinear(input: Node, size: Any = None, scale_factor: Any = None) -> Node:
    """Bilinear interpolation between the centres of the corner pixels."""
    return interpolate(input, size, scale_factor, "bilinear", align_corners=True)


@functional()
def upsample_nearest(input: Node, size: Any = None, scale_factor: Any = None) -> Node:
    """Interpolation by the nearest pixel."""
    return interpolate(input, size, scale_factor, "nearest")
