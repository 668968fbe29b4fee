"""Pointwise kernels: every thread moves a few 16-byte vectors, all loads before the first store."""

from __future__ import annotations

from ridgeline.loops import ir
from ridgeline.loops.build import free_vars
from ridgeline.loops.ir import Kernel, Load
from ridgeline.loops.lowering.iteration_space import Lowered
from ridgeline.loops.schedule import Bind, Reorder, SetKind, Split, Step
from ridgeline.schedules.gpu.machine import Draft, GpuMachine, power_at_least, vector_width
from ridgeline.schedules.gpu.transpose import turn_tiles
from ridgeline.schedules.pointwise import collapse

_THREADS = 256
_VECTORS = 4  # of a thread, where there is work for all multiprocessors
_MOST_LOADS = 8  # of a vector; more are enough to wait for, and take the registers of others
_ROUNDS = 4  # of as many, where each meets the same columns and what belongs to them is kept


def steps(lowered: Lowered, gpu: GpuMachine) -> list[Step]:
    """Steps for a kernel with row loops only."""
    names = [axis.name for axis in lowered.rows]
    if not names:
        return []
    draft = Draft(lowered.kernel)
    draft.kernel, names = collapse(draft.kernel, names, draft.steps)
    if not turn_tiles(draft, names, gpu):
        spread_over_threads(draft, names, gpu)
    return draft.steps


def spread_over_threads(draft: Draft, names: list[str], gpu: GpuMachine) -> None:
    """Give the elements of independent loops to threads; the last loop is that of the lanes."""
    lengths = [draft.length(name) for name in names]
    if any(length is None for length in lengths):
        draft.do(Split(names[-1], _THREADS, "guard"), Bind(f"{names[-1]}.1", "thread"))
        draft.grid([*names[:-1], f"{names[-1]}.0"])
        return
    last = names[-1]
    whole = vector_width(draft.kernel, last, 1 << 20)
    if len(names) == 1 and lengths[-1] % whole and lengths[-1] > whole:  # type: ignore[operator]
        draft.do(Split(last, whole, "branch"))  # the last vector is shorter
        over, lane = f"{last}.0", f"{last}.1"
    else:
        over, inner = draft.vectors(last, vector_width(draft.kernel, last, lengths[-1]))
        lane = inner or ""
    axes = [*names[:-1], *[over] * bool(over)]
    if not axes:
        draft.do(SetKind(lane, "vector"))
        return
    columns = draft.length(axes[-1]) or 1
    loads = _loads(draft.kernel, axes[0])
    axis = draft.fuse(axes)
    count = draft.length(axis) or 0
    enough = _THREADS * _VECTORS * gpu.multiprocessors * 2
    per_thread = _VECTORS if count >= enough and loads <= _MOST_LOADS else 1
    threads = min(_THREADS, power_at_least(count))
    repeats = len(axes) > 1 and threads % columns == 0
    if repeats and per_thread > 1 and count >= enough * _ROUNDS:
        per_thread *= _ROUNDS
    draft.do(Split(axis, threads * per_thread, "branch"))
    piece, turns, thread = f"{axis}.1", f"{axis}.1.0", f"{axis}.1.1"
    draft.do(Split(piece, threads, "guard"), Reorder((thread, turns)))
    if per_thread > _VECTORS:
        draft.do(Split(turns, _VECTORS))
        turns = f"{turns}.1"
    if lane:
        draft.do(SetKind(lane, "vector"))
    draft.do(SetKind(turns, "unroll"), Bind(thread, "thread"))
    if draft.has(f"{axis}.0"):
        draft.grid([f"{axis}.0"])


def _loads(kernel: Kernel, axis: str) -> int:
    """The number of distinct elements of an axis that are read for each one written."""
    found = {
        expr
        for statement in ir.statements(kernel.body)
        for expr in ir.subexpressions(*ir.expressions(statement))
        if isinstance(expr, Load)
        and any(axis in free_vars(coordinate) for coordinate in expr.index)
    }
    return len(found)
