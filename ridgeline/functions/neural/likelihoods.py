"""Losses that are likelihoods or divergences. `reduction` is "mean", "sum" or "none"."""

from __future__ import annotations

import math

from ridgeline.errors import BadValueError, DTypeError
from ridgeline.functions.arithmetic import add, choose, clamp, div, mul, sub
from ridgeline.functions.losses import reduced
from ridgeline.functions.movement import unsqueeze
from ridgeline.functions.neural.margins import mismatch
from ridgeline.functions.operands import Operand
from ridgeline.functions.pointwise import exp, log, square
from ridgeline.functions.reductions import sum
from ridgeline.functions.registry import functional
from ridgeline.graph.node import Node
from ridgeline.ops.checked import within
from ridgeline.ops.elementwise import stop_gradient


@functional(wide=True)
def kl_div(input: Node, target: Node, reduction: str = "mean", log_target: bool = False) -> Node:
    """y * (log y - x), where x are log-probabilities."""
    for value in (input, target):
        if not value.dtype.is_floating_point:
            raise DTypeError(f"kl_div takes floating values, not {value.dtype.name}")
    if log_target:
        losses = mul(exp(target), sub(target, input))
    else:
        nothing = target.eq(0)  # y log y is 0 at y = 0
        entropy = choose(nothing, 0.0, target * log(choose(nothing, 1.0, target)))
        losses = sub(entropy, mul(target, input))
    if reduction == "batchmean":
        return sum(losses) / (input.shape[0] if input.shape else 1)
    return reduced(losses, reduction)


@functional(wide=True)
def poisson_nll_loss(
    input: Node,
    target: Node,
    log_input: bool = True,
    full: bool = False,
    eps: float = 1e-8,
    reduction: str = "mean",
) -> Node:
    """The negative log-likelihood of counts under a Poisson law."""
    if log_input:
        losses = sub(exp(input), mul(target, input))
    else:
        losses = sub(input, mul(target, log(add(input, eps))))
    if full:  # Stirling's approximation of log(target!)
        many = target > 1
        safe = choose(many, target, 2.0)
        stirling = safe * log(safe) - safe + 0.5 * log(2 * math.pi * safe)
        losses = add(losses, choose(many, stirling, 0.0))
    return reduced(losses, reduction)


@functional(wide=True)
def gaussian_nll_loss(
    input: Node,
    target: Node,
    var: Operand,
    full: bool = False,
    eps: float = 1e-6,
    reduction: str = "mean",
) -> Node:
    """The negative log-likelihood under a normal law of the given variance."""
    spread: Operand
    if isinstance(var, Node):
        var = within(_per_row(var, input), 0.0, math.inf, "gaussian_nll_loss")
        # the floor does not take part in gradients, as in torch
        spread = var + stop_gradient(sub(clamp(var, min=eps), var))
        scale: Operand = log(spread)
    else:
        if not var >= 0:  # type: ignore[operator]
            raise BadValueError(f"gaussian_nll_loss: a variance is at least 0, not {var}")
        spread = max(float(var), eps)  # type: ignore[arg-type]
        scale = math.log(spread)
    losses = mul(add(scale, div(square(sub(input, target)), spread)), 0.5)
    if full:
        losses = add(losses, 0.5 * math.log(2 * math.pi))
    return reduced(losses, reduction)


def _per_row(var: Node, input: Node) -> Node:
    """A variance for each element or row, or one that is stretched to the input."""
    if var.shape != input.shape and var.shape == input.shape[:-1]:
        return unsqueeze(var, -1)
    fits = all(v in (1, i) for v, i in zip(var.shape, input.shape))
    if len(var.shape) == len(input.shape) and fits:
        return var
    raise mismatch("gaussian_nll_loss", input, var)
