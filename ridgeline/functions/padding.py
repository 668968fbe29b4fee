"""Padding: with a value, or by reflection, repetition and wrapping."""

from __future__ import annotations

from collections.abc import Sequence

from ridgeline import dtypes
from ridgeline.errors import BadValueError, ShapeError
from ridgeline.functions.movement import cut, flip
from ridgeline.functions.operands import as_node, check_fits, fitting, whole_numbers
from ridgeline.functions.registry import public
from ridgeline.graph.node import Node
from ridgeline.ops import movement
from ridgeline.ops.elementwise import select
from ridgeline.ops.movement import broadcast, concat, stretch
from ridgeline.record.cells import known

MODES = ("reflect", "replicate", "circular")


def padded(x: Node, axis: int, low: int, high: int, mode: str) -> Node:
    """The input with elements of its own put before and after along one axis.

    Negative amounts take elements away, after the positive ones were added.
    """
    if mode not in MODES:
        raise BadValueError(f'pad knows the modes "constant" and {MODES}, not {mode!r}')
    if mode == "circular" and min(low, high) < 0:  # what is taken away does not come round again
        kept = known(x.shape[axis]) + min(low, 0) + min(high, 0)
        x = cut(x, axis, max(-low, 0), max(kept, 0))
        low, high = max(low, 0), max(high, 0)
    size = known(x.shape[axis])
    left, right = max(low, 0), max(high, 0)
    limit = {"reflect": size - 1, "circular": size, "replicate": left + right}[mode]
    if left > limit or right > limit or (size == 0 and (left or right)):
        raise ShapeError(
            f"cannot pad an axis of {size} by {(low, high)} in mode {mode!r}",
            help=f"at most {max(limit, 0)} elements can be added on each side",
        )
    before, after = _borders(x, axis, size, left, right, mode)
    grown = concat([p for p in (before, x, after) if p is not None], axis)
    kept = size + low + high
    if kept < 0:
        raise ShapeError(f"pad {(low, high)} takes more than axis {axis} of {list(x.shape)} has")
    return cut(grown, axis, max(-low, 0), kept)


def _borders(
    x: Node, axis: int, size: int, low: int, high: int, mode: str
) -> tuple[Node | None, Node | None]:
    if mode == "reflect":
        before = flip(cut(x, axis, 1, low), (axis,)) if low else None
        after = flip(cut(x, axis, size - 1 - high, high), (axis,)) if high else None
    elif mode == "circular":
        before = cut(x, axis, size - low, low) if low else None
        after = cut(x, axis, 0, high) if high else None
    else:
        before = _repeated(cut(x, axis, 0, 1), axis, low) if low else None
        after = _repeated(cut(x, axis, size - 1, 1), axis, high) if high else None
    return before, after


def _repeated(x: Node, axis: int, count: int) -> Node:
    shape = tuple(count if a == axis else s for a, s in enumerate(x.shape))
    return broadcast(x, shape, tuple(range(len(shape))))


def _pad_by_mode(x: Node, pad: Sequence[int], mode: str) -> Node:
    """Pairs of amounts from the last axis backwards."""
    rank = len(x.shape)
    if len(pad) % 2 or len(pad) // 2 > max(rank - 1, 0):
        raise ShapeError(
            f"pad {tuple(pad)} does not fit shape {list(x.shape)} in mode {mode!r}",
            help="give pairs for the last axes, not for the first",
        )
    for index in range(len(pad) // 2):
        x = padded(x, rank - 1 - index, pad[2 * index], pad[2 * index + 1], mode)
    return x


@public(method=False)
def pad(
    input: Node, pad: Sequence[int], mode: str = "constant", value: float | None = None
) -> Node:
    """Elements put around (or, where negative, taken away): pairs from the last axis backwards."""
    rank, pad = len(input.shape), whole_numbers(pad)
    if mode != "constant":
        return _pad_by_mode(input, pad, mode)
    if len(pad) % 2 or len(pad) > 2 * rank:
        raise ShapeError(f"pad needs pairs for at most {rank} axes, got {tuple(pad)}")
    low, high = [0] * rank, [0] * rank
    for index in range(len(pad) // 2):
        low[rank - 1 - index], high[rank - 1 - index] = pad[2 * index], pad[2 * index + 1]
    result = input
    for axis in range(rank):
        if low[axis] < 0 or high[axis] < 0:
            start, end = max(-low[axis], 0), max(-high[axis], 0)
            size = known(result.shape[axis]) - start - end
            if size < 0:
                raise ShapeError(f"pad {tuple(pad)} takes more than shape {list(input.shape)} has")
            result = cut(result, axis, start, size)
    grown = (tuple(max(p, 0) for p in low), tuple(max(p, 0) for p in high))
    if isinstance(value, complex):
        inside = movement.pad(stretch(as_node(True, dtypes.bool_), result.shape), *grown)
        outer = stretch(fitting(value, input.dtype), inside.shape)
        return select(inside, movement.pad(result, *grown), outer)
    if value is not None:
        check_fits(value, input.dtype)
    return movement.pad(result, *grown, value=0.0 if value is None else float(value))
