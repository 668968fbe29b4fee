"""Dot-product instructions: what their registers hold, and the tasks of a core.

Costs are counted in cycles. Those of tile registers are of Emerald Rapids, where reading tiles from
a core's second cache takes longer than multiplying them: what is read again should be in the first.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from math import ceil, prod

from ridgeline.dtypes import DType
from ridgeline.loops.instructions import Instruction
from ridgeline.schedules.accesses import LoopAccess
from ridgeline.schedules.machine import Machine
from ridgeline.schedules.panels import share_blocks
from ridgeline.schedules.tiles import COLLISION, RegisterTile, collide

_WIDEST = 4  # vectors of a strip
_TILES = ((2, 2), (1, 4), (1, 2), (1, 1))  # high and wide
_TILE_PRODUCT = 16.0  # cycles of an instruction on tile registers
_TILE_NEAR, _TILE_READ = 8.0, 20.0  # to fill one from a core's first and second cache
_TILE_ENDS = 50.0  # to start its sums, and to store them
_FAR, _NEAR = 0.1, 0.01  # to read an element in place: from further out, from a core's cache


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
class Shape:
    """A contraction that an instruction fits."""

    instruction: Instruction
    left: LoopAccess
    right: LoopAccess
    row: str
    column: str
    summed: str
    rows: dict[str, int]
    depth: int
    machine: Machine

    @property
    def in_tiles(self) -> bool:
        """True where the instruction has tile registers."""
        return self.instruction.rows > 1

    def packed_left(self, height: int) -> Operand:
        """Words of the left operand: in place where rows consist of them, of its own type.

        For tile registers the rows must fill tiles, too.
        """
        along, across = self.left.stride(self.summed), self.left.stride(self.row)
        whole = self.depth % self.instruction.depth == 0
        if self.in_tiles:
            whole &= self.rows[self.row] % height == 0
        packing = "gathered" if across != 1 else "turned" if self.in_tiles else "interleaved"
        if along == 1:
            same = self.left.buffer.dtype is self.instruction.left
            packing = "in place" if whole and same else "copied"
        return _operand(self.left, packing)

    def packed_right(self) -> Operand:
        """Words of the right operand, in strips."""
        along, across = self.right.stride(self.summed), self.right.stride(self.column)
        turned = along == 1 and self.depth >= self.instruction.word * max(self.instruction.lanes)
        packing = "interleaved" if across == 1 else "turned" if turned else "gathered"
        return _operand(self.right, packing)


def _operand(read: LoopAccess, packing: str) -> Operand:
    return Operand(read.buffer.name, read.buffer.dtype, packing)


@dataclass(frozen=True, slots=True)
class DotTile:
    """Rows and columns that registers hold sums for, the columns of a strip, and what a sum costs.

    `step` are the cycles of one step along the summed axis, `ends` those before and after all.
    """

    height: int
    width: int
    strip: int
    left: Operand
    step: float
    ends: float


def forms(shape: Shape) -> Iterator[DotTile]:
    """What registers can hold."""
    return _tiles(shape) if shape.in_tiles else _vectors(shape)


def _vectors(shape: Shape) -> Iterator[DotTile]:
    """Rows of vectors."""
    machine = shape.machine
    for width in range(1, _WIDEST + 1):
        columns = width * max(shape.instruction.lanes)
        height = min((machine.registers - width - 1) // width, shape.rows[shape.row])
        left = shape.packed_left(height)
        arithmetic, traffic = float(height * width), width + 0.6 * height
        tile = RegisterTile(shape.column, columns, ((shape.row, height),))
        if left.packing == "in place" and collide(shape.left, tile):
            traffic += height * COLLISION
        yield DotTile(height, columns, columns, left, _overlapped(arithmetic, traffic), 0.0)


def _tiles(shape: Shape) -> Iterator[DotTile]:
    """Tiles in tile registers, one or several to a strip.

    All rows read a strip again, and the tiles of a strip the same rows.
    """
    row, near = shape.instruction, shape.machine.l1_bytes
    length = shape.depth * shape.right.buffer.dtype.itemsize  # bytes, of either operand
    for high, wide in _TILES:
        height, width = high * row.rows, wide * max(row.lanes)
        left = shape.packed_left(height)
        for several in (1, 2, 4):
            strip = several * width
            if several > 1 and strip > shape.rows[shape.column]:
                continue
            again = 1 - 1 / several if height * length <= near // 2 else 0.0
            above = _TILE_READ - again * (_TILE_READ - _TILE_NEAR)
            across = _TILE_NEAR if strip * length <= near else _TILE_READ
            step = _overlapped(_TILE_PRODUCT * high * wide, above * high + across * wide)
            yield DotTile(height, width, strip, left, step, _TILE_ENDS * high * wide)


def _overlapped(arithmetic: float, traffic: float) -> float:
    return max(arithmetic, traffic) + 0.2 * min(arithmetic, traffic) + 1.0


@dataclass(frozen=True, slots=True)
class Task:
    """Rows of a task, the number of such blocks, strips of a task.

    `reads` are the cycles that reading the left operand takes, for each of its elements.
    """

    rows: int
    blocks: int
    strips: int
    reads: float = 0.0


def tasks(shape: Shape, form: DotTile, strips: int, around: int) -> Iterator[Task]:
    """Blocks of rows that a core's cache holds; those that tiles read in place may be larger."""
    machine, size = shape.machine, shape.rows[shape.row]
    in_place = form.left.packing == "in place"
    if in_place and not shape.in_tiles:
        sharing = prod(s for n, s in shape.rows.items() if shape.right.stride(n) == 0)
        block, blocks = share_blocks(shape.row, sharing, strips * around, {}, shape.rows, machine)
        yield Task(block, blocks, 1)
        return
    tiles = ceil(size / form.height)
    room = machine.l2_bytes // 2 // (shape.depth * form.left.dtype.itemsize * form.height)
    for blocks in range(1, min(tiles, 4 * machine.threads + ceil(tiles / max(room, 1))) + 1):
        block = ceil(tiles / blocks)
        if ceil(tiles / block) != blocks or (tiles % blocks if in_place else block > room):
            continue
        for together in range(1, strips + 1):
            if strips % together == 0:
                reads = _NEAR * strips if shape.in_tiles else 0.0
                if in_place:
                    reads += _FAR * (strips / together if block <= room else strips)
                yield Task(block * form.height, blocks, together, reads)
