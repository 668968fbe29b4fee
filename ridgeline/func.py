"""Function transforms under torch.func's names, and a module as a function of its parameters."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from typing import Any

from ridgeline.autograd.jacobians import (
    hessian as hessian,
    jacfwd as jacfwd,
    jacrev as jacrev,
)
from ridgeline.autograd.transforms import (
    grad as grad,
    jvp as jvp,
    linearize as linearize,
    value_and_grad as _value_and_grad,
    vjp as vjp,
)
from ridgeline.autograd.vectorize import vmap as vmap
from ridgeline.errors import ArgumentError
from ridgeline.nn.module import Module
from ridgeline.record import mutation
from ridgeline.record.modes import called
from ridgeline.reference import describe as _describe
from ridgeline.tensors.public import stack
from ridgeline.tensors.tensor import Tensor

__all__ = [
    "functional_call", "functionalize", "grad", "grad_and_value", "hessian", "jacfwd", "jacrev",
    "jvp", "linearize", "stack_module_state", "vjp", "vmap",
]  # fmt: skip
Values = Mapping[str, Tensor]


def grad_and_value(func: Any, argnums: int | Sequence[int] = 0, has_aux: bool = False) -> Any:
    """A function that gives the gradient and then the value of another."""
    run = _value_and_grad(func, argnums, has_aux)

    def swapped(*args: Any, **kwargs: Any) -> tuple[Any, Any]:
        value, gradient = called(run)(*args, **kwargs)
        return gradient, value

    return swapped


def functional_call(
    module: Module,
    parameter_and_buffer_dicts: Values | Sequence[Values],
    args: Any = None,
    kwargs: Mapping[str, Any] | None = None,
    *,
    tie_weights: bool = True,
    strict: bool = False,
) -> Any:
    """Call a module with other tensors in the place of its parameters and buffers, by name.

    With `tie_weights` one name of a shared parameter stands for all; with `strict` no name may be
    missing.
    """
    given: dict[str, Tensor] = {}
    several = not isinstance(parameter_and_buffer_dicts, Mapping)
    for values in parameter_and_buffer_dicts if several else (parameter_and_buffer_dicts,):
        given |= values  # type: ignore[arg-type]
    own: dict[str, Tensor] = {**dict(module.named_parameters(remove_duplicate=False))}
    own |= dict(module.named_buffers(remove_duplicate=False))
    unknown = sorted(given.keys() - own.keys())
    lacking = sorted(own.keys() - given.keys()) if strict else []
    if unknown or lacking:
        raise ArgumentError(
            f"functional_call: {'no parameter or buffer is called' if unknown else 'there is no'} "
            f"{(unknown or lacking)[0]!r}"
        )
    if tie_weights:
        shown = {id(own[name]): value for name, value in given.items()}
        given = {name: shown[id(value)] for name, value in own.items() if id(value) in shown}
    indices = () if args is None else args if isinstance(args, tuple) else (args,)
    with ExitStack() as back:
        for name, value in given.items():
            path, _, key = name.rpartition(".")
            owner = module.get_submodule(path)
            table: Any = owner._parameters if key in owner._parameters else owner._buffers
            back.callback(dict.__setitem__, table, key, table[key])
            dict.__setitem__(table, key, value)
        mutation.bump()
        back.callback(mutation.bump)
        return module(*indices, **(kwargs or {}))


def stack_module_state(models: Sequence[Module]) -> tuple[dict[str, Any], dict[str, Any]]:
    """Parameters and buffers of like models, stacked along a new first axis, for `vmap`."""
    if not models:
        raise ArgumentError("stack_module_state needs at least one model")

    def stacked(tables: Sequence[Mapping[str, Tensor]]) -> dict[str, Any]:
        return {
            name: stack([table[name].detach() for table in tables]).requires_grad_(
                first.requires_grad
            )
            for name, first in tables[0].items()
        }

    parameters = [dict(model.named_parameters()) for model in models]
    return stacked(parameters), stacked([dict(model.named_buffers()) for model in models])


def functionalize(func: Any, *, remove: str = "mutations") -> Any:
    """The function itself: what it writes in place is recorded as values already."""
    return func


_describe("func", globals())
_describe("", {name: globals()[name] for name in ("grad", "jvp", "linearize", "vjp", "vmap")})
