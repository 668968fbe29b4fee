"""Basic indexing: ints, slices, None and the ellipsis, as a chain of movement ops."""

from __future__ import annotations

from typing import Any

import numpy as np

from ridgeline.cells import known
from ridgeline.errors import AxisError, RidgelineError
from ridgeline.functions.movement import checked_index
from ridgeline.graph.node import Node
from ridgeline.graph.sizes import Size
from ridgeline.ops import movement


def getitem(input: Node, index: Any) -> Node:
    """`input[index]` for basic indices."""
    parts = list(index) if isinstance(index, tuple) else [index]
    parts = _fill_ellipsis(parts, len(input.shape))
    starts: list[int] = []
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
            start, count, step = checked_index(int(part), known(size), axis), 1, 1
        starts.append(start)
        sizes.append(count)
        steps.append(step)
        axis += 1
    cut = movement.slice_(input, tuple(starts), tuple(sizes), tuple(steps))
    return movement.reshape(cut, tuple(shape))


def _fill_ellipsis(parts: list[Any], rank: int) -> list[Any]:
    """The index with one entry per axis (and those for None): `...` and the end filled up."""
    used = 0
    for part in parts:
        if part is None or part is Ellipsis:
            continue
        whole = isinstance(part, int | np.integer) and not isinstance(part, bool)
        if not whole and not isinstance(part, slice):
            raise RidgelineError(
                f"indexing with {type(part).__name__} is not supported here",
                help="use ints, slices, None and ...; where() selects by a mask",
            )
        used += 1
    if used > rank:
        raise AxisError(f"{used} indices for a tensor with {rank} axes")
    dots = [place for place, part in enumerate(parts) if part is Ellipsis]
    if len(dots) > 1:
        raise AxisError("an index can hold only one ellipsis (...)")
    place = dots[0] if dots else len(parts)
    return parts[:place] + [slice(None)] * (rank - used) + parts[place + 1 :]


def _range(part: slice, size: Size) -> tuple[int, Size, int]:
    if part == slice(None):
        return 0, size, 1
    if part.step is not None and part.step <= 0:
        raise RidgelineError(
            f"slices need a positive step, not {part.step}", help="use flip() to turn an axis round"
        )
    start, stop, step = part.indices(known(size))
    return start, len(range(start, stop, step)), step
