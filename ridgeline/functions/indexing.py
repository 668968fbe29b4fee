"""Indexing: `getitem` for ints, slices, None and the ellipsis, `pick` and `put_at` for tensors.

Basic indices are a chain of movement ops, and so a view. Index tensors gather: their common shape
takes the place of the axes they index, or comes first where those do not stand side by side.
"""

from __future__ import annotations

import operator
from collections.abc import Sequence
from typing import Any

import numpy as np

from ridgeline import dtypes
from ridgeline.errors import AxisError, BadValueError, DTypeError, IndexShapeError, ShapeError
from ridgeline.functions.counting import places_of
from ridgeline.functions.index_checks import as_index, from_axis, harmless, to_axis, wrapped
from ridgeline.functions.movement import checked_index
from ridgeline.functions.operands import Operand, as_node
from ridgeline.functions.registry import public
from ridgeline.graph.node import Node
from ridgeline.graph.sizes import Size, SizeExpr
from ridgeline.ops import gather as rows, movement
from ridgeline.ops.elementwise import select
from ridgeline.ops.movement import broadcast_shapes, stretch
from ridgeline.record.cells import known

_MASKS = (dtypes.bool_, dtypes.uint8)  # torch still reads uint8 as a mask


def is_basic(index: Any) -> bool:
    """True for ints, sizes, slices, None and the ellipsis, and tuples of them."""
    if type(index) is tuple:
        return all(_is_basic_part(part) for part in index)
    return _is_basic_part(index)


def _is_basic_part(part: Any) -> bool:
    kind = type(part)
    return (
        kind is int or kind is slice or kind is SizeExpr or part is None or part is Ellipsis
        or (isinstance(part, int | np.integer) and not isinstance(part, bool))
    )  # fmt: skip


def getitem(input: Node, index: Any) -> Node:
    """`input[index]` for basic indices."""
    parts = list(index) if isinstance(index, tuple) else [index]
    used = sum(part is not None and part is not Ellipsis for part in parts)
    parts = fill_ellipsis(parts, used, len(input.shape))
    starts: list[Size] = []
    sizes: list[Size] = []
    steps: list[int] = []
    shape: list[Size] = []  # after ints dropped their axes and None added theirs
    axis = 0
    for part in parts:
        if part is None:
            shape.append(1)
            continue
        size = input.shape[axis]
        if isinstance(part, slice):
            start, count, step = _range(part, size)
            shape.append(count)
        else:
            start, count, step = _place(part, size, axis), 1, 1
        starts.append(start)
        sizes.append(count)
        steps.append(step)
        axis += 1
    cut = movement.slice_(input, tuple(starts), tuple(sizes), tuple(steps))
    return movement.reshape(cut, tuple(shape))


def fill_ellipsis(parts: list[Any], used: int, rank: int) -> list[Any]:
    """The index with an entry for every axis: `...` and the end filled up with whole slices."""
    if used > rank:
        raise AxisError(f"{used} indices for a tensor with {rank} axes")
    dots = [index for index, part in enumerate(parts) if part is Ellipsis]
    if len(dots) > 1:
        raise AxisError("an index can hold only one ellipsis (...)")
    expanded = dots[0] if dots else len(parts)
    return parts[:expanded] + [slice(None)] * (rank - used) + parts[expanded + 1 :]


def _place(part: Any, size: Size, axis: int) -> Size:
    """One place along an axis, counted from the start."""
    if isinstance(part, SizeExpr) or isinstance(size, SizeExpr):
        number: Size = part if isinstance(part, SizeExpr) else int(part)
        if -size <= number < size:
            return number + size if number < 0 else number
    return checked_index(int(part), known(size), axis)


def _range(part: slice, size: Size) -> tuple[Size, Size, int]:
    """Where a slice starts, how many elements it has, and its step."""
    if part.start is None and part.stop is None and part.step in (None, 1):
        return 0, size, 1
    if part.step == 0:
        raise BadValueError("slices need a step that is not 0")
    if part.step in (None, 1) and any(
        isinstance(s, SizeExpr) for s in (part.start, part.stop, size)
    ):
        first, last = _end(part.start, 0, size), _end(part.stop, size, size)
        return (first, last - first, 1) if first < last else (0, 0, 1)
    try:
        start, stop, step = part.indices(known(size))
    except TypeError as error:
        raise DTypeError(f"slices take ints: {part}", note=str(error)) from None
    count = len(range(start, stop, step))
    return start if count else 0, count, step


def _end(given: Any, missing: Size, size: Size) -> Size:
    """An end of a slice, counted from the start and within the axis."""
    if given is None:
        return missing
    end: Size = given if isinstance(given, SizeExpr) else operator.index(given)
    if end < 0:
        end = end + size
        return 0 if end < 0 else end
    return size if size < end else end


def _per_axis(input: Node, picks: Sequence[Node | None]) -> list[Node | None]:
    """One index or None for every axis: masks become the places where they hold."""
    found: list[Node | None] = []
    for index in picks:
        axis = len(found)
        if index is None:
            found.append(None)
        elif index.dtype in _MASKS:
            found += _mask_places(input, index, axis)
        else:
            if axis >= len(input.shape):
                raise AxisError(f"too many indices for a tensor with {len(input.shape)} axes")
            found.append(as_index(index, "indexing"))
    if len(found) > len(input.shape):
        raise AxisError(f"{len(found)} indices for a tensor with {len(input.shape)} axes")
    return found + [None] * (len(input.shape) - len(found))


def _mask_places(input: Node, mask: Node, axis: int) -> list[Node]:
    covered = input.shape[axis : axis + len(mask.shape)]
    if mask.shape != covered:
        raise IndexShapeError(
            f"a mask of shape {list(mask.shape)} does not fit axes {axis} to "
            f"{axis + len(mask.shape) - 1} of shape {list(input.shape)}"
        )
    remedy = "use where(mask, x, y), which keeps the shape, or nonzero_static(size=...)"
    return places_of(mask, "indexing with a mask", remedy)


def _with_axes(input: Node, picks: Sequence[Node | None]) -> tuple[Node, list[Node | None]]:
    """Masks without axes get one: a new axis of the input, which they keep or empty."""
    shape: list[Size] = []
    found: list[Node | None] = []
    rest = list(input.shape)
    for index in picks:
        lone = index is not None and index.dtype in _MASKS and not index.shape
        found.append(movement.reshape(index, (1,)) if lone and index is not None else index)
        used = len(index.shape) if index is not None and index.dtype in _MASKS else 1
        shape += [1] if lone else rest[:used]
        rest = rest if lone else rest[used:]
    return movement.reshape(input, (*shape, *rest)), found


class _Picks:
    """Index arrays of one shape, the axes they index, and where their result belongs."""

    def __init__(self, input: Node, picks: Sequence[Node | None]) -> None:
        listed = _per_axis(input, picks)
        self.axes = tuple(axis for axis, index in enumerate(listed) if index is not None)
        chosen = [index for index in listed if index is not None]
        try:
            self.shape = broadcast_shapes(*[index.shape for index in chosen]) if chosen else ()
        except ShapeError as error:
            raise IndexShapeError(error.message, note="these are the shapes of indices") from None
        self.rest = tuple(s for axis, s in enumerate(input.shape) if axis not in self.axes)
        touched = (*self.rest, *self.shape)
        self.indices = []
        for axis, index in zip(self.axes, chosen):
            size = input.shape[axis]
            position = wrapped(harmless(index, size, touched), size, axis)
            self.indices.append(stretch(position, self.shape))
        together = all(b == a + 1 for a, b in zip(self.axes, self.axes[1:]))
        self.front = self.axes[0] if together and self.axes else 0

    @property
    def result(self) -> tuple[Size, ...]:
        """The shape of what is indexed."""
        return (*self.rest[: self.front], *self.shape, *self.rest[self.front :])


def pick(input: Node, picks: Sequence[Node | None]) -> Node:
    """`input[picks]` for index tensors and masks; None keeps an axis whole."""
    found = _Picks(input, picks)
    if not found.axes:
        return input
    gathered = rows.gather(input, found.indices, found.axes)
    return to_axis(gathered, found.front, len(found.shape))


@public(inplace=True)
def index_put(
    input: Node, indices: Sequence[Node | None], values: Operand, accumulate: bool = False
) -> Node:
    """The input with values written (or added) where index tensors and masks point."""
    filled = _with_one_value(input, indices, values, accumulate)
    if filled is not None:
        return filled
    original = input.shape
    input, indices = _with_axes(input, indices)
    found = _Picks(input, indices)
    if isinstance(values, Node) and values.dtype is not input.dtype:
        raise DTypeError(
            f"index_put: the values are {values.dtype.name} and the input {input.dtype.name}",
            help="convert the values first; `x[index] = values` does so",
        )
    source = as_node(values, input.dtype)
    if not found.axes:
        return stretch(source, original)
    while len(source.shape) > len(found.result) and source.shape[0] == 1:
        source = movement.reshape(source, source.shape[1:])
    if broadcast_shapes(source.shape, found.result) != found.result:
        raise ShapeError(
            f"values of shape {list(source.shape)} do not fit into the indexed shape "
            f"{list(found.result)}"
        )
    updates = from_axis(stretch(source, found.result), found.front, len(found.shape))
    mode = "add" if accumulate else "set"
    result = rows.scatter(input, updates, found.indices, found.axes, mode)
    return movement.reshape(result, original)


def _with_one_value(
    input: Node, indices: Sequence[Node | None], values: Operand, accumulate: bool
) -> Node | None:
    """The same for a mask alone and one value: how many elements it picks need not be known."""
    given = [(axis, index) for axis, index in enumerate(indices) if index is not None]
    if len(given) != 1 or given[0][1].dtype.kind != "bool":
        return None
    value = as_node(values, input.dtype)
    (axis, mask) = given[0]
    end = axis + len(mask.shape)
    one = all(size == 1 for size in value.shape) and value.dtype is input.dtype
    if not one or not mask.shape or mask.shape != input.shape[axis:end]:
        return None
    wide = stretch(movement.reshape(value, ()), input.shape)
    written = input + wide if accumulate else wide
    return select(movement.broadcast(mask, input.shape, tuple(range(axis, end))), written, input)


@public(function=False, name="_pick")
def pick_listed(input: Node, indices: Sequence[Node | None]) -> Node:
    """What `x[i, mask, …]` gives, with one index (or None) per axis."""
    return pick(input, indices)
