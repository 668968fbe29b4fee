"""Register tiles of contractions, and what one costs.

A tile has one axis in vector lanes and up to two row axes unrolled. Its cost is the cycles of one
step of the inner loop and of all around it: multiply-adds, vector loads, broadcasts, lanes wasted
on a ragged edge, and the work before and after the summation. A cycle is the time of a multiply-add
of full vectors: what memory takes next to it is measured (`Machine.far`); the counts below are of
instructions and caches inside a core, which differ little between cores, and for which nothing is
measured.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from functools import lru_cache
from itertools import combinations
from math import ceil, inf, log2, prod

from ridgeline.loops.ir import Buffer, Const
from ridgeline.schedules.accesses import LoopAccess
from ridgeline.schedules.machine import Machine

_FACTORS = (1, 2, 3, 4, 5, 6, 7, 8, 10, 12, 13, 14, 16)
_LEAST_DEPTH = 32  # products of a sum that make up for storing its result in pieces
_CACHE_PERIOD = 4096  # bytes after which addresses fall on the same set again
_STREAMS = 7  # a set holds eight lines, and the other operand needs one
COLLISION = 1.0  # cycles of a load whose line was pushed out
_JUMP = 0.3  # cycles to follow lanes that go on elsewhere at every step
_SCATTERED = 6.0  # cycles to store an element on a line of its own
_TURNS, _TURNED = 4, 1.0  # as many side by side are turned in registers, in cycles an element
_NEAR = 4  # elements between lanes that are still read by whole vectors
_CONVERTED = 0.6  # cycles to widen what was read, where it was not packed wide
_ASKED, _LOOKED = 0.3, 1.0  # cycles to test one guard for all lanes, or one for each
_GATHERED = 2.5  # cycles to read one


@dataclass(frozen=True, slots=True)
class RegisterTile:
    """Which axis fills the lanes (and how many), and which axes are unrolled how far.

    Axes that the operand in the lanes depends on come first: each of its vectors is then loaded,
    used by all others and forgotten, and takes one register instead of one per unrolled step.
    """

    vector: str
    lanes: int
    unroll: tuple[tuple[str, int], ...]


@dataclass(frozen=True, slots=True)
class Panel:
    """An operand to pack: the rows that share one packed copy, and the summed axes it holds.

    `block` rows of the first shared axis make one task where there would be too few tasks. Where
    no cache holds the strip, it is packed in `pieces`, and sums wait in scratch between them.
    """

    buffer: str
    shared_by: tuple[str, ...]
    axes: tuple[str, ...]
    square: int  # side of the squares turned in registers, 0 where memory is already in order
    block: int
    cycles: float  # packing, per useful multiplication
    tasks: int
    pieces: Pieces | None = None


@dataclass(frozen=True, slots=True)
class Pieces:
    """A summed axis cut into pieces of a length, and the summed axes around it."""

    axis: str
    length: int
    around: tuple[str, ...]


def candidates(
    loads: list[LoopAccess], rows: dict[str, int], inner: dict[str, int], machine: Machine
) -> Iterator[RegisterTile]:
    """All tiles that fit into the registers."""
    sizes = {**rows, **inner}
    width = elements(loads, machine)
    last_row = list(rows)[-1]
    unit = [n for n in sizes if any(a.stride(n) == 1 for a in loads)] or [last_row]
    packable = [n for n in rows if rows[n] >= width and prod(inner.values()) >= _LEAST_DEPTH]
    for vector in dict.fromkeys([*unit, last_row, *packable]):
        lengths = {min(sizes[vector], width * r) for r in (1, 2, 4)}
        guarded = any(vector in a.guards for a in loads)
        if guarded and registers_of(sizes[vector], width) <= machine.registers // 2:
            lengths.add(sizes[vector])  # which lanes have no element is known beforehand
        moving = [a for a in loads if a.stride(vector) != 0]
        others = [n for n in rows if n != vector]
        others.sort(key=lambda n: all(a.stride(n) == 0 for a in moving))
        pairs = [*combinations(others, 2), *((n,) for n in others), ()]
        for lanes in lengths:
            registers = registers_of(lanes, width)
            for names in pairs:
                yield from _unrolls(vector, lanes, names, rows, machine.registers // registers)


def _unrolls(
    vector: str, lanes: int, names: tuple[str, ...], rows: dict[str, int], limit: int
) -> Iterator[RegisterTile]:
    options = [[f for f in _FACTORS if f <= rows[n]] for n in names]
    if not names:
        yield RegisterTile(vector, lanes, ())
    elif len(names) == 1:
        for f in options[0]:
            if f < limit:
                yield RegisterTile(vector, lanes, ((names[0], f),))
    else:
        for f in options[0][1:]:
            for g in options[1][1:]:
                if f * g < limit:
                    yield RegisterTile(vector, lanes, ((names[0], f), (names[1], g)))


def elements(loads: list[LoopAccess], machine: Machine) -> int:
    """Elements of a vector register, by the widest operand."""
    return machine.lanes(max((a.buffer.dtype.itemsize for a in loads), default=4))


def registers_of(lanes: int, width: int) -> int:
    """Vector registers of a loop's lanes, which are rounded up to a power of two."""
    return max(1 << (lanes - 1).bit_length(), width) // width


def count(tile: RegisterTile, rows: dict[str, int]) -> int:
    """Register tiles that cover all rows."""
    unroll = dict(tile.unroll)
    tiles = 1
    for name, size in rows.items():
        tiles *= ceil(size / (tile.lanes if name == tile.vector else unroll.get(name, 1)))
    return tiles


def imbalance(tasks: int, machine: Machine) -> float:
    """How much longer the slowest core works than the average one."""
    return ceil(tasks / machine.threads) * machine.threads / tasks


def cost(
    tile: RegisterTile,
    panel: Panel | None,
    loads: list[LoopAccess],
    stores: list[LoopAccess],
    rows: dict[str, int],
    inner: dict[str, int],
    machine: Machine,
) -> float:
    """Estimated cycles per useful multiplication."""
    sizes = {**rows, **inner}
    width = elements(loads, machine)
    registers = registers_of(tile.lanes, width)
    copies = prod(f for _, f in tile.unroll)
    jumps = _jumps(tile, panel, loads, inner, machine)
    length = sizes[tile.vector]
    step = _step(tile, length, panel, loads, width, machine) + jumps
    folded = prod(inner.values())
    trips: float = folded
    if tile.vector in inner:
        trips = folded / sizes[tile.vector] * ceil(sizes[tile.vector] / tile.lanes)
    ending = copies * _store_cost(stores, tile, width)
    if tile.vector in inner:
        ending += copies * (3.0 * log2(max(tile.lanes, 2)) + 2.0 * registers)
    whole, rest = divmod(length, tile.lanes)
    pieces: float = whole
    if rest:  # the last piece counts for the part of the others' time that it takes
        last = _step(replace(tile, lanes=rest), length, panel, loads, width, machine) + jumps
        pieces += last / step
    useful_lanes = length / pieces
    waste = prod(ceil(rows[n] / f) * f / rows[n] for n, f in tile.unroll)
    ragged = sum(rows[n] % f != 0 for n, f in tile.unroll)
    per_tile = trips * step + ending
    useful = copies * folded * (1.0 if tile.vector in inner else useful_lanes)
    tasks = count(tile, rows) if panel is None else panel.tasks
    cycles = per_tile / useful * waste * (1 + 0.03 * ragged)
    if panel is not None:
        cycles += panel.cycles
    cycles += _read_again(tile, panel, loads, rows, inner, machine)
    return cycles * imbalance(tasks, machine)


def _read_again(
    tile: RegisterTile,
    panel: Panel | None,
    loads: list[LoopAccess],
    rows: dict[str, int],
    inner: dict[str, int],
    machine: Machine,
) -> float:
    """Cycles per multiplication for operands that the last cache does not hold, read repeatedly."""
    if all(_whole(load.buffer) <= machine.l3_bytes // 4 for load in loads):
        return 0.0
    sizes, factors = {**rows, **inner}, {**dict(tile.unroll), tile.vector: tile.lanes}
    held = [load.footprint(sizes) for load in loads]
    total, most = 0.0, max(held, default=0)  # constants alone are not read
    for load, size in zip(loads, held):
        if size <= machine.l3_bytes // 4 or (panel and panel.buffer == load.buffer.name):
            continue
        own = [n for n in rows if load.stride(n)]
        outside = size == most and not any(rows[n] % factors.get(n, 1) for n in own)
        if panel is None and outside:  # its loops stand around all others
            continue
        others = [tile.vector] if panel is not None else [n for n in rows if n not in own]
        total += size * prod(ceil(rows[n] / factors.get(n, 1)) for n in others if n in rows)
    return machine.far * total / prod(sizes.values())


@lru_cache(maxsize=256)
def _whole(buffer: Buffer) -> float:
    """The bytes of a buffer, without end where a size is known at run time only."""
    sizes = [int(s.value) if isinstance(s, Const) else inf for s in buffer.shape]
    return prod(sizes) * buffer.dtype.itemsize


def _step(
    tile: RegisterTile,
    length: int,
    panel: Panel | None,
    loads: list[LoopAccess],
    width: int,
    machine: Machine,
) -> float:
    """Cycles of one step of the inner loop; `length` is that of the axis in the lanes."""
    registers = registers_of(tile.lanes, width)
    accumulators = prod(f for _, f in tile.unroll) * registers
    moving = [a for a in loads if a.stride(tile.vector) != 0]
    repeated = [f for n, f in tile.unroll if all(a.stride(n) == 0 for a in moving)]
    held = prod(repeated) if len(repeated) < len(tile.unroll) else 1
    live = accumulators + registers + held
    traffic = turns = 0.0
    for load in loads:
        times = prod(f for n, f in tile.unroll if load.stride(n) != 0)
        packed = panel is not None and load.buffer.name == panel.buffer
        stride = 1 if packed else load.stride(tile.vector)
        traffic += times * _load_cost(stride, tile.lanes, registers)
        if stride is not None and 2 <= stride <= _NEAR:  # lanes picked where sums are made
            turns += times * (stride - 1) * registers
        if not packed and load.buffer.dtype.itemsize < 4:
            traffic += times * _CONVERTED * (registers if load.stride(tile.vector) else 1)
        if not packed and load.guards:
            traffic += times * _guard_cost(load, stride, tile, length, registers)
        if not packed and collide(load, tile):
            traffic += times * COLLISION
    passes = _passes(tile.lanes, width, machine)
    traffic *= passes
    turns *= passes
    # multiply-adds wait for one another unless there are enough of them in flight
    arithmetic = max(accumulators * passes, 4.0) + turns
    step = max(arithmetic, traffic) + 0.2 * min(arithmetic, traffic) + 1.0
    return step + 2.0 * max(live - machine.registers, 0)


def _passes(lanes: int, width: int, machine: Machine) -> float:
    """How long an instruction takes next to one over a full register."""
    return 0.5 if machine.half_units and 2 * lanes <= width else 1.0


def collide(load: LoopAccess, tile: RegisterTile) -> bool:
    """True for streams that fall on one set of the nearest cache, more of them than it holds."""
    size = load.buffer.dtype.itemsize
    apart = [f for n, f in tile.unroll if (load.stride(n) or 1) * size % _CACHE_PERIOD == 0]
    return prod(apart) > _STREAMS


def _jumps(
    tile: RegisterTile,
    panel: Panel | None,
    loads: list[LoopAccess],
    inner: dict[str, int],
    machine: Machine,
) -> float:
    """Cycles of a step for lanes that go on elsewhere, in more memory than the nearest cache."""
    total = 0.0
    for load in loads:
        summed = [n for n in inner if load.stride(n) != 0]
        packed = panel is not None and load.buffer.name == panel.buffer
        if packed or not summed or load.stride(tile.vector) != 1 or tile.vector in inner:
            continue
        step = load.stride(summed[-1])
        times = prod(f for n, f in tile.unroll if load.stride(n) != 0)
        held = prod(inner[n] for n in summed) * times * tile.lanes * load.buffer.dtype.itemsize
        if (step is None or abs(step) > tile.lanes) and held > machine.l1_bytes:
            total += times * _JUMP
    return total


def _load_cost(stride: int | None, lanes: int, registers: int) -> float:
    if stride == 0:
        return 0.6
    if stride == 1:
        return 1.0 * registers
    if stride is not None and 2 <= stride <= _NEAR:
        return (1.0 + stride) * registers
    return _GATHERED * lanes


def _guard_cost(
    load: LoopAccess, stride: int | None, tile: RegisterTile, length: int, registers: int
) -> float:
    """Cycles to find out which lanes have an element: known beforehand where they hold all."""
    if tile.vector not in load.guards or tile.lanes == length:
        return _ASKED
    return _LOOKED * registers if stride in (0, 1) else _GATHERED * tile.lanes


def _store_cost(stores: list[LoopAccess], tile: RegisterTile, width: int) -> float:
    registers = registers_of(tile.lanes, width)
    total = 0.0
    for store in stores:
        ordered = store.stride(tile.vector) in (0, 1)
        total += 1.5 * registers if ordered else _across(store, tile) * tile.lanes
    return total + registers


def _across(store: LoopAccess, tile: RegisterTile) -> float:
    """Cycles to store an element whose neighbours are in other registers, or on other lines."""
    axis, factor = tile.unroll[-1] if tile.unroll else ("", 1)
    apart = (store.stride(tile.vector) or 1) * store.buffer.dtype.itemsize
    collide = apart % _CACHE_PERIOD == 0 and tile.lanes > _STREAMS
    if store.stride(axis) != 1 or factor < _TURNS or collide:
        return _SCATTERED
    return _TURNED * (1 << (factor - 1).bit_length()) / factor
