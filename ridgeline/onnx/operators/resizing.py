"""Resizing along axes: each place of the result is a weighted sum of a few places of the input.

The places and weights of an axis depend on sizes alone, so they are computed on the host; what
is recorded is a read for each neighbour, and the sum.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

import ridgeline as rl
from ridgeline.onnx.values import Array, Floats, Ints, OnnxError, as_tensor
from ridgeline.tensors.tensor import Tensor


@dataclass(frozen=True)
class _Axis:
    """One axis: its lengths before and after, the factor between, and what region is read."""

    length: int
    result: int
    scale: float
    start: float = 0.0
    end: float = 1.0


def _places(axis: _Axis, mode: str) -> Array:
    """Where in the input each place of the result lies."""
    x = np.arange(axis.result, dtype=np.float64)
    half = (x + 0.5) / axis.scale - 0.5
    if mode == "half_pixel":
        return half
    if mode == "pytorch_half_pixel":
        return half if axis.result > 1 else np.zeros_like(x)
    if mode == "half_pixel_symmetric":
        adjustment = axis.result / (axis.scale * axis.length)
        return axis.length / 2 * (1 - adjustment) + half
    if mode == "align_corners":
        wide = axis.scale * axis.length
        return x * ((axis.length - 1) / (wide - 1) if wide != 1 else 0.0)
    if mode in ("asymmetric", "tf_half_pixel_for_nn"):
        return x / axis.scale if mode == "asymmetric" else (x + 0.5) / axis.scale
    if mode == "tf_crop_and_resize":
        if axis.result == 1:
            return np.full_like(x, 0.5 * (axis.start + axis.end) * (axis.length - 1))
        step = (axis.end - axis.start) * (axis.length - 1) / (axis.result - 1)
        return axis.start * (axis.length - 1) + x * step
    raise OnnxError(f"{mode!r} is no way to map places of a resize")


def _nearest(places: Array, mode: str) -> Array:
    if mode == "round_prefer_ceil":
        return np.floor(places + 0.5)
    if mode == "round_prefer_floor":
        return np.ceil(places - 0.5)
    return np.floor(places) if mode == "floor" else np.ceil(places)


def _cubic(distance: Array, a: float) -> Array:
    x = np.abs(distance)
    near = ((a + 2) * x - (a + 3)) * x * x + 1
    far = ((a * x - 5 * a) * x + 8 * a) * x - 4 * a
    return np.where(x <= 1, near, np.where(x < 2, far, 0.0))


@dataclass(frozen=True)
class _Kernel:
    """How neighbours are weighted."""

    mode: str
    coordinates: str
    nearest: str
    cubic: float
    antialias: bool
    exclude_outside: bool

    def taps(self, axis: _Axis) -> tuple[Array, Array, Array]:
        """Places of neighbours, weights of them, and which results lie outside of the input."""
        places = _places(axis, self.coordinates)
        outside = (places < 0) | (places > axis.length - 1)
        if self.mode == "nearest":
            chosen = _nearest(places, self.nearest)[:, None]
            return (
                np.clip(chosen, 0, axis.length - 1).astype(np.int64),
                np.ones((axis.result, 1)),
                outside,
            )
        shrink = min(axis.scale, 1.0) if self.antialias else 1.0
        reach = 1 if self.mode == "linear" else 2
        first = int(np.floor(-reach / shrink)) + 1
        neighbours = np.arange(first, 2 - first if reach == 2 else first + 2 - 2 * first)
        below = np.floor(places)
        distance = (neighbours - (places - below)[:, None]) * shrink
        weights = (
            np.clip(1 - np.abs(distance), 0, 1) if reach == 1 else _cubic(distance, self.cubic)
        )
        at = below[:, None] + neighbours
        if self.exclude_outside:
            weights = np.where((at < 0) | (at >= axis.length), 0.0, weights)
        weights = weights / weights.sum(1, keepdims=True)
        return np.clip(at, 0, axis.length - 1).astype(np.int64), weights, outside


def _resize_axis(x: Tensor, number: int, axis: _Axis, kernel: _Kernel) -> Tensor:
    places, weights, _ = kernel.taps(axis)
    used = [tap for tap in range(weights.shape[1]) if np.any(weights[:, tap] != 0)]
    if len(used) == 1 and np.all(weights[:, used[0]] == 1):
        if axis.length == axis.result and np.array_equal(
            places[:, used[0]], np.arange(axis.length)
        ):
            return x
        return rl.index_select(x, number, as_tensor(places[:, used[0]].copy()))
    shape = [-1 if i == number else 1 for i in range(x.ndim)]
    total: Tensor | None = None
    work = x.dtype if x.dtype.is_floating_point and x.dtype.itemsize >= 4 else rl.float32
    wide = x.to(work)
    for tap in used:
        weight = as_tensor(weights[:, tap].copy()).to(work).reshape(shape)
        part = rl.index_select(wide, number, as_tensor(places[:, tap].copy())) * weight
        total = part if total is None else total + part
    assert total is not None
    return total


def resize(
    x: Tensor, roi: Floats | None = None, scales: Floats | None = None, sizes: Ints | None = None,
    antialias: int = 0, axes: Ints | None = None,
    coordinate_transformation_mode: str = "half_pixel", cubic_coeff_a: float = -0.75,
    exclude_outside: int = 0, extrapolation_value: float = 0.0,
    keep_aspect_ratio_policy: str = "stretch", mode: str = "nearest",
    nearest_mode: str = "round_prefer_floor",
) -> Tensor:  # fmt: skip
    """The operator Resize."""
    chosen = list(range(x.ndim)) if axes is None else [axis % x.ndim for axis in axes]
    lengths = [int(x.shape[axis]) for axis in chosen]
    scales, results = _extents(lengths, scales, sizes, keep_aspect_ratio_policy)
    kernel = _Kernel(
        mode, coordinate_transformation_mode, nearest_mode, cubic_coeff_a, bool(antialias),
        bool(exclude_outside),
    )  # fmt: skip
    crop = coordinate_transformation_mode == "tf_crop_and_resize"
    result, outside = x, None
    for place, number in enumerate(chosen):
        start, end = 0.0, 1.0
        if crop and roi:
            start, end = roi[place], roi[place + len(chosen)]
        axis = _Axis(lengths[place], results[place], scales[place], start, end)
        if axis.length == axis.result and axis.scale == 1 and (start, end) == (0.0, 1.0):
            continue
        result = _resize_axis(result, number, axis, kernel)
        beyond = kernel.taps(axis)[2] if crop else np.zeros(0, bool)
        if beyond.any():
            shape = [-1 if i == number else 1 for i in range(x.ndim)]
            mask = as_tensor(beyond).reshape(shape)
            outside = mask if outside is None else rl.logical_or(outside, mask)
    if outside is not None:
        result = rl.where(outside, rl.full_like(result, extrapolation_value), result)
    if not x.dtype.is_floating_point and result.dtype is not x.dtype:
        limits = rl.iinfo(x.dtype)
        result = rl.clamp(rl.round(result), limits.min, limits.max)
    return result.to(x.dtype)


def _extents(
    lengths: list[int], scales: Floats | None, sizes: Ints | None, policy: str
) -> tuple[Floats, list[int]]:
    if scales:
        return scales, [int(np.floor(n * scale)) for n, scale in zip(lengths, scales)]
    if not sizes:
        raise OnnxError("Resize is given neither factors nor sizes")
    wanted = [int(size) for size in sizes]
    found = [size / n for size, n in zip(wanted, lengths)]
    if policy != "stretch":
        one = min(found) if policy == "not_larger" else max(found)
        found = [one] * len(found)
        wanted = [int(np.floor(one * n + 0.5)) for n in lengths]
    return found, wanted


def resize_10(x: Tensor, scales: Floats, mode: str = "nearest") -> Tensor:
    """Resize as version 10 has it."""
    return resize(
        x, scales=scales, mode=mode, coordinate_transformation_mode="asymmetric",
        nearest_mode="floor",
    )  # fmt: skip


def upsample(
    x: Tensor, scales: Floats | None = None, mode: str = "nearest",
    height_scale: float | None = None, width_scale: float | None = None,
) -> Tensor:  # fmt: skip
    """The operator Upsample, which came before Resize."""
    factors = scales or [1.0, 1.0, height_scale or 1.0, width_scale or 1.0]
    return resize_10(x, factors, "linear" if mode == "bilinear" else mode)
