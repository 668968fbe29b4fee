"""Diagonals, and tensors with a part of them (a diagonal, a slice) replaced."""

from __future__ import annotations

from operator import index as index_of

from ridgeline import dtypes
from ridgeline.errors import AxisError, ShapeError
from ridgeline.functions.index_checks import flat, lined, number, ramp
from ridgeline.functions.movement import cut, select_index
from ridgeline.functions.operands import axis_of
from ridgeline.functions.reductions import sum as total
from ridgeline.functions.registry import public
from ridgeline.graph.node import Node
from ridgeline.ops import movement
from ridgeline.ops.elementwise import cast, full_like, select
from ridgeline.record.cells import known, steps_between, write_steps


@public(view=True)
def diagonal(input: Node, offset: int = 0, dim1: int = 0, dim2: int = 1) -> Node:
    """The diagonal of two axes, as a new last axis."""
    rank = len(input.shape)
    first, second = axis_of(dim1, rank), axis_of(dim2, rank)
    if first == second or rank < 2:
        raise AxisError(f"diagonal needs two different axes, got {dim1} and {dim2}")
    rest = tuple(a for a in range(rank) if a not in (first, second))
    turned = movement.permute(input, (*rest, first, second))
    height, width = known(turned.shape[-2]), known(turned.shape[-1])
    size = max(min(height + min(offset, 0), width - max(offset, 0)), 0)
    start = offset if offset >= 0 else -offset * width
    line = movement.reshape(turned, (*turned.shape[:-2], height * width))
    return cut(line, len(rest), start if size else 0, size, width + 1)


@public()
def diag(input: Node, diagonal: int = 0) -> Node:
    """The diagonal of a matrix, or the matrix with a vector as its diagonal."""
    if len(input.shape) == 1:
        return diag_embed(input, diagonal)
    if len(input.shape) != 2:
        raise ShapeError(f"diag needs a vector or a matrix, got shape {list(input.shape)}")
    return _diagonal(input, diagonal)


_diagonal = diagonal


@public()
def diag_embed(input: Node, offset: int = 0, dim1: int = -2, dim2: int = -1) -> Node:
    """The last axis as the diagonal of two new axes; zeros elsewhere."""
    rank = len(input.shape) + 1
    first, second = axis_of(dim1, rank), axis_of(dim2, rank)
    if first == second:
        raise AxisError(f"diag_embed needs two different axes, got {dim1} and {dim2}")
    source = lined(input)
    size = known(source.shape[-1]) + abs(index_of(offset))
    shape = (*source.shape[:-1], size, size)
    row, column = ramp(shape, rank - 2), ramp(shape, rank - 1)
    on_line = (column - row).eq(full_like(row, offset))
    low = tuple(max(offset, 0) if a == rank - 2 else 0 for a in range(rank - 1))
    high = tuple(max(-offset, 0) if a == rank - 2 else 0 for a in range(rank - 1))
    padded = movement.pad(source, low, high)
    wide = movement.broadcast(padded, shape, (*range(rank - 2), rank - 1))
    result = select(on_line, wide, number(shape, 0, input.dtype))
    rest = iter(range(rank - 2))
    order = tuple(
        rank - 2 if a == first else rank - 1 if a == second else next(rest) for a in range(rank)
    )
    return movement.permute(result, order)


@public()
def diagflat(input: Node, offset: int = 0) -> Node:
    """The matrix with all elements as its diagonal."""
    return diag_embed(flat(input), offset)


@public()
def trace(input: Node) -> Node:
    """The sum of a matrix's diagonal."""
    if len(input.shape) != 2:
        raise ShapeError(f"trace needs a matrix, got shape {list(input.shape)}")
    return total(diagonal(input))


def into_view(base: Node, view: Node, src: Node, what: str) -> Node:
    """`base` with what a chain of views shows of it replaced."""
    if src.shape != view.shape:
        raise ShapeError(
            f"{what} needs a source of shape {list(view.shape)}, got {list(src.shape)}"
        )
    steps = steps_between(view, base)
    assert steps is not None, "views are movement ops"
    value = cast(src, base.dtype)
    if steps:
        return write_steps(base, steps, value)
    # nothing of the base is left, but its gradient exists and is zero
    return select(number(base.shape, True, dtypes.bool_), value, base)


@public()
def diagonal_scatter(input: Node, src: Node, offset: int = 0, dim1: int = 0, dim2: int = 1) -> Node:
    """The input with a diagonal replaced."""
    return into_view(input, diagonal(input, offset, dim1, dim2), src, "diagonal_scatter")


@public()
def select_scatter(input: Node, src: Node, dim: int, index: int) -> Node:
    """The input with one slice along an axis replaced."""
    return into_view(input, select_index(input, dim, index), src, "select_scatter")


@public()
def slice_scatter(
    input: Node,
    src: Node,
    dim: int = 0,
    start: int | None = None,
    end: int | None = None,
    step: int = 1,
) -> Node:
    """The input with a range along an axis replaced."""
    axis = axis_of(dim, len(input.shape))
    if not input.shape:
        raise ShapeError("slice_scatter needs at least one axis")
    first, last, by = slice(start, end, step).indices(known(input.shape[axis]))
    count = len(range(first, last, by))
    return into_view(input, cut(input, axis, first, count, by), src, "slice_scatter")
