"""Functions that torch exposes beside the ones users call: norms with their statistics, and others.

`native_layer_norm` and its kin also return the mean and the reciprocal standard deviation.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

from ridgeline.dtypes import DType
from ridgeline.errors import DTypeError, ShapeError
from ridgeline.functions.arithmetic import add, mul, sub
from ridgeline.functions.pointwise import rsqrt
from ridgeline.functions.reductions import mean, sum, var
from ridgeline.functions.registry import grown, public
from ridgeline.graph.node import Node
from ridgeline.ops.elementwise import cast, constant
from ridgeline.ops.movement import broadcast, broadcast_scalar, reshape
from ridgeline.record.cells import known


class Normalized(NamedTuple):
    """A normalised tensor, the means, and the reciprocal standard deviations."""

    output: Node
    mean: Node
    rstd: Node


def _statistics(x: Node, axes: Sequence[int], eps: float) -> tuple[Node, Node]:
    centre = mean(x, axes, True)
    spread = var(x, axes, None, True, correction=0)
    return centre, rsqrt(add(spread, float(eps)))


@public(method=False, wide="input")
def native_layer_norm(
    input: Node,
    normalized_shape: Sequence[int],
    weight: Node | None,
    bias: Node | None,
    eps: float,
) -> Normalized:
    """Layer normalisation with its statistics."""
    count, rank = len(normalized_shape), len(input.shape)
    if input.shape[rank - count :] != tuple(normalized_shape):
        raise ShapeError(
            f"layer_norm over {list(normalized_shape)} does not fit {list(input.shape)}"
        )
    axes = tuple(range(rank - count, rank))
    centre, scale = _statistics(input, axes, eps)
    result = mul(sub(input, centre), scale)
    result = result if weight is None else mul(result, weight)
    return Normalized(result if bias is None else add(result, bias), centre, scale)


def _by_channel(vector: Node, like: Node) -> Node:
    return broadcast(vector, like.shape, (1,))


@public(method=False, wide="input")
def native_group_norm(
    input: Node,
    weight: Node | None,
    bias: Node | None,
    N: int,
    C: int,
    HxW: int,
    group: int,
    eps: float,
) -> Normalized:
    """Group normalisation with its statistics."""
    grouped = reshape(input, (N, group, C // group * HxW))
    centre, scale = _statistics(grouped, (2,), eps)
    result = reshape(mul(sub(grouped, centre), scale), input.shape)
    if weight is not None:
        result = mul(result, _by_channel(weight, result))
    if bias is not None:
        result = add(result, _by_channel(bias, result))
    return Normalized(result, reshape(centre, (N, group)), reshape(scale, (N, group)))


@public(method=False, wide="input")
def native_batch_norm(
    input: Node,
    weight: Node | None,
    bias: Node | None,
    running_mean: Node | None,
    running_var: Node | None,
    training: bool,
    momentum: float,
    eps: float,
) -> Normalized:
    """Batch normalisation with the statistics of the batch; running ones are not moved here."""
    rank = len(input.shape)
    if training or running_mean is None or running_var is None:
        axes = (0, *range(2, rank))
        centre, scale = _statistics(input, axes, eps)
        channels = known(input.shape[1])
        statistics = (reshape(centre, (channels,)), reshape(scale, (channels,)))
    else:
        centre = _by_channel(running_mean, input)
        scale = _by_channel(rsqrt(add(running_var, float(eps))), input)
        nothing = broadcast_scalar(constant(0, input.dtype), (0,))
        statistics = (nothing, nothing)
    result = mul(sub(input, centre), scale)
    if weight is not None:
        result = mul(result, _by_channel(weight, result))
    if bias is not None:
        result = add(result, _by_channel(bias, result))
    return Normalized(result, *statistics)


@public(method=False, wide="input")
def _native_batch_norm_legit(
    input: Node, weight: Node | None, bias: Node | None, *rest: Any
) -> Normalized:
    """`native_batch_norm`, with or without running statistics before the other arguments."""
    if len(rest) == 3:
        return native_batch_norm(input, weight, bias, None, None, *rest)
    return native_batch_norm(input, weight, bias, *rest)


@public(method=False)
def _softmax_backward_data(grad_output: Node, output: Node, dim: int, input_dtype: DType) -> Node:
    """The gradient of softmax, from its output."""
    if not isinstance(input_dtype, DType):
        raise DTypeError(f"input_dtype is an element type, not {input_dtype!r:.40}")
    output = grown(output)
    product = mul(grown(grad_output), output)
    return cast(sub(product, mul(output, sum(product, dim, True))), input_dtype)
