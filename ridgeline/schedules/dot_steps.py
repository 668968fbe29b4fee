"""The schedule of a product by an instruction that sums several products into each lane."""

from __future__ import annotations

from dataclasses import dataclass

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
    row, in_place = dot.instruction, dot.left.packing == "in place"
    group = dot.strips * dot.strip
    columns = _padded(dot.column, group, rows[dot.column], chosen)
    _padded(dot.summed, row.depth, depth, chosen)
    count = rows[dot.row] if in_place else _padded(dot.row, dot.block, rows[dot.row], chosen)
    around = [n for n in rows if n not in (dot.row, dot.column)]
    blocks, line = _cut(dot.row, dot.block, count, chosen)
    # what is ragged has two bodies, so the loops around it must be outside before it is cut
    chosen.append(Reorder((*around, *blocks, dot.column, line)))
    # sums that start at totals are given these by a loop over tiles, also where there is one
    pieces, line = _cut(line, dot.height, dot.block, chosen, always=_is_offset(dot))
    groups, column = _cut(dot.column, group, columns, chosen)
    strips, column = _cut(column, dot.strip, group, chosen)
    tiles, column = _cut(column, dot.width, dot.strip, chosen)
    vectors, lanes = _cut(column, max(row.lanes), dot.width, chosen)
    above, lines = [line], list[str]()
    if row.rows > 1:
        above, line = _cut(line, row.rows, dot.height, chosen)
        lines = [line]
    chosen.append(Split(dot.summed, row.depth))
    words, word = _cut(f"{dot.summed}.1", row.word, row.depth, chosen)
    axes = _Axes(
        strips, pieces, tiles, f"{dot.summed}.0", above, vectors, words, lines, word, lanes
    )
    tasks = [*around, *blocks, *groups, *(strips if in_place and row.rows == 1 else ())]
    chosen += [
        Reorder((*around, *blocks, *groups, *axes.order())),
        *(SetKind(name, "unroll") for name in (*above, *vectors)),
        SetKind(lanes, "vector"),
        *_packing(dot, axes),
        Tensorize(axes.steps if row.rows > 1 else word, row.name),
        *(SetKind(name, "parallel") for name in tasks),
    ]
    return chosen


@dataclass(frozen=True, slots=True)
class _Axes:
    """The loops of a task, from the outermost to the innermost; lists are of one loop or none."""

    strips: list[str]
    pieces: list[str]
    tiles: list[str]
    steps: str
    above: list[str]
    vectors: list[str]
    words: list[str]
    lines: list[str]
    word: str
    lanes: str

    def order(self) -> tuple[str, ...]:
        """The names of all loops."""
        outer = (*self.strips, *self.pieces, *self.tiles, self.steps)
        return (*outer, *self.above, *self.vectors, *self.words, *self.lines, self.word, self.lanes)


def _packing(dot: Dot, axes: _Axes) -> list[Step]:
    """Both operands in words, in the order in which tiles read them."""
    side = max(dot.instruction.lanes)
    inside = (*axes.pieces, *axes.tiles, axes.steps)
    right = (*axes.tiles, axes.steps, *axes.vectors, *axes.words, axes.lanes, axes.word)
    turned = side if dot.right.packing == "turned" else 0
    made: list[Step] = [Interleave(dot.right.buffer, inside[0], right, turned)]
    if dot.left.packing != "in place":
        along = (*axes.above, axes.steps, *axes.lines, *axes.words)
        if dot.instruction.rows == 1 and dot.left.packing != "copied":
            along = (axes.steps, *axes.above)
        turned = side if dot.left.packing == "turned" else 0
        before = (*axes.strips, *inside)[0]
        packed = Interleave(dot.left.buffer, before, (*axes.pieces, *along, axes.word), turned)
        made.append(packed)
        if _is_offset(dot):
            made.append(Offset(packed.scratch, axes.pieces[0]))
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
