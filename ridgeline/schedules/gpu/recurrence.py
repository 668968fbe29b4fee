"""Loops whose iterations are one kernel: a thread has a row, and runs through all of them.

A thread waits for its loads once in a few iterations, whose loads are under way together. There are
as many blocks as multiprocessors even where rows are few: a thread's time is that of its chain.
"""

from __future__ import annotations

from math import prod

from ridgeline.loops import ir
from ridgeline.loops.build import free_vars
from ridgeline.loops.ir import Const, For, Load, Stmt, Store
from ridgeline.loops.lowering.iteration_space import Lowered
from ridgeline.loops.lowering.recurrence import TURN
from ridgeline.loops.schedule import Bind, SetKind, Split, Step
from ridgeline.schedules.gpu.machine import Draft, GpuMachine, power_at_least, power_at_most

_LEAST_THREADS, _MOST_THREADS = 32, 128
_TURNS = 8  # iterations whose loads are issued together, of short ones
_WRITTEN = 512  # statements that are written out for the iterations of a turn


def steps(lowered: Lowered, gpu: GpuMachine) -> list[Step]:
    """Rows to threads; all that a thread keeps is indexed by constants."""
    draft = Draft(lowered.kernel)
    rows = [axis.name for axis in lowered.rows]
    draft.do(*(SetKind(name, "unroll") for name in _kept_by(draft.kernel.body)))
    turns, length = _TURNS, draft.length(TURN) or 0
    run = next(s for s in ir.statements(draft.kernel.body) if isinstance(s, For) and s.name == TURN)
    while turns > 1 and (length % turns or turns * _written(run.body) > _WRITTEN):
        turns //= 2
    if turns > 1:
        draft.do(Split(TURN, turns), SetKind(f"{TURN}.1", "unroll"))
    count = prod(draft.length(row) or 1 for row in rows)
    if (draft.length(rows[-1]) or 1) < _LEAST_THREADS:
        rows = [draft.fuse(rows)]
    spread = power_at_most(max(count // gpu.multiprocessors, 1))
    threads = min(max(spread, _LEAST_THREADS), _MOST_THREADS)
    threads = min(threads, power_at_least(draft.length(rows[-1]) or 1))
    last = rows[-1]
    draft.do(Split(last, threads, "guard"), Bind(f"{last}.1", "thread"))
    draft.grid([*rows[:-1], f"{last}.0"])
    return draft.steps


def _kept_by(body: Stmt) -> list[str]:
    """The loops whose variables index what a thread keeps: registers have no addresses."""
    names: set[str] = set()
    for statement in ir.statements(body):
        loads = ir.subexpressions(*ir.expressions(statement))
        seen = [e for e in loads if isinstance(e, Load)]
        if isinstance(statement, Store):
            seen.append(Load.make(statement.buffer, statement.index))
        for load in seen:
            if load.buffer.scope == "reg":
                names.update(*map(free_vars, load.index))
    loops = [s.name for s in ir.statements(body) if isinstance(s, For)]
    return [name for name in dict.fromkeys(loops) if name in names]


def _written(body: Stmt) -> int:
    """Statements in the text of a body, with unrolled loops written out."""
    if isinstance(body, ir.Seq):
        return sum(map(_written, body.body))
    if isinstance(body, (For, ir.If, ir.Alloc)):
        often = 1
        if isinstance(body, For) and body.kind == "unroll" and isinstance(body.extent, Const):
            often = int(body.extent.value)
        return often * _written(body.body)
    return 1
