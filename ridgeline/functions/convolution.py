"""Convolutions: contractions with affine indices."""

from __future__ import annotations

from collections.abc import Sequence

from ridgeline.errors import BadValueError, ShapeError, SizeKindError
from ridgeline.functions.linear import same_type
from ridgeline.functions.operands import whole_numbers
from ridgeline.functions.registry import along_axes
from ridgeline.graph.node import Node
from ridgeline.graph.sizes import Size, remembered
from ridgeline.ops.contract import AxisMap, ContractAttrs, axis, contract
from ridgeline.ops.movement import broadcast, pad, reshape
from ridgeline.record.cells import known

Sizes = int | Sequence[int]


def per_axis(value: Sizes, count: int, what: str) -> tuple[int, ...]:
    """One int per spatial axis, from an int or a sequence."""
    if isinstance(value, int) and not isinstance(value, bool):
        return (value,) * count
    if isinstance(value, bool):
        raise SizeKindError(
            f"{what}: ints are needed, not {value}", help="a number or one per axis"
        )
    values = whole_numbers(value, what)
    if len(values) == 1:
        return values * count
    if len(values) != count:
        raise BadValueError(f"{what} needs 1 or {count} numbers, got {values}")
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
            raise BadValueError(f"padding {padding!r} is not possible with stride {tuple(stride)}")
        total = [d * (k - 1) for k, d in zip(kernel, dilation)]
        return tuple(t // 2 for t in total), tuple(t - t // 2 for t in total)
    both = per_axis(padding, count, "padding")
    if any(p < 0 for p in both):
        raise BadValueError(f"padding cannot be negative: {both}")
    return both, both


def convolution(
    input: Node,
    weight: Node,
    bias: Node | None = None,
    stride: Sizes = 1,
    padding: Sizes | str = 0,
    dilation: Sizes = 1,
    groups: int = 1,
    *,
    spatial: int,
) -> Node:
    """Convolution along {axes}: [n, c, …] * [k, c / groups, …]."""
    what = f"conv{spatial}d"
    same_type(input, weight, what)
    if len(input.shape) == spatial + 1:  # without a batch
        single = reshape(input, (1, *input.shape))
        settings = (stride, padding, dilation, groups)
        result = convolution(single, weight, bias, *settings, spatial=spatial)
        return reshape(result, result.shape[1:])
    if len(input.shape) != spatial + 2 or len(weight.shape) != spatial + 2:
        raise ShapeError(
            f"{what} needs {spatial + 1} or {spatial + 2} axes of input and {spatial + 2} of "
            f"weight, got {list(input.shape)} and {list(weight.shape)}"
        )
    _check_channels(input, weight, bias, groups, what)
    steps, apart = per_axis(stride, spatial, "stride"), per_axis(dilation, spatial, "dilation")
    if any(v < 1 for v in (*steps, *apart)):
        raise BadValueError(f"stride and dilation are positive, got {steps} and {apart}")
    kernel = tuple(known(k) for k in weight.shape[2:])
    if 0 in kernel:
        raise ShapeError(f"{what} needs a kernel of at least one element, got {kernel}")
    low, high = _padding(padding, kernel, steps, apart)
    x = pad(input, (0, 0, *low), (0, 0, *high))
    sizes = tuple(
        (s - d * (k - 1) - 1) // step + 1
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
    return result + broadcast(bias, result.shape, (1,))


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
    sizes: tuple[Size, ...],
    steps: tuple[int, ...],
    apart: tuple[int, ...],
    groups: int,
) -> Node:
    """out[n, g, k, o…] = sum over c, r… of x[n, g, c, step*o + dilation*r…] * w[g, k, c, r…]."""
    attrs = window_maps(x.shape[0], weight.shape, sizes, steps, apart, (0,) * len(sizes), groups)
    result = contract(in_groups(x, groups, 1), in_groups(weight, groups, 0), attrs)
    return reshape(result, (x.shape[0], weight.shape[0], *sizes))


def in_groups(a: Node, groups: int, at: int) -> Node:
    """An axis of channels or filters split into groups and what each has of them."""
    if groups == 1:
        return a
    inner = known(a.shape[at]) // groups
    return reshape(a, (*a.shape[:at], groups, inner, *a.shape[at + 1 :]))


@remembered
def window_maps(
    batch: Size,
    weight: tuple[Size, ...],
    sizes: tuple[Size, ...],
    steps: tuple[int, ...],
    apart: tuple[int, ...],
    margins: tuple[int, ...],
    groups: int,
) -> ContractAttrs:
    """The contraction over windows that begin `margins` before the image's first element."""
    filters, spatial = known(weight[0]), len(sizes)
    lead = (batch, groups, filters // groups) if groups > 1 else (batch, filters)
    first_out, channel = len(lead), len(lead) + spatial
    windows = tuple(
        AxisMap(((first_out + i, steps[i]), (channel + 1 + i, apart[i])), -margins[i])
        for i in range(spatial)
    )
    grouped = (axis(1),) if groups > 1 else ()
    taps = (axis(channel + 1 + i) for i in range(spatial))
    return ContractAttrs(
        (*lead, *sizes, *weight[1:]),
        tuple(range(channel)),
        (axis(0), *grouped, axis(channel), *windows),
        (*grouped, axis(first_out - 1), axis(channel), *taps),
    )


conv1d, conv2d, conv3d = along_axes("conv{}d", convolution)
