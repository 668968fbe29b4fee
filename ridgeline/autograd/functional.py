"""`autograd.functional`: torch's call forms of Jacobians, Hessians and products with them.

Here the inputs are given with the function: one tensor, or a tuple of them.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from ridgeline import autograd
from ridgeline.autograd import jacobians, transforms
from ridgeline.errors import GradientError
from ridgeline.ops.elementwise import full_like
from ridgeline.record.cells import PLAIN
from ridgeline.record.modes import called
from ridgeline.record.values import read
from ridgeline.tensors.pytree import flatten, tree_map
from ridgeline.tensors.tensor import Tensor, wrap

Function = Callable[..., Any]

__all__ = ["hessian", "hvp", "jacobian", "jvp", "vhp", "vjp"]

_STRATEGIES = {"reverse-mode": jacobians.jacrev, "forward-mode": jacobians.jacfwd}


def _listed(inputs: Any) -> tuple[Any, ...]:
    return (inputs,) if isinstance(inputs, Tensor) else tuple(inputs)


def _argnums(inputs: Any) -> int | Sequence[int]:
    return 0 if isinstance(inputs, Tensor) else tuple(range(len(inputs)))


def _like(inputs: Any, found: Any) -> Any:
    """One result for one input, a tuple for a tuple."""
    return found[0] if isinstance(inputs, Tensor) else found


def _handed_out(tree: Any, create_graph: bool) -> Any:
    """Results through which gradients flow on only if asked for."""
    if create_graph:
        return tree
    return tree_map(lambda leaf: leaf.detach() if isinstance(leaf, Tensor) else leaf, tree)


def _strategy(name: str) -> Callable[..., Any]:
    if name not in _STRATEGIES:
        raise GradientError(f"a strategy is one of {', '.join(_STRATEGIES)}, not {name!r}")
    return _STRATEGIES[name]


def _check_strict(function: Function, inputs: Any, strict: bool) -> None:
    """With `strict`, every result must depend on every input."""
    if not strict:
        return
    fresh = [leaf.detach().clone().requires_grad_() for leaf in _listed(inputs)]
    outputs: list[Any] = []
    flatten(called(function)(*fresh), outputs)
    for number, output in enumerate(outputs):
        found: tuple[Any, ...] = (None,) * len(fresh)
        if output.requires_grad:
            seed = _filled(output, 1)
            found = autograd.grad(output, fresh, seed, retain_graph=True, allow_unused=True)
        for index, gradient in enumerate(found):
            if gradient is None:
                raise GradientError(f"output {number} does not depend on input {index}")


def _filled(like: Tensor, value: float) -> Tensor:
    return wrap(full_like(read(like.detach()), value), PLAIN)


def _scalar(output: Any) -> Tensor:
    if not isinstance(output, Tensor) or output.numel() != 1:
        raise GradientError("the function must return one scalar tensor", help="reduce the result")
    return output


def jacobian(
    func: Function,
    inputs: Any,
    create_graph: bool = False,
    strict: bool = False,
    vectorize: bool = True,
    strategy: str = "reverse-mode",
) -> Any:
    """The Jacobian of `func` at `inputs`; `vectorize=False` takes one element at a time.

    >>> rl.autograd.functional.jacobian(rl.sin, x)
    """
    _check_strict(func, inputs, strict)
    chunk = None if vectorize else 1
    build = _strategy(strategy)(func, _argnums(inputs), chunk_size=chunk)
    return _handed_out(build(*_listed(inputs)), create_graph)


def hessian(
    func: Function,
    inputs: Any,
    create_graph: bool = False,
    strict: bool = False,
    vectorize: bool = True,
    outer_jacobian_strategy: str = "reverse-mode",
) -> Any:
    """The second derivatives of a scalar function at `inputs`.

    >>> rl.autograd.functional.hessian(lambda x: (x**3).sum(), x)
    """
    _check_strict(func, inputs, strict)
    numbers, chunk = _argnums(inputs), None if vectorize else 1
    first = transforms.grad(lambda *args: _scalar(called(func)(*args)).reshape(()), numbers)
    build = _strategy(outer_jacobian_strategy)(first, numbers, chunk_size=chunk)
    return _handed_out(build(*_listed(inputs)), create_graph)


def vjp(
    func: Function, inputs: Any, v: Any = None, create_graph: bool = False, strict: bool = False
) -> Any:
    """The result of `func`, and `v` times its Jacobian."""
    _check_strict(func, inputs, strict)
    result, pull = transforms.vjp(func, *_listed(inputs))
    seed = _filled(_scalar(result), 1) if v is None else v
    return _handed_out((result, _like(inputs, pull(seed))), create_graph)


def jvp(
    func: Function, inputs: Any, v: Any = None, create_graph: bool = False, strict: bool = False
) -> Any:
    """The result of `func`, and its Jacobian times `v`."""
    _check_strict(func, inputs, strict)
    if v is None:
        v = _filled(_scalar(inputs), 1)
    return _handed_out(transforms.jvp(func, _listed(inputs), _listed(v)), create_graph)


def hvp(
    func: Function, inputs: Any, v: Any = None, create_graph: bool = False, strict: bool = False
) -> Any:
    """The value of a scalar function, and its Hessian times `v`, forward over reverse."""
    first, given, v = _second_order(func, inputs, v, strict)
    (value, _), (_, moved) = transforms.jvp(first, given, _listed(v))
    return _handed_out((value, _like(inputs, moved)), create_graph)


def vhp(
    func: Function, inputs: Any, v: Any = None, create_graph: bool = False, strict: bool = False
) -> Any:
    """The value of a scalar function, and `v` times its Hessian, reverse over reverse."""
    first, given, v = _second_order(func, inputs, v, strict)
    (value, _), pull = transforms.vjp(first, *given)
    seeds = (_filled(value, 0), _listed(v))
    return _handed_out((value, _like(inputs, pull(seeds))), create_graph)


def _second_order(func: Function, inputs: Any, v: Any, strict: bool) -> tuple[Function, Any, Any]:
    """A scalar function with its gradient, its arguments, and the vector for its Hessian."""
    _check_strict(func, inputs, strict)
    given = _listed(inputs)
    first = transforms.value_and_grad(
        lambda *args: _scalar(called(func)(*args)).reshape(()), tuple(range(len(given)))
    )
    return first, given, _filled(_scalar(inputs), 1) if v is None else v
