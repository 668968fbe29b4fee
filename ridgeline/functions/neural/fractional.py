"""Pooling over windows whose places grow by a fraction, which differs from channel to channel."""

from __future__ import annotations

from typing import Any

from ridgeline import dtypes
from ridgeline.errors import ArgumentError, ShapeError
from ridgeline.functions.arithmetic import add, mul
from ridgeline.functions.convolution import per_axis
from ridgeline.functions.creation import arange
from ridgeline.functions.gathering import gather
from ridgeline.functions.index_checks import number
from ridgeline.functions.movement import cat, flatten, reshape, select_index, squeeze, unsqueeze
from ridgeline.functions.pooling import Pooled
from ridgeline.functions.random import rand
from ridgeline.functions.reductions import ValuesIndices, max as largest
from ridgeline.functions.registry import along_axes
from ridgeline.graph.node import Node
from ridgeline.ops.elementwise import cast
from ridgeline.record.cells import known

_DRAWN = {2: (1, 0), 3: (0, 1, 2)}  # which sample belongs to each axis


def _fractional(
    input: Node,
    kernel_size: Any,
    output_size: Any = None,
    output_ratio: Any = None,
    return_indices: bool = False,
    _random_samples: Node | None = None,
    *,
    spatial: int,
) -> Node | Pooled:
    """Maxima over windows at random places along {axes}."""
    if len(input.shape) == spatial + 1:
        settings = (kernel_size, output_size, output_ratio, True, _random_samples)
        pooled = _fractional(unsqueeze(input, 0), *settings, spatial=spatial)
        assert isinstance(pooled, Pooled)
        found = Pooled(*(squeeze(part, 0) for part in pooled))
        return found if return_indices else found.values
    if len(input.shape) != spatial + 2:
        raise ShapeError(
            f"fractional pooling takes {spatial + 1} or {spatial + 2} axes, got {list(input.shape)}"
        )
    batch, channels, *sizes = (known(n) for n in input.shape)
    kernel = per_axis(kernel_size, spatial, "kernel_size")
    counts = _counts(sizes, output_size, output_ratio)
    samples = _random_samples
    if samples is None:
        samples = rand(batch, channels, spatial, dtype=input.dtype)
    positions = None  # of each window's elements in the flat image, [n, c, windows…, elements…]
    for axis, (size, count, width) in enumerate(zip(sizes, counts, kernel)):
        if count < 1 or width < 1 or count + width - 1 > size:
            raise ShapeError(f"fractional pooling: {count} windows of {width} do not fit {size}")
        sample = select_index(samples, -1, _DRAWN[spatial][axis])
        along = add(unsqueeze(_starts(sample, size, count, width), -1), arange(width))
        shape = [batch, channels, *[1] * (2 * spatial)]
        shape[2 + axis], shape[2 + spatial + axis] = count, width
        along = reshape(along, shape)
        positions = along if positions is None else add(mul(positions, size), along)
    assert positions is not None
    windows = (batch, channels, *counts, -1)
    columns = reshape(positions, (batch, channels, -1))
    values = reshape(gather(flatten(input, 2), 2, columns), windows)
    best = largest(values, -1)
    assert isinstance(best, ValuesIndices)
    if not return_indices:
        return best.values
    chosen = gather(reshape(columns, windows), -1, unsqueeze(best.indices, -1))
    return Pooled(best.values, squeeze(chosen, -1))


along_axes("fractional_max_pool{}d", _fractional, axes=(2, 3), namespace="nn.functional")


def _counts(sizes: list[int], output_size: Any, output_ratio: Any) -> tuple[int, ...]:
    if (output_size is None) == (output_ratio is None):
        raise ArgumentError("fractional pooling takes either output_size or output_ratio")
    if output_ratio is None:
        return per_axis(output_size, len(sizes), "output_size")
    ratios = output_ratio if isinstance(output_ratio, tuple | list) else [output_ratio] * len(sizes)
    if any(not 0 < ratio < 1 for ratio in ratios):
        raise ArgumentError(f"output_ratio lies between 0 and 1, got {output_ratio}")
    return tuple(int(size * ratio) for size, ratio in zip(sizes, ratios))


def _starts(sample: Node, size: int, count: int, width: int) -> Node:
    """Where the windows [n, c, count] begin, as torch places them; the last ends with the axis."""
    last = number((*sample.shape, 1), size - width, dtypes.int64)
    if count == 1:
        return last
    alpha, shift = (size - width) / (count - 1), unsqueeze(sample, -1)
    moved = mul(add(arange(count - 1), shift), alpha)
    begins = cast(moved, dtypes.int64), cast(mul(shift, alpha), dtypes.int64)
    return cat([add(begins[0], -begins[1]), last], -1)
