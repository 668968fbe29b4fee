"""Rules M: device and host memory over the steps."""

from __future__ import annotations

from collections.abc import Mapping
from itertools import pairwise

import numpy as np

from ridgeline.profile import intervals as iv
from ridgeline.profile.analysis.facts import Facts
from ridgeline.profile.rules.base import EXACT, Evidence, Fix, Ledger, Match, Rule, gib, percent
from ridgeline.profile.trace.model import Floats


def _samples(facts: Facts) -> tuple[Floats, Floats, Floats]:
    """Times, bytes in use and bytes reserved: the device's if it has any, else the host's."""
    memory = facts.trace.memory
    rows = memory.on_gpu if memory.on_gpu.any() else ~memory.on_gpu
    return memory.time[rows], memory.allocated[rows], memory.reserved[rows]


def _peaks(facts: Facts) -> Floats:
    """The most bytes in use in each steady step, by host boundaries."""
    time, allocated, _ = _samples(facts)
    step = np.searchsorted(facts.steps.host, time, side="right") - 1
    return np.array(
        [allocated[step == i].max() for i in range(facts.steps.count) if (step == i).any()]
    )


def _nearly_full(facts: Facts, ledger: Ledger, limits: Mapping[str, float]) -> Match | None:
    _, allocated, reserved = _samples(facts)
    total = facts.trace.device.memory
    if not len(allocated) or total <= 0 or not facts.trace.memory.on_gpu.any():
        return None
    peak = float(max(allocated.max(), reserved.max()))
    if peak / total <= limits["share"]:
        return None
    evidence = (
        Evidence("peak", gib(peak)),
        Evidence("device has", gib(total), EXACT),
    )
    return Match(0.0, evidence, {"share": percent(peak / total)})


def _headroom(facts: Facts, ledger: Ledger, limits: Mapping[str, float]) -> Match | None:
    _, allocated, reserved = _samples(facts)
    total = facts.trace.device.memory
    if not len(allocated) or total <= 0 or facts.steps.count < 3:
        return None
    steps = facts.steps.device
    busy = [
        iv.measure(iv.clip(facts.busy, low, high)) / (high - low)
        for low, high in pairwise(steps.tolist())
        if high > low
    ]
    shares = {
        "device": float(np.percentile(busy, 95)),
        "memory": float(np.percentile(np.maximum(allocated, reserved), 95)) / total,
        "host": iv.measure(iv.subtract(facts.main_ops, facts.waiting)) / facts.window,
    }
    if max(shares.values()) >= limits["share"]:
        return None
    evidence = tuple(Evidence(f"{name}, 95th percentile", percent(v)) for name, v in shares.items())
    return Match(0.0, evidence, {"memory": percent(shares["memory"])}, confidence="low")


def _growth(facts: Facts, ledger: Ledger, limits: Mapping[str, float]) -> Match | None:
    peaks = _peaks(facts)
    if len(peaks) < limits["steps"] or peaks[0] <= 0:
        return None
    width = max(1, len(peaks) // 4)
    average = np.convolve(peaks, np.ones(width) / width, mode="valid")
    growth = float(average[-1] / average[0] - 1)
    rising = float(np.mean(np.diff(average) > 0)) if len(average) > 1 else 0.0
    # A single step up is a larger batch; a leak rises step after step.
    if growth < limits["growth"] or rising < limits["rising"]:
        return None
    slope = float((average[-1] - average[0]) / (len(average) - 1))
    total = facts.trace.device.memory if facts.trace.memory.on_gpu.any() else 0
    evidence = [
        Evidence("in use, first steady step", gib(float(peaks[0]))),
        Evidence("in use, last steady step", gib(float(peaks[-1]))),
        Evidence("growth", f"{gib(slope)} a step"),
    ]
    if total:
        left = (total - float(peaks[-1])) / slope
        evidence.append(Evidence("steps until memory is full", f"about {left:.0f}"))
    calls = facts.trace.calls
    asked = facts.spans(calls, facts.calls_named("cudaMalloc", "hipMalloc", "cuMemCreate"))
    # New memory comes from the driver, which holds the host up and lets the device run dry.
    lost = facts.idle_around(asked) if facts.has_gpu else 0.0
    stake = ledger.take_idle(iv.measure(asked) + lost) if facts.has_gpu else 0.0
    return Match(stake, tuple(evidence), {"growth": gib(slope)}, idle=stake, spans=asked)


RULES = (
    Rule(
        id="M1",
        title="memory nearly full",
        threshold="peak above 90% of the device's memory",
        message="memory peaks at {share} of the device",
        check=_nearly_full,
        fixes={
            "default": Fix(
                "recompute activations, use 16-bit types, or a smaller batch with accumulation",
                """\
+from torch.utils.checkpoint import checkpoint
-hidden = block(hidden)
+hidden = checkpoint(block, hidden, use_reentrant=False)""",
            )
        },
        source="PyTorch TensorBoard plugin",
        disproof="torch.cuda.max_memory_allocated() after many steps: if it is far lower, the "
        "peak was warm-up",
        meaning="Above 90% the allocator begins to give segments back and to stall; the next "
        "longer batch fails.",
        order=100,
        limits={"share": 0.9},
        needs=frozenset({"memory", "gpu"}),
        severity="note",
    ),
    Rule(
        id="M2",
        title="room for a larger batch",
        threshold="device, host and memory all below 70% (95th percentile)",
        message="nothing is used above 70%, memory only {memory}",
        check=_headroom,
        fixes={
            "default": Fix(
                "enlarge the batch and scale the learning rate",
                """\
-loader = DataLoader(dataset, batch_size=64)
+loader = DataLoader(dataset, batch_size=256)""",
            )
        },
        source="SageMaker Debugger LowGPUUtilization and BatchSize",
        disproof="double the batch: if throughput does not rise, the limit is elsewhere",
        meaning="Larger pieces of work use the device better as long as memory allows them.",
        order=102,
        limits={"share": 0.7},
        needs=frozenset({"memory", "gpu"}),
        severity="note",
    ),
    Rule(
        id="M3",
        title="memory grows from step to step",
        threshold="the moving average of the peak grows by 5% over the steady steps",
        message="memory grows by {growth} every step: something keeps each step's graph alive",
        check=_growth,
        fixes={
            "default": Fix(
                "keep numbers, not graphs",
                """\
-losses.append(loss)
+losses.append(loss.detach())""",
            )
        },
        source="SageMaker Debugger GPUMemoryIncrease",
        disproof="record 100 steps: if the peak levels off, it was a cache filling up",
        meaning="A loss kept in a list or added to a running total keeps its whole graph. The run "
        "ends with out of memory, so this ranks above every loss of time.",
        order=31,
        limits={"growth": 0.05, "rising": 0.7, "steps": 4},
        needs=frozenset({"memory"}),
        severity="stops",
    ),
)
