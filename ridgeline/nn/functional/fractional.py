"""Pooling over windows whose places grow by a fraction, which differs from channel to channel."""

from __future__ import annotations

from typing import Any

from ridgeline.errors import ArgumentError, ShapeError
from ridgeline.functions.convolution import per_axis
from ridgeline.tensors.public import arange, cat, full, rand
from ridgeline.tensors.tensor import Tensor


def fractional_max_pool2d(
    input: Tensor,
    kernel_size: Any,
    output_size: Any = None,
    output_ratio: Any = None,
    return_indices: bool = False,
    _random_samples: Tensor | None = None,
) -> Any:
    """Maxima over windows at random places along two axes."""
    settings = (kernel_size, output_size, output_ratio, return_indices, _random_samples)
    return _fractional(input, *settings, (1, 0))


def fractional_max_pool3d(
    input: Tensor,
    kernel_size: Any,
    output_size: Any = None,
    output_ratio: Any = None,
    return_indices: bool = False,
    _random_samples: Tensor | None = None,
) -> Any:
    """Maxima over windows at random places along three axes."""
    settings = (kernel_size, output_size, output_ratio, return_indices, _random_samples)
    return _fractional(input, *settings, (0, 1, 2))


def _fractional(
    input: Tensor,
    kernel_size: Any,
    output_size: Any,
    output_ratio: Any,
    return_indices: bool,
    samples: Tensor | None,
    drawn: tuple[int, ...],  # which sample belongs to each axis
) -> Any:
    axes = len(drawn)
    if input.dim() == axes + 1:
        settings = (kernel_size, output_size, output_ratio, return_indices, samples, drawn)
        found = _fractional(input.unsqueeze(0), *settings)
        return tuple(f.squeeze(0) for f in found) if return_indices else found.squeeze(0)
    if input.dim() != axes + 2:
        raise ShapeError(
            f"fractional pooling takes {axes + 1} or {axes + 2} axes, got {list(input.shape)}"
        )
    batch, channels, *sizes = (int(n) for n in input.shape)
    kernel = per_axis(kernel_size, axes, "kernel_size")
    counts = _counts(sizes, output_size, output_ratio)
    if samples is None:
        samples = rand((batch, channels, axes), dtype=input.dtype)
    places = None  # of each window's elements in the flat image, [n, c, windows…, elements…]
    for axis, (size, count, width) in enumerate(zip(sizes, counts, kernel)):
        if count < 1 or width < 1 or count + width - 1 > size:
            raise ShapeError(f"fractional pooling: {count} windows of {width} do not fit {size}")
        starts = _starts(samples[..., drawn[axis]], size, count, width)
        along = starts.unsqueeze(-1) + arange(width)
        shape = [batch, channels, *[1] * (2 * axes)]
        shape[2 + axis], shape[2 + axes + axis] = count, width
        along = along.reshape(tuple(shape))
        places = along if places is None else places * size + along
    assert places is not None
    columns = places.reshape((batch, channels, -1))
    values = input.flatten(2).gather(2, columns).reshape((*(batch, channels, *counts), -1))
    best = values.max(-1)
    if not return_indices:
        return best.values
    columns = columns.reshape((batch, channels, *counts, -1))
    return best.values, columns.gather(-1, best.indices.unsqueeze(-1)).squeeze(-1)


def _counts(sizes: list[int], output_size: Any, output_ratio: Any) -> tuple[int, ...]:
    if (output_size is None) == (output_ratio is None):
        raise ArgumentError("fractional pooling takes either output_size or output_ratio")
    if output_ratio is None:
        return per_axis(output_size, len(sizes), "output_size")
    ratios = output_ratio if isinstance(output_ratio, tuple | list) else [output_ratio] * len(sizes)
    if any(not 0 < ratio < 1 for ratio in ratios):
        raise ArgumentError(f"output_ratio lies between 0 and 1, got {output_ratio}")
    return tuple(int(size * ratio) for size, ratio in zip(sizes, ratios))


def _starts(sample: Tensor, size: int, count: int, width: int) -> Tensor:
    """Where the windows [n, c, count] begin, as torch places them; the last ends with the axis."""
    last = full((*tuple(sample.shape), 1), size - width, dtype=arange(1).dtype)
    if count == 1:
        return last
    alpha, shift = (size - width) / (count - 1), sample.unsqueeze(-1)
    begins = ((arange(count - 1) + shift) * alpha).to(last.dtype) - (shift * alpha).to(last.dtype)
    return cat([begins, last], -1)
