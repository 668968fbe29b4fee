"""Occupancy against fusion: refuse merges that would leave most of a GPU idle.

A fold that needs another's result, and what is computed from it for every element, cannot be cut
into pieces: a row then has one block at most. Where rows are few, as the channels of a batch norm
are, two kernels that read the same memory are many times faster than one.

So it is with values that are found in one of many places, as the gradient of a pooling is: looking
there takes registers and waits, which threads that fold a column have for few elements at a time.
"""

from __future__ import annotations

from collections.abc import Iterator
from math import prod

from ridgeline.loops import ir
from ridgeline.loops.build import free_vars
from ridgeline.loops.ir import Alloc, Buffer, For, Load, OpExpr, Seq, Stmt
from ridgeline.loops.lowering.iteration_space import Lowered
from ridgeline.schedules.default import family
from ridgeline.schedules.gpu import tensor_cores
from ridgeline.schedules.gpu.machine import GpuMachine

_ROWS_OF_A_BLOCK = 256  # that lie side by side
_SHORT = 1024  # elements of a row that one block reads in no time
_MOST_GUARDED = 8  # loads behind tests that a fold of columns may have
_HELD = 1 << 17  # elements of a row that a cluster of blocks keeps in registers


def reason_to_part(lowered: Lowered, gpu: GpuMachine) -> str:
    """Why a kernel's stages should be kernels of their own; empty if they should not."""
    sizes = [axis.extent for axis in (*lowered.rows, *lowered.inner)]
    if family(lowered) == "contraction" and tensor_cores.is_wanted(lowered, gpu):
        return tensor_cores.reason_to_part(lowered)
    if family(lowered) != "rows" or not all(isinstance(size, int) for size in sizes):
        return ""
    rows = prod(int(axis.extent) for axis in lowered.rows)
    columns = prod(int(axis.extent) for axis in lowered.inner)
    if columns <= _SHORT or rows >= gpu.multiprocessors * _ROWS_OF_A_BLOCK:
        return ""
    aside = _rows_lie_side_by_side(lowered)
    if aside and _guarded_loads(lowered.body) > _MOST_GUARDED:
        return "what is looked for in many places is better stored than looked for in a fold"
    if not _stages_depend(lowered.body):
        return ""
    blocks = rows // _ROWS_OF_A_BLOCK if aside else rows
    kept = columns <= _HELD and not aside
    if blocks >= gpu.multiprocessors or kept:
        return ""
    return f"{rows} rows of {columns} elements, read more than once, would leave the GPU idle"


def _rows_lie_side_by_side(lowered: Lowered) -> bool:
    """True if neighbours in memory belong to different rows."""
    if not lowered.rows:
        return False
    row, columns = lowered.rows[-1].name, {axis.name for axis in lowered.inner}
    across = along = 0
    for load in _loads(lowered.body):
        if load.index and any(columns & free_vars(part) for part in load.index):
            last = free_vars(load.index[-1])
            across += row in last
            along += bool(columns & last)
    return across > along


def _loads(body: Stmt) -> Iterator[Load]:
    for statement in ir.statements(body):
        for expr in ir.subexpressions(*ir.expressions(statement)):
            if isinstance(expr, Load):
                yield expr


def _guarded_loads(body: Stmt) -> int:
    """The number of conditional loads."""
    found: set[Load] = set()
    for statement in ir.statements(body):
        for expr in ir.subexpressions(*ir.expressions(statement)):
            if isinstance(expr, OpExpr) and expr.name == "guarded":
                found.update(e for e in ir.subexpressions(expr.args[1]) if isinstance(e, Load))
    return len(found)


def _stages_depend(body: Stmt) -> bool:
    """True if a loop over the columns needs a result of another one."""
    scratch: set[Buffer] = set()
    while not isinstance(body, Seq):
        if isinstance(body, Alloc):
            scratch.add(body.buffer)
        if not isinstance(body, (For, Alloc)):
            return False
        body = body.body
    loops = [stage for stage in body.body if isinstance(stage, For)]
    return any(load.buffer in scratch for stage in loops for load in _loads(stage))
