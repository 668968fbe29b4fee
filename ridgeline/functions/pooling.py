"""Pooling over windows: means, norms, maxima with their indices, and unpooling."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from ridgeline import dtypes
from ridgeline.errors import BadValueError, DTypeError, ShapeError
from ridgeline.functions.arithmetic import div, mul, pow as power
from ridgeline.functions.convolution import per_axis
from ridgeline.functions.operands import require_real
from ridgeline.functions.pointwise import abs, relu, sign
from ridgeline.functions.registry import along_axes, public
from ridgeline.graph.node import Node
from ridgeline.graph.sizes import Size, remembered
from ridgeline.ops.elementwise import cast, constant, full_like, iota
from ridgeline.ops.movement import broadcast, broadcast_scalar, concat, pad, reshape, slice_
from ridgeline.ops.reduce import arg_reduce, sum_
from ridgeline.record.cells import known

Sizes = int | Sequence[int]
_BYTE = 255


class Pooled(NamedTuple):
    """Largest values and where they stand in the flattened spatial axes."""

    values: Node
    indices: Node


@dataclass(frozen=True, slots=True)
class Windows:
    """Windows over the last axes of an input, and how much the input must grow to hold them."""

    lead: int  # axes before the spatial ones
    sizes: tuple[int, ...]
    kernel: tuple[int, ...]
    steps: tuple[int, ...]
    margin: tuple[int, ...]
    apart: tuple[int, ...]
    counts: tuple[int, ...]
    need: tuple[int, ...]  # elements beyond the end that the last window reaches


def _windows(
    input: Node,
    spatial: int,
    kernel_size: Sizes,
    stride: Sizes | None,
    padding: Sizes,
    dilation: Sizes,
    ceil_mode: bool,
) -> Windows:
    kernel = per_axis(kernel_size, spatial, "kernel_size")
    given = stride is not None and stride != () and stride != []
    steps = per_axis(stride, spatial, "stride") if given else kernel  # type: ignore[arg-type]
    margin = per_axis(padding, spatial, "padding")
    apart = per_axis(dilation, spatial, "dilation")
    return _fitted(input.shape, kernel, steps, margin, apart, bool(ceil_mode))


@remembered
def _fitted(
    shape: tuple[Size, ...],
    kernel: tuple[int, ...],
    steps: tuple[int, ...],
    margin: tuple[int, ...],
    apart: tuple[int, ...],
    ceil_mode: bool,
) -> Windows:
    spatial = len(kernel)
    if any(v < 1 for v in (*kernel, *steps, *apart)):
        raise BadValueError(f"pooling needs positive windows and steps: {kernel} and {steps}")
    if any(2 * m > k or m < 0 for m, k in zip(margin, kernel)):
        raise ShapeError(f"pooling: padding {margin} is more than half the window {kernel}")
    lead = len(shape) - spatial
    if lead not in (1, 2):
        raise ShapeError(f"pooling needs {spatial + 1} or {spatial + 2} axes, got {list(shape)}")
    sizes = tuple(known(s) for s in shape[lead:])
    counts = tuple(
        _pooled_size(s, k, st, m, d, ceil_mode)
        for s, k, st, m, d in zip(sizes, kernel, steps, margin, apart)
    )
    need = tuple(
        max(0, (c - 1) * st + d * (k - 1) + 1 - s - m)
        for c, st, k, d, s, m in zip(counts, steps, kernel, apart, sizes, margin)
    )
    return Windows(lead, sizes, kernel, steps, margin, apart, counts, need)


def _pooled_size(size: int, kernel: int, step: int, margin: int, apart: int, ceil: bool) -> int:
    reach = size + 2 * margin - apart * (kernel - 1) - 1
    count = (-(-reach // step) if ceil else reach // step) + 1
    if ceil and (count - 1) * step >= size + margin:  # a window must start inside the input
        count -= 1
    if count < 1:
        raise ShapeError(f"pooling: a window of {kernel} does not fit an axis of size {size}")
    return count


def shifts(x: Node, axis_number: int, kernel: int, step: int, count: int, apart: int) -> list[Node]:
    """For each tap of a window, the elements under it, along one axis."""
    rank = len(x.shape)
    return [
        slice_(
            x,
            tuple(tap * apart if a == axis_number else 0 for a in range(rank)),
            tuple(count if a == axis_number else s for a, s in enumerate(x.shape)),
            tuple(step if a == axis_number else 1 for a in range(rank)),
        )
        for tap in range(kernel)
    ]


def _tile(
    x: Node, lead: int, kernel: Sequence[int], counts: Sequence[int]
) -> tuple[Node, list[int]]:
    """Non-overlapping windows as axes of their own, by reshaping alone."""
    sizes = tuple(c * k for c, k in zip(counts, kernel))
    whole = slice_(x, (0,) * len(x.shape), (*x.shape[:lead], *sizes), (1,) * len(x.shape))
    shape: list[Size] = list(x.shape[:lead])
    taps = []
    for count, width in zip(counts, kernel):
        shape += [count, width]
        taps.append(len(shape) - 1)
    return reshape(whole, tuple(shape)), taps


def _window_sum(
    x: Node, lead: int, kernel: Sequence[int], steps: Sequence[int], counts: Sequence[int]
) -> Node:
    """The sum over every window: by reshape where windows do not overlap, else axis by axis."""
    if tuple(kernel) == tuple(steps):
        tiles, taps = _tile(x, lead, kernel, counts)
        return sum_(tiles, taps)
    for number, (width, step, count) in enumerate(zip(kernel, steps, counts), lead):
        parts = shifts(x, number, width, step, count, 1)
        x = parts[0]
        for part in parts[1:]:
            x = x + part
    return x


def avg_pool(
    input: Node,
    kernel_size: Sizes,
    stride: Sizes | None = None,
    padding: Sizes = 0,
    ceil_mode: bool = False,
    count_include_pad: bool = True,
    divisor_override: int | None = None,
    *,
    spatial: int,
) -> Node:
    """The mean over windows along {axes}."""
    if input.dtype is not dtypes.int64:
        require_real(input.dtype, "the mean of windows")
    w = _windows(input, spatial, kernel_size, stride, padding, 1, ceil_mode)
    zero = (0,) * w.lead
    x = pad(input, (*zero, *w.margin), (*zero, *w.need))
    total = _window_sum(x, w.lead, w.kernel, w.steps, w.counts)
    if divisor_override is not None:
        if divisor_override == 0:
            raise BadValueError("pooling cannot divide by 0")
        return _divided(total, divisor_override)
    beyond = any(n > m for n, m in zip(w.need, w.margin))
    if not beyond and (count_include_pad or not any(w.margin)):
        return _divided(total, math.prod(w.kernel))
    inside = w.margin if count_include_pad else (0,) * spatial
    ones = broadcast_scalar(
        constant(1, input.dtype), tuple(s + 2 * i for s, i in zip(w.sizes, inside))
    )
    low = tuple(m - i for m, i in zip(w.margin, inside))
    high = tuple(max(0, n - i) for n, i in zip(w.need, inside))
    weights = _window_sum(pad(ones, low, high), 0, w.kernel, w.steps, w.counts)
    spread = broadcast(weights, total.shape, tuple(range(w.lead, w.lead + spatial)))
    return _ratio(total, spread)


def _divided(total: Node, by: int) -> Node:
    return _ratio(total, full_like(total, by))


def _ratio(total: Node, by: Node) -> Node:
    return div(total, by, rounding_mode=None if total.dtype.is_differentiable else "trunc")


@public(method=False, wide=True)
def avg_pool1d(
    input: Node,
    kernel_size: Sizes,
    stride: Sizes | None = None,
    padding: Sizes = 0,
    ceil_mode: bool = False,
    count_include_pad: bool = True,
) -> Node:
    """The mean over windows along one axis."""
    settings = (kernel_size, stride, padding, ceil_mode, count_include_pad)
    return avg_pool(input, *settings, spatial=1)


avg_pool2d, avg_pool3d = along_axes("avg_pool{}d", avg_pool, axes=(2, 3), wide=True)


def lp_pool(
    input: Node,
    norm_type: float,
    kernel_size: Sizes,
    stride: Sizes | None = None,
    ceil_mode: bool = False,
    *,
    spatial: int,
) -> Node:
    """The p-norm of windows along {axes}; one that reaches beyond the end counts as full."""
    raised = power(input, float(norm_type))
    means = avg_pool(raised, kernel_size, stride, 0, ceil_mode, spatial=spatial)
    count = math.prod(per_axis(kernel_size, spatial, "kernel_size"))
    whole = mul(mul(sign(means), relu(abs(means))), count)
    return power(whole, 1.0 / norm_type)


lp_pool1d, lp_pool2d, lp_pool3d = along_axes("lp_pool{}d", lp_pool, wide=True)


def lowest(node: Node) -> float:
    """The least number of a node's type."""
    if node.dtype.is_floating_point:
        return -math.inf
    return int(np.iinfo(node.dtype.numpy).min)


def max_pool(
    input: Node,
    kernel_size: Sizes,
    stride: Sizes | None = None,
    padding: Sizes = 0,
    dilation: Sizes = 1,
    ceil_mode: bool = False,
    return_indices: bool = False,
    *,
    spatial: int,
) -> Node | Pooled:
    """The largest value of windows along {axes}."""
    if input.dtype.is_complex:
        raise DTypeError("complex numbers have no largest one, so max_pool is not defined for them")
    w = _windows(input, spatial, kernel_size, stride, padding, dilation, ceil_mode)
    zero = (0,) * w.lead
    x = pad(input, (*zero, *w.margin), (*zero, *w.need), value=lowest(input))
    # windows side by side along one new axis, in row-major order, so that the first maximum wins
    parts = [x]
    for number, (width, step, count, d) in enumerate(
        zip(w.kernel, w.steps, w.counts, w.apart), w.lead
    ):
        parts = [part for p in parts for part in shifts(p, number, width, step, count, d)]
    stacked = concat([reshape(p, (*p.shape, 1)) for p in parts], len(parts[0].shape))
    # what is kept of a window for its gradient need not take more room than its values
    kind = dtypes.uint8 if len(parts) <= _BYTE else dtypes.int64
    values, tap = arg_reduce(stacked, "argmax", len(stacked.shape) - 1, kind)
    return Pooled(values, _places(tap, w)) if return_indices else values


def _places(tap: Node, w: Windows) -> Node:
    """The flat index in the input of the tap that each window picked."""
    total: Node | None = None
    tap = cast(tap, dtypes.int64)
    for i in range(len(w.sizes)):
        within = math.prod(w.kernel[i + 1 :])
        along = tap // within % full_like(tap, w.kernel[i])  # fmt: skip
        start = iota(tap.shape, w.lead + i, dtypes.int64)
        position = start * full_like(tap, w.steps[i])
        position = position + along * full_like(tap, w.apart[i])
        position = position + full_like(tap, -w.margin[i])
        flat = position * full_like(tap, math.prod(w.sizes[i + 1 :]))
        total = flat if total is None else total + flat
    assert total is not None
    return total


max_pool1d, max_pool2d, max_pool3d = along_axes("max_pool{}d", max_pool)
