"""Rules M: device and host memory over the steps."""

from __future__ import annotations

from collections.abc import Mapping
from itertools import pairwise

import numpy as np

from ridgeline.profile import intervals as iv
from ridgeline.profile.analysis.facts import Facts
from ridgeline.profile.rules.base import EXACT, Evidence, Hit, Ledger, gib, percent
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


def _nearly_full(facts: Facts, ledger: Ledger, limits: Mapping[str, float]) -> Hit | None:
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
    return Hit(0.0, evidence, {"share": percent(peak / total)})


def _headroom(facts: Facts, ledger: Ledger, limits: Mapping[str, float]) -> Hit | None:
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
    return Hit(0.0, evidence, {"memory": percent(shares["memory"])}, confidence="low")


def _growth(facts: Facts, ledger: Ledger, limits: Mapping[str, float]) -> Hit | None:
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
    return Hit(stake, tuple(evidence), {"growth": gib(slope)}, idle=stake, spans=asked)


CHECKS = {
    "M1": _nearly_full,
    "M2": _headroom,
    "M3": _growth,
}
