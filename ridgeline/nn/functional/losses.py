"""Losses composed of simpler functions. `reduction` is "mean", "sum" or "none"."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

from ridgeline.errors import BadValueError, DTypeError, ShapeError
from ridgeline.linalg import vector_norm
from ridgeline.nn.functional.choose import choose
from ridgeline.nn.functional.precision import alike_in_float32
from ridgeline.record.modes import called
from ridgeline.tensors.public import (
    _labels,
    _reduced as reduced,
    _within,
    arange,
    broadcast_shapes,
    clamp,
    exp,
    log,
    log1p,
    logsigmoid,
    minimum,
)
from ridgeline.tensors.tensor import Tensor


@alike_in_float32
def kl_div(
    input: Tensor, target: Tensor, reduction: str = "mean", log_target: bool = False
) -> Tensor:
    """y * (log y - x), where x are log-probabilities."""
    for value in (input, target):
        if not value.dtype.is_floating_point:
            raise DTypeError(f"kl_div takes floating values, not {value.dtype.name}")
    if log_target:
        losses = exp(target) * (target - input)
    else:
        inside = choose(target == 0, 1.0, target)  # y log y is 0 at y = 0
        losses = choose(target == 0, 0.0, target * log(inside)) - target * input
    if reduction == "batchmean":
        return losses.sum() / (input.shape[0] if input.shape else 1)
    return reduced(losses, reduction)


@alike_in_float32
def poisson_nll_loss(
    input: Tensor,
    target: Tensor,
    log_input: bool = True,
    full: bool = False,
    eps: float = 1e-8,
    reduction: str = "mean",
) -> Tensor:
    """The negative log-likelihood of counts under a Poisson law."""
    if log_input:
        losses = exp(input) - target * input
    else:
        losses = input - target * log(input + eps)
    if full:  # Stirling's approximation of log(target!)
        safe = choose(target > 1, target, 2.0)
        stirling = safe * log(safe) - safe + 0.5 * log(2 * math.pi * safe)
        losses = losses + choose(target > 1, stirling, 0.0)
    return reduced(losses, reduction)


@alike_in_float32
def gaussian_nll_loss(
    input: Tensor,
    target: Tensor,
    var: Any,
    full: bool = False,
    eps: float = 1e-6,
    reduction: str = "mean",
) -> Tensor:
    """The negative log-likelihood under a normal law of the given variance."""
    if isinstance(var, Tensor):
        var = _within(_per_row(var, input), 0.0, math.inf, "gaussian_nll_loss")
        # the floor does not take part in gradients, as in torch
        var = var + (clamp(var, min=eps) - var).detach()
        away = input - target
        losses = 0.5 * (log(var) + away * away / var)
    else:
        if not var >= 0:
            raise BadValueError(f"gaussian_nll_loss: a variance is at least 0, not {var}")
        fixed = max(float(var), eps)
        losses = 0.5 * (math.log(fixed) + (input - target) ** 2 / fixed)
    if full:
        losses = losses + 0.5 * math.log(2 * math.pi)
    return reduced(losses, reduction)


@alike_in_float32
def soft_margin_loss(input: Tensor, target: Tensor, reduction: str = "mean") -> Tensor:
    """log(1 + exp(-y x)) for y of ±1."""
    if broadcast_shapes(input.shape, target.shape) != tuple(input.shape):
        raise _mismatch("soft_margin_loss", input, target)
    return reduced(log1p(exp(-target * input)), reduction)


@alike_in_float32
def hinge_embedding_loss(
    input: Tensor, target: Tensor, margin: float = 1.0, reduction: str = "mean"
) -> Tensor:
    """x where y is 1, max(0, margin - x) where y is -1."""
    far = choose(target != 1, clamp(margin - input, min=0.0), 0.0)
    near = choose(target != -1, input, 0.0)
    return reduced(far + near, reduction)


@alike_in_float32
def margin_ranking_loss(
    input1: Tensor, input2: Tensor, target: Tensor, margin: float = 0.0, reduction: str = "mean"
) -> Tensor:
    """max(0, -y (x1 - x2) + margin)."""
    _same_rank("margin_ranking_loss", input1, input2, target)
    return reduced(clamp(-target * (input1 - input2) + margin, min=0.0), reduction)


@alike_in_float32
def cosine_embedding_loss(
    input1: Tensor, input2: Tensor, target: Tensor, margin: float = 0.0, reduction: str = "mean"
) -> Tensor:
    """1 - cos(x1, x2) where y is 1, max(0, cos - margin) where y is -1."""
    if not (target.dim() < 2 and input1.dim() == input2.dim() == target.dim() + 1):
        raise _mismatch("cosine_embedding_loss", input1, input2, target)
    tiny = 1e-12
    product = (input1 * input2).sum(-1)
    squares = ((input1 * input1).sum(-1) + tiny) * ((input2 * input2).sum(-1) + tiny)
    cosine = product / squares.sqrt()
    same = choose(target == 1, 1 - cosine, 0.0)
    other = choose(target == -1, clamp(cosine - margin, min=0.0), 0.0)
    return reduced(same + other, reduction)


@alike_in_float32
def pairwise_distance(
    x1: Tensor, x2: Tensor, p: float = 2.0, eps: float = 1e-6, keepdim: bool = False
) -> Tensor:
    """The p-norm of x1 - x2 + eps along the last axis."""
    return p_norm(x1 - x2 + eps, p, keepdim)


def p_norm(values: Tensor, p: float, keepdim: bool = False) -> Tensor:
    """The p-norm along the last axis."""
    found: Tensor = vector_norm(values, p, -1, keepdim)
    return found


@alike_in_float32
def triplet_margin_loss(
    anchor: Tensor,
    positive: Tensor,
    negative: Tensor,
    margin: float = 1.0,
    p: float = 2.0,
    eps: float = 1e-6,
    swap: bool = False,
    reduction: str = "mean",
) -> Tensor:
    """max(0, d(anchor, positive) - d(anchor, negative) + margin)."""
    return triplet_margin_with_distance_loss(
        anchor,
        positive,
        negative,
        distance_function=lambda a, b: pairwise_distance(a, b, p, eps),
        margin=margin,
        swap=swap,
        reduction=reduction,
    )


def triplet_margin_with_distance_loss(
    anchor: Tensor,
    positive: Tensor,
    negative: Tensor,
    *,
    distance_function: Callable[[Tensor, Tensor], Tensor] | None = None,
    margin: float = 1.0,
    swap: bool = False,
    reduction: str = "mean",
) -> Tensor:
    """The triplet loss under any distance."""
    _same_rank("triplet_margin_loss", anchor, positive, negative)
    distance = called(distance_function or pairwise_distance)
    near, far = distance(anchor, positive), distance(anchor, negative)
    if swap:
        far = minimum(far, distance(positive, negative))
    return reduced(clamp(margin + near - far, min=0.0), reduction)


def _mismatch(what: str, *tensors: Tensor) -> ShapeError:
    return ShapeError(f"{what} cannot take shapes {[list(t.shape) for t in tensors]} together")


def _same_rank(what: str, *tensors: Tensor) -> None:
    if any(t.dim() != tensors[0].dim() for t in tensors):
        raise _mismatch(what, *tensors)


def _per_row(var: Tensor, input: Tensor) -> Tensor:
    """A variance for each element or row, or one that is stretched to the input."""
    if var.shape != input.shape and tuple(var.shape) == tuple(input.shape[:-1]):
        return var.unsqueeze(-1)
    if var.dim() == input.dim() and all(v in (1, i) for v, i in zip(var.shape, input.shape)):
        return var
    raise _mismatch("gaussian_nll_loss", input, var)


def _class_mask(input: Tensor, target: Tensor) -> Tensor:
    """True at the class of each row."""
    classes = arange(input.shape[-1])
    return target.unsqueeze(-1) == classes


@alike_in_float32
def multi_margin_loss(
    input: Tensor,
    target: Tensor,
    p: int = 1,
    margin: float = 1.0,
    weight: Tensor | None = None,
    reduction: str = "mean",
) -> Tensor:
    """Mean over the other classes of max(0, margin - x[y] + x[i])^p."""
    if p not in (1, 2):
        raise BadValueError(f"multi_margin_loss takes p of 1 or 2, not {p}")
    if input.dim() > 2 or target.dim() > 1 or target.numel() != math.prod(input.shape[:-1]):
        raise _mismatch("multi_margin_loss", input, target)
    if not input.shape:
        input = input.reshape((1,))
    places = _labels(target.reshape(input.shape[:-1]), input.shape[-1], "multi_margin_loss")
    own = _class_mask(input, places)
    chosen = choose(own, input, 0.0).sum(-1, keepdim=True)
    losses = clamp(margin - chosen + input, min=0.0)
    losses = losses if p == 1 else losses * losses
    if weight is not None:
        losses = losses * choose(own, weight, 0.0).sum(-1, keepdim=True)
    return reduced(choose(own, 0.0, losses).sum(-1) / input.shape[-1], reduction)


@alike_in_float32
def multilabel_soft_margin_loss(
    input: Tensor, target: Tensor, weight: Tensor | None = None, reduction: str = "mean"
) -> Tensor:
    """The mean over classes of the cross-entropy of sigmoid(x)."""
    losses = -(target * logsigmoid(input) + (1 - target) * logsigmoid(-input))
    if weight is not None:
        losses = losses * weight
    return reduced(losses.sum(-1) / input.shape[-1], reduction)


@alike_in_float32
def multilabel_margin_loss(input: Tensor, target: Tensor, reduction: str = "mean") -> Tensor:
    """The hinge between each listed class and each other one; a list ends at its first -1."""
    if input.shape != target.shape:
        raise ShapeError(
            f"multilabel_margin_loss: target {list(target.shape)} for input {list(input.shape)}"
        )
    if not input.shape:
        input, target = input.reshape((1,)), target.reshape((1,))
    count = input.shape[-1]
    target = _labels(target, count, "multilabel_margin_loss", -1)
    # a label counts while no -1 stands at or before its place
    ended = [target.narrow(-1, 0, place + 1).amin(-1, keepdim=True) < 0 for place in range(count)]
    total: Any = 0.0
    listed: Any = None
    for place in range(count):
        label = target.narrow(-1, place, 1)
        here = (_class_mask(input, label.squeeze(-1))) & ~ended[place]
        listed = here if listed is None else listed | here
    for place in range(count):
        mask = _class_mask(input, target.narrow(-1, place, 1).squeeze(-1)) & ~ended[place]
        chosen = choose(mask, input, 0.0).sum(-1, keepdim=True)
        hinge = choose(listed, 0.0, clamp(1 - chosen + input, min=0.0))
        total = total + choose(ended[place], 0.0, hinge).sum(-1)
    return reduced(total / count, reduction)
