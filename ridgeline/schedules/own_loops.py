"""Ops with own loops: rows run in parallel, and in vector lanes if they are adjacent.

Ranks are different: all pairs of a row are compared, so the lanes are elements of the row.
"""

from __future__ import annotations

from collections.abc import Mapping
from math import prod
from typing import TypeGuard

from ridgeline.loops import ir
from ridgeline.loops.ir import Alloc, Buffer, Const, For, Stmt
from ridgeline.loops.lowering.iteration_space import Lowered
from ridgeline.loops.lowering.own_loops import SUMS
from ridgeline.loops.schedule import LanesLast, Reorder, SetKind, Split, Step
from ridgeline.ops.radix import RANK
from ridgeline.schedules.accesses import accesses
from ridgeline.schedules.machine import Machine
from ridgeline.schedules.pointwise import loop_extents

_FEWEST_LANES = 4
_RANK_REGISTERS = 4  # of elements that are ranked together, so that a key is loaded for many


def steps(lowered: Lowered, machine: Machine) -> list[Step]:
    """Steps for the kernel of such an op; its inner loops stay in order, inside the rows."""
    rows = [axis.name for axis in lowered.rows]
    if lowered.anchor is RANK:
        return _rank_steps(lowered, rows, machine)
    if not rows:
        return []
    extents = loop_extents(lowered.kernel)
    last = rows[-1]
    length = extents[last]
    stores = [a for a in accesses(lowered.kernel) if a.is_store]
    if length is None or length < _FEWEST_LANES or any(a.stride(last) != 1 for a in stores):
        return [SetKind(name, "parallel") for name in rows]
    sums = [s.buffer for s in ir.statements(lowered.kernel.body) if _is_sums(s)]
    width = _columns(sums[0], rows, extents, machine) if sums else machine.lanes(4) * 2
    chosen: list[Step] = []
    outer, lanes = rows[:-1], last
    if length > width:
        chosen.append(Split(last, width, "branch"))
        outer, lanes = [*outer, f"{last}.0"], f"{last}.1"
    inside = [s.name for s in ir.statements(lowered.kernel.body) if isinstance(s, For)]
    inner = [n for n in dict.fromkeys(inside) if n not in rows]
    chosen.append(Reorder((*outer, *inner, lanes)))
    chosen += [LanesLast(SUMS) for s in sums if s.shape]
    return [*chosen, SetKind(lanes, "vector"), *(SetKind(n, "parallel") for n in outer)]


def _is_sums(statement: Stmt) -> TypeGuard[Alloc]:
    return isinstance(statement, Alloc) and statement.buffer.name == SUMS


def _columns(
    sums: Buffer, rows: list[str], extents: Mapping[str, int | None], machine: Machine
) -> int:
    """Columns that are summed together: their sums fit a cache, and all cores have some."""
    elements = prod(int(size.value) for size in sums.shape if isinstance(size, Const))
    room = machine.l1_bytes // (elements * sums.dtype.itemsize)
    share = prod(extents[row] or 1 for row in rows) // machine.threads
    width = machine.lanes(4) * 4
    while width > machine.lanes(4) and width > min(room, share):
        width //= 2
    return width


def _rank_steps(lowered: Lowered, rows: list[str], machine: Machine) -> list[Step]:
    length = loop_extents(lowered.kernel)["i"]
    tasks: list[Step] = [SetKind(name, "parallel") for name in rows]
    if length is None or length < _FEWEST_LANES:
        return tasks
    width = machine.lanes(4) * _RANK_REGISTERS
    if length <= width:
        return [Reorder((*rows, "j", "i")), SetKind("i", "vector"), *tasks]
    order = Reorder((*rows, "i.0", "j", "i.1"))
    return [Split("i", width, "branch"), order, SetKind("i.1", "vector"), *tasks]
