"""Pointwise kernels: every thread moves a few 16-byte vectors, all loads before the first store."""

from __future__ import annotations

from ridgeline.loops.lowered import Lowered
from ridgeline.loops.schedule import Bind, Reorder, SetKind, Split, Step
from ridgeline.schedules.gpu.common import Draft, power_at_least, vector_width
from ridgeline.schedules.gpu.machine import GpuMachine
from ridgeline.schedules.pointwise import collapse

_THREADS = 256
_VECTORS = 4  # of a thread, where there is work for all multiprocessors


def steps(lowered: Lowered, gpu: GpuMachine) -> list[Step]:
    """Steps for a kernel with row loops only."""
    names = [axis.name for axis in lowered.rows]
    if not names:
        return []
    draft = Draft(lowered.kernel)
    draft.kernel, names = collapse(draft.kernel, names, draft.steps)
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
    axis = draft.fuse(axes)
    count = draft.length(axis) or 0
    per_thread = _VECTORS if count >= _THREADS * _VECTORS * gpu.multiprocessors * 2 else 1
    threads = min(_THREADS, power_at_least(count))
    draft.do(Split(axis, threads * per_thread, "branch"))
    piece, turns, thread = f"{axis}.1", f"{axis}.1.0", f"{axis}.1.1"
    draft.do(Split(piece, threads, "guard"), Reorder((thread, turns)))
    if lane:
        draft.do(SetKind(lane, "vector"))
    draft.do(SetKind(turns, "unroll"), Bind(thread, "thread"))
    if draft.has(f"{axis}.0"):
        draft.grid([f"{axis}.0"])
