"""A cache of traced scan bodies of the package's own functions, by the types of tensors.

Such a function gets all that it reads as arguments: the carry, a slice, and weights that every
iteration sees whole. It is kept where these weights are what its body captured, each of them and
nothing besides but numbers of its own; then another call puts its weights in their places.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Sequence
from dataclasses import dataclass, replace
from typing import Any

from ridgeline.functions.operands import defaults
from ridgeline.graph.node import Node
from ridgeline.record.modes import modes
from ridgeline.record.recorder import taped
from ridgeline.record.values import read
from ridgeline.tensors.tensor import Tensor
from ridgeline.tracing.control_flow import Iteration, ScanInputs, iteration, looped
from ridgeline.tracing.kept_bodies import KeptBodies, is_steady


@dataclass(frozen=True, slots=True)
class _Kept:
    """A traced iteration, and what it captured: the weight of a number, or a number of its own."""

    traced: Iteration
    captured: tuple[int | Node, ...]

    def over(self, weights: Sequence[Node]) -> Iteration:
        """The iteration with other weights."""
        captured = [weights[c] if isinstance(c, int) else c for c in self.captured]
        return replace(self.traced, captured=captured)


_kept: KeptBodies[_Kept] = KeptBodies()


@taped
def own_scan(
    function: Callable[..., Any],
    init: Any,
    xs: Any,
    weights: Sequence[Tensor | None],
    *settings: Hashable,
    reverse: bool = False,
) -> tuple[Any, Any]:
    """`scan` of `function(carry, x, weights, *settings)`, a function of the package's own."""
    given = ScanInputs.of(init, xs, None, reverse)

    def step(carry: Any, x: Any) -> Any:
        return function(carry, x, weights, *settings)

    if modes.capture is not None:
        return looped(given, iteration(step, given))
    nodes = [read(weight) for weight in weights if weight is not None]
    key = function, settings, _form(given), tuple(map(_standing, weights))
    kept = _kept.get(key)
    if kept is not None:
        return looped(given, kept.over(nodes))
    found = iteration(step, given)
    captured = _sources(found, nodes)
    if captured is not None:
        _kept.keep(key, _Kept(replace(found, captured=[]), captured), found.step)
    return looped(given, found)


def _form(given: ScanInputs) -> Hashable:
    """Everything that tracing depends on besides the weights, without the scan's length."""
    carried = tuple([None if v is None else v._type for v in given.carried])
    slices = tuple(
        [None if v is None else (v._type.shape[1:], v.dtype, v.device) for v in given.arrays]
    )
    narrow = modes.gradients, modes.autocast, defaults.dtype
    return given.carry, carried, given.slices, slices, narrow


def _standing(weight: Tensor | None) -> Hashable:
    """The type of a weight, and how it and its memory relate to differentiation."""
    if weight is None:
        return None
    cell, track = weight._resolved()
    return weight._type, cell.mode, track.mode


def _sources(found: Iteration, weights: Sequence[Node]) -> tuple[int | Node, ...] | None:
    """What an iteration captured; None where it stands for no other weights.

    So it is with weights that are one node, or constants that went into the body, and with what
    was computed from weights outside of it.
    """
    index_of = {node: index for index, node in enumerate(weights)}
    captured = [index_of.get(node, node) for node in found.captured]
    whole = sum(isinstance(c, int) for c in captured) == len(weights) == len(index_of)
    steady = all(isinstance(c, int) or is_steady(c) for c in captured)
    return tuple(captured) if whole and steady and not found.offsets else None
