"""The default schedule of a kernel on a GPU, by its family, as `schedules/default.py` on a CPU."""

from __future__ import annotations

from ridgeline.loops import ir
from ridgeline.loops.ir import Const, For, Load
from ridgeline.loops.lowering.iteration_space import Lowered
from ridgeline.loops.schedule import Cascade, SetKind, Step, replay
from ridgeline.schedules.accurate_sums import cascades
from ridgeline.schedules.default import family
from ridgeline.schedules.gpu import contraction, own_loops, pointwise, recurrence, rows
from ridgeline.schedules.gpu.machine import GpuMachine

_FEW_LOADS = 3  # of an iteration that may stand in a kernel as often as a block is long


def steps(lowered: Lowered, gpu: GpuMachine) -> list[Step]:
    """Schedule steps for a lowered group; loops that never run need none."""
    if any(axis.extent == 0 for axis in (*lowered.rows, *lowered.inner)):
        return []
    chosen = {
        "pointwise": pointwise.steps, "rows": rows.steps, "contraction": contraction.steps,
        "own_loops": own_loops.steps, "recurrence": recurrence.steps,
    }  # fmt: skip
    kind = family(lowered)
    found = chosen[kind](lowered, gpu)
    return [*found, *_summed(lowered, found)] if kind == "rows" else found


def _summed(lowered: Lowered, found: list[Step]) -> list[Step]:
    """Cascade long sums; if loads are few, all of them are in flight together."""
    kernel = replay(lowered.kernel, found)
    cuts = cascades(kernel)
    loops = [s for s in ir.statements(replay(kernel, cuts).body) if isinstance(s, For)]
    axes = [step.axis for step in cuts if isinstance(step, Cascade)]
    return [*cuts, *(SetKind(a, "unroll") for a in axes if _is_short(a, loops))]


def _is_short(axis: str, loops: list[For]) -> bool:
    """True where all loops of an axis are of known length and read little."""
    for loop in (loop for loop in loops if loop.name == axis):
        parts = (ir.subexpressions(*ir.expressions(s)) for s in ir.statements(loop.body))
        read = {e for part in parts for e in part if isinstance(e, Load) and e.buffer.slot >= 0}
        if not isinstance(loop.extent, Const) or len(read) > _FEW_LOADS:
            return False
    return True
