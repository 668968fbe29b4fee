"""Adaptive pooling, and unpooling of maxima."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

from ridgeline import dtypes
from ridgeline.errors import BadValueError, ShapeError
from ridgeline.functions.convolution import per_axis
from ridgeline.functions.movement import cut
from ridgeline.functions.operands import step_count
from ridgeline.functions.pooling import Pooled, Sizes
from ridgeline.functions.registry import along_axes
from ridgeline.functions.scattering import scatter
from ridgeline.graph.node import Node
from ridgeline.ops.elementwise import cast, constant, full_like, iota, select
from ridgeline.ops.movement import broadcast, broadcast_scalar, concat, reshape
from ridgeline.ops.reduce import arg_reduce, expand_back, sum_
from ridgeline.record.cells import known

Bounds = list[tuple[int, int]]


def _even_bounds(size: int, count: int) -> Bounds:
    """Where each of `count` windows over an axis begins and ends."""
    return [
        (i * size // count, -(-(i + 1) * size // count))
        for i in range(step_count(count, "adaptive pooling"))
    ]


def _wanted(input: Node, output_size: Any, spatial: int, what: str) -> tuple[int, list[int]]:
    """The number of leading axes, and the size of the output along each of the others."""
    lead = len(input.shape) - spatial
    if lead not in (1, 2):
        raise ShapeError(f"{what} needs {spatial + 1} or {spatial + 2} axes: {list(input.shape)}")
    single = output_size is None or isinstance(output_size, int)
    listed = [output_size] * spatial if single else list(output_size)
    if len(listed) == 1:
        listed = listed * spatial
    if len(listed) != spatial:
        raise BadValueError(f"{what} needs 1 or {spatial} sizes, got {output_size}")
    sizes = [known(s) for s in input.shape[lead:]]
    return lead, [s if n is None else int(n) for s, n in zip(sizes, listed)]


def adaptive_avg_pool(input: Node, output_size: Any, *, spatial: int) -> Node:
    """Means over as many windows as the output needs, along {axes}."""
    lead, wanted = _wanted(input, output_size, spatial, f"adaptive_avg_pool{spatial}d")
    x = input
    for axis, count in enumerate(wanted, lead):
        size = known(x.shape[axis])
        if count != size:
            x = _even_means(x, axis, size, count)
    return x


def _even_means(x: Node, axis: int, size: int, count: int) -> Node:
    rank = len(x.shape)
    if count and size % count == 0:  # equal windows are a reshape
        shape = (*x.shape[:axis], count, size // count, *x.shape[axis + 1 :])
        total = sum_(reshape(x, shape), (axis + 1,))
        return total / (size // count)
    parts = []
    for start, end in _even_bounds(size, count):
        total = sum_(cut(x, axis, start, end - start), (axis,))
        average = total / (end - start)
        parts.append(broadcast(average, _with(x, axis, 1), _without(rank, axis)))
    return concat(parts, axis) if parts else cut(x, axis, 0, 0)


def _with(x: Node, axis: int, size: int) -> tuple[Any, ...]:
    return (*x.shape[:axis], size, *x.shape[axis + 1 :])


def _without(rank: int, axis: int) -> tuple[int, ...]:
    return tuple(a for a in range(rank) if a != axis)


def _largest(x: Node, indices: Node, axis: int, bounds: Bounds) -> Pooled:
    """The largest value of each range along an axis, and the place it came with."""
    values, found = [], []
    for start, end in bounds:
        window, inside = cut(x, axis, start, end - start), cut(indices, axis, start, end - start)
        value, index = arg_reduce(window, "argmax", axis)
        chosen = iota(window.shape, axis, dtypes.int64).eq(
            expand_back(index, window.shape, (axis,))
        )
        position = sum_(select(chosen, inside, full_like(inside, 0)), (axis,))
        shape = _with(x, axis, 1)
        values.append(reshape(value, shape))
        found.append(reshape(position, shape))
    return Pooled(concat(values, axis), concat(found, axis))


def _by_ranges(input: Node, lead: int, ranges: Sequence[Bounds]) -> Pooled:
    """Maxima over a grid of windows, axis by axis from the last, so that the first one wins."""
    sizes = [known(s) for s in input.shape[lead:]]
    indices = broadcast_scalar(constant(0, dtypes.int64), input.shape)
    for i in range(len(sizes)):
        ramp = iota(input.shape, lead + i, dtypes.int64)
        indices = indices + ramp * math.prod(sizes[i + 1 :])
    result = Pooled(input, indices)
    for i in reversed(range(len(sizes))):
        result = _largest(result.values, result.indices, lead + i, ranges[i])
    return result


def adaptive_max_pool(
    input: Node, output_size: Any, return_indices: bool = False, *, spatial: int
) -> Node | Pooled:
    """Maxima over as many windows as the output needs, along {axes}."""
    lead, wanted = _wanted(input, output_size, spatial, f"adaptive_max_pool{spatial}d")
    sizes = [known(s) for s in input.shape[lead:]]
    if 0 in sizes or 0 in wanted:
        raise ShapeError(f"adaptive_max_pool of {sizes} to {wanted} has no elements")
    found = _by_ranges(input, lead, [_even_bounds(s, n) for s, n in zip(sizes, wanted)])
    return found if return_indices else found.values


adaptive_avg_pool1d, adaptive_avg_pool2d, adaptive_avg_pool3d = along_axes(
    "adaptive_avg_pool{}d", adaptive_avg_pool, wide=True
)
adaptive_max_pool1d, adaptive_max_pool2d, adaptive_max_pool3d = along_axes(
    "adaptive_max_pool{}d", adaptive_max_pool
)


def max_unpool(
    input: Node,
    indices: Node,
    kernel_size: Sizes,
    stride: Sizes | None = None,
    padding: Sizes = 0,
    output_size: Sequence[int] | None = None,
    *,
    spatial: int,
) -> Node:
    """The maxima of windows along {axes} back in their places, zeros elsewhere."""
    if input.shape != indices.shape:
        raise ShapeError(f"max_unpool: {list(input.shape)} values, {list(indices.shape)} indices")
    kernel = per_axis(kernel_size, spatial, "kernel_size")
    given = stride is not None and stride != () and stride != []
    steps = per_axis(stride, spatial, "stride") if given else kernel  # type: ignore[arg-type]
    margin = per_axis(padding, spatial, "padding")
    lead = len(input.shape) - spatial
    if lead not in (1, 2):
        raise ShapeError(f"max_unpool needs {spatial + 1} or {spatial + 2} axes")
    sizes = [
        (known(s) - 1) * st - 2 * m + k
        for s, st, m, k in zip(input.shape[lead:], steps, margin, kernel)
    ]
    if output_size is not None:
        sizes = [int(s) for s in output_size][-spatial:]
    front, flat = input.shape[:lead], math.prod(sizes)
    count = math.prod(known(s) for s in input.shape[lead:])
    empty = broadcast_scalar(constant(0, input.dtype), (*front, flat))
    if flat == 0:
        return reshape(empty, (*front, *sizes))
    position = reshape(cast(indices, dtypes.int64), (*front, count))
    spread = scatter(empty, -1, position, reshape(input, (*front, count)))
    return reshape(spread, (*front, *sizes))


max_unpool1d, max_unpool2d, max_unpool3d = along_axes("max_unpool{}d", max_unpool)
