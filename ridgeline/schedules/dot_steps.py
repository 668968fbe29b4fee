"""The schedule of a product by an instruction that sums several products into each lane."""

from __future__ import annotations

from ridgeline.loops.schedule import (
    Interleave,
    Offset,
    Pad,
    Reorder,
    SetKind,
    Split,
    Step,
    Tensorize,
)
from ridgeline.schedules.dots import Dot


def dot_steps(dot: Dot, rows: dict[str, int], depth: int) -> list[Step]:
    """Tiles inside packed strips inside blocks of rows; `rows` and `depth` are the sizes."""
    chosen: list[Step] = []
    in_place = dot.left.packing == "in place"
    group = dot.strips * dot.strip
    columns = _padded(dot.column, group, rows[dot.column], chosen)
    _padded(dot.summed, dot.instruction.depth, depth, chosen)
    count = rows[dot.row] if in_place else _padded(dot.row, dot.block, rows[dot.row], chosen)
    around = [n for n in rows if n not in (dot.row, dot.column)]
    blocks, row = _cut(dot.row, dot.block, count, chosen)
    # what is ragged has two bodies, so the loops around it must be outside before it is cut
    chosen.append(Reorder((*around, *blocks, dot.column, row)))
    # sums that start at totals are given these by a loop over tiles, also where there is one
    pieces, tile = _cut(row, dot.height, dot.block, chosen, always=_is_offset(dot))
    groups, column = _cut(dot.column, group, columns, chosen)
    strips, column = _cut(column, dot.strip, group, chosen)
    vectors, lanes = _cut(column, max(dot.instruction.lanes), dot.strip, chosen)
    steps, word = f"{dot.summed}.0", f"{dot.summed}.1"
    tasks = [*around, *blocks, *groups] if not in_place else [*around, *blocks, *groups, *strips]
    chosen += [
        Split(dot.summed, dot.instruction.depth),
        Reorder((*around, *blocks, *groups, *strips, *pieces, steps, tile, *vectors, word, lanes)),
        *(SetKind(name, "unroll") for name in (tile, *vectors)),
        SetKind(lanes, "vector"),
        *_packing(dot, strips, pieces, tile, vectors, lanes),
        Tensorize(word, dot.instruction.name),
        *(SetKind(name, "parallel") for name in tasks),
    ]
    return chosen


def _packing(
    dot: Dot, strips: list[str], pieces: list[str], tile: str, vectors: list[str], lanes: str
) -> list[Step]:
    """Both operands in words, in the order in which tiles read them."""
    steps, word = f"{dot.summed}.0", f"{dot.summed}.1"
    side = max(dot.instruction.lanes) if dot.right.packing == "turned" else 0
    right = (steps, *vectors, lanes, word)
    made: list[Step] = [Interleave(dot.right.buffer, (*pieces, steps)[0], right, side)]
    if dot.left.packing != "in place":
        along = (tile, steps) if dot.left.packing == "copied" else (steps, tile)
        before = (*strips, *pieces, steps)[0]
        packed = Interleave(dot.left.buffer, before, (*pieces, *along, word))
        made.append(packed)
        if _is_offset(dot):
            made.append(Offset(packed.scratch, pieces[0]))
    return made


def _padded(name: str, multiple: int, length: int, chosen: list[Step]) -> int:
    if length % multiple:
        chosen.append(Pad(name, multiple))
    return -(-length // multiple) * multiple


def _is_offset(dot: Dot) -> bool:
    return dot.left.dtype is not dot.instruction.left


def _cut(
    name: str, size: int, length: int, chosen: list[Step], always: bool = False
) -> tuple[list[str], str]:
    """The loops over pieces of an axis, if there are several, and the loop inside a piece."""
    if length == size and not always:
        return [], name
    chosen.append(Split(name, size, "branch"))
    return [f"{name}.0"], f"{name}.1"
