"""All parameters of a model as one long vector, and back."""

from __future__ import annotations

from collections.abc import Iterable

from ridgeline.errors import ShapeError
from ridgeline.tensors.public import cat
from ridgeline.tensors.tensor import Tensor


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
