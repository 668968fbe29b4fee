"""Updates of which the last one counts, for a device on which one thread would take long for them.

All updates of a place join in the largest of their numbers, in any order. Then every place takes
the update that its number names, or stays as it is.
"""

from __future__ import annotations

from collections.abc import Sequence
from math import prod

from ridgeline import dtypes
from ridgeline.graph.graph import Graph
from ridgeline.graph.node import Node
from ridgeline.ops.elementwise import apply, cast, constant, full_like, iota, select
from ridgeline.ops.gather import SCATTER, gather, ramps, scatter
from ridgeline.ops.movement import broadcast, broadcast_scalar, permute, reshape
from ridgeline.ops.reduce import kept_axes

_FEW_UPDATES = 64  # that a thread makes one after another
_MANY_ROWS = 1 << 14  # whose updates run side by side


def last_updates(graph: Graph) -> Graph:
    """The graph with long runs of updates, of known number, as joins of their numbers."""

    def replace(current: Node, inputs: Sequence[Node]) -> Node | None:
        if current.op is not SCATTER or current.attrs.mode != "set":
            return None
        return _joined(inputs[0], inputs[1], inputs[2:], current.attrs.axes)

    return graph.rebuilt(replace)


def _joined(
    base: Node, updates: Node, indices: Sequence[Node], axes: tuple[int, ...]
) -> Node | None:
    places, rank = indices[0].shape, len(base.shape)
    sizes = [n for n in (*base.shape, *places) if isinstance(n, int)]
    if len(sizes) < rank + len(places):
        return None
    count, rest = prod(sizes[rank:]), kept_axes(rank, axes)
    apart = prod(sizes[rank + d] for d in ramps(indices, axes, base).values())
    rows = apart * prod(sizes[a] for a in rest)
    if count <= _FEW_UPDATES * apart or rows >= _MANY_ROWS or count >> 31:
        return None
    device = base.type.device
    none = broadcast_scalar(constant(-1, dtypes.int32, device), tuple(base.shape[a] for a in axes))
    numbers = reshape(iota((count,), 0, dtypes.int32, device), places)
    last = scatter(none, numbers, indices, range(len(axes)), "max")
    flat = reshape(updates, (count, *(base.shape[a] for a in rest)))
    chosen = cast(apply("max", last, full_like(last, 0)), dtypes.int64)
    found = gather(flat, (chosen,), (0,))
    order = (*axes, *rest)
    found = permute(found, tuple(order.index(a) for a in range(rank)))
    turned = tuple(axes.index(a) for a in sorted(axes))
    unnamed = permute(apply("lt", last, full_like(last, 0)), turned)
    return select(broadcast(unnamed, base.shape, tuple(sorted(axes))), base, found)
