"""Contractions: a register tile chosen by counting what one step of the inner loop costs.

The tile is one axis in vector lanes and up to two row axes unrolled. Every choice is scored by
the instructions it needs per useful multiplication: multiply-adds, vector loads, broadcasts,
lanes wasted on a ragged edge, and the work before and after the summation.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from itertools import combinations
from math import ceil, log2, prod

from ridgeline.loops.lower import Lowered
from ridgeline.loops.schedule import CacheRead, Reorder, Rfactor, SetKind, Split, Step
from ridgeline.schedules import streaming
from ridgeline.schedules.accesses import Access, accesses
from ridgeline.schedules.joining import joined
from ridgeline.schedules.machine import Machine

_FACTORS = (1, 2, 3, 4, 5, 6, 7, 8, 10, 12, 13, 14, 16)
_UNROLL_INNER = 4
_SOME = 256  # what an axis is taken for whose length is known only at run time
_LEAST_STRIP = 4096  # bytes of an operand worth packing
_LEAST_REUSE = 8  # tiles that must share a packed strip
_LEAST_BLOCK = 48  # rows that must share it where a strip is packed once per block of rows
_LEAST_DEPTH = 32  # products of a sum that make up for storing its result in pieces
_CACHE_PERIOD = 4096  # bytes after which addresses fall on the same set again
_STREAMS = 7  # a set holds eight lines, and the other operand needs one
_COLLISION = 1.0  # cycles of a load whose line was pushed out
_SCATTERED = 6.0  # cycles to store an element on a line of its own
_COPIED, _TURNED, _GATHERED = 0.3, 0.7, 2.5  # cycles to pack an element, by how it is read


@dataclass(frozen=True, slots=True)
class Tile:
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

    `block` rows of the first shared axis make one task where there would be too few tasks.
    """

    buffer: str
    shared_by: tuple[str, ...]
    axes: tuple[str, ...]
    square: int  # side of the squares turned in registers, 0 where memory is already in order
    block: int
    cycles: float  # packing, per useful multiplication
    tasks: int


def steps(lowered: Lowered, machine: Machine) -> list[Step]:
    """Steps for a contraction and its epilogue."""
    rows = {a.name: a.extent for a in lowered.rows}
    inner = {a.name: a.extent for a in lowered.inner}
    unknown = {n for n, e in {**rows, **inner}.items() if not isinstance(e, int)}
    row_sizes = {n: e if isinstance(e, int) else _SOME for n, e in rows.items()}
    inner_sizes = {n: e if isinstance(e, int) else _SOME for n, e in inner.items()}
    if unknown:
        touched = accesses(lowered.kernel)
        return _partly_known_steps(touched, row_sizes, inner_sizes, unknown, machine)
    if not row_sizes:
        return _dot_steps(inner_sizes, machine)
    fused, kernel, row_sizes, inner_sizes = joined(lowered.kernel, row_sizes, inner_sizes)
    touched = accesses(kernel)
    streamed = streaming.steps(touched, row_sizes, inner_sizes, machine)
    if streamed is not None:
        return [*fused, *streamed]
    tile, panel = best_tile(touched, row_sizes, inner_sizes, machine)
    return [*fused, *_tile_steps(tile, panel, row_sizes, inner_sizes)]


def _partly_known_steps(
    touched: list[Access],
    rows: dict[str, int],
    inner: dict[str, int],
    unknown: set[str],
    machine: Machine,
) -> list[Step]:
    """The best tile of the axes whose lengths are known; the others are loops around it."""
    loads = [a for a in touched if not a.is_store and set(a.strides) & set(inner)]
    stores = [a for a in touched if a.is_store]
    tiles = [
        tile
        for tile in (_candidates(loads, rows, inner, machine) if rows else ())
        if not unknown & {tile.vector, *dict(tile.unroll)}
    ]
    if not tiles:
        return [SetKind(name, "parallel") for name in list(rows)[:1]]
    best = min(tiles, key=lambda t: cost(t, None, loads, stores, rows, inner, machine))
    return _tile_steps(best, None, rows, inner)


def _dot_steps(inner: dict[str, int], machine: Machine) -> list[Step]:
    if not inner:  # the product of two numbers
        return []
    last = list(inner)[-1]
    width = machine.lanes(4) * 4
    chosen: list[Step] = [Split(last, width)] if inner[last] > width else []
    name = f"{last}.1" if chosen else last
    return [*chosen, Rfactor(name), SetKind(name, "vector")]


def best_tile(
    touched: list[Access], rows: dict[str, int], inner: dict[str, int], machine: Machine
) -> tuple[Tile, Panel | None]:
    """The tile with the lowest cost, and what it packs."""
    loads = [a for a in touched if not a.is_store and set(a.strides) & set(inner)]
    stores = [a for a in touched if a.is_store]
    best: tuple[float, Tile, Panel | None] | None = None
    for tile in _candidates(loads, rows, inner, machine):
        panel = choose_panel(tile, touched, rows, inner, machine)
        cycles = cost(tile, panel, loads, stores, rows, inner, machine)
        if best is None or cycles < best[0]:
            best = cycles, tile, panel
    assert best is not None
    return best[1], best[2]


def _candidates(
    loads: list[Access], rows: dict[str, int], inner: dict[str, int], machine: Machine
) -> Iterator[Tile]:
    sizes = {**rows, **inner}
    width = _width(loads, machine)
    last_row = list(rows)[-1]
    unit = [n for n in sizes if any(a.stride(n) == 1 for a in loads)] or [last_row]
    packable = [n for n in rows if rows[n] > width and prod(inner.values()) >= _LEAST_DEPTH]
    for vector in dict.fromkeys([*unit, last_row, *packable]):
        lengths = {min(sizes[vector], width * r) for r in (1, 2, 4)}
        moving = [a for a in loads if a.stride(vector) != 0]
        others = [n for n in rows if n != vector]
        others.sort(key=lambda n: all(a.stride(n) == 0 for a in moving))
        pairs = [*combinations(others, 2), *((n,) for n in others), ()]
        for lanes in lengths:
            registers = _registers(lanes, width)
            for names in pairs:
                yield from _unrolls(vector, lanes, names, rows, machine.registers // registers)


def _unrolls(
    vector: str, lanes: int, names: tuple[str, ...], rows: dict[str, int], limit: int
) -> Iterator[Tile]:
    options = [[f for f in _FACTORS if f <= rows[n]] for n in names]
    if not names:
        yield Tile(vector, lanes, ())
    elif len(names) == 1:
        for f in options[0]:
            if f < limit:
                yield Tile(vector, lanes, ((names[0], f),))
    else:
        for f in options[0][1:]:
            for g in options[1][1:]:
                if f * g < limit:
                    yield Tile(vector, lanes, ((names[0], f), (names[1], g)))


def cost(
    tile: Tile,
    panel: Panel | None,
    loads: list[Access],
    stores: list[Access],
    rows: dict[str, int],
    inner: dict[str, int],
    machine: Machine,
) -> float:
    """Estimated cycles per useful multiplication."""
    sizes = {**rows, **inner}
    width = _width(loads, machine)
    registers = _registers(tile.lanes, width)
    unroll = dict(tile.unroll)
    copies = prod(unroll.values())
    accumulators = copies * registers
    moving = [a for a in loads if a.stride(tile.vector) != 0]
    repeated = [f for n, f in tile.unroll if all(a.stride(n) == 0 for a in moving)]
    held = prod(repeated) if len(repeated) < len(tile.unroll) else 1
    live = accumulators + registers + held
    traffic = 0.0
    for load in loads:
        times = prod(f for n, f in tile.unroll if load.stride(n) != 0)
        packed = panel is not None and load.buffer.name == panel.buffer
        stride = 1 if packed else load.stride(tile.vector)
        traffic += times * _load_cost(stride, tile.lanes, registers)
        if not packed and _collide(load, tile):
            traffic += times * _COLLISION
    passes = _passes(tile.lanes, width, machine)
    traffic *= passes
    # multiply-adds wait for one another unless there are enough of them in flight
    arithmetic = max(accumulators * passes, 4.0)
    step = max(arithmetic, traffic) + 0.2 * min(arithmetic, traffic) + 1.0
    if live > machine.registers:
        step += 2.0 * (live - machine.registers)
    folded = prod(inner.values())
    trips: float = folded
    if tile.vector in inner:
        trips = folded / sizes[tile.vector] * ceil(sizes[tile.vector] / tile.lanes)
    ending = copies * _store_cost(stores, tile, width)
    if tile.vector in inner:
        ending += copies * (3.0 * log2(max(tile.lanes, 2)) + 2.0 * registers)
    useful_lanes = sizes[tile.vector] / _pieces(sizes[tile.vector], tile.lanes, width, machine)
    waste = prod(ceil(rows[n] / f) * f / rows[n] for n, f in tile.unroll)
    ragged = sum(rows[n] % f != 0 for n, f in tile.unroll)
    per_tile = trips * step + ending
    useful = copies * folded * (1.0 if tile.vector in inner else useful_lanes)
    tasks = _tiles(tile, rows) if panel is None else panel.tasks
    cycles = per_tile / useful * waste * (1 + 0.03 * ragged)
    if panel is not None:
        cycles += panel.cycles
    return cycles * _imbalance(tasks, machine)


def _pieces(size: int, lanes: int, width: int, machine: Machine) -> float:
    """Vectors along an axis; the last one counts for the part of the others that it takes."""
    whole, rest = divmod(size, lanes)
    if not rest:
        return whole
    part = _registers(rest, width) * _passes(rest, width, machine)
    return whole + part / (_registers(lanes, width) * _passes(lanes, width, machine))


def _passes(lanes: int, width: int, machine: Machine) -> float:
    """How long an instruction takes next to one over a full register."""
    return 0.5 if machine.half_units and 2 * lanes <= width else 1.0


def _collide(load: Access, tile: Tile) -> bool:
    """True for streams that fall on one set of the nearest cache, more of them than it holds."""
    size = load.buffer.dtype.itemsize
    apart = [f for n, f in tile.unroll if (load.stride(n) or 1) * size % _CACHE_PERIOD == 0]
    return prod(apart) > _STREAMS


def _width(loads: list[Access], machine: Machine) -> int:
    """Elements of a vector register, by the widest operand."""
    return machine.lanes(max((a.buffer.dtype.itemsize for a in loads), default=4))


def _registers(lanes: int, width: int) -> int:
    """Vector registers of a loop's lanes, which are rounded up to a power of two."""
    return max(1 << (lanes - 1).bit_length(), width) // width


def _load_cost(stride: int | None, lanes: int, registers: int) -> float:
    if stride == 0:
        return 0.6
    if stride == 1:
        return 1.0 * registers
    if stride is not None and 2 <= stride <= 4:
        return (1.0 + stride) * registers
    return _GATHERED * lanes


def _store_cost(stores: list[Access], tile: Tile, width: int) -> float:
    registers = _registers(tile.lanes, width)
    total = 0.0
    for store in stores:
        stride = store.stride(tile.vector)
        total += 1.5 * registers if stride in (0, 1) else _SCATTERED * tile.lanes
    return total + registers


def _tiles(tile: Tile, rows: dict[str, int]) -> int:
    """Register tiles that cover all rows."""
    unroll = dict(tile.unroll)
    tiles = 1
    for name, size in rows.items():
        tiles *= ceil(size / (tile.lanes if name == tile.vector else unroll.get(name, 1)))
    return tiles


def _imbalance(tasks: int, machine: Machine) -> float:
    """How much longer the slowest core works than the average one."""
    return ceil(tasks / machine.threads) * machine.threads / tasks


def choose_panel(
    tile: Tile,
    touched: list[Access],
    rows: dict[str, int],
    inner: dict[str, int],
    machine: Machine,
) -> Panel | None:
    """Pack the operand in the lanes when many tiles read it and a packed strip stays in cache."""
    if tile.vector not in rows or tile.lanes >= rows[tile.vector]:
        return None
    in_lanes = [a for a in touched if not a.is_store and a.stride(tile.vector) != 0]
    read = [a for a in in_lanes if any(a.stride(n) for n in inner) and not a.opaque]
    if len(read) != 1:
        return None
    (operand,) = read
    factors = dict(tile.unroll)
    others = [n for n in rows if n != tile.vector]
    shared = [n for n in others if operand.stride(n) == 0 and factors.get(n, 1) < rows[n]]
    apart = [n for n in others if operand.stride(n) != 0]
    axes = sorted((n for n in inner if operand.stride(n) != 0), key=_unit_last(operand))
    strip = prod(inner[n] for n in axes) * tile.lanes * operand.buffer.dtype.itemsize
    reuse = prod(ceil(rows[n] / factors.get(n, 1)) for n in shared)
    fits = _LEAST_STRIP <= strip <= machine.l2_bytes // 2 and not any(n in factors for n in apart)
    if not fits or reuse < _LEAST_REUSE:
        return None
    strips = prod(rows[n] for n in apart) * ceil(rows[tile.vector] / tile.lanes)
    together = prod(rows[n] for n in shared)
    block, blocks = _block(shared[0], together, strips, factors, rows, machine)
    square, cycles = _packing(operand, tile, axes, inner, machine)
    uses = prod(rows[n] for n in others if operand.stride(n) == 0)
    return Panel(
        operand.buffer.name, tuple(shared), tuple(axes), square, block,
        cycles * blocks / uses, strips * blocks,
    )  # fmt: skip


def _unit_last(operand: Access) -> Callable[[str], bool]:
    return lambda name: operand.stride(name) == 1


def _packing(
    operand: Access, tile: Tile, axes: list[str], inner: dict[str, int], machine: Machine
) -> tuple[int, float]:
    """The side of the squares to turn, and the cycles an element costs."""
    if operand.stride(tile.vector) == 1:
        return 0, _COPIED
    side = machine.lanes(operand.buffer.dtype.itemsize)
    if operand.stride(axes[-1]) == 1 and tile.lanes % side == 0 and inner[axes[-1]] >= side:
        return side, _TURNED
    return 0, _GATHERED


def _block(
    axis: str,
    together: int,
    strips: int,
    factors: dict[str, int],
    rows: dict[str, int],
    machine: Machine,
) -> tuple[int, int]:
    """Rows of a block and the number of blocks, so that every core has an equal share."""
    factor, size = factors.get(axis, 1), rows[axis]
    best = 1
    for blocks in range(1, 4 * machine.threads + 1):
        if size % (blocks * factor) or size == blocks * factor:
            continue
        if blocks > 1 and together // blocks < _LEAST_BLOCK:
            continue
        if _imbalance(strips * blocks, machine) < 0.95 * _imbalance(strips * best, machine):
            best = blocks
    return size // best, best


def _tile_steps(
    tile: Tile, panel: Panel | None, rows: dict[str, int], inner: dict[str, int]
) -> list[Step]:
    chosen: list[Step] = []
    if panel is not None and panel.block < rows[panel.shared_by[0]]:
        chosen = [Split(panel.shared_by[0], panel.block)]
        tile, panel, rows = _in_blocks(tile, panel, rows)
    factors = {tile.vector: tile.lanes, **dict(tile.unroll)}
    cut = {n: f for n, f in factors.items() if n in rows and f < rows[n]}
    whole = [n for n in factors if n in rows and n not in cut]
    ragged = [n for n in cut if rows[n] % cut[n]]
    # a ragged loop has two bodies, so the loops around it must be outside before it is cut
    order = [n for n in rows if n not in ragged] + ragged
    if panel is not None:  # tiles that share the packed strip run one after another
        late = [n for n in rows if n in panel.shared_by or n in whole]
        order = [n for n in rows if n not in late and n != tile.vector] + [tile.vector, *late]
    chosen += [Reorder(tuple(order))] if order != list(rows) else []
    chosen += [Split(n, cut[n], "branch") for n in order if n in cut]
    outer = [f"{n}.0" if n in cut else n for n in order if n not in whole]
    unrolled = [f"{n}.1" if n in cut else n for n in factors if n in rows and n != tile.vector]
    vector = f"{tile.vector}.1" if tile.vector in cut else tile.vector
    inner_names = list(inner)
    if tile.vector in inner:
        vector, inner_names, split = _vector_inner(tile, inner)
        chosen += split
    chosen.append(Reorder((*outer, *inner_names, *unrolled, vector)))
    chosen += [SetKind(name, "unroll") for name in unrolled]
    chosen.append(SetKind(vector, "vector"))
    tasks = outer[: len(outer) - max(len(ragged) - 1, 0)]  # up to the first ragged loop
    if panel is not None:
        tasks = outer[: outer.index(f"{tile.vector}.0") + 1]
        chosen.append(
            CacheRead(panel.buffer, outer[len(tasks)], (*panel.axes, vector), panel.square)
        )
    last = inner_names[-1] if inner_names else ""
    if last in inner and inner[last] <= _UNROLL_INNER:
        chosen.append(SetKind(last, "unroll"))
    return [*chosen, *(SetKind(name, "parallel") for name in tasks)]


def _in_blocks(
    tile: Tile, panel: Panel, rows: dict[str, int]
) -> tuple[Tile, Panel, dict[str, int]]:
    """The same tile and panel once the first shared axis is cut into blocks."""
    axis, *others = panel.shared_by
    inside = f"{axis}.1"
    cut: dict[str, int] = {}
    for name, size in rows.items():
        parts = {f"{name}.0": size // panel.block, inside: panel.block}
        cut |= parts if name == axis else {name: size}
    unroll = tuple((inside if n == axis else n, f) for n, f in tile.unroll)
    return replace(tile, unroll=unroll), replace(panel, shared_by=(inside, *others)), cut


def _vector_inner(tile: Tile, inner: dict[str, int]) -> tuple[str, list[str], list[Step]]:
    """A summed axis in the lanes: its pieces stay in place, its lanes become accumulators."""
    name = tile.vector
    if tile.lanes >= inner[name]:
        return name, [n for n in inner if n != name], [Rfactor(name)]
    names = [f"{n}.0" if n == name else n for n in inner]
    return f"{name}.1", names, [Split(name, tile.lanes), Rfactor(f"{name}.1")]
