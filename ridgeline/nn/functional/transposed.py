"""Transposed convolutions: a convolution over the input with zeros put between its elements."""

from __future__ import annotations

from typing import Any, Protocol

from ridgeline.errors import RidgelineError, ShapeError
from ridgeline.functions.convolution import per_axis
from ridgeline.nn.functional.precision import in_float32
from ridgeline.nn.functional.windows import spaced
from ridgeline.tensors.dispatch import FUNCTIONS
from ridgeline.tensors.tensor import Tensor


class Transposed(Protocol):
    """The signature of the transposed convolutions."""

    def __call__(
        self,
        input: Tensor,
        weight: Tensor,
        bias: Tensor | None = None,
        stride: Any = 1,
        padding: Any = 0,
        output_padding: Any = 0,
        groups: int = 1,
        dilation: Any = 1,
    ) -> Tensor: ...


def _along(axes: int) -> Transposed:
    """The transposed convolution along the last `axes` axes."""

    @in_float32
    def conv_transpose(
        input: Tensor,
        weight: Tensor,
        bias: Tensor | None = None,
        stride: Any = 1,
        padding: Any = 0,
        output_padding: Any = 0,
        groups: int = 1,
        dilation: Any = 1,
    ) -> Tensor:
        if len(input.shape) == axes + 1:
            rest = (weight, bias, stride, padding, output_padding, groups, dilation)
            return conv_transpose(input.unsqueeze(0), *rest).squeeze(0)
        if len(input.shape) != axes + 2 or input.shape[1] != weight.shape[0]:
            raise ShapeError(
                f"conv_transpose{axes}d: input {list(input.shape)} does not fit weight "
                f"{list(weight.shape)}"
            )
        steps, margin = per_axis(stride, axes, "stride"), per_axis(padding, axes, "padding")
        extra = per_axis(output_padding, axes, "output_padding")
        apart = per_axis(dilation, axes, "dilation")
        if any(e >= max(s, d) for e, s, d in zip(extra, steps, apart)):
            raise RidgelineError(f"output_padding {extra} must be below stride or dilation")
        sides: list[int] = []
        for axis in reversed(range(axes)):
            input = spaced(input, axis + 2, steps[axis])
            reach = apart[axis] * (int(weight.shape[axis + 2]) - 1) - margin[axis]
            sides += [reach, reach + extra[axis]]
        padded = FUNCTIONS["pad"](input, tuple(sides))
        filters = _swapped(weight.flip(tuple(range(2, axes + 2))), groups)
        result: Tensor = FUNCTIONS[f"conv{axes}d"](padded, filters, bias, 1, 0, apart, groups)
        return result

    conv_transpose.__name__ = conv_transpose.__qualname__ = f"conv_transpose{axes}d"
    conv_transpose.__doc__ = f"Transposed convolution over the last {axes} axes."
    return conv_transpose


def _swapped(weight: Tensor, groups: int) -> Tensor:
    """[in, out/groups, …] as the filters [out, in/groups, …] of the convolution."""
    inner, outer = int(weight.shape[0]) // groups, int(weight.shape[1])
    window = tuple(weight.shape[2:])
    grouped = weight.reshape((groups, inner, outer, *window)).transpose(1, 2)
    return grouped.reshape((groups * outer, inner, *window))


conv_transpose1d, conv_transpose2d, conv_transpose3d = (_along(axes) for axes in (1, 2, 3))
