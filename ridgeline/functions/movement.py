"""Functions that move elements about: views, joins, splits, padding.

Those marked `view` are chains of movement ops over their first argument; `tensors/dispatch.py`
turns the chain into view steps, so that the result shares memory with the argument, as in torch.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from ridgeline import dtypes
from ridgeline.dtypes import DType
from ridgeline.errors import AxisError, BadValueError, IndexRangeError, ShapeError
from ridgeline.functions.concrete import concrete
from ridgeline.functions.operands import (
    Operand,
    as_node,
    axis_of,
    listed,
    pair,
    promote_types,
    sizes_from,
)
from ridgeline.functions.registry import public
from ridgeline.graph.node import Node
from ridgeline.graph.sizes import Size, product
from ridgeline.ops import movement
from ridgeline.ops.elementwise import cast, iota, select
from ridgeline.ops.movement import broadcast_shapes, stretch
from ridgeline.ops.reinterpret import reinterpret
from ridgeline.record.cells import known


def resolve_shape(old: tuple[Size, ...], wanted: Sequence[Size]) -> tuple[Size, ...]:
    """A shape in which one size may be -1, to be inferred."""
    unknown = [axis for axis, size in enumerate(wanted) if size == -1]
    if not unknown:
        return tuple(wanted)
    if len(unknown) > 1:
        raise ShapeError(f"only one size can be inferred, got {list(wanted)}")
    rest = product(size for size in wanted if size != -1)
    total = product(old)
    if rest == 0 or total % rest != 0:
        raise ShapeError(
            f"cannot view shape {list(old)} ({total} elements) as {list(wanted)}",
            help="the other sizes must divide the number of elements",
        )
    return tuple(total // rest if size == -1 else size for size in wanted)


@public(view=True)
def reshape(input: Node, *shape: Any) -> Node:
    """The same elements under another shape; a view where memory allows it."""
    return movement.reshape(input, resolve_shape(input.shape, sizes_from(shape)))


@public(view=True, function=False)
def view(input: Node, *shape: Any) -> Node:
    """The same memory under another shape, or read as another element type."""
    if len(shape) == 1 and isinstance(shape[0], DType):
        return reinterpret(input, shape[0])
    return movement.reshape(input, resolve_shape(input.shape, sizes_from(shape)))


@public(view=True, function=False)
def view_as(input: Node, other: Node) -> Node:
    """The same memory under the shape of another tensor."""
    return movement.reshape(input, other.shape)


@public(view=True, function=False)
def reshape_as(input: Node, other: Node) -> Node:
    """The same elements under the shape of another tensor."""
    return movement.reshape(input, other.shape)


@public(view=True, shares=True)
def flatten(input: Node, start_dim: int = 0, end_dim: int = -1) -> Node:
    """Axes from `start_dim` to `end_dim` joined into one."""
    rank = len(input.shape)
    start, end = axis_of(start_dim, rank), axis_of(end_dim, rank)
    if start > end:
        raise AxisError(f"flatten needs start_dim <= end_dim, got {start_dim} and {end_dim}")
    if not rank:
        return movement.reshape(input, (1,))
    joined = product(input.shape[start : end + 1])
    return movement.reshape(input, (*input.shape[:start], joined, *input.shape[end + 1 :]))


@public(view=True)
def unflatten(input: Node, dim: int, sizes: Sequence[int]) -> Node:
    """One axis split into several."""
    axis = axis_of(dim, len(input.shape))
    split = resolve_shape((input.shape[axis],), tuple(sizes))
    return movement.reshape(input, (*input.shape[:axis], *split, *input.shape[axis + 1 :]))


@public("permute_dims", view=True)
def permute(input: Node, *dims: Any) -> Node:
    """Axes in another order."""
    rank = len(input.shape)
    order = dims[0] if len(dims) == 1 and not isinstance(dims[0], int) else dims
    axes = tuple(axis_of(d, rank) for d in order)
    if sorted(axes) != list(range(rank)):
        raise AxisError(
            f"permute needs every one of the {rank} axes once, got {tuple(order)}",
            help=f"the shape is {list(input.shape)}",
        )
    return movement.permute(input, axes)


@public("swapaxes", "swapdims", view=True)
def transpose(input: Node, dim0: int | Sequence[int], dim1: int | None = None) -> Node:
    """Two axes exchanged; given all axes as a sequence, the axes in that order."""
    if dim1 is None:
        return permute(input, dim0)
    rank = len(input.shape)
    first, second = axis_of(dim0, rank), axis_of(dim1, rank)
    order = list(range(rank))
    if rank:
        order[first], order[second] = order[second], order[first]
    return movement.permute(input, tuple(order))


@public(view=True)
def t(input: Node) -> Node:
    """The transpose of a matrix; vectors and scalars stay as they are."""
    if len(input.shape) > 2:
        raise AxisError(
            f"t() takes at most 2 axes, got shape {list(input.shape)}", help="use transpose()"
        )
    return movement.permute(input, tuple(reversed(range(len(input.shape)))))


@public("moveaxis", view=True)
def movedim(input: Node, source: int | Sequence[int], destination: int | Sequence[int]) -> Node:
    """Axes moved to other places; the rest keep their order."""
    rank = len(input.shape)
    sources = [axis_of(d, rank) for d in listed(source)]
    targets = [axis_of(d, rank) for d in listed(destination)]
    if len(sources) != len(targets) or len(set(sources)) < len(sources):
        raise AxisError(f"movedim cannot move {source} to {destination}")
    placed = dict(zip(targets, sources))
    rest = iter(axis for axis in range(rank) if axis not in sources)
    return movement.permute(
        input, tuple(placed[a] if a in placed else next(rest) for a in range(rank))
    )


@public(view=True)
def squeeze(input: Node, dim: int | Sequence[int] | None = None) -> Node:
    """Axes of size 1 removed: all, or those named."""
    rank = len(input.shape)
    if dim is None:
        named = set(range(rank))
    else:
        axes = [axis_of(d, rank) for d in listed(dim)]
        named = set(axes)
        if len(named) < len(axes):
            raise AxisError(f"squeeze: axes {tuple(axes)} name the same axis twice")
    shape = tuple(s for axis, s in enumerate(input.shape) if s != 1 or axis not in named)
    return movement.reshape(input, shape)


@public("expand_dims", view=True)
def unsqueeze(input: Node, dim: int) -> Node:
    """An axis of size 1 put in."""
    axis = axis_of(dim, len(input.shape) + 1)
    return movement.reshape(input, (*input.shape[:axis], 1, *input.shape[axis:]))


@public(view=True, function=False)
def expand(input: Node, *size: Any) -> Node:
    """Axes of size 1, and new ones in front, repeated without copying; -1 keeps a size."""
    wanted = sizes_from(size)
    shift = len(wanted) - len(input.shape)
    if shift < 0:
        raise ShapeError(f"cannot expand shape {list(input.shape)} to fewer axes: {list(wanted)}")
    shape = tuple(
        input.shape[axis - shift] if size == -1 and axis >= shift else size
        for axis, size in enumerate(wanted)
    )
    if any(known(size) < 0 for size in shape):
        raise ShapeError(f"cannot expand shape {list(input.shape)} to {list(wanted)}")
    for axis, own in enumerate(input.shape, shift):
        if own != shape[axis] and own != 1:
            raise ShapeError(
                f"cannot expand shape {list(input.shape)} to {list(wanted)}: axis {axis} has "
                f"size {own}, and only size 1 stretches"
            )
    return stretch(input, shape)


@public(view=True, function=False)
def expand_as(input: Node, other: Node) -> Node:
    """Expanded to the shape of another tensor."""
    return expand(input, other.shape)


@public(view=True)
def broadcast_to(input: Node, size: Sequence[int]) -> Node:
    """Expanded to a shape."""
    return expand(input, tuple(size))


@public(method=False, shares=True)
def broadcast_tensors(*tensors: Node) -> list[Node]:
    """Tensors expanded to their common shape."""
    shape = broadcast_shapes(*[tensor.shape for tensor in tensors])
    return [stretch(tensor, shape) for tensor in tensors]


def cut(input: Node, axis: int, start: Size, size: Size, step: int = 1) -> Node:
    """A range along one axis."""
    rank = len(input.shape)
    return movement.slice_(
        input,
        tuple(start if a == axis else 0 for a in range(rank)),
        tuple(size if a == axis else s for a, s in enumerate(input.shape)),
        tuple(step if a == axis else 1 for a in range(rank)),
    )


def drop(input: Node, axis: int) -> Node:
    """The input without an axis of size 1."""
    return movement.reshape(input, (*input.shape[:axis], *input.shape[axis + 1 :]))


@public(view=True)
def narrow(input: Node, dim: int, start: int | Node, length: int) -> Node:
    """`length` elements from `start` along an axis."""
    axis = _axis_to_cut(input, dim, "narrow")
    size = known(input.shape[axis])
    if isinstance(start, Node):
        if start.shape or not start.dtype.is_integer:
            raise ShapeError(f"narrow needs one integer to start from, got {start.types[0]}")
        start = int(concrete(start, "narrow from a tensor", "start from an int"))
    first = start + size if start < 0 else start
    if not 0 <= first <= size:
        raise IndexRangeError(f"narrow: {start} is outside axis {dim} of size {size}")
    if not (length >= 0 and first + length <= size):
        raise ShapeError(
            f"narrow: {length} elements from {start} do not lie in axis {dim} of size {size}"
        )
    return cut(input, axis, first, length)


@public(view=True, name="select")
def select_index(input: Node, dim: int, index: int) -> Node:
    """One index along an axis, which disappears."""
    axis = _axis_to_cut(input, dim, "select")
    return drop(cut(input, axis, checked_index(index, known(input.shape[axis]), axis), 1), axis)


def checked_index(index: int, size: int, axis: int) -> int:
    """A non-negative index into an axis."""
    if not -size <= index < size:
        raise AxisError(f"index {index} is outside axis {axis} of size {size}")
    return index % size


def _axis_to_cut(input: Node, dim: int, what: str) -> int:
    if not input.shape:
        raise AxisError(f"{what} needs at least one axis")
    return axis_of(dim, len(input.shape))


@public(view=True)
def split(input: Node, split_size: int | Sequence[int], dim: int = 0) -> tuple[Node, ...]:
    """Pieces along an axis: of one size, or of the sizes listed."""
    axis = _axis_to_cut(input, dim, "split")
    total = known(input.shape[axis])
    if isinstance(split_size, int):
        if split_size == total == 0:
            return (input,)
        if split_size <= 0:
            raise ShapeError(f"split needs a positive size, got {split_size}")
        sizes = [min(split_size, total - start) for start in range(0, total, split_size)] or [0]
    else:
        sizes = [int(size) for size in split_size]
        if sum(sizes) != total:
            raise ShapeError(
                f"split sizes {sizes} do not add up to {total}, the size of axis {dim}"
            )
    starts = [sum(sizes[:index]) for index in range(len(sizes))]
    return tuple(cut(input, axis, start, size) for start, size in zip(starts, sizes))


@public(view=True)
def chunk(input: Node, chunks: int, dim: int = 0) -> tuple[Node, ...]:
    """At most `chunks` pieces along an axis, all but the last of equal size."""
    if chunks <= 0:
        raise ShapeError(f"chunk needs a positive number of pieces, got {chunks}")
    axis = _axis_to_cut(input, dim, "chunk")
    total = known(input.shape[axis])
    size = -(-total // chunks)
    return split(input, size, dim) if size else (input,) * chunks


@public(view=True)
def unbind(input: Node, dim: int = 0) -> tuple[Node, ...]:
    """One piece per index along an axis."""
    axis = _axis_to_cut(input, dim, "unbind")
    return tuple(
        drop(cut(input, axis, index, 1), axis) for index in range(known(input.shape[axis]))
    )


def joined(tensors: Sequence[Node], what: str) -> list[Node]:
    """Tensors in their common element type."""
    if not tensors:
        raise BadValueError(f"{what} needs at least one tensor")
    dtype = tensors[0].dtype
    for tensor in tensors[1:]:
        dtype = promote_types(dtype, tensor.dtype)
    return [cast(tensor, dtype) for tensor in tensors]


@public("concat", "concatenate", method=False)
def cat(tensors: Sequence[Node], dim: int = 0) -> Node:
    """Tensors one after the other along an axis."""
    parts = joined(list(tensors), "cat")
    # torch lets empty vectors stand for empty parts, whatever the others' shapes
    like = next((p for p in parts if p.shape != (0,)), parts[0])
    if not like.shape:
        raise ShapeError("cat needs tensors with at least one axis", help="use stack() for scalars")
    axis = axis_of(dim, len(like.shape))
    empty = tuple(0 if a == axis else s for a, s in enumerate(like.shape))
    kept = [movement.reshape(p, empty) if p.shape == (0,) else p for p in parts]
    if any(len(p.shape) != len(kept[0].shape) for p in kept):
        raise ShapeError(f"cat needs equal numbers of axes, got {[list(p.shape) for p in kept]}")
    return movement.concat(kept, axis)


@public(method=False)
def stack(tensors: Sequence[Node], dim: int = 0) -> Node:
    """Tensors of one shape side by side along a new axis."""
    parts = joined(list(tensors), "stack")
    if any(p.shape != parts[0].shape for p in parts):
        raise ShapeError(f"stack needs equal shapes, got {[list(p.shape) for p in parts]}")
    return movement.concat(
        [unsqueeze(p, dim) for p in parts], axis_of(dim, len(parts[0].shape) + 1)
    )


@public("row_stack", method=False)
def vstack(tensors: Sequence[Node]) -> Node:
    """Tensors one below the other."""
    return cat(
        [p if len(p.shape) > 1 else movement.reshape(p, (1, product(p.shape))) for p in tensors], 0
    )


@public(method=False)
def hstack(tensors: Sequence[Node]) -> Node:
    """Tensors next to one another."""
    parts = [p if p.shape else movement.reshape(p, (1,)) for p in tensors]
    return cat(parts, 0 if len(parts[0].shape) == 1 else 1)


@public(function=False)
def repeat(input: Node, *sizes: Any) -> Node:
    """Copies side by side along every axis."""
    counts = sizes_from(sizes)
    shift = len(counts) - len(input.shape)
    if shift < 0:
        raise ShapeError(f"repeat needs a count for each of {len(input.shape)} axes, got {counts}")
    if any(known(count) < 0 for count in counts):
        raise ShapeError(f"repeat needs counts of at least 0, got {counts}")
    shape = (1,) * shift + input.shape
    spread: list[Size] = []
    axes: list[int] = []
    for count, size in zip(counts, shape):
        spread += [count, size]
        axes.append(len(spread) - 1)
    wide = movement.broadcast(movement.reshape(input, shape), tuple(spread), tuple(axes))
    return movement.reshape(wide, tuple(c * s for c, s in zip(counts, shape)))


@public()
def tile(input: Node, *dims: Any) -> Node:
    """Copies side by side, counts aligned from the right."""
    counts = sizes_from(dims)
    return repeat(input, (1,) * (len(input.shape) - len(counts)) + counts)


@public()
def flip(input: Node, *dims: Any) -> Node:
    """Axes turned round."""
    rank = len(input.shape)
    listed = dims[0] if len(dims) == 1 and isinstance(dims[0], list | tuple) else dims
    axes = {axis_of(d, rank) for d in listed}
    if len(axes) < len(listed):
        raise AxisError(f"flip names an axis twice: {tuple(listed)}")
    starts = tuple(s - 1 if a in axes and s else 0 for a, s in enumerate(input.shape))
    steps = tuple(-1 if a in axes else 1 for a in range(rank))
    return movement.slice_(input, starts, input.shape, steps)


@public()
def roll(input: Node, shifts: int | Sequence[int], dims: int | Sequence[int] | None = None) -> Node:
    """Elements moved along axes, those pushed out coming back at the other end."""
    if dims is None or dims in ((), []):
        flat = movement.reshape(input, (product(input.shape),))
        return movement.reshape(roll(flat, shifts, 0), input.shape)
    amounts, axes = listed(shifts), listed(dims)
    if len(amounts) != len(axes):
        raise BadValueError(f"roll: {len(amounts)} shifts for {len(axes)} axes")
    result = input
    for amount, dim in zip(amounts, axes):
        axis = axis_of(dim, len(input.shape))
        size = input.shape[axis]
        by = amount if 0 <= amount < size else amount % size if size else 0
        if by:
            tail = cut(result, axis, size - by, by)
            result = movement.concat([tail, cut(result, axis, 0, size - by)], axis)
    return result


def _triangle(input: Node, diagonal: int, keep_lower: bool) -> Node:
    if len(input.shape) < 2:
        raise ShapeError(f"a triangle needs a matrix, got shape {list(input.shape)}")
    rank = len(input.shape)
    row = iota(input.shape, rank - 2, dtypes.int64)
    column = iota(input.shape, rank - 1, dtypes.int64)
    offset = column - row
    if isinstance(diagonal, int):
        diagonal = max(-(1 << 62), min(diagonal, 1 << 62))  # further off than any matrix reaches
    start, limit = pair(offset, diagonal)
    kept = start <= limit if keep_lower else start >= limit
    zero: Operand = 0
    return select(kept, input, stretch(as_node(zero, input.dtype), input.shape))


@public(inplace=True)
def tril(input: Node, diagonal: int = 0) -> Node:
    """The lower triangle; zeros above."""
    return _triangle(input, diagonal, True)


@public(inplace=True)
def triu(input: Node, diagonal: int = 0) -> Node:
    """The upper triangle; zeros below."""
    return _triangle(input, diagonal, False)
