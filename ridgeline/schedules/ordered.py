"""Kernels with loops in order: rows run in parallel, in lanes where they lie side by side.

Ranks are different: all pairs of a row are compared, so the lanes are elements of the row.
"""

from __future__ import annotations

from ridgeline.loops import ir
from ridgeline.loops.ir import For
from ridgeline.loops.lowering.iteration_space import Lowered
from ridgeline.loops.schedule import Reorder, SetKind, Split, Step
from ridgeline.ops.radix import RANK
from ridgeline.schedules.accesses import accesses
from ridgeline.schedules.machine import Machine
from ridgeline.schedules.pointwise import loop_extents

_FEWEST_LANES = 4
_RANK_REGISTERS = 4  # of elements that are ranked together, so that a key is loaded for many


def steps(lowered: Lowered, machine: Machine) -> list[Step]:
    """Steps for a kernel whose inner loops run in order."""
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
    width = machine.lanes(4) * 2
    chosen: list[Step] = []
    outer, lanes = rows[:-1], last
    if length > width:
        chosen.append(Split(last, width, "branch"))
        outer, lanes = [*outer, f"{last}.0"], f"{last}.1"
    inside = [s.name for s in ir.statements(lowered.kernel.body) if isinstance(s, For)]
    inner = [n for n in dict.fromkeys(inside) if n not in rows]
    chosen.append(Reorder((*outer, *inner, lanes)))
    return [*chosen, SetKind(lanes, "vector"), *(SetKind(n, "parallel") for n in outer)]


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
