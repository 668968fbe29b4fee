"""Helpers over all parameters of a model: clipping, one long vector, weights in other terms."""

from __future__ import annotations

import math
from collections.abc import Iterable
from typing import Any

from ridgeline.errors import RidgelineError, ShapeError
from ridgeline.nn.functional.losses import p_norm
from ridgeline.nn.reparametrized import (
    remove_spectral_norm as remove_spectral_norm,
    remove_weight_norm as remove_weight_norm,
    spectral_norm as spectral_norm,
    weight_norm as weight_norm,
)
from ridgeline.tensors.modes import no_grad
from ridgeline.tensors.public import cat, clamp, stack
from ridgeline.tensors.tensor import Tensor, tensor


def _gradients(parameters: Any) -> list[Tensor]:
    members = [parameters] if isinstance(parameters, Tensor) else list(parameters)
    return [p.grad for p in members if p.grad is not None]


def get_total_norm(tensors: Iterable[Tensor], norm_type: float = 2.0) -> Tensor:
    """The norm of all tensors together, as of one vector."""
    members = [tensors] if isinstance(tensors, Tensor) else list(tensors)
    if not members:
        return tensor(0.0)
    norms = [p_norm(t.detach().reshape(-1), float(norm_type)) for t in members]
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
            raise RidgelineError(
                f"the norm of the gradients is {float(total)}, so they cannot be clipped"
            )
        factor = clamp(max_norm / (total + 1e-6), max=1.0)
        for gradient in gradients:
            gradient.mul_(factor)
    return total


def clip_grad_value_(parameters: Any, clip_value: float, foreach: bool | None = None) -> None:
    """Hold every element of all gradients within ±clip_value."""
    with no_grad():
        for gradient in _gradients(parameters):
            gradient.copy_(gradient.clamp(-clip_value, clip_value))


def parameters_to_vector(parameters: Iterable[Tensor]) -> Tensor:
    """All parameters as one vector, through which gradients flow."""
    return cat([parameter.reshape(-1) for parameter in parameters])


def vector_to_parameters(vec: Tensor, parameters: Iterable[Tensor]) -> None:
    """Write the parts of a vector into parameters."""
    members = list(parameters)
    wanted = sum(p.numel() for p in members)
    if tuple(vec.shape) != (wanted,):
        raise ShapeError(f"a vector of {wanted} elements is needed, got {list(vec.shape)}")
    start = 0
    for parameter in members:
        part = vec.detach().narrow(0, start, parameter.numel())
        parameter.data.copy_(part.reshape(tuple(parameter.shape)))
        start += parameter.numel()
