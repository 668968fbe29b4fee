"""Placements by a user's own hand: what is asked of a tensor, how it lies, all of it."""

from __future__ import annotations

from ridgeline.devices import is_mesh
from ridgeline.errors import BadTypeError, BadValueError, PlacementError
from ridgeline.ops.placed import Placement, Replicate, Shard
from ridgeline.record.memory import settled
from ridgeline.record.modes import no_grad
from ridgeline.record.recorder import realize
from ridgeline.sharding.mesh_shapes import shape_of
from ridgeline.tensors import placing
from ridgeline.tensors.tensor import Tensor


def place(x: Tensor, **placements: Placement) -> Tensor:
    """The same tensor, placed along axes of its mesh: `place(x, tp=Shard(1))`.

    Its gradient is placed alike. Axes that are not named stay as they are.
    """
    names = _axes_of(x, "place")
    for axis, placement in placements.items():
        if axis not in names:
            raise BadValueError(
                f"the tensor's mesh has no axis {axis!r}", help=f"it has {', '.join(names)}"
            )
        if not isinstance(placement, Shard | Replicate):
            raise BadTypeError(f"place needs Shard(dim) or Replicate() along {axis}")
        if isinstance(placement, Shard) and not 0 <= placement.dim < x.dim():
            raise PlacementError(
                f"a tensor of shape {list(x.shape)} has no dimension {placement.dim} to be sharded "
                f"along {axis}",
                help=f"its dimensions are 0 … {x.dim() - 1}",
            )
    return placing.place(x, placements)


def placements(x: Tensor) -> dict[str, Placement]:
    """How a tensor lies along the axes of its mesh."""
    names = _axes_of(x, "placements")
    return dict(zip(names, settled(x._cell).buffer.spec))


def full_tensor(x: Tensor) -> Tensor:
    """A tensor on a mesh, whole on every rank; all ranks of the mesh call it."""
    if not isinstance(x, Tensor):
        raise BadTypeError(f"full_tensor takes a tensor, not {type(x).__name__}")
    if not is_mesh(x.device):
        return x
    whole = {name: Replicate() for name in shape_of(x.device).names}
    with no_grad():
        made = placing.place(x.detach(), whole).cpu()
    realize([made._cell])  # while all ranks are here
    return made


def _axes_of(x: Tensor, what: str) -> tuple[str, ...]:
    if not isinstance(x, Tensor):
        raise BadTypeError(f"{what} takes a tensor, not {type(x).__name__}")
    if not is_mesh(x.device):
        raise PlacementError(
            f"{what} needs a tensor on a mesh, and this one is on {x.device}",
            help="give it to a parallelized model, or move it with x.to(model's device)",
        )
    return shape_of(x.device).names
