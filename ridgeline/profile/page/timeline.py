"""The timeline's data: lanes of events of the first steady steps, at most 50,000 in all."""

from __future__ import annotations

from typing import Any

import numpy as np

from ridgeline.profile.analysis.facts import Facts
from ridgeline.profile.model.kernels import is_collective, short_name
from ridgeline.profile.report import RankReport
from ridgeline.profile.trace.columns import Interner
from ridgeline.profile.trace.model import COPY, FILL, Ints

MOST_EVENTS = 50_000
MOST_SPANS = 2_000
_COMPUTE, _COPY, _NETWORK, _WAIT, _OP, _LOAD = range(6)

# Each name is written once and then meant by its number.
_Names = Interner[str]


def facts_of(rank: RankReport) -> Facts:
    """The trace of the slowest rank, the only one that is drawn."""
    if rank.facts is None:
        raise ValueError("only the slowest rank keeps its trace")
    return rank.facts


def timeline(rank: RankReport) -> dict[str, Any]:
    """Lanes, names and the findings' spans; times are microseconds from the first steady step."""
    facts, names = facts_of(rank), _Names()
    end = _end(facts)
    lanes = [_host_lane(facts, names, end), *_device_lanes(facts, names, end)]
    spans = {
        rule: np.round(match.spans[:MOST_SPANS] - facts.low, 1).ravel().tolist()
        for rule, match in rank.matches.items()
        if len(match.spans)
    }
    bounds = facts.steps.device
    return {
        "length": round(end - facts.low, 1),
        "steps": np.round(bounds[bounds <= end + 1] - facts.low, 1).tolist(),
        "names": list(names.items()),
        "lanes": [lane for lane in lanes if lane["start"]],
        "spans": spans,
    }


def _counted(facts: Facts, end: float) -> int:
    gpu, ops = facts.trace.gpu, facts.trace.ops
    device = int(np.sum(gpu.start[facts.gpu_rows] < end))
    return device + int(np.sum(ops.start[facts.host_ops] < end))


def _end(facts: Facts) -> float:
    """The last step boundary up to which the events fit; at least one step is shown."""
    chosen = float(facts.steps.device[1])
    for bound in facts.steps.device[1:].tolist():
        if _counted(facts, bound) > MOST_EVENTS:
            break
        chosen = bound
    return chosen


def _lane(title: str, rows: list[tuple[float, float, int, int, int]], low: float) -> dict[str, Any]:
    """Columns of one lane; `place` is 0 for none."""
    rows = rows[:MOST_EVENTS]
    return {
        "title": title,
        "start": [round(row[0] - low, 1) for row in rows],
        "length": [round(row[1], 1) for row in rows],
        "name": [row[2] for row in rows],
        "place": [row[3] for row in rows],
        "kind": [row[4] for row in rows],
    }


def _host_lane(facts: Facts, names: _Names, end: float) -> dict[str, Any]:
    """Outermost ops of the main thread, loader waits, and waits for the device."""
    names("")
    ops, calls, parent = facts.trace.ops, facts.trace.calls, facts.links.ops.parent
    marks = facts.trace.name_mask("ProfilerStep#", prefix=True)
    rows = facts.host_ops[ops.thread[facts.host_ops] == facts.steps.main_thread]
    shown = []
    for row in rows[ops.start[rows] < end].tolist():
        above = int(parent[row])
        if marks[ops.name[row]] or (above >= 0 and not marks[ops.name[above]]):
            continue
        name = facts.op_name(row)
        kind = _LOAD if name.startswith("enumerate(DataLoader)") else _OP
        line = names(facts.links.line_of_op(row))
        shown.append(
            (float(ops.start[row]), float(ops.end[row] - ops.start[row]), names(name), line, kind)
        )
    waits = facts.waiting_calls[calls.start[facts.waiting_calls] < end]
    for row in waits.tolist():
        line = names(facts.links.line_of_call(row))
        label = names(facts.trace.name_of(calls, row))
        shown.append(
            (float(calls.start[row]), float(calls.end[row] - calls.start[row]), label, line, _WAIT)
        )
    shown.sort(key=lambda event: (event[0], -event[1]))
    return _lane("host, main thread", shown, facts.low)


def _device_lanes(facts: Facts, names: _Names, end: float) -> list[dict[str, Any]]:
    """One lane a stream."""
    gpu = facts.trace.gpu
    rows = facts.gpu_rows[gpu.start[facts.gpu_rows] < end]
    lanes = []
    for stream in np.unique(gpu.stream[rows])[:16]:
        chosen = rows[gpu.stream[rows] == stream]
        events = [_device_event(facts, names, row) for row in chosen.tolist()]
        device, number = divmod(int(stream), 4096)
        lanes.append(_lane(f"GPU {device}, stream {number}", events, facts.low))
    return lanes


def _device_event(facts: Facts, names: _Names, row: int) -> tuple[float, float, int, int, int]:
    gpu = facts.trace.gpu
    name = facts.gpu_name(row)
    kind = _COPY if gpu.kind[row] in (COPY, FILL) else _COMPUTE
    kind = _NETWORK if is_collective(name) else kind
    one: Ints = np.array([row])
    start = max(float(gpu.start[row]), facts.low)
    line = names(facts.links.line_of_gpu(row))
    return start, float(facts.gpu_time(one)[0]), names(short_name(name)), line, kind
