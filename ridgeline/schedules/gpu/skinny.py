"""Products with few rows, such as one token's: weights are read once, at memory bandwidth.

A block makes a few columns of the result for all rows. Its threads share out the depth in vectors
of 16 bytes: a vector of weights is multiplied with those of every row, a vector of a row with those
of a few columns. What the threads have is joined at the end. Tiles of more rows would be padding.
"""

from __future__ import annotations

from math import prod

from ridgeline.loops.ir import Load
from ridgeline.loops.lowering.iteration_space import Lowered
from ridgeline.loops.schedule import Bind, Reorder, ScheduleError, SetKind, Split, Step
from ridgeline.schedules.gpu.machine import ACCESS_BYTES, Draft, GpuMachine, power_at_most

MOST_ROWS = 8  # beyond, multiplying takes longer than reading weights: tensor cores are better
_THREADS = 128
_COLUMNS = 4  # of a block, for which a row is read once
_WAVES = 4  # blocks for each multiprocessor
_FEW_TURNS = 4  # vectors of a thread that are written out


def steps(
    lowered: Lowered, names: dict[str, list[str]], operands: list[Load], gpu: GpuMachine
) -> list[Step]:
    """Steps for a contraction whose operands both lie along its depth."""
    draft = Draft(lowered.kernel)
    order = (*names["b"], *names["m"], *names["n"])
    if order != tuple(a.name for a in lowered.rows):
        draft.do(Reorder(order))
    axes = {letter: draft.fuse(group) for letter, group in names.items() if group}
    m, n, k = axes["m"], axes["n"], axes["k"]
    few, many = (m, n) if _length(draft, m) <= _length(draft, n) else (n, m)
    width = ACCESS_BYTES // min(load.dtype.itemsize for load in operands)
    depth = _length(draft, k)
    if depth % width:
        raise ScheduleError("rows of whole vectors")
    batches = prod(_length(draft, axis) for axis in ([axes["b"]] if "b" in axes else []))
    columns = _columns(_length(draft, many), batches, gpu)
    vectors = depth // width
    threads = min(_THREADS, power_at_most(vectors))
    draft.do(Split(many, columns), Split(k, width), Split(f"{k}.0", threads, "guard"))
    own = [f"{many}.1", few]
    draft.do(Reorder((f"{many}.0", f"{k}.0.1", f"{k}.0.0", *own, f"{k}.1")))
    draft.do(*(SetKind(axis, "unroll") for axis in own), SetKind(f"{k}.1", "vector"))
    if vectors // threads <= _FEW_TURNS:
        draft.do(SetKind(f"{k}.0.0", "unroll"))
    draft.do(Bind(f"{k}.0.1", "thread"))
    draft.grid([*([axes["b"]] if "b" in axes else []), f"{many}.0"])
    return draft.steps


def _length(draft: Draft, axis: str) -> int:
    found = draft.length(axis)
    assert found is not None, "lengths are known"
    return found


def _columns(count: int, batches: int, gpu: GpuMachine) -> int:
    """Columns of a block: several where there are enough blocks."""
    columns = _COLUMNS
    while columns > 1 and (
        count % columns or count * batches // columns < _WAVES * gpu.multiprocessors
    ):
        columns //= 2
    return columns
