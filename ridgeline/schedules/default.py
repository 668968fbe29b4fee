"""The default schedule of a kernel, by its family: contraction, rows, own loops, pointwise…"""

from __future__ import annotations

from ridgeline.loops.lowering.iteration_space import Lowered
from ridgeline.loops.schedule import Step, replay
from ridgeline.ops.contract import CONTRACT
from ridgeline.ops.control.loop import LOOP
from ridgeline.schedules import chain, contraction, own_loops, pointwise, rows
from ridgeline.schedules.accurate_sums import cascades
from ridgeline.schedules.machine import Machine


def family(lowered: Lowered) -> str:
    """`pointwise`, `rows`, `contraction`, `chain`, `own_loops` or `recurrence`."""
    if lowered.chain is not None:
        return "chain"
    if lowered.anchor is None:
        return "pointwise"
    if lowered.anchor.family == "own_loops":
        return "own_loops"
    if lowered.anchor is LOOP:
        return "recurrence"
    return "contraction" if lowered.anchor is CONTRACT else "rows"


def steps(lowered: Lowered, machine: Machine) -> list[Step]:
    """Schedule steps for a lowered group; loops that never run need none."""
    if any(axis.extent == 0 for axis in (*lowered.rows, *lowered.inner)):
        return []
    chosen = {
        "pointwise": pointwise.steps, "rows": rows.steps, "contraction": contraction.steps,
        "chain": chain.steps, "own_loops": own_loops.steps,
    }  # fmt: skip
    kind = family(lowered)
    if kind == "recurrence":
        return []  # a CPU calls the kernel of an iteration instead
    found = chosen[kind](lowered, machine)
    if kind not in ("rows", "chain"):
        return found
    axes = None if lowered.chain is None else lowered.chain.folded
    return [*found, *cascades(replay(lowered.kernel, found), machine, axes)]
