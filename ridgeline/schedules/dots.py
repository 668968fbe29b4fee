"""Products of narrow numbers by instructions that sum several of them into each lane.

Such an instruction wants the elements it sums next to each other, as words. The right operand is
packed in strips `[summed / depth, lanes, depth]`. Rows of the left one often have their words as
they are; where they have not, because columns lie next to each other or words would reach beyond
the end of a row, a block of rows is packed too. The choice between this and a plain register tile
is made by counted cycles, as among tiles.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from math import ceil, prod

from ridgeline import dtypes
from ridgeline.dtypes import DType
from ridgeline.loops import ir
from ridgeline.loops.instructions import INSTRUCTIONS, Instruction
from ridgeline.loops.ir import Kernel, Reduce
from ridgeline.loops.tiles import factors
from ridgeline.schedules.accesses import Access, access
from ridgeline.schedules.machine import Machine
from ridgeline.schedules.panels import share_blocks
from ridgeline.schedules.tile_cost import COLLISION, collide
from ridgeline.schedules.tiles import Tile, imbalance

_WIDEST = 4  # vectors of a strip
_PACKING = {  # cycles to pack an element
    "in place": 0.0, "copied": 0.15, "interleaved": 0.25, "turned": 0.4, "gathered": 2.5,
}  # fmt: skip


@dataclass(frozen=True, slots=True)
class Operand:
    """One factor: its buffer, and how it is packed.

    It is read `in place`, `copied`, `interleaved` from rows that lie apart, `turned` by squares of
    words, or `gathered`.
    """

    buffer: str
    dtype: DType
    packing: str


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
    strip: int  # columns of a strip
    block: int
    strips: int
    cycles: float


def best_dot(
    kernel: Kernel,
    touched: list[Access],
    rows: dict[str, int],
    inner: dict[str, int],
    machine: Machine,
) -> Dot | None:
    """How to run a contraction by such an instruction; None where none fits."""
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
                shape = _Shape(INSTRUCTIONS[name], left, right, *axes, summed, rows, depth, machine)
                found += [dot for width in range(1, _WIDEST + 1) for dot in _sized(shape, width)]
    return min(found, key=lambda dot: dot.cycles, default=None)


def fitting(row: Instruction, left: DType, right: DType, total: DType) -> DType | None:
    """What an instruction takes the left operand for, which may be offset; None if it cannot."""
    if (right, total) != (row.right, row.total):
        return None
    signed = left is dtypes.int8 and row.left is dtypes.uint8
    return row.left if left is row.left or signed else None


def _axes(
    left: Access, right: Access, touched: list[Access], rows: dict[str, int]
) -> tuple[str, str] | None:
    """The longest axis of the left operand alone, and the one along which results lie."""
    own = [n for n in rows if left.stride(n) != 0 and right.stride(n) == 0]
    stores = [a for a in touched if a.is_store]
    along = [
        n for n in rows
        if right.stride(n) != 0 and left.stride(n) == 0 and all(s.stride(n) == 1 for s in stores)
    ]  # fmt: skip
    return (max(own, key=lambda n: rows[n]), along[0]) if own and len(along) == 1 else None


@dataclass(frozen=True, slots=True)
class _Shape:
    """A contraction that an instruction fits."""

    instruction: Instruction
    left: Access
    right: Access
    row: str
    column: str
    summed: str
    rows: dict[str, int]
    depth: int
    machine: Machine

    def packed_left(self) -> Operand:
        """Words of the left operand: in place where rows consist of them, of its own type."""
        along, across = self.left.stride(self.summed), self.left.stride(self.row)
        whole = self.depth % self.instruction.depth == 0
        packing = "interleaved" if across == 1 else "gathered"
        if along == 1:
            same = self.left.buffer.dtype is self.instruction.left
            packing = "in place" if whole and same else "copied"
        return _operand(self.left, packing)

    def packed_right(self) -> Operand:
        """Words of the right operand, in strips."""
        along, across = self.right.stride(self.summed), self.right.stride(self.column)
        turned = along == 1 and self.depth >= self.instruction.depth * max(self.instruction.lanes)
        packing = "interleaved" if across == 1 else "turned" if turned else "gathered"
        return _operand(self.right, packing)


def _operand(read: Access, packing: str) -> Operand:
    return Operand(read.buffer.name, read.buffer.dtype, packing)


def _sized(shape: _Shape, width: int) -> Iterator[Dot]:
    """Tiles of a width in vectors, with their blocks, where the caches hold what is packed."""
    machine, rows, depth = shape.machine, shape.rows, shape.depth
    left, right = shape.packed_left(), shape.packed_right()
    strip = width * max(shape.instruction.lanes)
    if strip * depth * right.dtype.itemsize > machine.l2_bytes // 2:
        return
    height = min((machine.registers - width - 1) // width, rows[shape.row])
    strips = ceil(rows[shape.column] / strip)
    around = prod(size for n, size in rows.items() if n not in (shape.row, shape.column))
    tile = Tile(shape.column, strip, ((shape.row, height),))
    arithmetic, traffic = height * width, width + 0.6 * height
    if left.packing == "in place" and collide(shape.left, tile):
        traffic += height * COLLISION
    step = max(arithmetic, traffic) + 0.2 * min(arithmetic, traffic) + 1.0
    products = height * width * max(shape.instruction.lanes) * shape.instruction.depth
    used = rows[shape.column] / (strips * strip)
    for block, blocks, together in _tasks(shape, left, height, strips, around):
        cycles = step / (products * used)
        cycles *= blocks * ceil(block / height) * height / rows[shape.row]
        cycles += _PACKING[right.packing] * blocks / rows[shape.row]
        cycles += _PACKING[left.packing] * strips / together / rows[shape.column]
        tasks = around * blocks * ceil(strips / together)
        yield Dot(
            shape.instruction, shape.row, shape.column, shape.summed, left, right,
            height, strip, block, together, cycles * imbalance(tasks, machine),
        )  # fmt: skip


def _tasks(
    shape: _Shape, left: Operand, height: int, strips: int, around: int
) -> Iterator[tuple[int, int, int]]:
    """Rows of a task, the number of such blocks, and the strips of a task."""
    machine, size = shape.machine, shape.rows[shape.row]
    if left.packing == "in place":
        sharing = prod(s for n, s in shape.rows.items() if shape.right.stride(n) == 0)
        block, blocks = share_blocks(shape.row, sharing, strips * around, {}, shape.rows, machine)
        yield block, blocks, 1
        return
    tiles = ceil(size / height)
    room = machine.l2_bytes // 2 // (shape.depth * left.dtype.itemsize * height)
    for blocks in range(1, min(tiles, 4 * machine.threads + ceil(tiles / max(room, 1))) + 1):
        block = ceil(tiles / blocks)
        if block <= room and ceil(tiles / block) == blocks:
            for together in range(1, strips + 1):
                if strips % together == 0:
                    yield block * height, blocks, together
