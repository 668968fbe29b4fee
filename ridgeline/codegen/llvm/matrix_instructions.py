"""Matrix instructions: tile registers of x86 CPUs (AMX), and dot products.

Registers are named by number, and hold 16 rows of 64 bytes each. Sums are read from their buffer,
stay in registers over all steps, and go back. Registers get their form when a kernel begins, and
are given up when it ends, so that the system need not save them.
"""

from __future__ import annotations

from contextlib import ExitStack
from dataclasses import replace
from itertools import product
from typing import TYPE_CHECKING

from ridgeline import dtypes
from ridgeline.codegen.llvm.machine_code import DOT_INTRINSICS
from ridgeline.codegen.llvm.memory import Guard, MemoryEmitter
from ridgeline.codegen.llvm.scalar_ops import Value
from ridgeline.loops import ir
from ridgeline.loops.build import map_children, sequence, substitute
from ridgeline.loops.instructions import (
    INSTRUCTIONS,
    TILE_REGISTERS,
    ContractionTile,
    length,
    stride,
    tile_of,
)
from ridgeline.loops.ir import Buffer, Const, Expr, For, Load, Mma, Seq, Stmt, Store, Var

if TYPE_CHECKING:
    from ridgeline.codegen.llvm.emit import KernelEmitter


Place = dict[Expr, Expr]
_FORM = "@tile_form"
_ROWS, _ROW_BYTES = 16, 64


def started_tiles(body: Stmt) -> Stmt:
    """Fold the loop that zeroes a tile's sums into the tile: registers need not load the zeros."""
    inner = map_children(body, started_tiles)
    if not isinstance(inner, Seq):
        return inner
    parts: list[Stmt] = []
    for part in inner.body:
        if parts and isinstance(part, Mma) and _are_zeros(parts[-1], part):
            part = replace(part, body=sequence(parts.pop(), part.body))
        parts.append(part)
    return sequence(*parts)


def _are_zeros(statement: Stmt, tiles: Mma) -> bool:
    """True for a nest that sets every sum of some tiles to zero."""
    tile = tile_of(tiles.body)
    if INSTRUCTIONS[tiles.instruction].rows <= 1 or not isinstance(tile, ContractionTile):
        return False
    names: set[str] = set()
    while isinstance(statement, For):
        names.add(statement.name)
        statement = statement.body
    sums = tile.reduce
    return (
        isinstance(statement, Store)
        and (statement.buffer, statement.index) == (sums.buffers[0], sums.index)
        and statement.value == ir.const(0, statement.buffer.dtype)
        and names == {loop.name for loop in (*tile.rows, *tile.lanes)}
    )


def emit_tiles(emitter: KernelEmitter, statement: Mma) -> None:
    """Sums of products of tiles, from first to last step."""
    parts = statement.body.body if isinstance(statement.body, Seq) else (statement.body,)
    tile = tile_of(parts[-1])
    assert isinstance(tile, ContractionTile), tile
    row = INSTRUCTIONS[statement.instruction]
    _shape_tiles(emitter)
    inner = (*tile.rows[-1:], *tile.lanes[-1:], *tile.depth[-2:])
    first: Place = {Var.make(loop.name): ir.index(0) for loop in inner}
    above = [first | point for point in _places(tile.rows[:-1])]
    across = [first | point for point in _places(tile.lanes[:-1])]
    (sums,), index = tile.reduce.buffers, tile.reduce.index
    line, words = tile.rows[-1].name, tile.depth[-2].name
    held = {(i, j): i * len(across) + j for i in range(len(above)) for j in range(len(across))}
    lefts = [len(held) + i for i in range(len(above))]
    rights = range(lefts[-1] + 1, TILE_REGISTERS)
    for (i, j), register in held.items():
        if len(parts) > 1:
            _call(emitter, "tilezero", f"i8 {register}", "i8 immarg")
        else:
            _move(emitter, "tileloadd64", register, sums, index, above[i] | across[j], line)
    with ExitStack() as loops:
        for loop in tile.depth[:-2]:
            _enter(emitter, loop, loops)
        for j in range(len(across)):
            right = rights[j % len(rights)]
            _read(emitter, right, tile.right, across[j], words)
            for i, left in enumerate(lefts):
                if j == 0:
                    _read(emitter, left, tile.left, above[i], line)
                registers = ", ".join(f"i8 {n}" for n in (held[i, j], left, right))
                _call(emitter, row.name, registers, "i8 immarg, i8 immarg, i8 immarg")
    for (i, j), register in held.items():
        _move(emitter, "tilestored64", register, sums, index, above[i] | across[j], line)


def release_tiles(emitter: KernelEmitter) -> None:
    """Give tile registers up at the end of a kernel that used them."""
    _call(emitter, "tilerelease", "", "")


def _shape_tiles(emitter: KernelEmitter) -> None:
    """At the start of a kernel, give all registers their full size."""
    if emitter.has_tiles:
        return
    emitter.has_tiles = True
    form = bytearray(64)
    form[0] = 1  # the only palette there is
    form[16 : 16 + 2 * TILE_REGISTERS : 2] = [_ROW_BYTES] * TILE_REGISTERS
    form[48 : 48 + TILE_REGISTERS] = [_ROWS] * TILE_REGISTERS
    text = ", ".join(f"i8 {byte}" for byte in form)
    emitter.declarations |= {
        f"{_FORM} = private constant [64 x i8] [{text}], align 64",
        "declare void @llvm.x86.ldtilecfg(ptr)",
    }
    emitter.scopes[0].lines.append(f"  call void @llvm.x86.ldtilecfg(ptr {_FORM})")


def _places(loops: tuple[For, ...]) -> list[Place]:
    """All iterations of unrolled loops."""
    extents = [range(length((loop,)) or 0) for loop in loops]
    return [
        {Var.make(loop.name): ir.index(i) for loop, i in zip(loops, numbers)}
        for numbers in product(*extents)
    ]


def _enter(emitter: KernelEmitter, loop: For, loops: ExitStack) -> None:
    end = emitter.value(loop.extent)
    runs = isinstance(loop.extent, Const) and int(loop.extent.value) > 0
    variable = loops.enter_context(emitter.counted("0", end.name, runs))
    emitter.bind(loop.name, variable)


def _read(emitter: KernelEmitter, register: int, load: Load, point: Place, along: str) -> None:
    _move(emitter, "tileloadd64", register, load.buffer, load.index, point, along)


def _move(
    emitter: KernelEmitter,
    name: str,
    register: int,
    buffer: Buffer,
    index: tuple[Expr, ...],
    point: Place,
    along: str,
) -> None:
    """Read or write a register; its rows lie along a loop."""
    step = stride(replace(buffer, shape=emitter.laid_out(buffer)), index, along)
    assert step is not None
    start = emitter.element(buffer, tuple(substitute(i, point) for i in index))
    operands = f"i8 {register}, ptr {start.name}, i64 {step * buffer.dtype.itemsize}"
    _call(emitter, name, operands, "i8 immarg, ptr, i64")


def _call(emitter: KernelEmitter, name: str, operands: str, types: str) -> None:
    emitter.declarations.add(f"declare void @llvm.x86.{name}({types})")
    emitter.line(f"call void @llvm.x86.{name}({operands})")


# ---- dot-product instructions: several narrow products summed into each lane ---------------------


def emit_dot(emitter: MemoryEmitter, statement: Mma) -> None:
    """One instruction for the tile; its sums are read from and written to their buffer."""
    tile = tile_of(statement.body)
    assert isinstance(tile, ContractionTile), tile
    lanes = length(tile.lanes)
    assert lanes is not None
    packed = statement.instruction == "vdpbf16ps"
    kind = f"<{2 * lanes} x bfloat>" if packed else f"<{lanes} x i32>"
    start: dict[Expr, Expr] = {Var.make(f.name): ir.index(0) for f in (*tile.depth, *tile.lanes)}
    word = _loaded(emitter, tile.left, start, "i32")
    spread = emitter.widen(Value(word.name, dtypes.int32, 1, word.depth, True), lanes)
    right = _loaded(emitter, tile.right, start, kind)
    left = spread.name
    if packed:
        cast = f"bitcast <{lanes} x i32> {left} to {kind}"
        left = emitter.instruction(cast, dtypes.int32, spread).name
    (buffer,), index = tile.reduce.buffers, tile.reduce.index
    index = tuple(substitute(i, {Var.make(f.name): ir.index(0) for f in tile.rows}) for i in index)
    emitter.lanes_var, emitter.lane_count, emitter.lane_length = tile.lanes[0].name, lanes, lanes
    held = emitter.read(buffer, index, Guard(), emitter.here, fixed=False)
    name = f"{DOT_INTRINSICS[statement.instruction]}.{lanes * 32}"
    emitter.declarations.add(f"declare {held.type} @{name}({held.type}, {kind}, {kind})")
    text = f"call {held.type} @{name}({held.type} {held.name}, {kind} {left}, {kind} {right.name})"
    made = emitter.instruction(text, buffer.dtype, held)
    emitter.write(buffer, index, made, emitter.line)
    emitter.lanes_var, emitter.lane_count = None, 1


def _loaded(emitter: MemoryEmitter, load: Load, start: dict[Expr, Expr], kind: str) -> Value:
    """The bits that an operand has at the start of the tile, as one value."""
    index = tuple(substitute(i, start) for i in load.index)
    pointer = emitter.element(load.buffer, index)
    here = Value("", dtypes.int64, 1, emitter.here, True)
    text = f"load {kind}, ptr {pointer.name}, align {load.dtype.itemsize}"
    return emitter.instruction(text, dtypes.int32, pointer, here)
