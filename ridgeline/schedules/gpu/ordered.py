"""Scans and scatters: rows are threads; updates of a scatter that only join are threads too."""

from __future__ import annotations

from math import prod

from ridgeline.loops import ir
from ridgeline.loops.ir import For, Reduce
from ridgeline.loops.lowered import Lowered
from ridgeline.loops.schedule import Bind, Reorder, Split, Step
from ridgeline.ops.gather import SCATTER
from ridgeline.schedules.gpu.common import Draft, power_at_least
from ridgeline.schedules.gpu.machine import GpuMachine

_THREADS = 128
_FEW_ROWS = 32


def steps(lowered: Lowered, gpu: GpuMachine) -> list[Step]:
    """Steps for a kernel whose inner loops run in order."""
    draft = Draft(lowered.kernel)
    rows = [axis.name for axis in lowered.rows]
    names = [s.name for s in ir.statements(draft.kernel.body) if isinstance(s, For)]
    inner = [n for n in dict.fromkeys(names) if n not in rows]
    joins = any(isinstance(s, Reduce) for s in ir.statements(draft.kernel.body))
    if lowered.anchor is SCATTER and joins:
        _scatter(draft, rows, inner)
    elif rows:
        _to_threads(draft, rows)
    return draft.steps


def _to_threads(draft: Draft, rows: list[str]) -> None:
    last = rows[-1]
    threads = min(_THREADS, power_at_least(draft.length(last) or _THREADS))
    draft.do(Split(last, threads, "guard"), Bind(f"{last}.1", "thread"))
    draft.grid([*rows[:-1], f"{last}.0"])


def _scatter(draft: Draft, rows: list[str], inner: list[str]) -> None:
    """One launch copies the base, the next joins the updates in, both over all their elements."""
    if rows:
        draft.do(Reorder((*inner, *rows)))
    lengths = [draft.length(row) for row in rows]
    known = [length for length in lengths if length is not None]
    if rows and (len(known) < len(rows) or prod(known) >= _FEW_ROWS):
        draft.grid(inner)
        _to_threads(draft, [draft.fuse(rows)] if len(known) == len(rows) else rows)
        return
    last = {axis[0]: axis for axis in inner}  # of the copies, and of the updates
    for axis in last.values():
        draft.do(Split(axis, _THREADS, "guard"), Bind(f"{axis}.1", "thread"))
    draft.grid([f"{a}.0" if a in last.values() else a for a in inner])
