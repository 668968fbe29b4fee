"""Where the time goes, by op, by kernel and by the user's line."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass

import numpy as np

from ridgeline.profile.analysis.facts import Facts
from ridgeline.profile.model.costs import SHORT_TYPES
from ridgeline.profile.model.kernels import short_name, uses_tensor_cores


@dataclass(frozen=True)
class Line:
    """One row: seconds and calls per step."""

    name: str
    seconds: float
    share: float
    calls: float


def _summed(facts: Facts, pairs: Iterable[tuple[str, float]], most: int) -> list[Line]:
    total: dict[str, tuple[float, int]] = {}
    for name, time in pairs:
        spent, count = total.get(name, (0.0, 0))
        total[name] = (spent + time, count + 1)
    steps = facts.steps.count
    ranked = sorted(total.items(), key=lambda item: -item[1][0])[:most]
    return [
        Line(name, spent / steps / 1e6, facts.share(spent), count / steps)
        for name, (spent, count) in ranked
    ]


def _by_gpu(facts: Facts, name_of: Callable[[int], str]) -> Iterable[tuple[str, float]]:
    times = facts.gpu_time(facts.gpu_rows).tolist()
    return ((name_of(row), time) for row, time in zip(facts.gpu_rows.tolist(), times))


def _top_op(facts: Facts, row: int) -> str:
    """The outermost ATen op or autograd node around a device event."""
    op = int(facts.links.op_of_gpu[row])
    chain = facts.links.ops.chain(op)
    named = [r for r in chain if facts.op_name(r).startswith(("aten::", "autograd::"))]
    if not named:
        return facts.op_name(op) or "(no op)"
    return facts.op_name(named[-1]).removeprefix("autograd::engine::evaluate_function: ")


def _self_times(facts: Facts) -> Iterable[tuple[str, float]]:
    """Host ops with the time of their children taken off."""
    ops, parent = facts.trace.ops, facts.links.ops.parent
    own = ops.end - ops.start
    inner = own.copy()
    held = parent >= 0
    np.subtract.at(inner, parent[held], own[held])
    marks = facts.trace.name_mask("ProfilerStep#", prefix=True)
    rows = facts.host_ops[~marks[ops.name[facts.host_ops]]]
    return ((facts.op_name(row), max(0.0, float(inner[row]))) for row in rows.tolist())


def by_op(facts: Facts, most: int = 25) -> list[Line]:
    """Device time by outermost op; without a device, host time by op."""
    if not facts.has_gpu:
        return _summed(facts, _self_times(facts), most)
    return _summed(facts, _by_gpu(facts, lambda row: _top_op(facts, row)), most)


def by_kernel(facts: Facts, most: int = 25) -> list[Line]:
    """Device time by kernel or copy."""
    return _summed(facts, _by_gpu(facts, lambda row: short_name(facts.gpu_name(row))), most)


def by_line(facts: Facts, most: int = 25) -> list[Line]:
    """Device time by the user's function; without a device, host time of ops in it."""
    if facts.has_gpu:
        named = _by_gpu(facts, lambda row: facts.links.line_of_gpu(row) or "(not known)")
        return _summed(facts, named, most)
    ops, parent = facts.trace.ops, facts.links.ops.parent
    marks = facts.trace.name_mask("ProfilerStep#", prefix=True)
    outer = [
        row
        for row in facts.host_ops.tolist()
        if not marks[ops.name[row]] and (parent[row] < 0 or marks[ops.name[parent[row]]])
    ]
    return _summed(
        facts,
        (
            (facts.links.line_of_op(r) or "(not known)", float(ops.end[r] - ops.start[r]))
            for r in outer
        ),
        most,
    )


@dataclass(frozen=True)
class OpPoint:
    """One op with given shapes under the roofline; all numbers are modelled but the time."""

    name: str
    shapes: str
    dtype: str
    tensor_cores: bool
    intensity: float
    tflops: float
    gbs: float
    seconds: float
    floor: float
    calls: float


def roofline_dots(facts: Facts, most: int = 150) -> list[OpPoint]:
    """Modelled ops grouped by name and inputs, heaviest first."""
    groups: dict[int, list[tuple[int, float, float]]] = {}
    gpu = facts.trace.gpu
    for index, (op, rows, _, floor) in enumerate(facts.modelled):
        key = int(facts.trace.ops.name[op]) << 32 | int(facts.trace.ops.arguments[op])
        time = float(np.sum(gpu.end[rows] - gpu.start[rows]))
        groups.setdefault(key, []).append((index, time, floor))
    dots = []
    for members in groups.values():
        op, rows, cost, _ = facts.modelled[members[0][0]]
        time = sum(t for _, t, _ in members)
        if time <= 0:
            continue
        rate = len(members) / time
        dims = [d for d in facts.arguments(op).dims if d][:3]
        dots.append(
            OpPoint(
                facts.op_name(op).removeprefix("aten::"),
                ", ".join("×".join(map(str, d)) for d in dims),
                SHORT_TYPES.get(cost.type, "float32"),
                any(uses_tensor_cores(facts.gpu_name(int(r))) for r in rows),
                cost.flops / cost.bytes,
                cost.flops * rate / 1e6,
                cost.bytes * rate / 1e3,
                time / facts.steps.count / 1e6,
                sum(f for _, _, f in members) / facts.steps.count / 1e6,
                len(members) / facts.steps.count,
            )
        )
    return sorted(dots, key=lambda dot: -dot.seconds)[:most]
