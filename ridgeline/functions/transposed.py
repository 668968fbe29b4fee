"""Transposed convolutions: the gradient of a convolution by its input, as a function."""

from __future__ import annotations

from ridgeline.errors import BadValueError, ShapeError
from ridgeline.functions.convolution import Sizes, in_groups, per_axis, window_maps
from ridgeline.functions.linear import same_type
from ridgeline.functions.registry import along_axes
from ridgeline.graph.node import Node
from ridgeline.ops.contract import operand_gradient
from ridgeline.ops.movement import broadcast, reshape
from ridgeline.record.cells import known


def transposed_convolution(
    input: Node,
    weight: Node,
    bias: Node | None = None,
    stride: Sizes = 1,
    padding: Sizes = 0,
    output_padding: Sizes = 0,
    groups: int = 1,
    dilation: Sizes = 1,
    *,
    spatial: int,
) -> Node:
    """Transposed convolution along {axes}: each element of [n, c, …] is spread over a window."""
    what = f"conv_transpose{spatial}d"
    same_type(input, weight, what)
    if len(input.shape) == spatial + 1:  # without a batch
        single = reshape(input, (1, *input.shape))
        settings = (stride, padding, output_padding, groups, dilation)
        result = transposed_convolution(single, weight, bias, *settings, spatial=spatial)
        return reshape(result, result.shape[1:])
    _check(input, weight, bias, groups, spatial, what)
    steps, apart = per_axis(stride, spatial, "stride"), per_axis(dilation, spatial, "dilation")
    margins = per_axis(padding, spatial, "padding")
    extra = per_axis(output_padding, spatial, "output_padding")
    if any(v < 1 for v in (*steps, *apart)):
        raise BadValueError(f"stride and dilation are positive, got {steps} and {apart}")
    if any(not 0 <= e < max(s, d) for e, s, d in zip(extra, steps, apart)):
        raise BadValueError(f"output_padding {extra} must be below stride or dilation")
    sizes = tuple(known(n) for n in input.shape[2:])
    kernel = tuple(known(k) for k in weight.shape[2:])
    made = tuple(
        (n - 1) * s + d * (k - 1) + 1 - 2 * m + e
        for n, s, d, k, m, e in zip(sizes, steps, apart, kernel, margins, extra)
    )
    if any(n < 1 for n in made):
        raise ShapeError(f"{what}: padding {margins} leaves nothing of the output {list(made)}")
    attrs = window_maps(input.shape[0], weight.shape, sizes, steps, apart, margins, groups)
    outer = known(weight.shape[1])
    shape = (input.shape[0], *((groups,) if groups > 1 else ()), outer, *made)
    filters, given = in_groups(weight, groups, 0), in_groups(input, groups, 1)
    result = operand_gradient(attrs, 0, shape, filters, given)
    result = reshape(result, (input.shape[0], groups * outer, *made))
    if bias is None:
        return result
    return result + broadcast(bias, result.shape, (1,))


def _check(
    input: Node, weight: Node, bias: Node | None, groups: int, spatial: int, what: str
) -> None:
    if len(input.shape) != spatial + 2 or len(weight.shape) != spatial + 2:
        raise ShapeError(
            f"{what} needs {spatial + 1} or {spatial + 2} axes of input and {spatial + 2} of "
            f"weight, got {list(input.shape)} and {list(weight.shape)}"
        )
    if input.shape[1] != weight.shape[0]:
        raise ShapeError(
            f"{what}: input {list(input.shape)} does not fit weight {list(weight.shape)}",
            help="axis 1 of the input and axis 0 of the weight hold the channels",
        )
    if groups < 1 or known(weight.shape[0]) % groups:
        raise ShapeError(f"{what}: groups={groups} does not divide {weight.shape[0]}")
    filters = known(weight.shape[1]) * groups
    if bias is not None and bias.shape != (filters,):
        raise ShapeError(f"{what}: bias has shape {list(bias.shape)}, expected [{filters}]")


conv_transpose1d, conv_transpose2d, conv_transpose3d = along_axes(
    "conv_transpose{}d", transposed_convolution
)
