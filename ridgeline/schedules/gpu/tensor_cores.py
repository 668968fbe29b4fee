"""Products on Hopper's tensor cores: predicted time of each tile, and the best one's loops.

The time of a product is that of its fullest multiprocessor: steps of its tiles, each in the time
that was measured for the tile, and storing what was made, which teams that take turns do beside
multiplying. Tiles that do not come out even may be cut along the sum. No product takes less than
reading its operands and writing its result.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from math import prod

from ridgeline.config import config
from ridgeline.loops import ir
from ridgeline.loops.instructions import factors
from ridgeline.loops.ir import Const, Load, Reduce, Store
from ridgeline.loops.lowering.iteration_space import Axis, Lowered
from ridgeline.loops.schedule import (
    Fuse,
    Reorder,
    ScheduleError,
    SetKind,
    Split,
    Step,
    Tensorize,
)
from ridgeline.loops.tensor_cores import (
    DTYPES,
    OCTET,
    ProductNest,
    TensorCoreTile,
    product_nest,
    unreadable,
    work_behind,
)
from ridgeline.schedules.gpu.machine import Draft, GpuMachine

HOPPER = 90  # the compute capability whose instructions these are
STEP_BYTES = 128  # of the sum, that a step multiplies
_LEAST_PRODUCTS, _LEAST_SIDE, _LEAST_DEPTH = 1 << 21, 16, 16  # below, threads multiply as fast
_FEW_ROWS = 256  # of which tiles may be padding
_MOST_MOVED = 16  # bytes for an element of the result, that are moved beside multiplying
_MOST_WORK = 200  # operations for an element
# A product with more behind it, or that reads for every element, was measured to take longer than
# by itself and the pass that this saves (docs/gpu.md): `config.products = "own"` takes all.
_LIGHT = 14
_LEAST_STEPS, _MOST_PARTS = 8, 16  # of a sum that is cut: of a part, and how many there are

# ---- how long a product takes; times are in microseconds, measured on an H200 --------------------

_START = 2.5  # of a kernel, until the first tiles have come and after the last are stored
_JOIN = 6.0  # what cutting adds: another launch, waiting for one another
_READ_AHEAD = 1 << 14  # sums of a team, besides which it has registers to read ahead
_UNSURE = 1.06  # by which cutting has to be better
_STORED, _JOINED = 33e3, 60e3  # bytes that a multiprocessor writes, and reads of what others wrote
_COMPUTED = 70e3  # operations that a team of it does, one after the other, beside multiplying
_MOVED = 3.8e6  # that all of them do
_FETCHED = 2e8  # bytes of tiles, of which there is room for many more: it decides between equals
_LIBRARY_START = 3.0
_LIBRARY_RATE = 620e6  # operations of cuBLASLt's first choice, in the mean over many shapes

_TILES: tuple[tuple[TensorCoreTile, float], ...] = (  # with the time of a step of 64 terms
    (TensorCoreTile(128, 256, 4), 0.740),
    (TensorCoreTile(128, 192, 5, in_turns=True), 0.575),
    (TensorCoreTile(128, 128, 6, in_turns=True), 0.386),
    (TensorCoreTile(64, 256, 5, in_turns=True), 0.398),
    (TensorCoreTile(128, 128, 6), 0.370),
    (TensorCoreTile(64, 128, 8), 0.210),
    (TensorCoreTile(128, 64, 8), 0.235),
    (TensorCoreTile(64, 64, 8), 0.168),
)


@dataclass(frozen=True, slots=True)
class ProductSize:
    """The sizes that the time of a product depends on.

    Each element of the result moves `finished` bytes and takes `work` operations in the epilogue;
    `reads` says whether the epilogue reads memory.
    """

    rows: int
    columns: int
    depth: int
    batches: int
    itemsize: int
    finished: int
    work: int = 4
    reads: bool = False

    @property
    def steps(self) -> int:
        """Steps of the sum."""
        return -(-self.depth * self.itemsize // STEP_BYTES)

    @property
    def least(self) -> float:
        """The time to move its bytes."""
        operands = (self.rows + self.columns) * self.depth * self.itemsize
        made = self.rows * self.columns * self.finished
        return (operands + made) * self.batches / _MOVED

    def tiles(self, tile: TensorCoreTile) -> int:
        """The number of tiles; the blocks of a cluster count as one."""
        tall = -(-self.rows // (tile.rows * tile.cluster))
        return tall * -(-self.columns // tile.columns) * self.batches


def cuts(tile: TensorCoreTile, size: ProductSize) -> Iterator[TensorCoreTile]:
    """The tile with the remainder of tiles split along the sum, in all ways that may pay."""
    clusters = tile.blocks // tile.cluster
    cut = size.tiles(tile) % clusters
    most = min(_MOST_PARTS, size.steps // _LEAST_STEPS)
    for parts in range(2, most + 1) if cut else ():
        yield replace(tile, cut=cut, parts=parts)


def seconds(tile: TensorCoreTile, size: ProductSize, step: float) -> float:
    """Predicted time of a product, with a tile whose steps take `step` microseconds."""
    clusters, area = tile.blocks // tile.cluster, tile.rows * tile.columns
    waves = -(-(size.tiles(tile) - tile.cut) // clusters)
    multiplying, stored = waves * size.steps * step, area * size.finished / _STORED
    finishing = max(stored, area * size.work / _COMPUTED)
    if tile.in_turns:
        time = max(multiplying, waves * finishing / 2) + finishing
    else:
        time = multiplying + waves * finishing
    if tile.cut:
        rounds = -(-tile.cut * tile.parts // clusters)
        time += rounds * (-(-size.steps // tile.parts) * step + area * 4 / _STORED) + finishing
        time = (time + _JOIN + tile.parts * area * 4 / _JOINED) * _UNSURE
    fetched = size.tiles(tile) * tile.cluster * size.steps * (tile.rows + tile.columns) * STEP_BYTES
    both: float = (time**4 + size.least**4) ** 0.25  # longer where both are long
    return (_START + both + fetched / _FETCHED) * 1e-6


def library_seconds(size: ProductSize) -> float:
    """Approximate time of cuBLASLt."""
    operations = 2.0 * size.rows * size.columns * size.depth * size.batches
    return (_LIBRARY_START + max(operations / _LIBRARY_RATE, size.least)) * 1e-6


def predicted(size: ProductSize, gpu: GpuMachine) -> Iterator[tuple[float, TensorCoreTile]]:
    """All tiles, split and not, with their predicted seconds."""
    for tile, step in _TILES:
        if size.reads and tile.in_turns and tile.rows * tile.columns > _READ_AHEAD:
            continue
        whole = replace(tile, blocks=gpu.multiprocessors)
        for one in (whole, *(() if tile.in_turns else cuts(whole, size))):
            yield seconds(one, size, step), one


def best(size: ProductSize, gpu: GpuMachine) -> tuple[float, TensorCoreTile]:
    """The tile with the least predicted time."""
    return min(predicted(size, gpu), key=lambda found: found[0])


# ---- the loops -----------------------------------------------------------------------------------


def is_wanted(lowered: Lowered, gpu: GpuMachine) -> bool:
    """True for a large contraction of 16-bit values, on a GPU that has the instructions."""
    if gpu.capability != HOPPER:
        return False
    axes = (*lowered.rows, *lowered.inner)
    sizes = {letter: _product(axes, letter) for letter in "bmnk"}
    read = [factors(s) for s in ir.statements(lowered.body) if isinstance(s, Reduce)]
    narrow = all(pair and {load.dtype.name for load in pair} <= {*DTYPES} for pair in read)
    return narrow and is_large(sizes["m"], sizes["n"], sizes["k"], sizes["b"])


def is_large(rows: int, columns: int, depth: int, batches: int) -> bool:
    """True for sizes that fill tiles and take longer than a launch."""
    enough = rows * columns * depth * batches >= _LEAST_PRODUCTS
    return enough and min(rows, columns) >= _LEAST_SIDE and depth >= _LEAST_DEPTH


def steps(lowered: Lowered, gpu: GpuMachine) -> list[Step]:
    """The steps of a contraction as a product on tensor cores; refuses what is none."""
    draft, outermost = _in_form(lowered)
    nest = _nest(draft)
    size = size_of(nest)
    tile = best(size, gpu)[1]
    draft.do(Tensorize(outermost, tile.text))
    return draft.steps


def with_tile(lowered: Lowered, tile: TensorCoreTile) -> list[Step]:
    """The steps for a given tile."""
    draft, outermost = _in_form(lowered)
    draft.do(Tensorize(outermost, tile.text))
    return draft.steps


def reason_to_part(lowered: Lowered) -> str:
    """Why an epilogue should be a kernel of its own; empty if it should not."""
    try:
        nest = _nest(_in_form(lowered)[0])
    except ScheduleError as refusal:
        return f"tiles of a product: {refusal.message}"
    rows = _product(lowered.rows, "m" if lowered.rows[-1].name[0] == "n" else "n")
    if nest.row_count < min(rows, _FEW_ROWS):
        return "rows of a product would no longer lie one after the other"
    size = size_of(nest)
    if size.finished > _MOST_MOVED or size.work > _MOST_WORK:
        return "a product that does so much for every element does little beside it"
    if config.products != "own" and (size.reads or size.work > _LIGHT):
        return "this takes longer behind a product than by itself"
    return ""


def size_of(nest: ProductNest) -> ProductSize:
    """The sizes that the time of a product depends on."""
    return ProductSize(
        nest.row_count, nest.columns, nest.depth, prod(nest.batch_counts),
        nest.left.dtype.itemsize, _moved(nest), work_behind(nest), bool(_read(nest)),
    )  # fmt: skip


def _moved(nest: ProductNest) -> int:
    """Bytes read and written for each element of the result, where results are made."""
    stores = (s for s in ir.statements(nest.behind) if isinstance(s, Store))
    stored = sum(store.buffer.dtype.itemsize for store in stores)
    return stored + sum(load.dtype.itemsize for load in _read(nest))


def _read(nest: ProductNest) -> set[Load]:
    """What is read for each element of the result, unlike a bias."""
    return {
        expr
        for part in ir.statements(nest.behind)
        for expr in ir.subexpressions(*ir.expressions(part))
        if isinstance(expr, Load) and expr.buffer.slot >= 0 and _is_long(expr, nest)
    }


def _is_long(load: Load, nest: ProductNest) -> bool:
    """True for an operand with one element for every result, unlike a bias."""
    elements = prod(int(s.value) if isinstance(s, Const) else 1 for s in load.buffer.shape)
    return elements >= nest.row_count * nest.columns


def _nest(draft: Draft) -> ProductNest:
    nest = product_nest(draft.kernel.body)
    refusal = nest if isinstance(nest, str) else unreadable(nest)
    if isinstance(nest, str) or refusal:
        raise ScheduleError(refusal)
    return nest


def _product(axes: Sequence[Axis], letter: str) -> int:
    """The lengths of all axes of a letter together; 0 where one is not known."""
    sizes = [axis.extent for axis in axes if axis.name[0] == letter]
    return prod(size if isinstance(size, int) else 0 for size in sizes)


def _in_form(lowered: Lowered) -> tuple[Draft, str]:
    """The contraction as a nest of rows, octets and a sum, and its outermost loop."""
    draft = Draft(lowered.kernel)
    names = {
        letter: [a.name for a in (*lowered.rows, *lowered.inner) if a.name[0] == letter]
        for letter in "bmnk"
    }
    near, far = ("m", "n") if lowered.rows[-1].name[0] == "m" else ("n", "m")
    if not (names[near] and names[far] and names["k"]):
        raise ScheduleError("there are no rows, columns and a sum")
    order = [*names["b"], *names[far], *names[near]]
    if order != [a.name for a in lowered.rows]:
        draft.do(Reorder(tuple(order)))
    lanes, rows, depth = (_joined(draft, names[letter]) for letter in (near, far, "k"))
    if len(lanes) > 1 or len(depth) > 1:
        raise ScheduleError("columns, or the terms of a sum, do not lie one after the other")
    (lane,), (deep,) = lanes, depth
    draft.do(Split(lane, OCTET, "guard"))
    draft.do(Reorder((f"{lane}.0", deep, f"{lane}.1")), SetKind(f"{lane}.1", "vector"))
    return draft, [*_joined(draft, names["b"]), *rows][0]


def _joined(draft: Draft, axes: Sequence[str]) -> list[str]:
    """Nested loops made one where all accesses walk memory as one would; those that are left."""
    found = list(axes[:1])
    for axis in axes[1:]:
        step = Fuse(found[-1], axis)
        try:
            draft.do(step)
            found[-1] = step.axis
        except ScheduleError:
            found.append(axis)
    return found
