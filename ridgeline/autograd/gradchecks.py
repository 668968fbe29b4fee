"""gradcheck and gradgradcheck: derivatives compared with central differences, element by element.

A derivative is held as a real matrix, a complex number being two real ones, so that one comparison
serves real and complex functions. Nothing is batched here unless asked for: the passes run one by
one, so that a mistake in a batching rule cannot hide one in a gradient.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from ridgeline import dtypes
from ridgeline.autograd.transforms import jvp, vjp
from ridgeline.autograd.vectorize import vmap
from ridgeline.errors import GradientError
from ridgeline.scalars import Array
from ridgeline.tensors.pytree import flatten
from ridgeline.tensors.tensor import Tensor, from_array

Function = Callable[..., Any]


class GradcheckError(GradientError):
    """A derivative that differs from what differences say."""

    code = "RL0202"


@dataclass(frozen=True, slots=True)
class _Tolerance:
    atol: float
    rtol: float

    def misses(self, found: Array, expected: Array) -> Array:
        """True where two arrays differ."""
        return ~np.isclose(found, expected, rtol=self.rtol, atol=self.atol, equal_nan=True)


class _Problem:
    """A function of the inputs that are checked only, and its differentiable results."""

    def __init__(self, function: Function, inputs: Any) -> None:
        self.function = function
        self.given = [inputs] if isinstance(inputs, Tensor) else list(inputs)
        asking = [_differentiable(leaf) and leaf.requires_grad for leaf in self.given]
        if not any(asking):
            asking = [_differentiable(leaf) for leaf in self.given]
        self.indices = [index for index, asks in enumerate(asking) if asks]
        if not self.indices:
            raise GradientError("gradcheck needs a floating or complex tensor among the inputs")
        self.arrays = [_values(self.given[index]) for index in self.indices]
        for index in self.indices:
            kind = self.given[index].dtype
            if kind not in (dtypes.float64, dtypes.complex128):
                warnings.warn(
                    f"gradcheck: input {index} is {kind.name}; differences need double precision",
                    stacklevel=3,
                )

    def tensors(self, arrays: Sequence[Array] | None = None) -> list[Tensor]:
        """The checked inputs as fresh tensors."""
        chosen = self.arrays if arrays is None else arrays
        given = [self.given[index] for index in self.indices]
        return [
            from_array(np.array(a, g.dtype.numpy), g.dtype, g.device) for a, g in zip(chosen, given)
        ]

    def __call__(self, *checked: Tensor) -> tuple[Tensor, ...]:
        replaced = list(self.given)
        for index, leaf in zip(self.indices, checked):
            replaced[index] = leaf
        found: list[Any] = []
        flatten(self.function(*replaced), found)
        kept = tuple(leaf for leaf in found if isinstance(leaf, Tensor) and _differentiable(leaf))
        if not kept:
            raise GradientError("gradcheck needs a function with floating or complex results")
        return kept

    def values(self, arrays: Sequence[Array]) -> list[Array]:
        """The function's results for some inputs."""
        return [_values(leaf) for leaf in self(*self.tensors(arrays))]


def _differentiable(leaf: Any) -> bool:
    return isinstance(leaf, Tensor) and leaf.dtype.is_differentiable


def _values(leaf: Tensor) -> Array:
    array = np.array(leaf.detach().cpu().numpy())
    wide = np.complex128 if array.dtype.kind == "c" else np.float64
    return array.astype(wide)


def _as_reals(arrays: Sequence[Array]) -> Array:
    """All elements in one vector; of complex ones the real and then the imaginary part."""
    flat = [a.reshape(-1).astype(np.complex128).view(np.float64).reshape(-1, 2) for a in arrays]
    kept = [f.reshape(-1) if a.dtype.kind == "c" else f[:, 0] for f, a in zip(flat, arrays)]
    return np.concatenate(kept) if kept else np.zeros(0)


def _from_reals(vector: Array, like: Sequence[Array]) -> list[Array]:
    """The inverse of `_as_reals`."""
    made, start = [], 0
    for array in like:
        count = array.size * (2 if array.dtype.kind == "c" else 1)
        part = np.ascontiguousarray(vector[start : start + count])
        made.append(part.view(array.dtype).reshape(array.shape))
        start += count
    return made


def _units(like: Sequence[Array]) -> list[list[Array]]:
    """Every direction in which the arrays can move, one element (or part of one) at a time."""
    return [_from_reals(row, like) for row in np.eye(_as_reals(like).size)]


def _difference(problem: _Problem, move: Sequence[Array], eps: float) -> Array:
    ends = [
        _as_reals(problem.values([a + sign * eps * m for a, m in zip(problem.arrays, move)]))
        for sign in (1, -1)
    ]
    return np.asarray((ends[0] - ends[1]) / (2 * eps))


def _pushed(problem: _Problem, move: Sequence[Array]) -> Array:
    _, moved = jvp(problem, problem.tensors(), problem.tensors(move))
    return _as_reals([_values(leaf) for leaf in moved])


def _seeds(outputs: Sequence[Tensor], rows: Sequence[Array]) -> tuple[Tensor, ...]:
    return tuple(
        from_array(row.astype(leaf.dtype.numpy), leaf.dtype, leaf.device)
        for row, leaf in zip(rows, outputs)
    )


# ---- the whole matrix ----------------------------------------------------------------------------


def _numerical(problem: _Problem, eps: float) -> Array:
    """The derivative by differences: a row per result element, a column per input element."""
    columns = [_difference(problem, move, eps) for move in _units(problem.arrays)]
    size = _as_reals(problem.values(problem.arrays)).size
    return np.stack(columns, axis=1) if columns else np.zeros((size, 0))


def _by_forward(problem: _Problem) -> Array:
    columns = [_pushed(problem, move) for move in _units(problem.arrays)]
    size = _as_reals(problem.values(problem.arrays)).size
    return np.stack(columns, axis=1) if columns else np.zeros((size, 0))


def _by_reverse(problem: _Problem, dtypes_too: bool) -> Array:
    outputs, pull = vjp(problem, *problem.tensors())
    rows = []
    for unit in _units([_values(leaf) for leaf in outputs]):
        gradients = pull(_seeds(outputs, unit))
        if dtypes_too:
            _check_dtypes(problem, gradients)
        rows.append(_as_reals([_values(leaf) for leaf in gradients]))
    size = _as_reals(problem.arrays).size
    return np.stack(rows) if rows else np.zeros((0, size))


def _check_dtypes(problem: _Problem, gradients: Sequence[Tensor]) -> None:
    for index, gradient in zip(problem.indices, gradients):
        own = problem.given[index].dtype
        if gradient.dtype is not own:
            raise GradcheckError(
                f"the gradient by input {index} is {gradient.dtype.name}, the input {own.name}"
            )


def _by_batch(problem: _Problem) -> Array:
    """Reverse mode with all rows at once, by vmap."""
    outputs, pull = vjp(problem, *problem.tensors())
    units = _units([_values(leaf) for leaf in outputs])
    if not units:
        return np.zeros((0, _as_reals(problem.arrays).size))
    seeds = _seeds(outputs, [np.stack(column) for column in zip(*units)])
    found = [_values(leaf) for leaf in vmap(pull)(seeds)]
    return np.stack([_as_reals([leaf[row] for leaf in found]) for row in range(len(units))])


def _element(arrays: Sequence[Array], number: int) -> tuple[int, str]:
    """Which of some arrays a column or row belongs to, and which of its elements."""
    for which, array in enumerate(arrays):
        parts = 2 if array.dtype.kind == "c" else 1
        if number < array.size * parts:
            index = [int(i) for i in np.unravel_index(number // parts, array.shape)]
            part = (" (imaginary part)" if number % 2 else " (real part)") if parts == 2 else ""
            return which, f"element {index}{part}"
        number -= array.size * parts
    raise IndexError(number)


def _compare(
    problem: _Problem, found: Array, expected: Array, tolerance: _Tolerance, mode: str
) -> None:
    wrong = tolerance.misses(found, expected)
    if not wrong.any():
        return
    row, column = (int(i) for i in np.argwhere(wrong)[0])
    which_in, element_in = _element(problem.arrays, column)
    which_out, element_out = _element(problem.values(problem.arrays), row)
    raise GradcheckError(
        f"{mode} mode: the derivative of output {which_out} by input "
        f"{problem.indices[which_in]} is wrong",
        note=f"output {which_out} {element_out}, input {problem.indices[which_in]} {element_in}\n"
        f"analytical {found[row, column]:.10g}\n"
        f"numerical  {expected[row, column]:.10g}\n"
        f"{int(wrong.sum())} of {wrong.size} entries differ by more than "
        f"{tolerance.atol:g} + {tolerance.rtol:g} * |numerical|",
        help="a function with a kink or a jump near the inputs fails too: move them away from it",
    )


# ---- one direction -------------------------------------------------------------------------------


def _draw(like: Sequence[Array], seed: int) -> list[Array]:
    random = np.random.default_rng(seed)
    vector = random.standard_normal(_as_reals(like).size)
    return _from_reals(vector / max(float(np.linalg.norm(vector)), 1e-300), like)


def _check_fast(
    problem: _Problem, eps: float, tolerance: _Tolerance, forward: bool, reverse: bool
) -> None:
    """Along one drawn direction of the inputs, seen along one drawn direction of the results."""
    outputs, pull = vjp(problem, *problem.tensors())
    move = _draw(problem.arrays, 0)
    seed = _draw([_values(leaf) for leaf in outputs], 1)
    weight = _as_reals(seed)
    expected = float(weight @ _difference(problem, move, eps))
    results = {}
    if forward:
        results["forward"] = float(weight @ _pushed(problem, move))
    if reverse:
        gradients = [_values(leaf) for leaf in pull(_seeds(outputs, seed))]
        results["reverse"] = float(_as_reals(gradients) @ _as_reals(move))
    for mode, found in results.items():
        if tolerance.misses(np.array(found), np.array(expected)).any():
            raise GradcheckError(
                f"{mode} mode: the derivative along a drawn direction is wrong",
                note=f"analytical {found:.10g}\nnumerical  {expected:.10g}",
                help="run without fast_mode to learn which input and element it is",
            )


# ---- the public functions ------------------------------------------------------------------------


def gradcheck(
    function: Function,
    inputs: Tensor | Sequence[Any],
    *,
    eps: float = 1e-6,
    atol: float = 1e-5,
    rtol: float = 1e-3,
    raise_exception: bool = True,
    nondet_tol: float = 0.0,
    check_grad_dtypes: bool = False,
    check_batched_grad: bool = False,
    check_forward_ad: bool = True,
    check_backward_ad: bool = True,
    fast_mode: bool = False,
) -> bool:
    """Compare the derivatives of a function with central differences.

    Checked are the inputs that require gradients, or all floating and complex ones if none does.
    True if they agree; otherwise a `GradcheckError` that names the input and the element, or False
    with `raise_exception=False`. `fast_mode` compares along one drawn direction only.

    >>> rl.autograd.gradcheck(rl.sin, rl.randn(3, dtype=rl.float64))
    True
    """
    problem = _Problem(function, inputs)
    tolerance = _Tolerance(atol, rtol)
    try:
        if fast_mode:
            _check_fast(problem, eps, tolerance, check_forward_ad, check_backward_ad)
            return True
        expected = _numerical(problem, eps)
        if check_backward_ad:
            found = _by_reverse(problem, check_grad_dtypes)
            _compare(problem, found, expected, tolerance, "reverse")
            _check_repeats(found, _by_reverse(problem, False), nondet_tol)
            if check_batched_grad:
                _compare(problem, _by_batch(problem), expected, tolerance, "batched reverse")
        if check_forward_ad:
            _compare(problem, _by_forward(problem), expected, tolerance, "forward")
    except GradcheckError:
        if raise_exception:
            raise
        return False
    return True


def _check_repeats(first: Array, second: Array, tolerance: float) -> None:
    apart = np.abs(first - second)
    if apart.size and float(np.nanmax(apart)) > tolerance:
        raise GradcheckError(
            f"two passes gave gradients that differ by {float(np.nanmax(apart)):.3g}",
            help="draw random numbers outside of the function, or give nondet_tol",
        )


def gradgradcheck(
    function: Function,
    inputs: Tensor | Sequence[Any],
    grad_outputs: Tensor | Sequence[Tensor] | None = None,
    *,
    eps: float = 1e-6,
    atol: float = 1e-5,
    rtol: float = 1e-3,
    raise_exception: bool = True,
    nondet_tol: float = 0.0,
    check_fwd_over_rev: bool = True,
    check_rev_over_rev: bool = True,
    check_grad_dtypes: bool = False,
    check_batched_grad: bool = False,
    fast_mode: bool = False,
) -> bool:
    """Compare second derivatives: `gradcheck` of the function that gives the gradients.

    It depends on the inputs and on `grad_outputs`, which are drawn if they are not given.

    >>> rl.autograd.gradgradcheck(rl.exp, rl.randn(3, dtype=rl.float64))
    True
    """
    problem = _Problem(function, inputs)
    count = len(problem.indices)
    if grad_outputs is None:
        outputs = problem(*problem.tensors())
        seeds = list(_seeds(outputs, _draw([_values(leaf) for leaf in outputs], 2)))
    else:
        seeds = [grad_outputs] if isinstance(grad_outputs, Tensor) else list(grad_outputs)

    def gradients(*values: Tensor) -> Any:
        return vjp(problem, *values[:count])[1](tuple(values[count:]))

    return gradcheck(
        gradients,
        [*problem.tensors(), *(seed.detach() for seed in seeds)],
        eps=eps,
        atol=atol,
        rtol=rtol,
        raise_exception=raise_exception,
        nondet_tol=nondet_tol,
        check_grad_dtypes=check_grad_dtypes,
        check_batched_grad=check_batched_grad,
        check_forward_ad=check_fwd_over_rev,
        check_backward_ad=check_rev_over_rev,
        fast_mode=fast_mode,
    )
