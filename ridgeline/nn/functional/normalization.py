"""Norms over channels, composed of means and variances."""

from __future__ import annotations

from typing import Any

from ridgeline.errors import BadValueError, ShapeError
from ridgeline.functions.operands import require_real
from ridgeline.nn.functional.precision import widened
from ridgeline.record.modes import no_grad
from ridgeline.tensors.public import rsqrt, var, var_mean
from ridgeline.tensors.tensor import Tensor


def _by_channel(value: Tensor, rank: int) -> Tensor:
    """A vector over the channels, shaped to meet an input of `rank` axes."""
    return value.reshape((1, -1, *(1,) * (rank - 2)))


def _scaled(result: Tensor, weight: Tensor | None, bias: Tensor | None) -> Tensor:
    rank = len(result.shape)
    if weight is not None:
        result = result * _by_channel(weight, rank)
    return result if bias is None else result + _by_channel(bias, rank)


def _count(input: Tensor, axes: tuple[int, ...]) -> int:
    count = 1
    for axis in axes:
        count *= input.shape[axis]
    return count


def _keep(running: Tensor, value: Tensor, momentum: Any) -> None:
    """Move a running statistic towards a new value."""
    running.copy_((1 - momentum) * running + momentum * value.to(dtype=running.dtype))


def batch_norm(
    input: Tensor,
    running_mean: Tensor | None,
    running_var: Tensor | None,
    weight: Tensor | None = None,
    bias: Tensor | None = None,
    training: bool = False,
    momentum: Any = 0.1,
    eps: float = 1e-5,
) -> Tensor:
    """Zero mean and unit variance by channel; running statistics take the unbiased variance."""
    require_real(input.dtype, "batch_norm")
    rank = len(input.shape)
    if rank == 1 and not input.numel():  # no channels and nothing to normalise
        return input.clone()
    if rank < 2:
        raise ShapeError(f"batch_norm needs an axis of channels, got shape {list(input.shape)}")
    axes = (0, *range(2, rank))
    for value in (running_mean, running_var, weight, bias):
        if value is not None and tuple(value.shape) != (input.shape[1],):
            raise ShapeError(
                f"batch_norm of {input.shape[1]} channels: a vector has shape {list(value.shape)}"
            )
    if not training:
        if running_mean is None or running_var is None:
            raise BadValueError("batch_norm needs running statistics when it is not training")
        mean, variance = (_by_channel(widened(v), rank) for v in (running_mean, running_var))
        normal = (widened(input) - mean) * rsqrt(variance + eps)
        return _scaled(normal, weight, bias).to(input.dtype)
    count = _count(input, axes)
    if count == 1:
        raise ShapeError(
            f"batch_norm cannot learn from one value per channel, got shape {list(input.shape)}",
            help="use a larger batch, or eval()",
        )
    wide = widened(input)
    variance, mean = var_mean(wide, axes, correction=0, keepdim=True)
    with no_grad():
        if running_mean is not None:
            _keep(running_mean, mean.detach().reshape(-1), momentum)
        if running_var is not None:
            _keep(running_var, var(wide.detach(), axes), momentum)
    return _scaled((wide - mean) * rsqrt(variance + eps), weight, bias).to(input.dtype)


def instance_norm(
    input: Tensor,
    running_mean: Tensor | None = None,
    running_var: Tensor | None = None,
    weight: Tensor | None = None,
    bias: Tensor | None = None,
    use_input_stats: bool = True,
    momentum: Any = 0.1,
    eps: float = 1e-5,
) -> Tensor:
    """Zero mean and unit variance by sample and channel."""
    if not use_input_stats:
        return batch_norm(input, running_mean, running_var, weight, bias, False, momentum, eps)
    require_real(input.dtype, "instance_norm")
    axes = tuple(range(2, len(input.shape)))
    count = _count(input, axes)
    if not axes or count <= 1:
        raise ShapeError(
            f"instance_norm cannot learn from one value per channel, got {list(input.shape)}"
        )
    wide = widened(input)
    variance, mean = var_mean(wide, axes, correction=0, keepdim=True)
    with no_grad():
        if running_mean is not None:
            _keep(running_mean, mean.detach().mean(0).reshape(-1), momentum)
        if running_var is not None:
            unbiased = variance.detach().mean(0).reshape(-1) * (count / (count - 1))
            _keep(running_var, unbiased, momentum)
    return _scaled((wide - mean) * rsqrt(variance + eps), weight, bias).to(input.dtype)
