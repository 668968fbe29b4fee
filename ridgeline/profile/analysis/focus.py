"""Narrow a very long recording to its first steps, so that analysis stays bounded too.

Tables are sorted by start, so a window is a slice of each: no event is copied.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from ridgeline.profile.trace.model import (
    CallTable,
    Floats,
    FrameTable,
    GpuTable,
    OpTable,
    TorchTrace,
)

MOST_ANALYSED = 1_000_000
_FEWEST_STEPS = 4


def focused(trace: TorchTrace, most: int = MOST_ANALYSED) -> tuple[TorchTrace, str]:
    """The trace, or its first marked steps if it is larger than `most`; and a sentence on it."""
    if trace.rows <= most:
        return trace, ""
    ops = trace.ops
    marks = trace.matching(ops, trace.name_mask("ProfilerStep#", prefix=True))
    if len(marks) <= _FEWEST_STEPS:
        return trace, ""
    starts = np.unique(ops.start[marks])
    low, chosen = float(starts[0]), _FEWEST_STEPS
    for count in range(_FEWEST_STEPS, len(starts)):
        if _rows_before(trace, float(starts[count])) > most:
            break
        chosen = count
    high = float(starts[chosen])
    note = f"long recording: the first {chosen} of {len(starts)} steps were analysed"
    return _window(trace, low, high), note


def _rows_before(trace: TorchTrace, time: float) -> int:
    tables = (trace.ops, trace.calls, trace.gpu, trace.frames)
    return sum(int(np.searchsorted(table.start, time)) for table in tables)


def _window(trace: TorchTrace, low: float, high: float) -> TorchTrace:
    """Host events that start in the window, and the device events they launched."""
    ops = _between(trace.ops.start, low, high)
    calls = _between(trace.calls.start, low, high)
    launched = np.isin(trace.gpu.correlation, trace.calls.correlation[calls])
    gpu = np.flatnonzero(launched)
    # Frames that were open before the window still say where its work came from.
    frames = np.flatnonzero((trace.frames.start < high) & (trace.frames.end > low))
    memory = trace.memory
    sampled = (memory.time >= low) & (memory.time < high)
    return replace(
        trace,
        ops=OpTable(**{name: column[ops] for name, column in vars(trace.ops).items()}),
        calls=CallTable(**{name: column[calls] for name, column in vars(trace.calls).items()}),
        gpu=GpuTable(**{name: column[gpu] for name, column in vars(trace.gpu).items()}),
        frames=FrameTable(**{name: column[frames] for name, column in vars(trace.frames).items()}),
        memory=type(memory)(**{name: column[sampled] for name, column in vars(memory).items()}),
    )


def _between(starts: Floats, low: float, high: float) -> slice:
    return slice(int(np.searchsorted(starts, low)), int(np.searchsorted(starts, high)))
