"""Where the steady steps of a trace begin and end, on the host and on the device.

A step ends when the host has moved on *and* the work it launched has finished, so a program
whose host runs ahead is measured by its device and one that waits is measured by its host.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from ridgeline.profile.analysis.links import Links
from ridgeline.profile.trace.model import Floats, TorchTrace

_MARKS = (
    ("ProfilerStep#", "profiler steps"),
    ("Optimizer.step#", "optimizer steps"),
    ("enumerate(DataLoader)#", "batches drawn"),
)
# A leading step this much longer than the typical later one is still warming up.
_WARM_UP_FACTOR = 1.5
# Microseconds; a window of no length could not be divided.
_SHORTEST = 1.0


@dataclass(frozen=True)
class SteadySteps:
    """Boundaries of the steady steps in microseconds; n steps have n + 1 boundaries."""

    host: Floats
    device: Floats
    dropped: int
    source: str
    main_thread: int

    @property
    def count(self) -> int:
        return len(self.device) - 1

    @property
    def low(self) -> float:
        return float(self.device[0])

    @property
    def high(self) -> float:
        return float(self.device[-1])

    @property
    def step(self) -> float:
        """Microseconds a step, on average."""
        return (self.high - self.low) / self.count


def _marks(trace: TorchTrace) -> tuple[Floats, int, str]:
    """Host boundaries from the best marks the trace has, their thread, and what they are."""
    ops = trace.ops
    for prefix, source in _MARKS:
        rows = trace.matching(ops, trace.name_mask(prefix, prefix=True))
        if len(rows) >= (1 if prefix.startswith("Profiler") else 3):
            thread = int(np.bincount(ops.thread[rows]).argmax())
            rows = rows[ops.thread[rows] == thread]
            if prefix.startswith("Profiler"):
                return np.append(ops.start[rows], ops.end[rows].max()), thread, source
            return ops.start[rows].copy(), thread, source
    low, high = _extent(trace)
    thread = int(np.bincount(ops.thread).argmax()) if len(ops) else -1
    return np.array([low, high]), thread, "the whole recording"


def _extent(trace: TorchTrace) -> tuple[float, float]:
    """First start and last end of anything but the user's frames, which span the program."""
    tables = [table for table in (trace.ops, trace.calls, trace.gpu) if len(table)]
    return min(float(t.start.min()) for t in tables), max(float(t.end.max()) for t in tables)


def _device_boundaries(trace: TorchTrace, links: Links, host: Floats) -> Floats:
    """When the work launched before each host boundary was done."""
    gpu = trace.gpu
    if not len(gpu):
        return host
    known = links.call_of_gpu >= 0
    # Work launched before the recording began has no call; without any calls, a start must do.
    launched = np.full(len(gpu), -np.inf) if known.any() else gpu.start.copy()
    launched[known] = trace.calls.start[links.call_of_gpu[known]]
    order = np.argsort(launched, kind="stable")
    done = np.maximum.accumulate(gpu.end[order])
    before = np.searchsorted(launched[order], host, side="left")
    finished = np.where(before > 0, done[np.maximum(before - 1, 0)], -np.inf)
    return np.asarray(np.maximum(host, finished))


def _warm_up(lengths: Floats) -> int:
    """How many leading steps to drop: the first of three or more, and any that are far longer."""
    if len(lengths) < 3:
        return 0
    dropped = 1
    while len(lengths) - dropped > 2:
        if lengths[dropped] <= _WARM_UP_FACTOR * float(np.median(lengths[dropped + 1 :])):
            break
        dropped += 1
    return dropped


def steady_steps(trace: TorchTrace, links: Links) -> SteadySteps:
    """The steps to analyse, warm-up dropped."""
    host, thread, source = _marks(trace)
    host = np.unique(host)
    if len(host) < 2:
        host = np.array([host[0], host[0] + _SHORTEST])
    device = _device_boundaries(trace, links, host)
    dropped = _warm_up(np.diff(device))
    host, device = host[dropped:], device[dropped:]
    if device[-1] < device[0] + _SHORTEST:
        device = np.append(device[:-1], device[0] + _SHORTEST)
    return SteadySteps(host, device, dropped, source, thread)
