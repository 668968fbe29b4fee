"""The default schedule of a kernel on a GPU: the family decides, as on a CPU."""

from __future__ import annotations

from ridgeline.loops.lowered import Lowered
from ridgeline.loops.schedule import Step, replay
from ridgeline.schedules.default import family
from ridgeline.schedules.gpu import contraction, ordered, pointwise, rows
from ridgeline.schedules.gpu.machine import GpuMachine
from ridgeline.schedules.summing import cascades


def steps(lowered: Lowered, gpu: GpuMachine) -> list[Step]:
    """Schedule steps for a lowered group; loops that never run need none."""
    if any(axis.extent == 0 for axis in (*lowered.rows, *lowered.inner)):
        return []
    chosen = {
        "pointwise": pointwise.steps, "rows": rows.steps, "contraction": contraction.steps,
        "ordered": ordered.steps,
    }  # fmt: skip
    kind = family(lowered)
    found = chosen[kind](lowered, gpu)
    if kind != "rows":
        return found
    return [*found, *cascades(replay(lowered.kernel, found))]
