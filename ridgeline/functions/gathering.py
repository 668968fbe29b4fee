"""Elements chosen by index tensors: gather, take and index_select."""

from __future__ import annotations

from collections.abc import Sequence

from ridgeline.errors import ShapeError
from ridgeline.functions.index_checks import (
    as_index,
    as_vector,
    flat,
    lined,
    resized,
    to_axis,
    wrapped,
)
from ridgeline.functions.operands import axis_of, sizes_from
from ridgeline.functions.registry import public
from ridgeline.graph.node import Node
from ridgeline.graph.sizes import Size
from ridgeline.ops import gather as rows, movement
from ridgeline.ops.elementwise import full_like
from ridgeline.ops.movement import broadcast_shapes, stretch


def check_fits(index: Node, target: Node, free: int | None, what: str, name: str) -> None:
    """An index for gather or scatter: the target's rank, and no longer except along `free`."""
    shapes = f"shapes: index {list(index.shape)}, {name} {list(target.shape)}"
    if len(index.shape) != len(target.shape):
        raise ShapeError(
            f"{what}: the index has {len(index.shape)} axes and the {name} {len(target.shape)}",
            help=shapes,
        )
    for axis, (own, limit) in enumerate(zip(index.shape, target.shape)):
        if axis != free and own > limit:
            raise ShapeError(
                f"{what}: the index is longer than the {name} along axis {axis}: {own} > {limit}",
                help=shapes,
            )


def none_of(like: Node, shape: tuple[Size, ...]) -> Node:
    """A result without elements, through which gradients still flow (as zeros)."""
    return movement.reshape(movement.slice_(flat(like), (0,), (0,), (1,)), shape)


@public()
def gather(input: Node, dim: int, index: Node, *, sparse_grad: bool = False) -> Node:
    """input[index[i, j, …], j, …] for dim 0, and likewise along the other axes."""
    axis = axis_of(dim, len(input.shape))
    indices = as_index(index, "gather")
    if 0 in indices.shape:  # an empty index may have any rank
        return none_of(input, indices.shape)
    source, spread = lined(input), lined(indices)
    check_fits(spread, source, axis, "gather", "input")
    return movement.reshape(rows.gather_along(source, spread, axis), indices.shape)


@public()
def take_along_dim(input: Node, indices: Node, dim: int | None = None) -> Node:
    """Elements at `indices` along an axis; the other axes broadcast."""
    positions = as_index(indices, "take_along_dim")
    if dim is None:
        return rows.gather_along(flat(input), wrapped(flat(positions), flat(input).shape[0]), 0)
    rank = len(input.shape)
    axis = axis_of(dim, rank)
    if len(positions.shape) != rank:
        raise ShapeError(
            f"take_along_dim needs as many axes in both: {list(input.shape)} and "
            f"{list(positions.shape)}"
        )
    others = broadcast_shapes(resized(input.shape, axis, 1), resized(positions.shape, axis, 1))
    source = stretch(input, resized(others, axis, input.shape[axis]))
    spread = stretch(positions, resized(others, axis, positions.shape[axis]))
    return rows.gather_along(source, wrapped(spread, input.shape[axis]), axis)


@public()
def index_select(input: Node, dim: int, index: Node) -> Node:
    """The slices at `index` along an axis."""
    axis = axis_of(dim, len(input.shape))
    indices = as_vector(index, "index_select")
    picked = to_axis(rows.gather(lined(input), (indices,), (axis,)), axis)
    return picked if input.shape else movement.reshape(picked, ())


@public()
def take(input: Node, index: Node, *, dim: int | None = None) -> Node:
    """Elements of the flattened input, or slices along an axis; negative indices count from the
    end."""
    if dim is not None:
        size = lined(input).shape[axis_of(dim, len(input.shape))]
        return index_select(input, dim, wrapped(as_index(index, "take"), size))
    source = flat(input)
    indices = wrapped(as_index(index, "take"), source.shape[0])
    return rows.gather(source, (indices,), (0,))


@public(method=False)
def unravel_index(indices: Node, shape: int | Sequence[int]) -> tuple[Node, ...]:
    """Places in a flattened tensor as one index per axis of its shape."""
    positions = as_index(indices, "unravel_index")
    sizes = sizes_from((shape,)) if not isinstance(shape, int) else (shape,)
    found: list[Node] = []
    for size in reversed(sizes):
        length = full_like(positions, size)
        found.append(positions % length)
        positions = positions // length
    return tuple(reversed(found))
