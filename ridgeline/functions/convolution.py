"""Convolutions and pooling. A convolution is a contraction with affine indices."""

from __future__ import annotations

import math
from collections.abc import Sequence

from ridgeline.cells import known
from ridgeline.errors import RidgelineError, ShapeError
from ridgeline.functions.linear import same_type
from ridgeline.functions.registry import public
from ridgeline.graph.node import Node
from ridgeline.graph.sizes import Size, product
from ridgeline.ops.contract import AxisMap, ContractAttrs, axis, contract
from ridgeline.ops.elementwise import apply, constant, full_like
from ridgeline.ops.movement import (
    broadcast,
    broadcast_scalar,
    concat,
    pad,
    reshape,
    slice_,
)
from ridgeline.ops.reduce import arg_reduce, sum_

Sizes = int | Sequence[int]


def per_axis(value: Sizes, count: int, what: str) -> tuple[int, ...]:
    """One int per spatial axis, from an int or a sequence."""
    if isinstance(value, int):
        return (value,) * count
    values = tuple(int(v) for v in value)
    if len(values) == 1:
        return values * count
    if len(values) != count:
        raise RidgelineError(f"{what} needs 1 or {count} numbers, got {values}")
    return values


def _padding(
    padding: Sizes | str,
    kernel: Sequence[int],
    stride: Sequence[int],
    dilation: Sequence[int],
) -> tuple[tuple[int, ...], tuple[int, ...]]:
    count = len(kernel)
    if isinstance(padding, str):
        if padding == "valid":
            return (0,) * count, (0,) * count
        if padding != "same" or any(s != 1 for s in stride):
            raise RidgelineError(f"padding {padding!r} is not possible with stride {tuple(stride)}")
        total = [d * (k - 1) for k, d in zip(kernel, dilation)]
        return tuple(t // 2 for t in total), tuple(t - t // 2 for t in total)
    both = per_axis(padding, count, "padding")
    if any(p < 0 for p in both):
        raise RidgelineError(f"padding cannot be negative: {both}")
    return both, both


def convolution(
    input: Node,
    weight: Node,
    bias: Node | None,
    stride: Sizes,
    padding: Sizes | str,
    dilation: Sizes,
    groups: int,
    spatial: int,
) -> Node:
    """The convolution with any number of spatial axes: [n, c, …] * [k, c / groups, …]."""
    what = f"conv{spatial}d"
    same_type(input, weight, what)
    if len(input.shape) == spatial + 1:  # without a batch
        single = reshape(input, (1, *input.shape))
        result = convolution(single, weight, bias, stride, padding, dilation, groups, spatial)
        return reshape(result, result.shape[1:])
    if len(input.shape) != spatial + 2 or len(weight.shape) != spatial + 2:
        raise ShapeError(
            f"{what} needs {spatial + 1} or {spatial + 2} axes of input and {spatial + 2} of "
            f"weight, got {list(input.shape)} and {list(weight.shape)}"
        )
    _check_channels(input, weight, bias, groups, what)
    steps, apart = per_axis(stride, spatial, "stride"), per_axis(dilation, spatial, "dilation")
    if any(v < 1 for v in (*steps, *apart)):
        raise RidgelineError(f"stride and dilation are positive, got {steps} and {apart}")
    kernel = tuple(known(k) for k in weight.shape[2:])
    low, high = _padding(padding, kernel, steps, apart)
    x = pad(input, (0, 0, *low), (0, 0, *high))
    sizes = tuple(
        (known(s) - d * (k - 1) - 1) // step + 1
        for s, k, d, step in zip(x.shape[2:], kernel, apart, steps)
    )
    if any(s < 1 for s in sizes):
        raise ShapeError(
            f"{what}: the kernel {list(kernel)} (dilation {list(apart)}) is larger than the "
            f"padded input {list(x.shape[2:])}"
        )
    result = _contract_windows(x, weight, sizes, steps, apart, groups)
    if bias is None:
        return result
    return apply("add", result, broadcast(bias, result.shape, (1,)))


def _check_channels(input: Node, weight: Node, bias: Node | None, groups: int, what: str) -> None:
    channels, filters = known(input.shape[1]), known(weight.shape[0])
    if groups < 1 or channels % groups or filters % groups:
        raise ShapeError(f"{what}: groups={groups} does not divide {channels} and {filters}")
    if weight.shape[1] != channels // groups:
        raise ShapeError(
            f"{what}: input {list(input.shape)} has {channels} channels, but weight "
            f"{list(weight.shape)} with groups={groups} takes {known(weight.shape[1]) * groups}",
            help="axis 1 of the input holds the channels",
        )
    if bias is not None and bias.shape != (filters,):
        raise ShapeError(f"{what}: bias has shape {list(bias.shape)}, expected [{filters}]")


def _contract_windows(
    x: Node,
    weight: Node,
    sizes: Sequence[int],
    steps: Sequence[int],
    apart: Sequence[int],
    groups: int,
) -> Node:
    """out[n, g, k, o…] = sum over c, r… of x[n, g, c, step*o + dilation*r…] * w[g, k, c, r…]."""
    batch, filters, spatial = x.shape[0], weight.shape[0], len(sizes)
    assert isinstance(filters, int)
    inner, kernel = weight.shape[1], weight.shape[2:]
    lead = (batch, groups, filters // groups) if groups > 1 else (batch, filters)
    first_out, channel = len(lead), len(lead) + spatial
    extents: tuple[Size, ...] = (*lead, *sizes, inner, *kernel)
    windows = tuple(
        AxisMap(((first_out + i, steps[i]), (channel + 1 + i, apart[i]))) for i in range(spatial)
    )
    taps = tuple(axis(channel + 1 + i) for i in range(spatial))
    if groups > 1:
        x = reshape(x, (batch, groups, inner, *x.shape[2:]))
        weight = reshape(weight, (groups, filters // groups, inner, *kernel))
        left = (axis(0), axis(1), axis(channel), *windows)
        right = (axis(1), axis(2), axis(channel), *taps)
    else:
        left = (axis(0), axis(channel), *windows)
        right = (axis(1), axis(channel), *taps)
    attrs = ContractAttrs(extents, tuple(range(channel)), left, right)
    return reshape(contract(x, weight, attrs), (batch, filters, *sizes))


@public(method=False)
def conv1d(
    input: Node,
    weight: Node,
    bias: Node | None = None,
    stride: Sizes = 1,
    padding: Sizes | str = 0,
    dilation: Sizes = 1,
    groups: int = 1,
) -> Node:
    """Convolution along one axis."""
    return convolution(input, weight, bias, stride, padding, dilation, groups, 1)


@public(method=False)
def conv2d(
    input: Node,
    weight: Node,
    bias: Node | None = None,
    stride: Sizes = 1,
    padding: Sizes | str = 0,
    dilation: Sizes = 1,
    groups: int = 1,
) -> Node:
    """Convolution along two axes."""
    return convolution(input, weight, bias, stride, padding, dilation, groups, 2)


@public(method=False)
def conv3d(
    input: Node,
    weight: Node,
    bias: Node | None = None,
    stride: Sizes = 1,
    padding: Sizes | str = 0,
    dilation: Sizes = 1,
    groups: int = 1,
) -> Node:
    """Convolution along three axes."""
    return convolution(input, weight, bias, stride, padding, dilation, groups, 3)


def _pooled_size(size: int, kernel: int, step: int, margin: int, apart: int, ceil: bool) -> int:
    reach = size + 2 * margin - apart * (kernel - 1) - 1
    count = (-(-reach // step) if ceil else reach // step) + 1
    if ceil and (count - 1) * step >= size + margin:  # a window must start inside the input
        count -= 1
    if count < 1:
        raise ShapeError(f"pooling: a window of {kernel} does not fit an axis of size {size}")
    return count


def _shifts(
    x: Node, axis_number: int, kernel: int, step: int, count: int, apart: int
) -> list[Node]:
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
        parts = _shifts(x, number, width, step, count, 1)
        x = parts[0]
        for part in parts[1:]:
            x = apply("add", x, part)
    return x


def _avg_pool(
    input: Node,
    kernel_size: Sizes,
    stride: Sizes | None,
    padding: Sizes,
    ceil_mode: bool,
    count_include_pad: bool,
    divisor_override: int | None,
    spatial: int,
) -> Node:
    kernel = per_axis(kernel_size, spatial, "kernel_size")
    steps = kernel if stride is None else per_axis(stride, spatial, "stride")
    margin = per_axis(padding, spatial, "padding")
    lead = len(input.shape) - spatial
    if lead not in (1, 2):
        raise ShapeError(
            f"pooling needs {spatial + 1} or {spatial + 2} axes, got {list(input.shape)}"
        )
    sizes = [known(s) for s in input.shape[lead:]]
    counts = [
        _pooled_size(s, k, st, m, 1, ceil_mode) for s, k, st, m in zip(sizes, kernel, steps, margin)
    ]
    # what the last window needs may lie beyond the right margin when sizes are rounded up
    need = [
        max(0, (c - 1) * st + k - s - m)
        for c, st, k, s, m in zip(counts, steps, kernel, sizes, margin)
    ]
    zero = (0,) * lead
    x = pad(input, (*zero, *margin), (*zero, *need))
    total = _window_sum(x, lead, kernel, steps, counts)
    if divisor_override is not None:
        return apply("div", total, full_like(total, float(divisor_override)))
    beyond = any(n > m for n, m in zip(need, margin))
    if not beyond and (count_include_pad or not any(margin)):
        return apply("div", total, full_like(total, float(math.prod(kernel))))
    inside = margin if count_include_pad else (0,) * spatial
    ones = broadcast_scalar(
        constant(1, input.dtype), tuple(s + 2 * i for s, i in zip(sizes, inside))
    )
    low = tuple(m - i for m, i in zip(margin, inside))
    high = tuple(max(0, n - i) for n, i in zip(need, inside))
    weights = _window_sum(pad(ones, low, high), 0, kernel, steps, counts)
    spread = broadcast(weights, total.shape, tuple(range(lead, lead + spatial)))
    return apply("div", total, spread)


@public(method=False)
def avg_pool1d(
    input: Node,
    kernel_size: Sizes,
    stride: Sizes | None = None,
    padding: Sizes = 0,
    ceil_mode: bool = False,
    count_include_pad: bool = True,
) -> Node:
    """The mean over windows along one axis."""
    return _avg_pool(input, kernel_size, stride, padding, ceil_mode, count_include_pad, None, 1)


@public(method=False)
def avg_pool2d(
    input: Node,
    kernel_size: Sizes,
    stride: Sizes | None = None,
    padding: Sizes = 0,
    ceil_mode: bool = False,
    count_include_pad: bool = True,
    divisor_override: int | None = None,
) -> Node:
    """The mean over windows along two axes."""
    return _avg_pool(
        input, kernel_size, stride, padding, ceil_mode, count_include_pad, divisor_override, 2
    )


def _max_pool(
    input: Node,
    kernel_size: Sizes,
    stride: Sizes | None,
    padding: Sizes,
    dilation: Sizes,
    ceil_mode: bool,
    spatial: int,
) -> Node:
    kernel = per_axis(kernel_size, spatial, "kernel_size")
    steps = kernel if stride is None else per_axis(stride, spatial, "stride")
    margin = per_axis(padding, spatial, "padding")
    apart = per_axis(dilation, spatial, "dilation")
    if any(2 * m > k for m, k in zip(margin, kernel)):
        raise ShapeError(f"pooling: padding {margin} is more than half the window {kernel}")
    lead = len(input.shape) - spatial
    if lead not in (1, 2):
        raise ShapeError(
            f"pooling needs {spatial + 1} or {spatial + 2} axes, got {list(input.shape)}"
        )
    sizes = [known(s) for s in input.shape[lead:]]
    counts = [
        _pooled_size(s, k, st, m, d, ceil_mode)
        for s, k, st, m, d in zip(sizes, kernel, steps, margin, apart)
    ]
    need = [
        max(0, (c - 1) * st + d * (k - 1) + 1 - s - m)
        for c, st, k, d, s, m in zip(counts, steps, kernel, apart, sizes, margin)
    ]
    zero = (0,) * lead
    x = pad(input, (*zero, *margin), (*zero, *need), value=-math.inf)
    # windows side by side along one new axis, in row-major order, so that the first maximum wins
    windows = [x]
    for number, (width, step, count, d) in enumerate(zip(kernel, steps, counts, apart), lead):
        windows = [part for w in windows for part in _shifts(w, number, width, step, count, d)]
    stacked = concat([reshape(w, (*w.shape, 1)) for w in windows], len(windows[0].shape))
    return arg_reduce(stacked, "argmax", len(stacked.shape) - 1)[0]


@public(method=False)
def max_pool1d(
    input: Node,
    kernel_size: Sizes,
    stride: Sizes | None = None,
    padding: Sizes = 0,
    dilation: Sizes = 1,
    ceil_mode: bool = False,
) -> Node:
    """The largest value of windows along one axis."""
    return _max_pool(input, kernel_size, stride, padding, dilation, ceil_mode, 1)


@public(method=False)
def max_pool2d(
    input: Node,
    kernel_size: Sizes,
    stride: Sizes | None = None,
    padding: Sizes = 0,
    dilation: Sizes = 1,
    ceil_mode: bool = False,
) -> Node:
    """The largest value of windows along two axes."""
    return _max_pool(input, kernel_size, stride, padding, dilation, ceil_mode, 2)


def elements(shape: Sequence[Size]) -> Size:
    """The number of elements of a shape."""
    return product(shape)
