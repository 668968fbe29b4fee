"""Products of narrow numbers by instructions that sum several of them in each lane.

Such an instruction wants the elements it sums next to each other, as words. The right operand is
packed in strips `[summed / depth, lanes, depth]`. Rows of the left one often have their words as
they are; where they have not, because columns lie next to each other or words would reach beyond
the end of a row, a block of rows is packed too. Instructions on tile registers (AMX) take 16 rows
of 16 such words. The choice between this and a plain register tile is made by counted cycles, as
among tiles.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from math import ceil, prod

from ridgeline import dtypes
from ridgeline.dtypes import DType
from ridgeline.loops import ir
from ridgeline.loops.instructions import INSTRUCTIONS, Instruction, factors
from ridgeline.loops.ir import Kernel, Reduce
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
from ridgeline.schedules.accesses import LoopAccess, access
from ridgeline.schedules.dot_forms import DotTile, Operand, Shape, forms, tasks
from ridgeline.schedules.machine import Machine
from ridgeline.schedules.tiles import imbalance

_PACKING = {  # cycles to pack an element
    "in place": 0.0, "copied": 0.15, "interleaved": 0.25, "turned": 0.4, "gathered": 2.5,
}  # fmt: skip


@dataclass(frozen=True, slots=True)
class Dot:
    """Rows and lanes of a tile, the loops around it, and what it costs per multiplication.

    A task has `block` rows and `strips` strips of columns. Axes are padded to whole tiles, but for
    rows that are read in place.
    """

    instruction: Instruction
    row: str
    column: str
    summed: str
    left: Operand
    right: Operand
    height: int  # rows of a tile
    width: int  # its columns
    strip: int  # columns of a strip
    block: int
    strips: int
    cycles: float


def best_dot(
    kernel: Kernel,
    touched: list[LoopAccess],
    rows: dict[str, int],
    inner: dict[str, int],
    machine: Machine,
) -> Dot | None:
    """The cheapest dot-product instruction for a contraction; None if none fits."""
    sums = [s for s in ir.statements(kernel.body) if isinstance(s, Reduce)]
    read = factors(sums[0]) if len(sums) == 1 else None
    if read is None or len(inner) != 1:
        return None
    first, second = (access(load.buffer, load.index, False) for load in read)
    total = sums[0].buffers[0].dtype
    ((summed, depth),) = inner.items()
    if 0 in (first.stride(summed), second.stride(summed)):  # no axis to pad
        return None
    if first.buffer == second.buffer:  # packed copies go by the buffer's name
        return None
    found = []
    for left, right in ((first, second), (second, first)):
        axes = _axes(left, right, touched, rows)
        if axes is None or left.opaque or right.opaque:
            continue
        for name in sorted(machine.instructions):
            types = (left.buffer.dtype, right.buffer.dtype, total)
            if fitting(INSTRUCTIONS[name], *types) is not None:
                shape = Shape(INSTRUCTIONS[name], left, right, *axes, summed, rows, depth, machine)
                found += [dot for form in forms(shape) for dot in _sized(shape, form)]
    return min(found, key=lambda dot: dot.cycles, default=None)


def fitting(row: Instruction, left: DType, right: DType, total: DType) -> DType | None:
    """The type as which an instruction takes the left operand, perhaps offset; None if it cannot.

    Tile registers have instructions for signed and unsigned bytes, so none is offset there.
    """
    if (right, total) != (row.right, row.total):
        return None
    signed = left is dtypes.int8 and row.left is dtypes.uint8 and row.rows == 1
    return row.left if left is row.left or signed else None


def _axes(
    left: LoopAccess, right: LoopAccess, touched: list[LoopAccess], rows: dict[str, int]
) -> tuple[str, str] | None:
    """The longest axis of the left operand alone, and the one along which results lie."""
    own = [n for n in rows if left.stride(n) != 0 and right.stride(n) == 0]
    stores = [a for a in touched if a.is_store]
    along = [
        n for n in rows
        if right.stride(n) != 0 and left.stride(n) == 0 and all(s.stride(n) == 1 for s in stores)
    ]  # fmt: skip
    return (max(own, key=lambda n: rows[n]), along[0]) if own and len(along) == 1 else None


def _sized(shape: Shape, form: DotTile) -> Iterator[Dot]:
    """A form with blocks such that caches hold what is packed."""
    machine, rows, depth = shape.machine, shape.rows, shape.depth
    left, right, strip = form.left, shape.packed_right(), form.strip
    if strip * depth * right.dtype.itemsize > machine.l2_bytes // 2:
        return
    strips = ceil(rows[shape.column] / strip)
    around = prod(size for n, size in rows.items() if n not in (shape.row, shape.column))
    sums = form.step * ceil(depth / shape.instruction.depth) + form.ends
    used = rows[shape.column] / (strips * strip)
    for task in tasks(shape, form, strips, around):
        cycles = sums / (form.height * form.width * depth * used)
        cycles *= task.blocks * ceil(task.rows / form.height) * form.height / rows[shape.row]
        cycles += _PACKING[right.packing] * task.blocks / rows[shape.row]
        cycles += _PACKING[left.packing] * strips / task.strips / rows[shape.column]
        cycles += task.reads / rows[shape.column]
        count = around * task.blocks * ceil(strips / task.strips)
        yield Dot(
            shape.instruction, shape.row, shape.column, shape.summed, left, right,
            form.height, form.width, strip, task.rows, task.strips,
            cycles * imbalance(count, machine),
        )  # fmt: skip


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
    """The loops of a task, outermost first; a list holds one loop or none."""

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
