"""Contractions: tiles of the result in registers, operands through shared memory.

Output axes that belong to one operand are fused to rows and columns of a matrix, summed axes to its
depth, so convolutions are the same kernel. Lengths are padded to whole tiles.
"""

from __future__ import annotations

from dataclasses import dataclass
from math import prod

from ridgeline.loops import ir
from ridgeline.loops.ir import Load, Reduce
from ridgeline.loops.lowered import Lowered
from ridgeline.loops.schedule import (
    Bind,
    Pad,
    Partials,
    Reorder,
    ScheduleError,
    SetKind,
    Share,
    Split,
    Step,
)
from ridgeline.schedules.accesses import access
from ridgeline.schedules.attempts import leave_out
from ridgeline.schedules.gpu import pointwise, rows
from ridgeline.schedules.gpu.common import Draft, power_at_most
from ridgeline.schedules.gpu.machine import GpuMachine

_FEWEST = 16  # rows or columns below which tiles would be mostly padding
_BANK_PAD = 4


@dataclass(frozen=True, slots=True)
class _Tile:
    """A block's part of the result, and a thread's part of that; both square."""

    block: int
    thread: int
    depth: int

    @property
    def threads(self) -> int:
        return (self.block // self.thread) ** 2


_TILES = (_Tile(128, 8, 16), _Tile(64, 4, 16), _Tile(32, 4, 16))


def steps(lowered: Lowered, gpu: GpuMachine) -> list[Step]:
    """Steps for a contraction with its epilogue."""
    names = {letter: _axes(lowered, letter) for letter in "bmnk"}
    extents = {a.name: a.extent for a in (*lowered.rows, *lowered.inner)}
    lengths = {name: extent for name, extent in extents.items() if isinstance(extent, int)}
    if not lowered.inner:
        return pointwise.steps(lowered, gpu)  # nothing is summed: an outer product
    if len(lengths) < len(extents):
        return rows.steps(lowered, gpu)
    sizes = {letter: prod(lengths[n] for n in names[letter]) for letter in "bmnk"}
    if sizes["m"] < _FEWEST or sizes["n"] < _FEWEST or sizes["k"] < 4:
        return rows.steps(lowered, gpu)
    try:
        return _tiled(lowered, names, sizes, gpu)
    except ScheduleError as refusal:  # an operand that is read in two ways
        leave_out("tiles of rows and columns", refusal)
        return rows.steps(lowered, gpu)


def _axes(lowered: Lowered, letter: str) -> list[str]:
    return [a.name for a in (*lowered.rows, *lowered.inner) if a.name[0] == letter]


def _tiled(
    lowered: Lowered, names: dict[str, list[str]], sizes: dict[str, int], gpu: GpuMachine
) -> list[Step]:
    draft = Draft(lowered.kernel)
    tile = _tile(sizes, gpu)
    walks = _walks(draft, names)
    order = (*names["b"], *names["m"], *names["n"])
    if order != tuple(a.name for a in lowered.rows):
        draft.do(Reorder(order))
    axes = {letter: draft.fuse(group) for letter, group in names.items() if group}
    m, n, k = axes["m"], axes["n"], axes["k"]
    grid = [axes["b"]] if "b" in axes else []
    operands = _operands(draft)
    pieces = _pieces(sizes, tile, gpu)
    if pieces > 1:
        rows_of = [*grid, m, n]
        draft.do(Partials(k, pieces, tuple(rows_of)))
        result = draft.fuse([f"{axis}.j" for axis in rows_of])
        rows.join_pieces(draft, f"{k}.q", result, [], pieces, gpu)
        grid = [f"{k}.p", *grid, f"{result}.0"]
    draft.do(Pad(m, tile.block), Pad(n, tile.block), Pad(k, tile.depth))
    for axis in (m, n):
        draft.do(Split(axis, tile.block), Split(f"{axis}.1", tile.thread))
    draft.do(Split(k, tile.depth))
    if not draft.has(f"{k}.0"):
        raise ScheduleError("too shallow for a tile")
    outer = [f"{a}.0" for a in (m, n)]
    threads = [f"{a}.1.0" for a in (m, n)]
    inner = [f"{a}.1.1" for a in (m, n)]
    draft.do(Reorder((*outer, f"{k}.0", *threads, f"{k}.1", *inner)))
    depth = f"{k}.1"
    for load in operands:
        buffer, (letter, deep) = load.buffer.name, walks[load.buffer.slot]
        axis = m if letter == "m" else n
        across = (f"{axis}.1.0", f"{axis}.1.1")
        walk = (*across, depth) if deep else (depth, *across)
        draft.do(Share(buffer, threads[0], (depth, *across), walk, _BANK_PAD))
        draft.do(Split(f"{buffer}.s", tile.threads))
        draft.do(Reorder((f"{buffer}.s.1", f"{buffer}.s.0")))
        draft.do(SetKind(f"{buffer}.s.0", "unroll"), Bind(f"{buffer}.s.1", "thread"))
    draft.do(*(SetKind(a, "unroll") for a in inner), *(Bind(a, "thread") for a in threads))
    draft.grid([*grid, *outer])
    return draft.steps


def _tile(sizes: dict[str, int], gpu: GpuMachine) -> _Tile:
    """The largest tile that gives every multiprocessor one."""
    for tile in _TILES[:-1]:
        tiles = -(-sizes["m"] // tile.block) * -(-sizes["n"] // tile.block) * sizes["b"]
        if tiles >= gpu.multiprocessors:
            return tile
    return _TILES[-1] if min(sizes["m"], sizes["n"]) < _TILES[1].block else _TILES[1]


def _pieces(sizes: dict[str, int], tile: _Tile, gpu: GpuMachine) -> int:
    tiles = -(-sizes["m"] // tile.block) * -(-sizes["n"] // tile.block) * sizes["b"]
    most = sizes["k"] // (tile.depth * 4)
    if tiles * 2 > gpu.multiprocessors or most < 2:
        return 1
    return power_at_most(min(gpu.multiprocessors * 2 // tiles, most))


def _operands(draft: Draft) -> list[Load]:
    """The two reads of parameters that are multiplied."""
    loads = [
        expr
        for statement in ir.statements(draft.kernel.body)
        if isinstance(statement, Reduce)
        for expr in ir.subexpressions(*ir.expressions(statement))
        if isinstance(expr, Load) and expr.buffer.slot >= 0
    ]
    if len(loads) != 2 or loads[0].buffer.slot == loads[1].buffer.slot:
        raise ScheduleError("a product of two different operands")
    return loads


def _walks(draft: Draft, names: dict[str, list[str]]) -> dict[int, tuple[str, bool]]:
    """For the slot of each operand: whether it belongs to the rows or the columns of the result,
    and whether its elements lie side by side along the depth."""
    found: dict[int, tuple[str, bool]] = {}
    for load in _operands(draft):
        strides = access(load.buffer, load.index, False)
        down = [a for a in names["m"] if strides.stride(a) != 0]
        across = [a for a in names["n"] if strides.stride(a) != 0]
        if bool(down) == bool(across):
            raise ScheduleError("an operand of both rows and columns")
        letter = "m" if down else "n"
        deep = strides.stride(names["k"][-1]) == 1 and strides.stride(names[letter][-1]) != 1
        found[load.buffer.slot] = (letter, deep)
    return found
