"""Clipping of gradients, by their common norm or element by element."""

from __future__ import annotations

import math
from collections.abc import Iterable
from typing import Any

from ridgeline.errors import BadValueError
from ridgeline.nn.functional.losses import p_norm
from ridgeline.record.modes import no_grad
from ridgeline.tensors.public import clamp, stack
from ridgeline.tensors.tensor import Tensor, tensor


def _gradients(parameters: Any) -> list[Tensor]:
    members = [parameters] if isinstance(parameters, Tensor) else list(parameters)
    return [p.grad for p in members if p.grad is not None]


def get_total_norm(tensors: Iterable[Tensor], norm_type: float = 2.0) -> Tensor:
    """The norm of all tensors together, as of one vector; it is where the first of them is."""
    members = [tensors] if isinstance(tensors, Tensor) else list(tensors)
    if not members:
        return tensor(0.0)
    place = members[0].device
    norms = [p_norm(t.detach().reshape(-1), float(norm_type)).to(place) for t in members]
    return p_norm(stack(norms), float(norm_type))


def clip_grad_norm_(
    parameters: Any,
    max_norm: float,
    norm_type: float = 2.0,
    error_if_nonfinite: bool = False,
    foreach: bool | None = None,
) -> Tensor:
    """Scale all gradients so that their common norm is at most max_norm; returns that norm."""
    gradients = _gradients(parameters)
    with no_grad():
        total = get_total_norm(gradients, norm_type)
        if error_if_nonfinite and not math.isfinite(float(total)):
            raise BadValueError(
                f"the norm of the gradients is {float(total)}, so they cannot be clipped"
            )
        factor = clamp(max_norm / (total + 1e-6), max=1.0)
        for gradient in gradients:
            gradient.mul_(factor.to(gradient.device))
    return total


def clip_grad_value_(parameters: Any, clip_value: float, foreach: bool | None = None) -> None:
    """Hold every element of all gradients within ±clip_value."""
    with no_grad():
        for gradient in _gradients(parameters):
            gradient.copy_(gradient.clamp(-clip_value, clip_value))
