"""Operators of torch's registry for layers and losses, and those for their gradients.

Graphs that were made of other graphs have the second kind: each is the derivative of our own
function, taken at the values that it is given.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

import ridgeline as rl

F = rl.nn.functional
_REDUCTIONS = ("none", "mean", "sum")


def _convolution(
    x: Any, weight: Any, bias: Any, stride: Sequence[int], padding: Sequence[int],
    dilation: Sequence[int], transposed: bool, output_padding: Sequence[int], groups: int,
) -> Any:  # fmt: skip
    rank = weight.ndim - 2
    stride, padding, dilation = (_each(n, rank) for n in (stride, padding, dilation))
    if transposed:
        function = getattr(F, f"conv_transpose{rank}d")
        more = _each(output_padding, rank)
        return function(x, weight, bias, stride, padding, more, groups, dilation)
    return getattr(F, f"conv{rank}d")(x, weight, bias, stride, padding, dilation, groups)


def _each(numbers: Sequence[int], rank: int) -> tuple[int, ...]:
    """A number for each axis, where one may stand for all."""
    return tuple(numbers) if len(numbers) == rank else tuple(numbers) * rank


def _convolution_backward(
    grad: Any, x: Any, weight: Any, bias_sizes: Any, stride: Sequence[int],
    padding: Sequence[int], dilation: Sequence[int], transposed: bool,
    output_padding: Sequence[int], groups: int, output_mask: Sequence[bool],
) -> tuple[Any, ...]:  # fmt: skip
    options = stride, padding, dilation, transposed, output_padding, groups
    by_x, by_weight = _gradients(lambda a, b: _convolution(a, b, None, *options), grad, x, weight)
    by_bias = grad.sum((0, *range(2, grad.ndim)))
    found = (by_x, by_weight, by_bias)
    return tuple(g if wanted else None for g, wanted in zip(found, output_mask))


def _gradients(function: Callable[..., Any], grad: Any, *at: Any) -> tuple[Any, ...]:
    """The gradients of a function by all of its arguments."""
    _, back = rl.func.vjp(function, *at)
    return tuple(back(grad))


def _max_pool_with_indices(rank: int) -> Callable[..., Any]:
    function = getattr(F, f"max_pool{rank}d")

    def call(
        x: Any, kernel_size: Any, stride: Any = (), padding: Any = 0, dilation: Any = 1,
        ceil_mode: bool = False,
    ) -> Any:  # fmt: skip
        given = kernel_size, stride or None, padding, dilation, ceil_mode
        return function(x, *given, return_indices=True)

    return call


def _max_pool_backward(
    grad: Any, x: Any, kernel_size: Any, stride: Any, padding: Any, dilation: Any,
    ceil_mode: bool, indices: Any,
) -> Any:  # fmt: skip
    """What each maximum got goes to where it came from."""
    length = x.shape[-1] * x.shape[-2]
    flat = rl.zeros((*x.shape[:-2], length), dtype=grad.dtype, device=grad.device)
    return flat.scatter_add(-1, indices.flatten(-2), grad.flatten(-2)).reshape(x.shape)


def _of_first(function: Callable[..., Any]) -> Callable[..., Any]:
    """The gradient by the first argument of a function that takes the others as they come."""

    def call(grad: Any, x: Any, *options: Any, **named: Any) -> Any:
        (found,) = _gradients(lambda a: function(a, *options, **named), grad, x)
        return found

    return call


def _avg_pool(rank: int) -> Callable[..., Any]:
    function = getattr(F, f"avg_pool{rank}d")

    def call(x: Any, kernel_size: Any, stride: Any = (), *rest: Any, **named: Any) -> Any:
        return function(x, kernel_size, stride or None, *rest, **named)

    return call


def _fractional_max_pool(rank: int) -> Callable[..., Any]:
    function = getattr(F, f"fractional_max_pool{rank}d")

    def call(x: Any, kernel_size: Any, output_size: Any, samples: Any) -> Any:
        return function(x, kernel_size, output_size, return_indices=True, _random_samples=samples)

    return call


def _batch_norm_with_update(
    x: Any, weight: Any, bias: Any, mean: Any, var: Any, momentum: float, eps: float
) -> Any:
    """The layer's result, and mean and inverse deviation of the batch."""
    axes = (0, *range(2, x.ndim))
    found = F.batch_norm(x, mean, var, weight, bias, True, momentum, eps)
    spread, middle = rl.var_mean(x, axes, correction=0)
    return found, middle, rl.rsqrt(spread + eps), x.new_empty((0,), dtype=rl.uint8)


def _nll_loss(
    x: Any, target: Any, weight: Any, reduction: int, ignore_index: int
) -> tuple[Any, Any]:
    """The loss, and the sum of weights that a mean is divided by."""
    loss = F.nll_loss(x, target, weight, ignore_index=ignore_index,
                      reduction=_REDUCTIONS[reduction])  # fmt: skip
    counted = target.ne(ignore_index)
    weights = x.new_ones(target.shape) if weight is None else weight[target.clamp(min=0)]
    total = rl.where(counted, weights, 0).sum().to(x.dtype)
    return loss, total if reduction else x.new_zeros(())


def _nll_loss_backward(
    grad: Any, x: Any, target: Any, weight: Any, reduction: int, ignore_index: int, total: Any
) -> Any:
    """A mean is a sum divided by the weights as they are given, which need not be the target's."""
    if _REDUCTIONS[reduction] == "mean":
        grad, reduction = grad / total, _REDUCTIONS.index("sum")
    (found,) = _gradients(
        lambda a: _nll_loss(a, target, weight, reduction, ignore_index)[0], grad, x
    )
    return found


def _activation(derivative: Callable[[Any], Any]) -> Callable[..., Any]:
    """The gradient of a function by what it gave."""
    return lambda grad, y: grad * derivative(y)


def _threshold_backward(grad: Any, x: Any, threshold: float) -> Any:
    return rl.where(x > threshold, grad, rl.zeros_like(grad))


def _softmax_backward(grad: Any, y: Any, dim: int, dtype: Any = None) -> Any:
    return y * (grad - (grad * y).sum(dim, keepdim=True))


def _log_softmax_backward(grad: Any, y: Any, dim: int, dtype: Any = None) -> Any:
    return grad - y.exp() * grad.sum(dim, keepdim=True)


def _masked_index(x: Any, mask: Any, indices: Sequence[Any], fill: Any) -> Any:
    """Elements by their places where a mask holds, and a number elsewhere."""
    return x[_inside(x, indices)].masked_fill(mask.logical_not(), fill)


def _masked_index_put_accumulate(x: Any, mask: Any, indices: Sequence[Any], values: Any) -> Any:
    added = values.masked_fill(mask.logical_not(), 0)
    return x.index_put(_inside(x, indices), added, accumulate=True)


def _inside(x: Any, indices: Sequence[Any]) -> tuple[Any, ...]:
    """Places of which those that a mask leaves out may be anywhere."""
    return tuple(
        slice(None) if index is None else index.clamp(0, size - 1)
        for index, size in zip(indices, x.shape)
    )


def weight_norm(v: Any, g: Any, dim: int = 0) -> Any:
    """A weight of a direction and a length along all axes but one."""
    axes = [axis for axis in range(v.ndim) if axis != dim % v.ndim] if dim != -1 else None
    return v * (g / rl.linalg.vector_norm(v, dim=axes, keepdim=True))


_BAGS = ("sum", "mean", "max")
_SAMPLED = ("bilinear", "nearest", "bicubic")
_OUTSIDE = ("zeros", "border", "reflection")


def _embedding_bag(
    weight: Any, indices: Any, offsets: Any, by_frequency: bool = False, mode: int = 0,
    sparse: bool = False, weights: Any = None, last: bool = False, padding_idx: int | None = None,
) -> tuple[Any, ...]:  # fmt: skip
    """Sums, means or maxima of rows; what torch keeps for gradients beside them is not there."""
    skipped = None if padding_idx is None or padding_idx < 0 else padding_idx
    found = F.embedding_bag(
        indices, weight, offsets, mode=_BAGS[mode], per_sample_weights=weights,
        include_last_offset=bool(last), padding_idx=skipped,
    )  # fmt: skip
    return found, None, None, None


def _grid_sampler(x: Any, grid: Any, mode: int, outside: int, align_corners: bool) -> Any:
    return F.grid_sample(x, grid, _SAMPLED[mode], _OUTSIDE[outside], align_corners)


def _unpool(rank: int) -> Callable[..., Any]:
    """Values at the places that a pool told, in a result whose size is given."""

    def call(x: Any, indices: Any, size: Sequence[int], *rest: Any) -> Any:
        shape = (*x.shape[:-rank], *size)
        flat = x.new_zeros((*x.shape[:-rank], math.prod(size)))
        places, values = indices.flatten(-rank), x.flatten(-rank)
        return flat.scatter(-1, places, values).reshape(shape)

    return call


LAYERS: dict[str, Callable[..., Any]] = {
    "_weight_norm": weight_norm, "embedding_bag": _embedding_bag,
    "_embedding_bag": _embedding_bag, "grid_sampler": _grid_sampler,
    "grid_sampler_2d": _grid_sampler, "grid_sampler_3d": _grid_sampler,
    "affine_grid_generator": F.affine_grid, "im2col": F.unfold, "col2im": F.fold,
    "max_unpool2d": _unpool(2), "max_unpool3d": _unpool(3),
    "convolution": _convolution, "convolution_backward": _convolution_backward,
    "max_pool2d_with_indices": _max_pool_with_indices(2),
    "max_pool3d_with_indices": _max_pool_with_indices(3),
    "max_pool2d_with_indices_backward": _max_pool_backward,
    **{f"avg_pool{n}d": _avg_pool(n) for n in (1, 2, 3)},
    **{f"avg_pool{n}d_backward": _of_first(_avg_pool(n)) for n in (2, 3)},
    "_adaptive_avg_pool2d": F.adaptive_avg_pool2d, "_adaptive_avg_pool3d": F.adaptive_avg_pool3d,
    "adaptive_max_pool2d": lambda x, size: F.adaptive_max_pool2d(x, size, return_indices=True),
    "adaptive_max_pool3d": lambda x, size: F.adaptive_max_pool3d(x, size, return_indices=True),
    **{f"fractional_max_pool{n}d": _fractional_max_pool(n) for n in (2, 3)},
    "_batch_norm_with_update": _batch_norm_with_update,
    "nll_loss_forward": _nll_loss, "nll_loss_backward": _nll_loss_backward,
    **{f"{kind}_pad{n}d_backward": _of_first(
        lambda x, pad, mode=mode: F.pad(x, tuple(pad), mode))
       for kind, mode in (("reflection", "reflect"), ("replication", "replicate"))
       for n in (1, 2, 3)},
    "sigmoid_backward": _activation(lambda y: y * (1 - y)),
    "tanh_backward": _activation(lambda y: 1 - y * y),
    "threshold_backward": _threshold_backward,
    "_softmax": lambda x, dim, half: x.softmax(dim), "_softmax_backward_data": _softmax_backward,
    "_log_softmax": lambda x, dim, half: x.log_softmax(dim),
    "_log_softmax_backward_data": _log_softmax_backward,
    "gelu_backward": _of_first(F.gelu), "silu_backward": _of_first(F.silu),
    "_unsafe_masked_index": _masked_index,
    "_unsafe_masked_index_put_accumulate": _masked_index_put_accumulate,
}  # fmt: skip
