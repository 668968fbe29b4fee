"""Normalisation over batches, layers, groups and neighbours."""

from __future__ import annotations

from typing import Any

import ridgeline as rl
from ridgeline.nn import functional as F
from ridgeline.onnx.rows import OperatorRow
from ridgeline.onnx.values import Ints
from ridgeline.tensors.tensor import Tensor


def _along_channels(v: Tensor, x: Tensor) -> Tensor:
    return v.reshape((1, -1) + (1,) * (x.ndim - 2))


def _batch_norm(
    x: Tensor, scale: Tensor, b: Tensor, mean: Tensor, var: Tensor, epsilon: float = 1e-5,
    momentum: float = 0.9, training_mode: int = 0, outputs: int = 1,
) -> Any:  # fmt: skip
    if not training_mode:
        if x.ndim == 1:
            return (x - mean) / rl.sqrt(var + epsilon) * scale + b
        same = scale.dtype is x.dtype and mean.dtype is x.dtype
        if same:
            return F.batch_norm(x, mean, var, scale, b, False, 0.0, epsilon)
        wide = (x.to(mean.dtype) - _along_channels(mean, x)) / rl.sqrt(
            _along_channels(var, x) + epsilon
        )
        return (wide * _along_channels(scale, x) + _along_channels(b, x)).to(x.dtype)
    axes = [axis for axis in range(x.ndim) if axis != 1]
    own_mean, own_var = rl.mean(x, axes), rl.var(x, axes, correction=0)
    y = F.batch_norm(x, own_mean, own_var, scale, b, False, 0.0, epsilon)
    if outputs == 1:
        return y
    kept = 1 - momentum
    running = (mean * momentum + own_mean * kept, var * momentum + own_var * kept)
    return (y, *(each.to(mean.dtype) for each in running), own_mean, own_var)[:outputs]


def _instance_norm(input: Tensor, scale: Tensor, b: Tensor, epsilon: float = 1e-5) -> Tensor:
    return F.instance_norm(input, weight=scale, bias=b, eps=epsilon)


def _layer_norm(
    x: Tensor, scale: Tensor, b: Tensor | None = None, axis: int = -1, epsilon: float = 1e-5,
    stash_type: int = 1, outputs: int = 1,
) -> Any:  # fmt: skip
    axis %= x.ndim
    rest = list(x.shape[axis:])
    fits = list(scale.shape) == rest and (b is None or list(b.shape) == rest)
    wide = x.to(rl.float32) if stash_type == 1 and x.dtype.itemsize < 4 else x
    if outputs == 1 and fits and wide is x:
        return F.layer_norm(x, rest, scale, b, epsilon)
    axes = list(range(axis, x.ndim))
    mean = rl.mean(wide, axes, True)
    inverse = rl.rsqrt(rl.mean((wide - mean) ** 2, axes, True) + epsilon)
    y = ((wide - mean) * inverse).to(x.dtype) * scale
    y = y if b is None else y + b
    return y if outputs == 1 else (y, mean, inverse)[:outputs]


def _rms_norm(
    x: Tensor, scale: Tensor, axis: int = -1, epsilon: float = 1e-5, stash_type: int = 1
) -> Tensor:
    axis %= x.ndim
    rest = list(x.shape[axis:])
    if list(scale.shape) == rest and x.dtype is rl.float32 and scale.dtype is x.dtype:
        return F.rms_norm(x, rest, scale, epsilon)
    wide = x.to(rl.float32) if stash_type == 1 else x
    total = rl.mean(wide * wide, list(range(axis, x.ndim)), True)
    normal = (wide * rl.rsqrt(total + epsilon)).to(x.dtype)
    return (normal * scale).to(scale.dtype)


def _group_norm(
    x: Tensor, scale: Tensor, bias: Tensor, num_groups: int, epsilon: float = 1e-5,
    stash_type: int = 1,
) -> Tensor:  # fmt: skip
    if scale.shape[0] == num_groups != x.shape[1]:  # version 18 has one of each for a group
        each = x.shape[1] // num_groups
        scale = rl.repeat_interleave(scale, each)
        bias = rl.repeat_interleave(bias, each)
    return F.group_norm(x, num_groups, scale, bias, epsilon)


def _lp_normalization(input: Tensor, axis: int = -1, p: int = 2) -> Tensor:
    norm = rl.norm(input, p, dim=axis, keepdim=True)
    return (input / norm).where(norm != 0, 0.0)


def _response_norm(
    x: Tensor, size: int, alpha: float = 1e-4, beta: float = 0.75, bias: float = 1.0
) -> Tensor:
    before, after = (size - 1) // 2, size - 1 - (size - 1) // 2
    squares = F.pad(x * x, [0, 0] * (x.ndim - 2) + [before, after])
    total = rl.narrow(squares, 1, 0, x.shape[1])
    for place in range(1, size):
        total = total + rl.narrow(squares, 1, place, x.shape[1])
    return x / (bias + (alpha / size) * total) ** beta


def _mean_variance(x: Tensor, axes: Ints | None = None) -> Tensor:
    chosen = axes or [0, 2, 3]
    mean = rl.mean(x, chosen, True)
    deviation = rl.sqrt(rl.mean(x * x, chosen, True) - mean * mean)
    return (x - mean) / (deviation + 1e-9)


ROWS: tuple[OperatorRow, ...] = (
    OperatorRow("BatchNormalization", _batch_norm),
    OperatorRow("InstanceNormalization", _instance_norm),
    OperatorRow("LayerNormalization", _layer_norm),
    OperatorRow("RMSNormalization", _rms_norm),
    OperatorRow("GroupNormalization", _group_norm),
    OperatorRow("LpNormalization", _lp_normalization),
    OperatorRow("LRN", _response_norm),
    OperatorRow("MeanVarianceNormalization", _mean_variance),
)
