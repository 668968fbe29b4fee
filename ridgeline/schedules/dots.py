"""Products of narrow numbers by instructions that sum several of them into each lane.

Such an instruction wants the elements it sums next to each other: rows of the left operand have
them so, and the right one is packed in strips `[summed / depth, lanes, depth]`. The choice between
this and a plain register tile is made by counted cycles, as among tiles.
"""

from __future__ import annotations

from dataclasses import dataclass
from math import ceil, prod

from ridgeline.loops import ir
from ridgeline.loops.instructions import INSTRUCTIONS, Instruction
from ridgeline.loops.ir import Kernel, Reduce
from ridgeline.loops.schedule import CacheRead, Reorder, SetKind, Split, Step, Tensorize
from ridgeline.loops.tiles import factors
from ridgeline.schedules.accesses import Access, access
from ridgeline.schedules.machine import Machine
from ridgeline.schedules.panels import share_blocks
from ridgeline.schedules.tiles import imbalance

_WIDEST = 4  # vectors of a strip
_INTERLEAVED = 1.3  # cycles to pack an element


@dataclass(frozen=True, slots=True)
class Dot:
    """Rows and lanes of a tile, the loops around it, and what it costs per multiplication."""

    instruction: Instruction
    row: str
    column: str
    summed: str
    packed: str  # the right operand
    height: int  # rows of a tile
    strip: int  # columns of a strip
    block: int  # rows of a task
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
    left, right = (access(load.buffer, load.index, False) for load in read)
    types = (left.buffer.dtype, right.buffer.dtype, sums[0].buffers[0].dtype)
    fitting = [
        row for name, row in INSTRUCTIONS.items()
        if name in machine.instructions and types == (row.left, row.right, row.total)
    ]  # fmt: skip
    if len(fitting) != 1 or left.opaque or right.opaque:
        return None
    ((summed, depth),) = inner.items()
    axes = _axes(left, right, touched, rows)
    if axes is None or left.stride(summed) != 1 or depth % fitting[0].depth:
        return None
    return _sized(fitting[0], axes, summed, right, rows, depth, machine)


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


def _sized(
    instruction: Instruction,
    axes: tuple[str, str],
    summed: str,
    right: Access,
    rows: dict[str, int],
    depth: int,
    machine: Machine,
) -> Dot | None:
    """The widest strip that its axis divides into and the nearest cache but one holds."""
    row, column = axes
    lanes = max(instruction.lanes)
    itemsize = right.buffer.dtype.itemsize
    room = machine.l2_bytes // 2 // (depth * itemsize)
    widths = [r for r in (_WIDEST, 2, 1) if rows[column] % (r * lanes) == 0 and r * lanes <= room]
    if not widths:
        return None
    width = widths[0]
    height = min((machine.registers - width - 1) // width, rows[row])
    strips = prod(rows[n] for n in rows if right.stride(n) != 0) // (width * lanes)
    sharing = prod(rows[n] for n in rows if right.stride(n) == 0)
    block, blocks = share_blocks(row, sharing, strips, {}, rows, machine)
    arithmetic, traffic = height * width, width + 0.6 * height
    step = max(arithmetic, traffic) + 0.2 * min(arithmetic, traffic) + 1.0
    waste = ceil(block / height) * height / block
    cycles = step / (height * width * lanes * instruction.depth) * waste
    cycles += _INTERLEAVED * blocks / sharing
    return Dot(
        instruction, row, column, summed, right.buffer.name, height, width * lanes, block,
        cycles * imbalance(strips * blocks, machine),
    )  # fmt: skip


def dot_steps(dot: Dot, rows: dict[str, int]) -> list[Step]:
    """The steps of such a contraction."""
    row, chosen = dot.row, list[Step]()
    around = [n for n in rows if n not in (dot.row, dot.column)]
    if dot.block < rows[row]:
        chosen.append(Split(row, dot.block))
        around, row = [*around, f"{row}.0"], f"{row}.1"
    chosen.append(Reorder((*around, dot.column, row)))
    tile, pieces = row, list[str]()
    if dot.height < dot.block:
        chosen.append(Split(row, dot.height, "branch"))
        pieces, tile = [f"{row}.0"], f"{row}.1"
    strips, column = _cut(dot.column, dot.strip, rows[dot.column], chosen)
    vectors, lanes = _cut(column, max(dot.instruction.lanes), dot.strip, chosen)
    steps, depth = f"{dot.summed}.0", f"{dot.summed}.1"
    chosen += [
        Split(dot.summed, dot.instruction.depth),
        Reorder((*around, *strips, *pieces, steps, tile, *vectors, depth, lanes)),
        *(SetKind(name, "unroll") for name in (tile, *vectors)),
        SetKind(lanes, "vector"),
        CacheRead(dot.packed, (*pieces, steps)[0], (steps, *vectors, lanes, depth)),
        Tensorize(depth, dot.instruction.name),
        *(SetKind(name, "parallel") for name in (*around, *strips)),
    ]
    return chosen


def _cut(name: str, size: int, length: int, chosen: list[Step]) -> tuple[list[str], str]:
    if length == size:
        return [], name
    chosen.append(Split(name, size))
    return [f"{name}.0"], f"{name}.1"
