"""Dot-product instructions of x86 CPUs: several narrow products summed into each lane."""

from __future__ import annotations

from functools import lru_cache

from ridgeline import dtypes
from ridgeline.codegen.llvm.memory import Guard, MemoryEmitter
from ridgeline.codegen.llvm.scalar_ops import Value
from ridgeline.codegen.llvm.target import target
from ridgeline.loops import ir
from ridgeline.loops.build import substitute
from ridgeline.loops.instructions import INSTRUCTIONS, ContractionTile, length, tile_of
from ridgeline.loops.ir import Expr, Load, Mma, Var

_INTRINSICS = {
    "vdpbf16ps": "llvm.x86.avx512bf16.dpbf16ps",
    "vpdpbusd": "llvm.x86.avx512.vpdpbusd",
    "vpdpwssd": "llvm.x86.avx512.vpdpwssd",
}


@lru_cache
def has_instruction(name: str) -> bool:
    """True when this machine has an instruction and it is emitted by name."""
    row = INSTRUCTIONS[name]
    by_name = name in _INTRINSICS or row.rows > 1
    return by_name and f"+{row.feature}" in target().features.split(",")


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
    name = f"{_INTRINSICS[statement.instruction]}.{lanes * 32}"
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
