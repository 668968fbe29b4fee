"""Kernels that would leave most of a GPU idle, though they read less memory as one.

A fold that needs another's result, and what is computed from it for every element, cannot be cut
into pieces: a row then has one block at most. Where rows are few, as the channels of a batch norm
are, two kernels that read the same memory are many times faster than one.
"""

from __future__ import annotations

from math import prod

from ridgeline.loops import ir
from ridgeline.loops.ir import Alloc, Buffer, For, Load, Seq, Stmt
from ridgeline.loops.lower import Lowered
from ridgeline.schedules.accesses import accesses
from ridgeline.schedules.default import family
from ridgeline.schedules.gpu.machine import GpuMachine

_ROWS_OF_A_BLOCK = 256  # that lie side by side
_SHORT = 1024  # elements of a row that one block reads in no time
_HELD = 1 << 17  # elements of a row that a cluster of blocks keeps in registers


def reason_to_part(lowered: Lowered, gpu: GpuMachine) -> str:
    """Why a kernel's stages should be kernels of their own; empty where they should not."""
    sizes = [axis.extent for axis in (*lowered.rows, *lowered.inner)]
    if family(lowered) != "rows" or not all(isinstance(size, int) for size in sizes):
        return ""
    rows = prod(int(axis.extent) for axis in lowered.rows)
    columns = prod(int(axis.extent) for axis in lowered.inner)
    if columns <= _SHORT or rows >= gpu.multiprocessors * _ROWS_OF_A_BLOCK:
        return ""
    aside = _rows_lie_side_by_side(lowered)
    blocks = rows // _ROWS_OF_A_BLOCK if aside else rows
    kept = columns <= _HELD and not aside
    if blocks >= gpu.multiprocessors or kept or not _stages_depend(lowered.kernel.body):
        return ""
    return f"{rows} rows of {columns} elements, read more than once, would leave the GPU idle"


def _rows_lie_side_by_side(lowered: Lowered) -> bool:
    """True where neighbours in memory belong to different rows."""
    if not lowered.rows:
        return False
    row, column = lowered.rows[-1].name, lowered.inner[-1].name
    touched = [a for a in accesses(lowered.kernel) if a.stride(column) != 0]
    return sum(a.stride(row) == 1 for a in touched) > sum(a.stride(column) == 1 for a in touched)


def _stages_depend(body: Stmt) -> bool:
    """True where a loop over the columns needs what another one left."""
    scratch: set[Buffer] = set()
    while not isinstance(body, Seq):
        if isinstance(body, Alloc):
            scratch.add(body.buffer)
        if not isinstance(body, (For, Alloc)):
            return False
        body = body.body
    return any(
        isinstance(stage, For)
        and any(
            isinstance(e, Load) and e.buffer in scratch
            for s in ir.statements(stage)
            for e in ir.subexpressions(*ir.expressions(s))
        )
        for stage in body.body
    )
