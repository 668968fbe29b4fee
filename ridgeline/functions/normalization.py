"""Normalisation, as compositions; `native_layer_norm` and its kin also return their statistics."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

from ridgeline.dtypes import DType
from ridgeline.errors import DTypeError, ShapeError
from ridgeline.functions.arithmetic import add, mul, sub
from ridgeline.functions.creation import finfo
from ridgeline.functions.operands import require_float, require_real
from ridgeline.functions.pointwise import rsqrt
from ridgeline.functions.reductions import keep, mean, scalar_like, sum
from ridgeline.functions.registry import grown, public
from ridgeline.graph.node import Node
from ridgeline.ops.elementwise import cast, constant
from ridgeline.ops.math import reciprocal, sqrt
from ridgeline.ops.movement import broadcast, broadcast_scalar, reshape
from ridgeline.ops.reduce import expand_back


class Normalized(NamedTuple):
    """A normalised tensor, the means, and the reciprocal standard deviations."""

    output: Node
    mean: Node
    rstd: Node


def _standardized(x: Node, axes: Sequence[int], eps: float) -> tuple[Node, Node, Node]:
    """Zero mean and unit variance over some axes; the means, and the reciprocal deviations."""
    centre = mean(x, axes)
    away = x - expand_back(centre, x.shape, axes)
    spread = mean(away * away, axes)
    scale = reciprocal(sqrt(add(spread, scalar_like(spread, eps))))
    return away * expand_back(scale, x.shape, axes), centre, scale


def _last_axes(input: Node, normalized_shape: Sequence[int], what: str) -> tuple[int, ...]:
    """The axes over which a norm goes."""
    wanted, rank = tuple(normalized_shape), len(input.shape)
    if not wanted or input.shape[rank - len(wanted) :] != wanted:
        raise ShapeError(
            f"{what} over {list(wanted)} does not fit the last axes of {list(input.shape)}"
        )
    return tuple(range(rank - len(wanted), rank))


def _scaled(x: Node, weight: Node | None, bias: Node | None) -> Node:
    result = x if weight is None else mul(x, weight)
    return result if bias is None else add(result, bias)


@public(method=False, wide="input")
def layer_norm(
    input: Node,
    normalized_shape: Sequence[int],
    weight: Node | None = None,
    bias: Node | None = None,
    eps: float = 1e-5,
) -> Node:
    """Zero mean and unit variance over the last axes, then scale and shift."""
    require_real(input.dtype, "layer_norm")
    axes = _last_axes(input, normalized_shape, "layer_norm")
    return _scaled(_standardized(input, axes, eps)[0], weight, bias)


@public(method=False, wide="input")
def rms_norm(
    input: Node,
    normalized_shape: Sequence[int],
    weight: Node | None = None,
    eps: float | None = None,
) -> Node:
    """Unit mean square over the last axes, then scale."""
    require_float(input, "rms_norm")
    axes = _last_axes(input, normalized_shape, "rms_norm")
    small = finfo(input.dtype).eps if eps is None else eps
    spread = mean(input * input, axes)
    scale = reciprocal(sqrt(add(spread, scalar_like(spread, small))))
    return _scaled(input * expand_back(scale, input.shape, axes), weight, None)


@public(method=False, wide="input")
def native_layer_norm(
    input: Node,
    normalized_shape: Sequence[int],
    weight: Node | None,
    bias: Node | None,
    eps: float,
) -> Normalized:
    """Layer normalisation with its statistics."""
    axes = _last_axes(input, normalized_shape, "layer_norm")
    result, centre, scale = _standardized(input, axes, eps)
    statistics = [keep(value, input.shape, axes, True) for value in (centre, scale)]
    return Normalized(_scaled(result, weight, bias), *statistics)


def _by_channel(vector: Node | None, like: Node) -> Node | None:
    return None if vector is None else broadcast(vector, like.shape, (1,))


def _scaled_channels(x: Node, weight: Node | None, bias: Node | None) -> Node:
    return _scaled(x, _by_channel(weight, x), _by_channel(bias, x))


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
    result, centre, scale = _standardized(grouped, (2,), eps)
    return Normalized(_scaled_channels(reshape(result, input.shape), weight, bias), centre, scale)


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
        result, *statistics = _standardized(input, (0, *range(2, rank)), eps)
    else:
        centre = broadcast(running_mean, input.shape, (1,))
        scale = broadcast(rsqrt(add(running_var, float(eps))), input.shape, (1,))
        result = mul(sub(input, centre), scale)
        nothing = broadcast_scalar(constant(0, input.dtype), (0,))
        statistics = [nothing, nothing]
    return Normalized(_scaled_channels(result, weight, bias), *statistics)


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
