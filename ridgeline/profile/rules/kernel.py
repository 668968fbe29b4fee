"""Predicates and rules K: how near single kernels are to what the device can do.

Modelled percentages are of the data sheet's dense peaks. Kernels of vendor libraries are left
out where the only remedy would be to change the kernel.
"""

from __future__ import annotations

import math
from collections.abc import Mapping

import numpy as np

from ridgeline.profile.analysis.facts import Facts
from ridgeline.profile.model.costs import SHORT_TYPES, Cost
from ridgeline.profile.model.kernels import is_library, short_name, uses_tensor_cores
from ridgeline.profile.occupancy import LIMITS, Occupancy, occupancy, waves
from ridgeline.profile.rules.base import EXACT, MODELLED, Evidence, Hit, Ledger, per_step, percent
from ridgeline.profile.rules.precision import joined
from ridgeline.profile.trace.model import Ints

Row = tuple[int, Ints, Cost, float]
# Shorter kernels are ruled by launch and ramp-up, not by these limits.
_SHORTEST = 10.0


def shares(facts: Facts, rows: Ints, cost: Cost) -> tuple[float, float]:
    """(arithmetic, memory) as parts of the device's peaks."""
    gpu = facts.gpu_model
    time = float(np.sum(facts.trace.gpu.end[rows] - facts.trace.gpu.start[rows]))
    if gpu is None or time <= 0:
        return 0.0, 0.0
    tensor = any(uses_tensor_cores(facts.gpu_name(int(r))) for r in rows)
    kind = "tf32" if tensor and cost.type == "float" else SHORT_TYPES.get(cost.type, "float32")
    arithmetic = cost.flops / (gpu.peak(kind, tensor) * 1e6)
    return arithmetic / time, cost.bytes / (gpu.bandwidth * 1e3) / time


def occupancy_of(facts: Facts, row: int) -> Occupancy | None:
    """Recomputed from the launch: the trace's own figure is wrong above 48 KiB shared memory."""
    shape = facts.trace.gpu.shape[row]
    if shape < 0 or facts.capability not in LIMITS:
        return None
    launch = facts.trace.shapes[int(shape)]
    if not (1 <= launch.block <= 1024 and 0 <= launch.registers <= 255 and launch.shared >= 0):
        return None
    return occupancy(facts.capability, launch.block, launch.registers, launch.shared)


def _free(facts: Facts, ledger: Ledger) -> list[Row]:
    """Modelled ops with unclaimed kernels that are long enough to judge."""
    return [
        (op, ledger.free(rows), cost, floor)
        for op, rows, cost, floor in facts.modelled
        if len(ledger.free(rows)) and facts.gpu_time(rows).sum() >= _SHORTEST * len(rows)
    ]


def _grouped(facts: Facts, found: list[Row]) -> str:
    """The op that takes most of the time among some rows."""
    total: dict[str, float] = {}
    for op, rows, _, _ in found:
        total[facts.op_name(op)] = total.get(facts.op_name(op), 0.0) + facts.gpu_time(rows).sum()
    return max(total, key=lambda name: total[name]).removeprefix("aten::")


def _note(facts: Facts, found: list[Row], values: dict[str, str], evidence: Evidence) -> Hit:
    rows = joined([rows for _, rows, _, _ in found])
    time = float(facts.gpu_time(rows).sum())
    return Hit(
        0.0,
        (Evidence("time in them", f"{per_step(facts, time)} a step"), evidence),
        {**values, "share": percent(facts.share(time)), "op": _grouped(facts, found)},
        places=tuple(facts.top_places(rows, facts.gpu_time(rows))),
    )


def _at_the_limit(facts: Facts, ledger: Ledger, limits: Mapping[str, float]) -> Hit | None:
    found = [r for r in _free(facts, ledger) if max(shares(facts, r[1], r[2])) >= limits["share"]]
    if not found:
        return None
    best = max(max(shares(facts, rows, cost)) for _, rows, cost, _ in found)
    return _note(facts, found, {}, Evidence("nearest to its roof", percent(best), MODELLED))


def _latency_bound(facts: Facts, ledger: Ledger, limits: Mapping[str, float]) -> Hit | None:
    found = [
        row
        for row in _free(facts, ledger)
        if max(shares(facts, row[1], row[2])) < limits["share"]
        and not any(is_library(facts.gpu_name(int(r))) for r in row[1])
    ]
    if not found:
        return None
    rows = joined([rows for _, rows, _, _ in found])
    spent = float(facts.gpu_time(rows).sum())
    least = sum(floor for _, _, _, floor in found)
    if facts.share(spent - least) < limits["least"]:
        return None
    evidence = (
        Evidence("time in them", f"{per_step(facts, spent)} a step"),
        Evidence("least time", f"{per_step(facts, least)} a step", MODELLED),
        Evidence("which", short_name(facts.gpu_name(int(rows[0]))), EXACT),
    )
    return Hit(
        max(0.0, spent - least),
        evidence,
        {"op": _grouped(facts, found)},
        rows=rows,
        places=tuple(facts.top_places(rows, facts.gpu_time(rows))),
        confidence="medium",
        spans=facts.spans(facts.trace.gpu, rows),
    )


def _which_bound(facts: Facts, ledger: Ledger, limits: Mapping[str, float]) -> Hit | None:
    judged = _free(facts, ledger)
    if not judged:
        return None
    heaviest = _grouped(facts, judged)
    found = [row for row in judged if facts.op_name(row[0]).removeprefix("aten::") == heaviest]
    pairs = np.array([shares(facts, rows, cost) for _, rows, cost, _ in found])
    arithmetic, memory = (float(v) for v in np.median(pairs, axis=0))
    apart = abs(arithmetic - memory) >= limits["apart"]
    bound = ("arithmetic" if arithmetic > memory else "memory") if apart else "both alike"
    value = f"{percent(arithmetic)} arithmetic, {percent(memory)} memory"
    return _note(facts, found, {"bound": bound}, Evidence("of the peaks", value, MODELLED))


def _small_grid(facts: Facts, ledger: Ledger, limits: Mapping[str, float]) -> Hit | None:
    sms = facts.sms
    rows, lost, smallest = [], 0.0, sms
    for row in ledger.free(facts.kernels).tolist():
        shape = facts.trace.gpu.shape[row]
        time = float(facts.gpu_time(np.array([row]))[0])
        if shape < 0 or time < limits["shortest"]:
            continue
        grid = facts.trace.shapes[int(shape)].grid
        if 0 < grid < sms:
            rows.append(row)
            lost += time * (sms - grid) / sms
            smallest = min(smallest, grid)
    if not rows or facts.share(lost) < limits["share"]:
        return None
    chosen = np.array(rows)
    evidence = (
        Evidence("such kernels", f"{len(rows) / facts.steps.count:.0f} a step", EXACT),
        Evidence("smallest grid", f"{smallest} blocks on {sms} multiprocessors", EXACT),
        Evidence("time in them", f"{per_step(facts, facts.gpu_time(chosen).sum())} a step"),
        Evidence("which", short_name(facts.gpu_name(rows[0])), EXACT),
    )
    return Hit(
        lost,
        evidence,
        {"grid": smallest, "sms": sms},
        rows=chosen,
        places=tuple(facts.top_places(chosen, facts.gpu_time(chosen))),
        spans=facts.spans(facts.trace.gpu, chosen),
    )


def _tail(facts: Facts, ledger: Ledger, limits: Mapping[str, float]) -> Hit | None:
    rows, lost = [], 0.0
    for row in ledger.free(facts.kernels).tolist():
        fits = occupancy_of(facts, row)
        time = float(facts.gpu_time(np.array([row]))[0])
        if fits is None or time < _SHORTEST or is_library(facts.gpu_name(row)):
            continue
        count = waves(
            facts.trace.shapes[int(facts.trace.gpu.shape[row])].grid, facts.sms, fits.blocks
        )
        full = math.floor(count)
        if full < 1 or count == full or 1 / (1 + full) < limits["share"]:
            continue
        rows.append(row)
        lost += time * (1 - (count - full)) / (1 + full)
    if not rows or facts.share(lost) < limits["least"]:
        return None
    chosen = np.array(rows)
    evidence = (
        Evidence("such kernels", f"{len(rows) / facts.steps.count:.0f} a step", EXACT),
        Evidence("empty part of their last wave", f"{per_step(facts, lost)} a step", MODELLED),
        Evidence("which", short_name(facts.gpu_name(rows[0])), EXACT),
    )
    return Hit(lost, evidence, {"count": len(rows)}, rows=chosen, confidence="medium")


def _low_occupancy(facts: Facts, ledger: Ledger, limits: Mapping[str, float]) -> Hit | None:
    worst: tuple[float, Occupancy, str, Ints] | None = None
    for _, rows, cost, _ in facts.modelled:
        name = facts.gpu_name(int(rows[0]))
        fits = occupancy_of(facts, int(rows[0]))
        if fits is None or is_library(name) or facts.gpu_time(rows).sum() < _SHORTEST:
            continue
        slow = max(shares(facts, rows, cost)) < 0.6
        if slow and fits.share < limits["share"]:
            time = float(facts.gpu_time(rows).sum())
            if worst is None or time > worst[0]:
                worst = (time, fits, name, rows)
    if worst is None:
        return None
    _, fits, name, rows = worst
    evidence = (
        Evidence("which", short_name(name), EXACT),
        Evidence("occupancy", percent(fits.share), EXACT),
        Evidence("limited by", fits.limiter, EXACT),
    )
    values = {"limiter": fits.limiter, "share": percent(fits.share)}
    return Hit(0.0, evidence, values, places=tuple(facts.top_places(rows, facts.gpu_time(rows))))


def _slow_pointwise(facts: Facts, ledger: Ledger, limits: Mapping[str, float]) -> Hit | None:
    l2 = (facts.gpu_model.l2_mb if facts.gpu_model else 0) * 1e6
    found = [
        row
        for row in _free(facts, ledger)
        # What fits in the L2 cache is not bound by memory at all.
        if row[2].family == "pointwise"
        and row[2].bytes > 2 * l2
        and shares(facts, row[1], row[2])[1] < limits["share"]
    ]
    if not found:
        return None
    rows = joined([rows for _, rows, _, _ in found])
    spent = float(facts.gpu_time(rows).sum())
    lost = max(0.0, spent - sum(floor for _, _, _, floor in found))
    if facts.share(lost) < limits["least"]:
        return None
    slowest = min(shares(facts, r, cost)[1] for _, r, cost, _ in found)
    evidence = (
        Evidence("time in them", f"{per_step(facts, spent)} a step"),
        Evidence("slowest, of memory bandwidth", percent(slowest), MODELLED),
    )
    values = {"op": _grouped(facts, found), "slowest": percent(slowest)}
    return Hit(
        lost,
        evidence,
        values,
        rows=rows,
        confidence="medium",
        places=tuple(facts.top_places(rows, facts.gpu_time(rows))),
        spans=facts.spans(facts.trace.gpu, rows),
    )


CHECKS = {
    "K1": _at_the_limit,
    "K2": _latency_bound,
    "K3": _which_bound,
    "K4": _small_grid,
    "K5": _tail,
    "K6": _low_occupancy,
    "K10": _slow_pointwise,
}
