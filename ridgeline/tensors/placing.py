"""Placements asked for of tensors on a mesh; see `ops/placed.py`."""

from __future__ import annotations

from collections.abc import Mapping

from ridgeline.ops.elementwise import constant
from ridgeline.ops.movement import broadcast_scalar
from ridgeline.ops.placed import OnStage, Placement, placed, placed_as_state
from ridgeline.record.recorder import realize
from ridgeline.record.values import read, result_mode
from ridgeline.tensors.tensor import Tensor, wrap


def place(
    x: Tensor,
    forward: Mapping[str, Placement | OnStage],
    backward: Mapping[str, Placement | OnStage] | None = None,
    inserted: bool = False,
) -> Tensor:
    """The same tensor, placed along some axes of its mesh; its gradient by other ones if given."""
    mode = result_mode(x._resolved()[1].mode)
    asked = tuple(sorted(forward.items()))
    back = tuple(sorted((forward if backward is None else backward).items()))
    return wrap(placed(read(x), asked, back, inserted), mode)


def summed_gradient(parameter: Tensor, gradient: Tensor) -> Tensor:
    """A gradient on a mesh, where the plan wants the parameter's state; added up over ranks once.

    An update reads it several times. Sums that each reading makes of other parts differ in their
    last bits, and so the square of what is nothing but rounding could be negative.
    """
    return wrap(placed_as_state(read(gradient), read(parameter)), 0)


def state_like(parameter: Tensor, value: float) -> Tensor:
    """Optimizer state of one value for a parameter on a mesh, where the mesh's plan wants it."""
    kind = parameter._type
    whole = broadcast_scalar(constant(value, kind.dtype, kind.device), kind.shape)
    made = wrap(placed_as_state(whole, read(parameter)), 0)
    realize([made._cell])
    return made
