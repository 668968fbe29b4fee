"""Predicates C1 to C4: the type or the size keeps work off the fast units."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

import numpy as np

from ridgeline.profile.analysis.facts import Facts
from ridgeline.profile.model.costs import CONVOLUTIONS, MATMULS, SIXTEEN_BIT, Cost, product_sizes
from ridgeline.profile.model.kernels import is_double, uses_tensor_cores
from ridgeline.profile.rules.base import (
    EXACT,
    MODELLED,
    NO_ROWS,
    Evidence,
    Hit,
    Ledger,
    per_step,
    percent,
)
from ridgeline.profile.trace.model import Ints, OpArguments


def joined(groups: list[Ints]) -> Ints:
    """All rows of several groups."""
    return np.concatenate(groups) if groups else NO_ROWS


def floor_match(
    facts: Facts,
    ledger: Ledger,
    chosen: list[tuple[int, Ints, Cost]],
    dtype: str,
    shrink: float = 1.0,
) -> tuple[float, Ints, float]:
    """(microseconds above the floor in another type, rows, microseconds now)."""
    rows, lost, spent = [], 0.0, 0.0
    for _, kernels, cost in chosen:
        free = ledger.free(kernels)
        if not len(free):
            continue
        time = float(facts.gpu_time(free).sum())
        moved = Cost(cost.family, cost.flops, cost.bytes * shrink, cost.type)
        # Work clipped by the window's edge is only partly inside: scale its floor alike.
        gpu = facts.trace.gpu
        whole = float(np.sum(gpu.end[kernels] - gpu.start[kernels]))
        least = facts.floor(moved, dtype=dtype) * (time / whole if whole > 0 else 1.0)
        rows.append(free)
        lost += max(0.0, time - least)
        spent += time
    return lost, joined(rows), spent


def _without_tensor_cores(
    facts: Facts, names: frozenset[str], types: tuple[str, ...]
) -> list[tuple[int, Ints, Cost]]:
    """Ops of some kinds and types none of whose kernels uses matrix units."""
    found = []
    for op, rows in facts.device_ops:
        cost = facts.cost(op)
        if cost is None or facts.op_name(op) not in names or cost.type not in types:
            continue
        if not any(uses_tensor_cores(facts.gpu_name(int(row))) for row in rows):
            found.append((op, rows, cost))
    return found


def _match(
    facts: Facts, lost: float, rows: Ints, spent: float, unit: str, extra: tuple[Evidence, ...] = ()
) -> Hit:
    evidence = (
        Evidence("time in these kernels", f"{per_step(facts, spent)} a step"),
        Evidence(
            f"least time with {unit}", f"{per_step(facts, max(0.0, spent - lost))} a step", MODELLED
        ),
        *extra,
    )
    return Hit(
        lost,
        evidence,
        {"share": percent(facts.share(spent))},
        rows=rows,
        places=tuple(facts.top_places(rows, facts.gpu_time(rows))),
        spans=facts.spans(facts.trace.gpu, rows),
    )


def no_tensor_cores(facts: Facts, ledger: Ledger, limits: Mapping[str, float]) -> Hit | None:
    """C1: products and convolutions that tensor cores could do, and do not."""
    if facts.capability < 70:
        return None
    names = CONVOLUTIONS if facts.capability >= 80 else CONVOLUTIONS | MATMULS
    chosen = _without_tensor_cores(facts, names, ("float", *SIXTEEN_BIT))
    dtype = "bfloat16" if facts.capability >= 80 else "float16"
    lost, rows, spent = floor_match(facts, ledger, chosen, dtype, shrink=0.5)
    if lost <= 0:
        return None
    # Autocast also halves the traffic of the pointwise work that follows.
    followers = [
        (op, kernels, cost)
        for op, kernels, cost, _ in facts.modelled
        if cost.family in ("pointwise", "normalisation") and cost.type == "float"
    ]
    beside, more, _ = floor_match(facts, ledger, followers, dtype, shrink=0.5)
    match = _match(facts, lost, rows, spent, f"tensor cores in {dtype}")
    return Hit(
        lost + min(beside, 0.5 * float(facts.gpu_time(more).sum())),
        match.evidence,
        match.values,
        rows=rows,
        places=match.places,
        spans=match.spans,
    )


def no_tf32(facts: Facts, ledger: Ledger, limits: Mapping[str, float]) -> Hit | None:
    """C2: float32 products on the plain cores of a GPU that has TF32."""
    if facts.capability < 80:
        return None
    chosen = _without_tensor_cores(facts, MATMULS, ("float",))
    lost, rows, spent = floor_match(facts, ledger, chosen, "tf32")
    if facts.share(lost) < limits["share"]:
        return None
    return _match(facts, lost, rows, spent, "TF32")


def _misaligned(name: str, arguments: OpArguments) -> int:
    """The first row length (in elements) that is not a multiple of 8, or 0."""
    sizes = product_sizes(name, arguments)
    if sizes is None:
        return 0
    _, _, n, k = sizes
    first = 1 if "addmm" in name or "baddbmm" in name else 0
    lengths = [n, k]
    if len(arguments.strides) > first + 1:
        # What must be aligned is the distance between rows in memory, whichever way they lie.
        lengths = [n]
        for strides in arguments.strides[first : first + 2]:
            if len(strides) >= 2:
                lengths.append(max(strides[-2:]))
    return next((length for length in lengths if length > 1 and length % 8), 0)


def odd_sizes(facts: Facts, ledger: Ledger, limits: Mapping[str, float]) -> Hit | None:
    """C3: 16-bit products whose rows do not start on 16-byte boundaries."""
    chosen, worst = [], 0
    for op, rows in facts.device_ops:
        cost = facts.cost(op)
        if cost is None or facts.op_name(op) not in MATMULS or cost.type not in SIXTEEN_BIT:
            continue
        odd = _misaligned(facts.op_name(op), facts.arguments(op))
        if odd:
            chosen.append((op, rows, cost))
            worst = worst or odd
    lost, rows, spent = floor_match(facts, ledger, chosen, "bfloat16")
    if not chosen or facts.share(lost) < limits["share"]:
        return None
    match = _match(
        facts, lost, rows, spent, "aligned sizes", (Evidence("such a size", str(worst), EXACT),)
    )
    return replace(match, values={**match.values, "size": worst})


def stray_double(facts: Facts, ledger: Ledger, limits: Mapping[str, float]) -> Hit | None:
    """C4: much of the device's time goes into float64."""
    double, spent, lost = [], 0.0, 0.0
    for op, rows in facts.device_ops:
        types = facts.arguments(op).types
        if "double" in types or any(is_double(facts.gpu_name(int(row))) for row in rows):
            cost = facts.cost(op)
            time = float(facts.gpu_time(rows).sum())
            least = 0.0
            if cost is not None:
                single = Cost(cost.family, cost.flops, cost.bytes / 2, "float")
                least = facts.floor(single, dtype="tf32")
            double.append(ledger.free(rows))
            spent += time
            lost += max(0.0, time - least)
    busy = float(facts.gpu_time(facts.kernels).sum())
    if (
        not double
        or busy <= 0
        or spent / busy <= limits["double"]
        or 1 - spent / busy >= limits["other"]
    ):
        return None
    match = _match(facts, lost, joined(double), spent, "float32")
    return replace(match, values={"share": percent(spent / busy)})


CHECKS = {
    "C1": no_tensor_cores,
    "C2": no_tf32,
    "C3": odd_sizes,
    "C4": stray_double,
}
