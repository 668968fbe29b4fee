"""Weights computed from other parameters at every use: weight norm and spectral norm.

The layer's class gets a property in the weight's place, so whoever reads the weight gets the
computed one, and gradients flow to what it is computed from.
"""

from __future__ import annotations

from typing import Any, TypeVar

from ridgeline.errors import BadValueError
from ridgeline.nn.functional import normalize
from ridgeline.nn.module import Module
from ridgeline.nn.parameter import Parameter
from ridgeline.record.modes import no_grad
from ridgeline.tensors.public import matmul, randn
from ridgeline.tensors.tensor import Tensor

M = TypeVar("M", bound=Module)


def _computed(module: Module, name: str, compute: Any) -> None:
    """Read `module.name` through a function from now on."""
    own = module.__class__
    made = type(own.__name__, (own,), {name: property(compute), "_plain": own})
    module.__class__ = made


def _taken(module: Module, name: str) -> Parameter:
    weight = module._parameters.get(name)
    if weight is None:
        raise BadValueError(f"{type(module).__name__} has no parameter {name!r}")
    delattr(module, name)
    return weight


def _restored(module: Module, name: str, *parts: str) -> None:
    if parts[0] not in module._parameters or not hasattr(type(module), "_plain"):
        raise BadValueError(f"the {name} of this {type(module).__name__} is an ordinary parameter")
    weight = getattr(module, name).detach().clone()
    for part in parts:
        delattr(module, part)
    module.__class__ = module.__class__._plain  # type: ignore[attr-defined]
    setattr(module, name, Parameter(weight))


def length_along(weight: Tensor, dim: int | None) -> Tensor:
    """The norm over all axes but one, or over all."""
    axes = tuple(range(weight.dim()))
    if dim is not None:
        axes = tuple(axis for axis in axes if axis != dim % weight.dim())
    return (weight * weight).sum(axes, keepdim=dim is not None).sqrt()


def weight_norm(module: M, name: str = "weight", dim: int | None = 0) -> M:
    """Split a weight into a length, `name_g`, and a direction, `name_v`."""
    weight = _taken(module, name)
    setattr(module, f"{name}_g", Parameter(length_along(weight.detach(), dim)))
    setattr(module, f"{name}_v", Parameter(weight.detach()))

    def compute(layer: Any) -> Tensor:
        direction = getattr(layer, f"{name}_v")
        result: Tensor = direction * (getattr(layer, f"{name}_g") / length_along(direction, dim))
        return result

    _computed(module, name, compute)
    return module


def remove_weight_norm(module: M, name: str = "weight") -> M:
    """Make the computed weight a parameter again."""
    _restored(module, name, f"{name}_g", f"{name}_v")
    return module


def spectral_norm(
    module: M,
    name: str = "weight",
    n_power_iterations: int = 1,
    eps: float = 1e-12,
    dim: int | None = None,
) -> M:
    """Divide a weight by its largest singular value, found by power iteration while training."""
    weight = _taken(module, name)
    axis = dim if dim is not None else int(type(module).__name__.startswith("ConvTranspose"))
    setattr(module, f"{name}_orig", Parameter(weight.detach()))

    def matrix(layer: Any) -> Tensor:
        whole: Tensor = getattr(layer, f"{name}_orig").movedim(axis, 0)
        return whole.flatten(1)

    rows, columns = (int(n) for n in matrix(module).shape)
    for part, length in (("u", rows), ("v", columns)):
        start = normalize(randn((length,), dtype=weight.dtype), dim=0, eps=eps)
        module.register_buffer(f"{name}_{part}", start)

    def compute(layer: Any) -> Tensor:
        left, right = (getattr(layer, f"{name}_{part}").clone() for part in ("u", "v"))
        largest = (left * matmul(matrix(layer), right)).sum()
        result: Tensor = getattr(layer, f"{name}_orig") / largest
        return result

    def iterate(layer: Any, args: Any) -> None:
        if layer.training:
            with no_grad():
                own = matrix(layer)
                left, right = (getattr(layer, f"{name}_{part}") for part in ("u", "v"))
                for _ in range(n_power_iterations):
                    right.copy_(normalize(matmul(own.transpose(0, 1), left), dim=0, eps=eps))
                    left.copy_(normalize(matmul(own, right), dim=0, eps=eps))

    _computed(module, name, compute)
    object.__setattr__(module, "_iterating", module.register_forward_pre_hook(iterate))
    return module


def remove_spectral_norm(module: M, name: str = "weight") -> M:
    """Make the divided weight a parameter again."""
    _restored(module, name, f"{name}_orig", f"{name}_u", f"{name}_v")
    module._iterating.remove()
    object.__delattr__(module, "_iterating")
    return module
