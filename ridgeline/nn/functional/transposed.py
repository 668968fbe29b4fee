"""Transposed convolutions: a convolution over the input with zeros put between its elements."""

from __future__ import annotations

from typing import Any

from ridgeline.errors import RidgelineError, ShapeError
from ridgeline.functions.convolution import per_axis
from ridgeline.nn.functional.precision import in_float32
from ridgeline.nn.functional.windows import spaced
from ridgeline.tensors.dispatch import FUNCTIONS
from ridgeline.tensors.tensor import Tensor


def _conv_transpose(
    input: Tensor,
    weight: Tensor,
    bias: Tensor | None,
    stride: Any,
    padding: Any,
    output_padding: Any,
    groups: int,
    dilation: Any,
    axes: int,
) -> Tensor:
    if len(input.shape) == axes + 1:
        single = _conv_transpose(
            input.unsqueeze(0), weight, bias, stride, padding, output_padding, groups, dilation,
            axes,
        )  # fmt: skip
        return single.squeeze(0)
    if len(input.shape) != axes + 2 or input.shape[1] != weight.shape[0]:
        raise ShapeError(
            f"conv_transpose{axes}d: input {list(input.shape)} does not fit weight "
            f"{list(weight.shape)}"
        )
    steps, margin = per_axis(stride, axes, "stride"), per_axis(padding, axes, "padding")
    extra, apart = (
        per_axis(output_padding, axes, "output_padding"),
        per_axis(dilation, axes, "dilation"),
    )
    for e, s, d in zip(extra, steps, apart):
        if e >= max(s, d):
            raise RidgelineError(f"output_padding {extra} must be below stride or dilation")
    sides: list[int] = []
    for axis in reversed(range(axes)):
        input = spaced(input, axis + 2, steps[axis])
        reach = apart[axis] * (int(weight.shape[axis + 2]) - 1) - margin[axis]
        sides += [reach, reach + extra[axis]]
    padded = FUNCTIONS["pad"](input, tuple(sides))
    turned = weight.flip(tuple(range(2, axes + 2)))
    filters = _swapped(turned, groups)
    result: Tensor = FUNCTIONS[f"conv{axes}d"](padded, filters, bias, 1, 0, apart, groups)
    return result


def _swapped(weight: Tensor, groups: int) -> Tensor:
    """[in, out/groups, …] as the filters [out, in/groups, …] of the convolution."""
    inner, outer = int(weight.shape[0]) // groups, int(weight.shape[1])
    window = tuple(weight.shape[2:])
    grouped = weight.reshape((groups, inner, outer, *window)).transpose(1, 2)
    return grouped.reshape((groups * outer, inner, *window))


@in_float32
def conv_transpose1d(
    input: Tensor,
    weight: Tensor,
    bias: Tensor | None = None,
    stride: Any = 1,
    padding: Any = 0,
    output_padding: Any = 0,
    groups: int = 1,
    dilation: Any = 1,
) -> Tensor:
    """Transposed convolution along one axis."""
    return _conv_transpose(
        input, weight, bias, stride, padding, output_padding, groups, dilation, 1
    )


@in_float32
def conv_transpose2d(
    input: Tensor,
    weight: Tensor,
    bias: Tensor | None = None,
    stride: Any = 1,
    padding: Any = 0,
    output_padding: Any = 0,
    groups: int = 1,
    dilation: Any = 1,
) -> Tensor:
    """Transposed convolution along two axes."""
    return _conv_transpose(
        input, weight, bias, stride, padding, output_padding, groups, dilation, 2
    )


@in_float32
def conv_transpose3d(
    input: Tensor,
    weight: Tensor,
    bias: Tensor | None = None,
    stride: Any = 1,
    padding: Any = 0,
    output_padding: Any = 0,
    groups: int = 1,
    dilation: Any = 1,
) -> Tensor:
    """Transposed convolution along three axes."""
    return _conv_transpose(
        input, weight, bias, stride, padding, output_padding, groups, dilation, 3
    )
