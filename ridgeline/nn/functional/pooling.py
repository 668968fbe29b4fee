"""Pooling that is built from simpler pooling: by norm, adaptive, over three axes."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np

from ridgeline.dispatch import FUNCTIONS
from ridgeline.errors import RidgelineError, ShapeError
from ridgeline.nn.functional.resizing import along
from ridgeline.public import cat
from ridgeline.tensor import Tensor, tensor

Sizes = int | Sequence[int]


def per_axis(value: Any, axes: int) -> tuple[int, ...]:
    """One number for every axis, or a sequence that already has them."""
    values = (value,) * axes if isinstance(value, int) else tuple(value)
    if len(values) == 1:
        values = values * axes
    if len(values) != axes:
        raise RidgelineError(f"expected 1 or {axes} numbers, got {values}")
    return values


def _no_indices(return_indices: bool) -> None:
    if return_indices:
        raise RidgelineError("pooling does not give indices here")


def max_pool1d(
    input: Tensor,
    kernel_size: Sizes,
    stride: Sizes | None = None,
    padding: Sizes = 0,
    dilation: Sizes = 1,
    ceil_mode: bool = False,
    return_indices: bool = False,
) -> Tensor:
    """The largest value of windows along one axis."""
    _no_indices(return_indices)
    result: Tensor = FUNCTIONS["max_pool1d"](
        input, kernel_size, stride, padding, dilation, ceil_mode
    )
    return result


def max_pool2d(
    input: Tensor,
    kernel_size: Sizes,
    stride: Sizes | None = None,
    padding: Sizes = 0,
    dilation: Sizes = 1,
    ceil_mode: bool = False,
    return_indices: bool = False,
) -> Tensor:
    """The largest value of windows along two axes."""
    _no_indices(return_indices)
    result: Tensor = FUNCTIONS["max_pool2d"](
        input, kernel_size, stride, padding, dilation, ceil_mode
    )
    return result


def _in_turn(input: Tensor, flat: Any, deep: Any) -> Tensor:
    """Pool [..., d, h, w] over h and w by `flat`, then over d by `deep`."""
    lead, (depth, height, width) = tuple(input.shape[:-3]), tuple(input.shape[-3:])
    planes = flat(input.reshape((-1, depth, height, width)))
    rows = planes.reshape((-1, depth, planes.shape[-2] * planes.shape[-1])).transpose(1, 2)
    pooled = deep(rows).transpose(1, 2)
    shape = (*lead, pooled.shape[1], planes.shape[-2], planes.shape[-1])
    result: Tensor = pooled.reshape(shape)
    return result


def avg_pool3d(
    input: Tensor,
    kernel_size: Sizes,
    stride: Sizes | None = None,
    padding: Sizes = 0,
    ceil_mode: bool = False,
    count_include_pad: bool = True,
    divisor_override: int | None = None,
) -> Tensor:
    """The mean over windows along three axes."""
    kernel = per_axis(kernel_size, 3)
    steps = kernel if stride is None else per_axis(stride, 3)
    margin = per_axis(padding, 3)
    if divisor_override is not None:
        total = avg_pool3d(_zero_padded(input, margin), kernel, steps, 0, ceil_mode)
        return total * (math.prod(kernel) / divisor_override)
    return _in_turn(
        input,
        lambda x: FUNCTIONS["avg_pool2d"](
            x, kernel[1:], steps[1:], margin[1:], ceil_mode, count_include_pad
        ),
        lambda x: FUNCTIONS["avg_pool1d"](
            x, kernel[0], steps[0], margin[0], ceil_mode, count_include_pad
        ),
    )


def _zero_padded(input: Tensor, margin: tuple[int, ...]) -> Tensor:
    sides = [side for amount in reversed(margin) for side in (amount, amount)]
    result: Tensor = FUNCTIONS["pad"](input, tuple(sides))
    return result


def max_pool3d(
    input: Tensor,
    kernel_size: Sizes,
    stride: Sizes | None = None,
    padding: Sizes = 0,
    dilation: Sizes = 1,
    ceil_mode: bool = False,
    return_indices: bool = False,
) -> Tensor:
    """The largest value of windows along three axes."""
    _no_indices(return_indices)
    kernel = per_axis(kernel_size, 3)
    steps = kernel if stride is None else per_axis(stride, 3)
    margin, apart = per_axis(padding, 3), per_axis(dilation, 3)
    return _in_turn(
        input,
        lambda x: FUNCTIONS["max_pool2d"](
            x, kernel[1:], steps[1:], margin[1:], apart[1:], ceil_mode
        ),
        lambda x: FUNCTIONS["max_pool1d"](x, kernel[0], steps[0], margin[0], apart[0], ceil_mode),
    )


def _lp_pool(
    input: Tensor,
    norm_type: float,
    kernel_size: Sizes,
    stride: Sizes | None,
    ceil_mode: bool,
    axes: int,
) -> Tensor:
    pool = avg_pool3d if axes == 3 else FUNCTIONS[f"avg_pool{axes}d"]
    mean = pool(input**norm_type, kernel_size, stride, 0, ceil_mode)
    positive = mean.sign() * mean.abs().relu()
    result: Tensor = (positive * math.prod(per_axis(kernel_size, axes))) ** (1.0 / norm_type)
    return result


def lp_pool1d(
    input: Tensor,
    norm_type: float,
    kernel_size: Sizes,
    stride: Sizes | None = None,
    ceil_mode: bool = False,
) -> Tensor:
    """The p-norm of windows along one axis."""
    return _lp_pool(input, norm_type, kernel_size, stride, ceil_mode, 1)


def lp_pool2d(
    input: Tensor,
    norm_type: float,
    kernel_size: Sizes,
    stride: Sizes | None = None,
    ceil_mode: bool = False,
) -> Tensor:
    """The p-norm of windows along two axes."""
    return _lp_pool(input, norm_type, kernel_size, stride, ceil_mode, 2)


def lp_pool3d(
    input: Tensor,
    norm_type: float,
    kernel_size: Sizes,
    stride: Sizes | None = None,
    ceil_mode: bool = False,
) -> Tensor:
    """The p-norm of windows along three axes."""
    return _lp_pool(input, norm_type, kernel_size, stride, ceil_mode, 3)


def _window_bounds(size: int, count: int) -> list[tuple[int, int]]:
    """Where each of `count` windows over an axis begins and ends."""
    return [(i * size // count, -(-(i + 1) * size // count)) for i in range(count)]


def _adaptive(input: Tensor, output_size: Any, axes: int, largest: bool) -> Tensor:
    if len(input.shape) not in (axes + 1, axes + 2):
        raise ShapeError(f"expected {axes + 1} or {axes + 2} axes, got {list(input.shape)}")
    wanted = (output_size,) * axes if output_size is None or isinstance(output_size, int) else (
        tuple(output_size)
    )  # fmt: skip
    for axis, count in zip(range(-axes, 0), wanted):
        size = int(input.shape[axis])
        if count is None or count == size:
            continue
        bounds = _window_bounds(size, int(count))
        if largest:
            windows = [input.narrow(axis, a, b - a).amax(axis, keepdim=True) for a, b in bounds]
            input = cat(windows, axis)
        else:
            matrix = np.zeros((len(bounds), size), input.dtype.numpy)
            for row, (a, b) in enumerate(bounds):
                matrix[row, a:b] = 1 / (b - a)
            input = along(input, axis, tensor(matrix, dtype=input.dtype))
    return input


def adaptive_avg_pool1d(input: Tensor, output_size: Any) -> Tensor:
    """Means over as many windows as the output needs, along one axis."""
    return _adaptive(input, output_size, 1, largest=False)


def adaptive_avg_pool2d(input: Tensor, output_size: Any) -> Tensor:
    """The same along two axes."""
    return _adaptive(input, output_size, 2, largest=False)


def adaptive_avg_pool3d(input: Tensor, output_size: Any) -> Tensor:
    """The same along three axes."""
    return _adaptive(input, output_size, 3, largest=False)


def adaptive_max_pool1d(input: Tensor, output_size: Any, return_indices: bool = False) -> Tensor:
    """Maxima over as many windows as the output needs, along one axis."""
    _no_indices(return_indices)
    return _adaptive(input, output_size, 1, largest=True)


def adaptive_max_pool2d(input: Tensor, output_size: Any, return_indices: bool = False) -> Tensor:
    """The same along two axes."""
    _no_indices(return_indices)
    return _adaptive(input, output_size, 2, largest=True)


def adaptive_max_pool3d(input: Tensor, output_size: Any, return_indices: bool = False) -> Tensor:
    """The same along three axes."""
    _no_indices(return_indices)
    return _adaptive(input, output_size, 3, largest=True)
