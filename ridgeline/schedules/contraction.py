"""Contractions: the cheapest register tile, a packed operand, and the loops around them.

Loops that walk all memory as one, as rows and columns of the image under a 1×1 window do, are fused
first. A row-major matrix with few rows on the other side is read once (`streaming_steps`): a
register tile would walk it in columns a few cache lines wide, one page a step; instead several of
its rows are read together from end to end, and the sums stay in the nearest cache.
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import replace
from itertools import pairwise
from math import prod

from ridgeline.loops import ir
from ridgeline.loops.ir import Kernel, Reduce
from ridgeline.loops.lowering.iteration_space import Lowered
from ridgeline.loops.schedule import (
    CacheRead,
    CacheWrite,
    Fuse,
    Reorder,
    Rfactor,
    SetKind,
    Split,
    Step,
    attempt,
)
from ridgeline.schedules.accesses import LoopAccess, accesses
from ridgeline.schedules.dots import best_dot, dot_steps
from ridgeline.schedules.machine import Machine
from ridgeline.schedules.panels import ways_to_read
from ridgeline.schedules.tiles import Panel, RegisterTile, candidates, cost, elements, registers_of

_UNROLL_INNER = 4
_FEW_PRODUCTS = 9  # of a sum that may be written out whole
_SOME = 256  # what an axis is taken for whose length is known only at run time
_MOST_SHARING = 4  # rows that read one element; more of them are better served by a tile
_TOGETHER = 8  # rows of the matrix read side by side
_LEAST_RUN = 512  # elements of a row a task reads
_MOST_RUN = 2048


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
    fused, kernel, row_sizes, inner_sizes = fuse_contiguous(lowered.kernel, row_sizes, inner_sizes)
    touched = accesses(kernel)
    streamed = streaming_steps(touched, row_sizes, inner_sizes, machine)
    if streamed is not None:
        return [*fused, *streamed]
    cycles, tile, panel = best_tile(touched, row_sizes, inner_sizes, machine)
    dot = None
    if not machine.dot_types.isdisjoint([a.buffer.dtype for a in touched]):
        dot = best_dot(kernel, touched, row_sizes, inner_sizes, machine)
    if dot is not None and dot.cycles < cycles:
        return [*fused, *dot_steps(dot, row_sizes, *inner_sizes.values())]
    sizes = row_sizes | inner_sizes
    largest = max(touched, key=lambda a: a.footprint(sizes))
    fills_cache = largest.footprint(sizes) > machine.l3_bytes // 4
    streamed_by = [n for n in sizes if largest.stride(n)] if fills_cache else []
    (sums,) = (s.buffers[0].name for s in ir.statements(kernel.body) if isinstance(s, Reduce))
    chosen = _tile_steps(tile, panel, row_sizes, inner_sizes, streamed_by, sums)
    return [*fused, *chosen, *_unrolled_sum(tile, touched, inner_sizes, machine)]


def _partly_known_steps(
    touched: list[LoopAccess],
    rows: dict[str, int],
    inner: dict[str, int],
    unknown: set[str],
    machine: Machine,
) -> list[Step]:
    """The best tile of the axes of known length; the others are loops around it."""
    loads = [a for a in touched if not a.is_store and set(a.strides) & set(inner)]
    stores = [a for a in touched if a.is_store]
    tiles = [
        tile
        for tile in (candidates(loads, rows, inner, machine) if rows else ())
        if not unknown & {tile.vector, *dict(tile.unroll)}
    ]
    if not tiles:
        return [SetKind(name, "parallel") for name in list(rows)[:1]]
    best = min(tiles, key=lambda t: cost(t, None, loads, stores, rows, inner, machine))
    return [
        *_tile_steps(best, None, rows, inner),
        *_unrolled_sum(best, loads, inner, machine),
    ]


def _dot_steps(inner: dict[str, int], machine: Machine) -> list[Step]:
    if not inner:  # the product of two numbers
        return []
    last = list(inner)[-1]
    width = machine.lanes(4) * 4
    chosen: list[Step] = [Split(last, width)] if inner[last] > width else []
    name = f"{last}.1" if chosen else last
    return [*chosen, Rfactor(name), SetKind(name, "vector")]


def best_tile(
    touched: list[LoopAccess], rows: dict[str, int], inner: dict[str, int], machine: Machine
) -> tuple[float, RegisterTile, Panel | None]:
    """The lowest cost, in cycles per useful multiplication, with its tile and packing."""
    loads = [a for a in touched if not a.is_store and set(a.strides) & set(inner)]
    stores = [a for a in touched if a.is_store]
    best: tuple[float, RegisterTile, Panel | None] | None = None
    for tile in candidates(loads, rows, inner, machine):
        for panel in ways_to_read(tile, touched, rows, inner, machine):
            cycles = cost(tile, panel, loads, stores, rows, inner, machine)
            if best is None or cycles < best[0]:
                best = cycles, tile, panel
    assert best is not None
    return best


def _tile_steps(
    tile: RegisterTile,
    panel: Panel | None,
    rows: dict[str, int],
    inner: dict[str, int],
    streamed: Collection[str] = (),
    sums: str = "",
) -> list[Step]:
    """Steps for a tile; what `streamed` axes index is read once, by all tiles that need it.

    `sums` are the accumulators of the kernel.
    """
    chosen: list[Step] = []
    if panel is not None and panel.block < rows[panel.shared_by[0]]:
        chosen = [Split(panel.shared_by[0], panel.block)]
        tile, panel, rows = _in_blocks(tile, panel, rows)
    factors = {tile.vector: tile.lanes, **dict(tile.unroll)}
    cut = {n: f for n, f in factors.items() if n in rows and f < rows[n]}
    whole = [n for n in factors if n in rows and n not in cut]
    ragged = [n for n in cut if rows[n] % cut[n]]
    first = sorted(rows, key=lambda n: bool(streamed) and n not in streamed)
    # a ragged loop has two bodies, so the loops around it must be outside before it is cut
    order = [n for n in first if n not in ragged] + [n for n in first if n in ragged]
    if panel is not None:  # tiles that share the packed strip run one after another
        others = [n for n in rows if n != tile.vector]
        late = [n for n in others if n in panel.shared_by or n in whole]
        order = [*(n for n in others if n not in late), tile.vector, *late]
    chosen += [Reorder(tuple(order))] if order != list(rows) else []
    chosen += [Split(n, cut[n], "branch") for n in order if n in cut]
    outer = [f"{n}.0" if n in cut else n for n in order if n not in whole]
    unrolled = [f"{n}.1" if n in cut else n for n in factors if n in rows and n != tile.vector]
    vector = f"{tile.vector}.1" if tile.vector in cut else tile.vector
    inner_names = list(inner)
    if tile.vector in inner:
        vector, inner_names, split = _vector_inner(tile, inner)
        chosen += split
    tasks = outer[: len(outer) - max(len(ragged) - 1, 0)]  # up to the first ragged loop
    if panel is not None:
        tasks = outer[: order.index(tile.vector) + (tile.vector in cut)]
    shared, pieces = outer[len(tasks) :], list[str]()
    if panel is not None and panel.pieces is not None:
        name = panel.pieces.axis
        chosen.append(Split(name, panel.pieces.length))
        pieces = [*panel.pieces.around, f"{name}.0"]
        inner_names = [f"{name}.1" if n == name else n for n in inner_names if n not in pieces]
    chosen.append(Reorder((*tasks, *pieces, *shared, *inner_names, *unrolled, vector)))
    if pieces:
        chosen.append(CacheWrite(sums, inner_names[0], (*unrolled, vector)))
    chosen += [SetKind(name, "unroll") for name in unrolled]
    chosen.append(SetKind(vector, "vector"))
    if panel is not None:
        axes = (*panel.axes, vector)
        chosen.append(CacheRead(panel.buffer, shared[0], axes, panel.square, converted=True))
    return [*chosen, *(SetKind(name, "parallel") for name in tasks)]


def _unrolled_sum(
    tile: RegisterTile, touched: list[LoopAccess], inner: dict[str, int], machine: Machine
) -> list[Step]:
    """Unroll a short summed axis, if registers hold the values that its steps share.

    Neighbouring windows of a convolution overlap: the compiler would keep what they share, and
    spill accumulators for it.
    """
    summed = [n for n in inner if n != tile.vector or tile.lanes < inner[n]]
    last = summed[-1] if summed else ""
    if _overlaps(tile, touched, inner) and tile.vector not in inner:
        return [SetKind(name, "unroll") for name in summed]
    if not last or last == tile.vector or inner[last] > _UNROLL_INNER:
        return []
    loads = [a for a in touched if not a.is_store and a.stride(tile.vector) == 0]
    registers = registers_of(tile.lanes, elements(touched, machine))
    live = registers * (1 + prod(f for _, f in tile.unroll))
    live += sum(_common(load, tile, last, inner[last]) for load in loads)
    return [SetKind(last, "unroll")] if live <= machine.registers else []


def _overlaps(tile: RegisterTile, touched: list[LoopAccess], inner: dict[str, int]) -> bool:
    """True for a sum of few products whose windows share vectors with their neighbours'."""
    if prod(inner.values()) > _FEW_PRODUCTS:
        return False
    moving = [a for a in touched if not a.is_store and a.stride(tile.vector)]
    return any(_common(a, tile, n, size) for a in moving for n, size in inner.items() if size > 1)


def _common(load: LoopAccess, tile: RegisterTile, axis: str, length: int) -> int:
    """The values that steps of an axis share, if several steps read some of them."""
    offsets = {0}
    for name, factor in tile.unroll:
        offsets = {p + i * (load.stride(name) or 0) for p in offsets for i in range(factor)}
    values = {p + i * (load.stride(axis) or 0) for p in offsets for i in range(length)}
    return len(values) if len(values) < length * len(offsets) else 0


def _in_blocks(
    tile: RegisterTile, panel: Panel, rows: dict[str, int]
) -> tuple[RegisterTile, Panel, dict[str, int]]:
    """The same tile and panel after the first shared axis is cut into blocks."""
    axis, *others = panel.shared_by
    inside = f"{axis}.1"
    cut: dict[str, int] = {}
    for name, size in rows.items():
        parts = {f"{name}.0": size // panel.block, inside: panel.block}
        cut |= parts if name == axis else {name: size}
    unroll = tuple((inside if n == axis else n, f) for n, f in tile.unroll)
    return replace(tile, unroll=unroll), replace(panel, shared_by=(inside, *others)), cut


def _vector_inner(tile: RegisterTile, inner: dict[str, int]) -> tuple[str, list[str], list[Step]]:
    """A summed axis in the lanes: its pieces stay in place, its lanes become accumulators."""
    name = tile.vector
    if tile.lanes >= inner[name]:
        return name, [n for n in inner if n != name], [Rfactor(name)]
    names = [f"{n}.0" if n == name else n for n in inner]
    return f"{name}.1", names, [Split(name, tile.lanes), Rfactor(f"{name}.1")]


def fuse_contiguous(
    kernel: Kernel, rows: dict[str, int], inner: dict[str, int]
) -> tuple[list[Fuse], Kernel, dict[str, int], dict[str, int]]:
    """Steps that fuse loops over contiguous memory, with the kernel and its axes after them.

    A longer loop fills vectors and tiles with less remainder.
    """
    steps: list[Fuse] = []
    refused: set[tuple[str, str]] = set()
    while True:
        touched = accesses(kernel)
        pairs = [p for p in (*pairwise(rows), *pairwise(inner)) if p not in refused]
        pair = next((p for p in pairs if _walks_as_one(p, touched, rows | inner)), None)
        if pair is None:
            return steps, kernel, rows, inner
        step = Fuse(*pair)
        made = attempt(kernel, step)
        if made is None:  # the epilogue computes with an index itself
            refused.add(pair)
            continue
        kernel = made
        steps.append(step)
        rows, inner = _renamed(rows, step), _renamed(inner, step)


def _walks_as_one(pair: tuple[str, str], touched: list[LoopAccess], sizes: dict[str, int]) -> bool:
    outer, inner = pair
    if sizes[outer] == 1 or sizes[inner] == 1:
        return False
    for access in touched:
        step, length = access.stride(inner), access.stride(outer)
        if step is None or length is None or length != step * sizes[inner]:
            return False
    return True


def _renamed(axes: dict[str, int], step: Fuse) -> dict[str, int]:
    made: dict[str, int] = {}
    for name, size in axes.items():
        if name == step.outer:
            made[step.axis] = size * axes[step.inner]
        elif name != step.inner:
            made[name] = size
    return made


def streaming_steps(
    touched: list[LoopAccess], rows: dict[str, int], inner: dict[str, int], machine: Machine
) -> list[Step] | None:
    """Steps that read a matrix once from end to end; None if there is no such matrix."""
    if len(inner) != 1:
        return None
    ((summed, depth),) = inner.items()
    matrices = [a for a in touched if not a.is_store and a.stride(summed) not in (0, 1, None)]
    if len(matrices) != 1 or matrices[0].opaque:
        return None
    (matrix,) = matrices
    along = [n for n in rows if matrix.stride(n) == 1]
    sharing = [n for n in rows if matrix.stride(n) == 0]
    if len(along) != 1 or prod(rows[n] for n in sharing) > _MOST_SHARING:
        return None
    width = machine.lanes(matrix.buffer.dtype.itemsize)
    run = _run(rows[along[0]], width, machine)
    if run is None or depth % _TOGETHER:
        return None
    return _streamed(along[0], summed, run, width, rows, sharing)


def _run(length: int, width: int, machine: Machine) -> int | None:
    """Elements of a row in one task: a divisor that gives every core an equal share."""
    wanted = min(_MOST_RUN, length // machine.threads)
    sizes = range(wanted - wanted % width, _LEAST_RUN - 1, -width)
    return next((size for size in sizes if length % size == 0), None)


def _streamed(
    along: str, summed: str, run: int, width: int, rows: dict[str, int], sharing: list[str]
) -> list[Step]:
    apart = [n for n in rows if n != along and n not in sharing]
    task, piece, lane = f"{along}.0", f"{along}.1.0", f"{along}.1.1"
    outer, together = f"{summed}.0", f"{summed}.1"
    return [
        Split(along, run),
        Split(f"{along}.1", width),
        Split(summed, _TOGETHER),
        Reorder((*apart, task, outer, piece, together, *sharing, lane)),
        *(SetKind(name, "unroll") for name in (together, *sharing)),
        SetKind(lane, "vector"),
        *(SetKind(name, "parallel") for name in (*apart, task)),
    ]
