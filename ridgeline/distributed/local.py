"""`local`: a function over what each rank holds of tensors on a mesh, with collectives by hand."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import wraps
from typing import Any

from ridgeline.devices import is_mesh
from ridgeline.errors import BadTypeError, BadValueError, PlacementError
from ridgeline.graph.node import Node
from ridgeline.ops.local_parts import AxisPlacements, from_parts, local_part
from ridgeline.ops.placed import Partial, Placement, Replicate, Shard
from ridgeline.record.values import read, result_mode
from ridgeline.sharding.mesh_shapes import shape_of
from ridgeline.tensors.tensor import Tensor, wrap

Placements = Mapping[str, Placement]


def local(
    function: Callable[..., Any],
    given: Sequence[Placements],
    out: Placements | Sequence[Placements],
) -> Callable[..., Any]:
    """The function, called with this rank's parts of tensors on a mesh.

    `given` says for each argument how it is to lie along axes of the mesh, `out` how results do:
    `Shard(dim)`, `Replicate()`, as along axes that are not named, or `Partial()`, a sum of ranks.
    Inside, shapes are those of the parts, and `dist.functional` has the collectives.
    """
    if not callable(function):
        raise BadTypeError(f"local needs a function, not {type(function).__name__}")
    several = not isinstance(out, Mapping)

    @wraps(function)
    def over_parts(*tensors: Tensor) -> Any:
        if len(tensors) != len(given):
            raise BadValueError(
                f"{len(tensors)} tensors for a function over parts of {len(given)}",
                help="give placements for each argument",
            )
        where = _mesh_of(tensors)
        parts = [_moved(x, where, lies, local_part) for x, lies in zip(tensors, given)]
        found = function(*parts)
        results = found if several else (found,)
        lies = out if several else (out,)
        made = [_moved(x, where, how, from_parts) for x, how in zip(results, lies, strict=True)]  # type: ignore[arg-type]
        return tuple(made) if several else made[0]

    return over_parts


def _mesh_of(tensors: Sequence[Tensor]) -> str:
    for x in tensors:
        if not isinstance(x, Tensor):
            raise BadTypeError(f"a function over parts takes tensors, not {type(x).__name__}")
        if not is_mesh(x.device):
            raise PlacementError(
                f"a function over parts takes tensors on a mesh, and this one is on {x.device}",
                help="give it to a parallelized model, or move it with x.to(model's device)",
            )
    if not tensors:
        raise BadValueError("a function over parts needs a tensor on a mesh")
    return str(tensors[0].device)


def _moved(
    x: Tensor, where: str, lies: Placements, build: Callable[[Node, AxisPlacements], Node]
) -> Tensor:
    shape = shape_of(where)
    for axis, placement in lies.items():
        if axis not in shape.names:
            raise BadValueError(
                f"the tensors' mesh has no axis {axis!r}", help=f"it has {', '.join(shape.names)}"
            )
        if isinstance(placement, Shard) and not 0 <= placement.dim < x.dim():
            raise PlacementError(
                f"a tensor of shape {list(x.shape)} has no dimension {placement.dim} to be sharded "
                f"along {axis}",
                help=f"its dimensions are 0 … {x.dim() - 1}",
            )
        if build is local_part and isinstance(placement, Partial):
            raise PlacementError(f"a part of a sum along {axis} is no value to compute of")
    axes = tuple((name, size, lies.get(name, Replicate())) for name, size in shape.axes)
    return wrap(build(read(x), axes), result_mode(x._resolved()[1].mode))
