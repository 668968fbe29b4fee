"""Clipping of gradients, by their common norm or element by element.

All gradients together are one node where they can be (`tracing/kept_bodies.py`), so that recording
takes no longer than the clipping itself.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from typing import Any

from ridgeline.errors import BadValueError
from ridgeline.graph.node import Node
from ridgeline.graph.origins import here, stamp
from ridgeline.linalg import vector_norm
from ridgeline.record.cells import CUT, PLAIN
from ridgeline.record.modes import no_grad
from ridgeline.record.recorder import taped
from ridgeline.record.values import write
from ridgeline.tensors.public import clamp, stack
from ridgeline.tensors.tensor import Tensor, tensor, wrap
from ridgeline.tracing.kept_bodies import as_one_node


def _gradients(parameters: Any) -> list[Tensor]:
    members = [parameters] if isinstance(parameters, Tensor) else list(parameters)
    return [p.grad for p in members if p.grad is not None]


def get_total_norm(tensors: Iterable[Tensor], norm_type: float = 2.0) -> Tensor:
    """The norm of all tensors together, as of one vector; it is where the first of them is."""
    members = [tensors] if isinstance(tensors, Tensor) else list(tensors)
    if not members:
        return tensor(0.0)
    device = members[0].device
    norms = [vector_norm(t.detach().reshape(-1), float(norm_type)).to(device) for t in members]
    return vector_norm(stack(norms), float(norm_type))


def clip_grad_norm_(
    parameters: Any,
    max_norm: float,
    norm_type: float = 2.0,
    error_if_nonfinite: bool = False,
    foreach: bool | None = None,
) -> Tensor:
    """Scale all gradients so that their common norm is at most max_norm; returns that norm."""
    return _clip_norm(_gradients(parameters), max_norm, norm_type, error_if_nonfinite)


@taped
def _clip_norm(
    gradients: list[Tensor], max_norm: float, norm_type: float, error_if_nonfinite: bool
) -> Tensor:
    with no_grad():
        if not error_if_nonfinite and _are_apart(gradients, max_norm):
            made = as_one_node(_scaled, gradients, (float(max_norm),), float(norm_type))
            if made is not None:
                _write(gradients, made[1:], "clip_grad_norm_")
                stamp(made[0], here())
                return wrap(made[0], _standing(gradients))
        total = get_total_norm(gradients, norm_type)
        if error_if_nonfinite and not math.isfinite(float(total)):
            raise BadValueError(
                f"the norm of the gradients is {float(total)}, so they cannot be clipped"
            )
        _scale(gradients, max_norm, total)
    return total


def clip_grads_with_norm_(
    parameters: Any, max_norm: float, total_norm: Tensor, foreach: bool | None = None
) -> None:
    """Scale all gradients by max_norm over a norm that is known, if that makes them smaller."""
    with no_grad():
        _scale(_gradients(parameters), max_norm, total_norm)


def clip_grad_value_(parameters: Any, clip_value: float, foreach: bool | None = None) -> None:
    """Hold every element of all gradients within ±clip_value."""
    _clip_value(_gradients(parameters), clip_value)


@taped
def _clip_value(gradients: list[Tensor], clip_value: float) -> None:
    with no_grad():
        if _are_apart(gradients, clip_value):
            made = as_one_node(_held, gradients, (-float(clip_value), float(clip_value)))
            if made is not None:
                _write(gradients, made, "clip_grad_value_")
                return
        _held(gradients, -clip_value, clip_value)


def _scaled(gradients: Sequence[Tensor], max_norm: float, norm_type: float) -> list[Tensor]:
    total = get_total_norm(gradients, norm_type)
    _scale(gradients, max_norm, total)
    return [total, *gradients]


def _scale(gradients: Sequence[Tensor], max_norm: float, total: Tensor) -> None:
    factor = clamp(max_norm / (total + 1e-6), max=1.0)
    for gradient in gradients:
        gradient.mul_(factor.to(gradient.device))


def _held(gradients: Sequence[Tensor], low: float, high: float) -> Sequence[Tensor]:
    for gradient in gradients:
        gradient.copy_(gradient.clamp(low, high))
    return gradients


def _are_apart(gradients: Sequence[Tensor], limit: Any) -> bool:
    """True where no gradient shows memory of another one, or of somebody outside, and the limit is
    a number of Python's."""
    if type(limit) not in (int, float):
        return False
    cells = [gradient._cell for gradient in gradients]
    alone = all(cell.rare is None or cell.rare.shared is None for cell in cells)
    return alone and len(set(cells)) == len(cells)


def _standing(gradients: Sequence[Tensor]) -> int:
    """How what is computed from gradients, and cut off from them, stands to differentiation."""
    return PLAIN if all(g._resolved()[1].mode == PLAIN for g in gradients) else CUT


def _write(gradients: Sequence[Tensor], made: Sequence[Node], what: str) -> None:
    mode = _standing(gradients)
    for gradient, node in zip(gradients, made):
        write(gradient, node, mode, what)
