"""Row kernels: reductions with the pointwise work around them.

Columns that lie next to each other in memory are folded in vector lanes. Where rows lie next to
each other instead, or a row is very short, the lanes are rows.
"""

from __future__ import annotations

from math import inf, prod

from ridgeline.loops import ir
from ridgeline.loops.ir import For, Kernel
from ridgeline.loops.lowering.iteration_space import Lowered
from ridgeline.loops.schedule import FuseSiblings, Reorder, Rfactor, SetKind, Split, Step, attempt
from ridgeline.schedules.accesses import LoopAccess, accesses
from ridgeline.schedules.machine import Machine
from ridgeline.schedules.pointwise import collapse, is_long, loop_extents, streams

_LANE_REGISTERS = 4  # accumulators per fold, so that additions do not wait for one another
_FEWEST_LANES = 4  # fewer rows than this do not fill a vector
_SHORT_ROW = 16  # rows this short are unrolled whole


def steps(lowered: Lowered, machine: Machine) -> list[Step]:
    """Steps for a kernel with folds over columns."""
    chosen: list[Step] = []
    kernel, inner = collapse(lowered.kernel, [a.name for a in lowered.inner], chosen)
    kernel = _read_once(kernel, inner, chosen)
    rows = [a.name for a in lowered.rows]
    extents = loop_extents(kernel)
    touched = accesses(kernel)
    columns = _columns(extents, inner)
    per_column = [a for a in touched if any(a.stride(name) != 0 for name in inner)]
    by_rows = bool(rows) and (
        _scattered(per_column, rows[-1]) < _scattered(per_column, inner[-1])
        or (columns <= _SHORT_ROW and (extents[rows[-1]] or 0) > columns)
    )
    if by_rows and (extents[rows[-1]] or 0) >= _FEWEST_LANES:
        return [*chosen, *_lanes_are_rows(kernel, rows, inner, machine)]
    return [*chosen, *_lanes_are_columns(lowered, kernel, rows, inner, machine)]


def _read_once(kernel: Kernel, inner: list[str], chosen: list[Step]) -> Kernel:
    """Merge reductions that are independent of each other."""
    for name in inner:
        step = FuseSiblings(name)
        made = attempt(kernel, step) if _folds(kernel, name) > 1 else None
        if made is None:
            break
        chosen.append(step)
        kernel = made
    return kernel


def _folds(kernel: Kernel, axis: str) -> int:
    loops = (s for s in ir.statements(kernel.body) if isinstance(s, For))
    return sum(loop.name == axis and loop.axis == "reduce" for loop in loops)


def _columns(extents: dict[str, int | None], inner: list[str]) -> float:
    """The number of elements of a row; infinite if it is known only at run time."""
    lengths = [extents[name] for name in inner]
    return inf if None in lengths else prod(length or 1 for length in lengths)


def _scattered(touched: list[LoopAccess], axis: str) -> int:
    """Loads whose lanes would not be contiguous."""
    loads = [a for a in touched if not a.is_store]
    return sum(a.stride(axis) not in (0, 1) and axis not in a.runs for a in loads)


def _lanes_are_columns(
    lowered: Lowered, kernel: Kernel, rows: list[str], inner: list[str], machine: Machine
) -> list[Step]:
    extents = loop_extents(kernel)
    last = inner[-1]
    length = extents[last]  # None where it is known only at run time
    itemsize = max((b.dtype.itemsize for b in kernel.params), default=4)
    long = is_long(kernel)
    width = machine.lanes(8) if long else machine.lanes(itemsize) * _LANE_REGISTERS
    chosen: list[Step] = []
    if length is None or length > width:
        uneven = length is None or (long and length % width != 0)
        chosen.append(Split(last, width, "guard" if uneven else "branch"))
        last = f"{last}.1"
    chosen += [Rfactor(last), SetKind(last, "vector")]
    chosen += [SetKind(name, "parallel") for name in rows]
    chosen += streams(lowered, kernel, machine)
    return chosen


def _lanes_are_rows(
    kernel: Kernel, rows: list[str], inner: list[str], machine: Machine
) -> list[Step]:
    extents = loop_extents(kernel)
    last = rows[-1]
    long = is_long(kernel)
    registers = _row_registers([extents[name] or 1 for name in rows], machine)
    width = machine.lanes(8) if long else machine.lanes(4) * registers
    chosen: list[Step] = []
    outer = rows[:-1]
    lanes = last
    if (extents[last] or 0) > width:
        chosen.append(Split(last, width, "branch"))
        outer, lanes = [*rows[:-1], f"{last}.0"], f"{last}.1"
    chosen.append(Reorder((*outer, *inner, lanes)))
    chosen.append(SetKind(lanes, "vector"))
    if _columns(extents, inner) <= _SHORT_ROW and not long:
        chosen += [SetKind(name, "unroll") for name in inner]
    chosen += [SetKind(name, "parallel") for name in outer]
    return chosen


def _row_registers(rows: list[int], machine: Machine) -> int:
    """Vectors of rows in a task: four read longer runs of memory, if all cores have tasks."""
    wide = machine.lanes(4) * _LANE_REGISTERS
    tasks = prod(rows[:-1]) * (rows[-1] // wide)
    return _LANE_REGISTERS if tasks >= 2 * machine.threads else 2
