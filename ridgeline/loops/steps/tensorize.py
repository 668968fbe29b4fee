"""Tensorize: replace a small loop nest by a matrix instruction."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import ClassVar

from ridgeline.loops.build import map_children
from ridgeline.loops.instructions import (
    INSTRUCTIONS,
    TILE_REGISTERS,
    ContractionTile,
    Instruction,
    length,
    stride,
    tile_of,
    tile_registers,
)
from ridgeline.loops.ir import For, Kernel, LoopKind, Mma, Stmt
from ridgeline.loops.steps.step import ScheduleError, Step, at_loops, loops_named
from ridgeline.loops.tensor_cores import TensorCoreTile, product_nest


@dataclass(frozen=True, slots=True)
class Tensorize(Step):
    """Run the nest that begins at an axis as one instruction of `loops/instructions.py`."""

    axis: str
    instruction: str
    name: ClassVar[str] = "tensorize"

    def apply(self, kernel: Kernel) -> Kernel:
        """Match the nest against the instruction's row."""
        if TensorCoreTile.of(self.instruction) is not None:
            loops_named(kernel, self.axis)
            return replace(kernel, body=at_loops(kernel.body, self.axis, self._product))
        if self.instruction not in INSTRUCTIONS:
            raise ScheduleError(
                f"there is no instruction {self.instruction!r}",
                help=f"instructions are {', '.join(INSTRUCTIONS)}",
            )
        loops_named(kernel, self.axis)
        row = INSTRUCTIONS[self.instruction]
        body = at_loops(kernel.body, self.axis, lambda loop: self._named(loop, row))
        return replace(kernel, body=body)

    def _product(self, loop: For) -> Stmt:
        """A whole matrix product, which tensor cores compute in tiles."""
        nest = product_nest(loop)
        if isinstance(nest, str):
            raise ScheduleError(nest)
        return Mma(self.instruction, loop)

    def _named(self, loop: For, row: Instruction) -> Stmt:
        tile = tile_of(loop)
        if isinstance(tile, str):
            # the loops of an axis that only start or store the sums stay what they are
            if any(isinstance(s, For) and s.axis == "reduce" for s in (loop, loop.body)):
                raise ScheduleError(tile)
            return loop
        reason = _mismatch(tile, row)
        if reason:
            raise ScheduleError(f"{row.name} does not fit: {reason}")
        kinds: dict[str, LoopKind] = {f.name: "unroll" for f in (*tile.rows, *tile.depth)}
        kinds |= {f.name: "vector" for f in tile.lanes}
        return Mma(row.name, _with_kinds(loop, kinds) if row.depth == 1 else loop)


def _mismatch(tile: ContractionTile, row: Instruction) -> str:
    total = tile.reduce.buffers[0]
    types = (tile.left.dtype, tile.right.dtype, total.dtype)
    wanted = (row.left, row.right, row.total)
    if types != wanted:
        given, needed = (", ".join(t.name for t in group) for group in (types, wanted))
        return f"the types are {given}, not {needed}"
    return _tiles_mismatch(tile, row) if row.rows > 1 else _vector_mismatch(tile, row)


def _vector_mismatch(tile: ContractionTile, row: Instruction) -> str:
    total = tile.reduce.buffers[0]
    if len(tile.lanes) != 1:
        return f"{len(tile.lanes)} loops run over columns, not one"
    if row.lanes and length(tile.lanes) not in row.lanes:
        return f"it has {' or '.join(map(str, row.lanes))} columns, the loop {length(tile.lanes)}"
    if length(tile.depth) != row.depth:
        return f"it sums {row.depth} products at a time, the loops {length(tile.depth)}"
    if row.rows and length(tile.rows) != row.rows:
        return f"it has {row.rows} rows, the loops {length(tile.rows)}"
    lane = tile.lanes[0].name
    if stride(total, tile.reduce.index, lane) != 1:
        return "the sums do not lie next to each other"
    if stride(tile.right.buffer, tile.right.index, lane) != row.depth:
        return f"the right operand's columns are not {row.depth} elements apart"
    for loop in tile.depth if row.depth > 1 else ():
        for operand in (tile.left, tile.right):
            if stride(operand.buffer, operand.index, loop.name) != 1:
                return f"{operand.buffer.name} does not have {loop.name!r} next to each other"
    return ""


def _tiles_mismatch(tile: ContractionTile, row: Instruction) -> str:
    """Why a nest of steps around tiles does not match the instruction."""
    total, index = tile.reduce.buffers[0], tile.reduce.index
    sizes = [length(part[-1:]) for part in (tile.rows, tile.lanes, tile.depth[:-1], tile.depth)]
    wanted = [row.rows, *row.lanes, row.depth // row.word, row.word]
    if not (tile.rows and tile.lanes and tile.depth[:-1]) or sizes != wanted:
        given, needed = (" × ".join(map(str, group)) for group in (sizes, wanted))
        return f"its rows, columns, words and elements are {needed}, those of the loops {given}"
    across, above = length(tile.lanes[:-1]), length(tile.rows[:-1])
    if across is None or above is None or tile_registers(above, across) > TILE_REGISTERS:
        return f"there are {TILE_REGISTERS} tile registers, too few for {above} × {across} tiles"
    line, lane, words, element = (
        part[-1].name for part in (tile.rows, tile.lanes, tile.depth[:-1], tile.depth)
    )
    accesses = (
        (total, index, {lane: 1}, line),
        (tile.left.buffer, tile.left.index, {words: row.word, element: 1}, line),
        (tile.right.buffer, tile.right.index, {lane: row.word, element: 1}, words),
    )
    for buffer, indices, steps, moved in accesses:
        for name, step in steps.items():
            if stride(buffer, indices, name) != step:
                return f"{buffer.name} does not have {name!r} {step} elements apart"
        if stride(buffer, indices, moved) is None:
            return f"the rows of {buffer.name} are not equally far apart"
    return ""


def _with_kinds(statement: Stmt, kinds: dict[str, LoopKind]) -> Stmt:
    inner = map_children(statement, lambda child: _with_kinds(child, kinds))
    if isinstance(inner, For) and inner.name in kinds:
        return replace(inner, kind=kinds[inner.name])
    return inner
