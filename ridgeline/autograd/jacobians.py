"""Jacobians and Hessians of functions of tensors: vjp or jvp, mapped over a basis by vmap.

A Jacobian is nested like the function's result, and inside like the chosen arguments; the entry
for a result of shape A and an argument of shape B has shape A + B.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import wraps
from typing import Any

import numpy as np

from ridgeline.autograd.transforms import linearize, vjp
from ridgeline.autograd.vectorize import vmap
from ridgeline.errors import GradientError
from ridgeline.record.modes import called
from ridgeline.tensors.pytree import flatten, unflatten
from ridgeline.tensors.tensor import Tensor, from_array

Function = Callable[..., Any]


class _Chosen:
    """A function of the chosen arguments only, which keeps the auxiliary result aside."""

    def __init__(
        self,
        function: Function,
        argnums: int | Sequence[int],
        has_aux: bool,
        args: tuple[Any, ...],
        kwargs: dict[str, Any],
    ) -> None:
        self.function, self.has_aux, self.args, self.kwargs = function, has_aux, args, kwargs
        self.single = isinstance(argnums, int)
        self.numbers = [argnums] if isinstance(argnums, int) else list(argnums)
        for number in self.numbers:
            if not -len(args) <= number < len(args):
                raise GradientError(f"argnums names argument {number}, but {len(args)} were given")
        self.parts = [args[number] for number in self.numbers]
        self.aux: Any = None

    def __call__(self, *parts: Any) -> Any:
        replaced = list(self.args)
        for number, part in zip(self.numbers, parts):
            replaced[number] = part
        result = called(self.function)(*replaced, **self.kwargs)
        if self.has_aux:
            result, self.aux = result
        return result

    def nested(self, found: Sequence[Any]) -> Any:
        """Derivatives by the chosen arguments, as the caller named them."""
        return found[0] if self.single else tuple(found)

    def returned(self, jacobian: Any) -> Any:
        return (jacobian, self.aux) if self.has_aux else jacobian


def basis_of(leaves: Sequence[Tensor]) -> list[Tensor]:
    """Unit vectors of the space that the leaves span together, one per row, cut up by leaf."""
    sizes = [leaf.numel() for leaf in leaves]
    total, start, made = sum(sizes), 0, []
    for leaf, size in zip(leaves, sizes):
        rows = np.zeros((total, size), np.float32)
        rows[np.arange(start, start + size), np.arange(size)] = 1
        cut = rows.reshape(total, *leaf.shape).astype(leaf.dtype.numpy)
        made.append(from_array(cut, leaf.dtype, leaf.device))
        start += size
    return made


def _pieces(stacked: Tensor, leaves: Sequence[Tensor], axis: int) -> list[Tensor]:
    """Rows along an axis of derivatives, cut up by leaf and given its shape."""
    found, start = [], 0
    for leaf in leaves:
        size = leaf.numel()
        part = stacked.narrow(axis, start, size)
        shape = (*stacked.shape[:axis], *leaf.shape, *stacked.shape[axis + 1 :])
        found.append(part.reshape(shape))
        start += size
    return found


def _check_complex(outputs: Sequence[Tensor], inputs: Sequence[Tensor], reverse: bool) -> bool:
    """True for complex derivatives; raise where one pass gives only half of the derivative."""
    by = any(leaf.is_complex() for leaf in inputs)
    of = any(leaf.is_complex() for leaf in outputs)
    if reverse and of and not all(leaf.is_complex() for leaf in inputs):
        raise GradientError("jacrev of complex results needs complex inputs", help="use jacfwd()")
    if not reverse and by and not all(leaf.is_complex() for leaf in outputs):
        raise GradientError("jacfwd by complex inputs needs complex results", help="use jacrev()")
    return of and by


def jacrev(
    function: Function,
    argnums: int | Sequence[int] = 0,
    *,
    has_aux: bool = False,
    chunk_size: int | None = None,
) -> Function:
    """The Jacobian in reverse mode: one pass per element of the result, all at once.

    For complex functions it is that of a holomorphic function.

    >>> rl.jacrev(rl.sin)(x)  # diag(cos(x))
    """

    @wraps(function)
    def run(*args: Any, **kwargs: Any) -> Any:
        chosen = _Chosen(function, argnums, has_aux, args, kwargs)
        result, pull = vjp(chosen, *chosen.parts)
        outputs: list[Any] = []
        structure = flatten(result, outputs)
        inputs: list[Any] = []
        flatten(tuple(chosen.parts), inputs)
        turned = _check_complex(outputs, inputs, reverse=True)
        basis = unflatten(structure, basis_of(outputs))
        rows: list[Any] = []
        parts = flatten(vmap(pull, chunk_size=chunk_size)(basis), rows)
        if turned:
            rows = [row.conj() for row in rows]
        columns = [_pieces(row, outputs, 0) for row in rows]  # by input, then by output
        entries = [
            chosen.nested(unflatten(parts, [column[number] for column in columns]))
            for number in range(len(outputs))
        ]
        return chosen.returned(unflatten(structure, entries))

    return run


def jacfwd(
    function: Function,
    argnums: int | Sequence[int] = 0,
    *,
    has_aux: bool = False,
    chunk_size: int | None = None,
) -> Function:
    """The Jacobian in forward mode: one pass per element of the arguments, all at once.

    >>> rl.jacfwd(rl.sin)(x)  # diag(cos(x))
    """

    @wraps(function)
    def run(*args: Any, **kwargs: Any) -> Any:
        chosen = _Chosen(function, argnums, has_aux, args, kwargs)
        result, push = linearize(chosen, *chosen.parts)
        inputs: list[Any] = []
        parts = flatten(tuple(chosen.parts), inputs)
        outputs: list[Any] = []
        structure = flatten(result, outputs)
        _check_complex(outputs, inputs, reverse=False)
        basis = unflatten(parts, basis_of(inputs))
        columns: list[Any] = []
        flatten(vmap(push, out_dims=-1, chunk_size=chunk_size)(*basis), columns)
        entries = [
            chosen.nested(unflatten(parts, _pieces(column, inputs, column.ndim - 1)))
            for column in columns
        ]
        return chosen.returned(unflatten(structure, entries))

    return run


def jacobian(
    function: Function,
    argnums: int | Sequence[int] = 0,
    *,
    has_aux: bool = False,
    chunk_size: int | None = None,
) -> Function:
    """A function that gives the Jacobian of `function` by the chosen arguments (in reverse mode).

    >>> rl.jacobian(lambda x: x**2)(rl.tensor([1.0, 2.0]))
    tensor([[2., 0.],
            [0., 4.]])
    """
    return jacrev(function, argnums, has_aux=has_aux, chunk_size=chunk_size)


def hessian(function: Function, argnums: int | Sequence[int] = 0) -> Function:
    """A function that gives the second derivatives of a function, forward over reverse.

    >>> rl.hessian(lambda x: (x**3).sum())(rl.tensor([1.0, 2.0]))
    tensor([[ 6.,  0.],
            [ 0., 12.]])
    """
    return jacfwd(jacrev(function, argnums), argnums)
