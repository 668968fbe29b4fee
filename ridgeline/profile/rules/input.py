"""Rules D: the device waits for data, or for the host that prepares it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from itertools import pairwise

import numpy as np

from ridgeline.profile import intervals as iv
from ridgeline.profile.analysis.facts import Facts
from ridgeline.profile.model.costs import numel
from ridgeline.profile.rules.base import (
    EXACT,
    Evidence,
    Hit,
    Ledger,
    Value,
    gib,
    per_step,
    percent,
)
from ridgeline.profile.trace.model import Ints

_LOADER = "enumerate(DataLoader)#"
_SINGLE = "enumerate(DataLoader)#_SingleProcessDataLoaderIter.__next__"
_FILLS = (
    "aten::zeros",
    "aten::ones",
    "aten::full",
    "aten::rand",
    "aten::randn",
    "aten::arange",
    "aten::randint",
    "aten::linspace",
    "aten::eye",
    "aten::randperm",
)
# Faster than this, a host-to-device copy is as good as the link allows.
_LINK_GBS = 50.0
_LOOP_GAP = 50.0


def _loader_match(facts: Facts, ledger: Ledger, rows: Ints, minimum: float) -> Hit | None:
    """Waiting for the loader, as far as the device had nothing else to do."""
    main = rows[facts.trace.ops.thread[rows] == facts.steps.main_thread]
    waits = facts.spans(facts.trace.ops, main)
    waited = iv.measure(waits)
    idle = ledger.take_idle(waited)
    if facts.share(idle) < minimum:
        return None
    share = facts.share(idle)
    evidence = [
        Evidence("waiting in DataLoader", f"{per_step(facts, waited)} a step"),
        Evidence("batches drawn", f"{len(main)} in {facts.steps.count} steps", EXACT),
    ]
    if facts.has_gpu:
        overlap = iv.measure(iv.intersect(waits, facts.idle))
        evidence.append(Evidence("device idle meanwhile", f"{per_step(facts, overlap)} a step"))
    return Hit(
        idle,
        tuple(evidence),
        {"share": percent(share), "grade": "badly " if share >= 0.2 else ""},
        idle=idle,
        places=tuple(facts.op_places(main)),
        spans=waits,
    )


def _waits_for_data(facts: Facts, ledger: Ledger, limits: Mapping[str, float]) -> Hit | None:
    """D1: workers exist, but do not keep up."""
    rows = facts.ops_named(_LOADER, prefix=True)
    rows = rows[~facts.trace.name_mask(_SINGLE)[facts.trace.ops.name[rows]]]
    return _loader_match(facts, ledger, rows, limits["share"]) if len(rows) else None


def _no_workers(facts: Facts, ledger: Ledger, limits: Mapping[str, float]) -> Hit | None:
    """D2: the loader runs in the training process."""
    rows = facts.ops_named(_SINGLE)
    match = _loader_match(facts, ledger, rows, limits["share"]) if len(rows) else None
    return match if match is None or facts.has_gpu else replace(match, fix="host")


def _copies(facts: Facts, ledger: Ledger, *kinds: str) -> Ints:
    """Unclaimed copies whose name holds one of the kinds, such as `HtoD`."""
    rows = ledger.free(facts.copies)
    wanted = [any(kind in facts.gpu_name(int(row)) for kind in kinds) for row in rows]
    return rows[np.array(wanted, dtype=bool)] if len(rows) else rows


def _with_calls(facts: Facts, rows: Ints) -> iv.Intervals:
    """The time of copies and of the host calls that made them."""
    calls = facts.links.call_of_gpu[rows]
    known = calls[calls >= 0]
    owners = facts.links.op_of_call[known]
    owners = owners[owners >= 0]
    return iv.merge(
        (
            facts.spans(facts.trace.gpu, rows),
            facts.spans(facts.trace.calls, known),
            facts.spans(facts.trace.ops, _outer_copies(facts, owners)),
        )
    )


def _outer_copies(facts: Facts, owners: Ints) -> Ints:
    """The `aten::to` around each copying op, where there is one."""
    outer = []
    for row in np.unique(owners).tolist():
        chain = [r for r in facts.links.ops.chain(row) if facts.op_name(r).startswith("aten::")]
        outer.append(chain[-1] if chain else row)
    return np.array(outer, dtype=np.int64)


def _copy_match(
    facts: Facts, ledger: Ledger, rows: Ints, values: dict[str, Value], fix: str
) -> Hit:
    """The stake of a set of copies: all time in which they or their calls ran."""
    # What the loop around many copies does between them goes with them.
    spans = iv.closed(_with_calls(facts, rows), _LOOP_GAP)
    idle = ledger.take_idle(iv.measure(iv.intersect(spans, facts.idle)))
    exposed = iv.subtract(facts.spans(facts.trace.gpu, rows), facts.kernel_busy)
    moved = float(facts.trace.gpu.bytes[rows].sum())
    seconds = float(facts.gpu_time(rows).sum())
    evidence = (
        Evidence("copies", f"{len(rows) / facts.steps.count:.1f} a step", EXACT),
        Evidence("moved", f"{gib(moved / facts.steps.count)} a step", EXACT),
        Evidence("rate while copying", f"{moved / max(seconds, 1e-9) / 1e3:.1f} GB/s"),
        Evidence("host and device time in them", f"{per_step(facts, iv.measure(spans))} a step"),
    )
    stake = min(iv.measure(spans), idle + iv.measure(exposed) + _blocked(facts, spans))
    return Hit(
        stake,
        evidence,
        values,
        idle=idle,
        rows=rows,
        places=tuple(facts.top_places(rows, facts.gpu_time(rows))),
        fix=fix,
        spans=spans,
    )


def _blocked(facts: Facts, spans: iv.Intervals) -> float:
    """Copy time hidden behind kernels; it may still hold back the host."""
    return iv.measure(iv.intersect(spans, facts.kernel_busy))


def _pageable(facts: Facts, ledger: Ledger, limits: Mapping[str, float]) -> Hit | None:
    rows = _copies(facts, ledger, "Pageable -> Device", "Device -> Pageable")
    time = iv.measure(_with_calls(facts, rows)) if len(rows) else 0.0
    if not len(rows) or (facts.share(time) <= limits["share"] and len(rows) <= limits["copies"]):
        return None
    return _copy_match(facts, ledger, rows, {"share": percent(facts.share(time))}, "default")


def _exposed(facts: Facts, ledger: Ledger, limits: Mapping[str, float]) -> Hit | None:
    rows = _copies(facts, ledger, "HtoD", "DtoH")
    if not len(rows):
        return None
    exposed = iv.subtract(facts.spans(facts.trace.gpu, rows), facts.kernel_busy)
    share = facts.share(iv.measure(exposed))
    if share < limits["share"]:
        return None
    size = float(facts.trace.gpu.bytes[rows].sum()) / facts.steps.count
    evidence = (
        Evidence("copies beside no kernel", f"{per_step(facts, iv.measure(exposed))} a step"),
        Evidence("moved", f"{gib(size)} a step", EXACT),
    )
    return Hit(
        iv.measure(exposed),
        evidence,
        {"share": percent(share)},
        rows=rows,
        places=tuple(facts.top_places(rows, facts.gpu_time(rows))),
        spans=exposed,
    )


def _small_copies(facts: Facts, ledger: Ledger, limits: Mapping[str, float]) -> Hit | None:
    rows = _copies(facts, ledger, "HtoD")
    if len(rows) < limits["copies"] * facts.steps.count:
        return None
    sizes, seconds = facts.trace.gpu.bytes[rows], float(facts.gpu_time(rows).sum())
    rate = float(sizes.sum()) / max(seconds, 1e-9) / 1e3
    if sizes.mean() >= limits["bytes"] or rate >= limits["link"] * _LINK_GBS:
        return None
    values: dict[str, Value] = {
        "count": round(len(rows) / facts.steps.count),
        "size": gib(float(sizes.mean())),
    }
    return _copy_match(facts, ledger, rows, values, "default")


def _filled_on_host(facts: Facts, ledger: Ledger, limits: Mapping[str, float]) -> Hit | None:
    """D6: a constant or random tensor made on the host, then copied over."""
    fills = facts.ops_named(*_FILLS)
    copies = _copies(facts, ledger, "HtoD")
    if not len(fills) or not len(copies):
        return None
    ops, links = facts.trace.ops, facts.links
    moved: dict[int, list[int]] = {}
    for row in copies.tolist():
        chain = links.ops.chain(int(links.op_of_gpu[row]))
        top = next((r for r in reversed(chain) if facts.op_name(r) == "aten::to"), -1)
        if top >= 0:
            moved.setdefault(top, []).append(row)
    launched = set(links.op_of_gpu[facts.kernels].tolist())
    found, involved = [], []
    tops = np.array(sorted(moved), dtype=np.int64)
    for fill in fills.tolist():
        after = tops[np.searchsorted(ops.start[tops], ops.end[fill]) :] if len(tops) else tops
        if not len(after) or launched.intersection(_children(facts, fill)):
            continue
        top = int(after[0])
        near = ops.start[top] - ops.end[fill] < max(200.0, ops.end[fill] - ops.start[fill])
        if ops.thread[top] == ops.thread[fill] and near and _same_elements(facts, fill, top):
            found += moved[top]
            involved += [fill, top]
    if not found:
        return None
    rows, both = np.array(found), np.unique(np.array(involved))
    # Releasing a large host tensor gives its pages back, which takes time outside any op.
    spans = facts.with_bare_time(iv.merge((_with_calls(facts, rows), facts.spans(ops, both))))
    idle = ledger.take_idle(iv.measure(iv.intersect(spans, facts.idle)))
    if facts.share(iv.measure(spans)) < limits["share"]:
        return None
    evidence = (
        Evidence("tensors made on the host", f"{len(found) / facts.steps.count:.1f} a step", EXACT),
        Evidence("filling and copying them", f"{per_step(facts, iv.measure(spans))} a step"),
    )
    return Hit(
        iv.measure(spans),
        evidence,
        {"op": facts.op_name(int(both[0])).removeprefix("aten::")},
        idle=idle,
        rows=rows,
        places=tuple(facts.op_places(both)),
        spans=spans,
    )


def _children(facts: Facts, op: int) -> set[int]:
    """Ops inside one op, itself included; they follow it directly in the table."""
    ops, found, row = facts.trace.ops, {op}, op + 1
    while row < len(ops) and ops.start[row] < ops.end[op]:
        if ops.thread[row] == ops.thread[op]:
            found.add(row)
        row += 1
    return found


def _same_elements(facts: Facts, fill: int, to: int) -> bool:
    """Whether the copied tensor may be the filled one; true where shapes were not recorded."""
    target = facts.arguments(to).dims
    if not target:
        return True
    wanted = numel(target[0])
    inside = [facts.arguments(row).dims for row in _children(facts, fill)]
    sizes = {numel(dims) for shapes in inside for dims in shapes[:1] if dims}
    return not sizes or wanted in sizes


def _starved(facts: Facts, ledger: Ledger, limits: Mapping[str, float]) -> Hit | None:
    """D7: in most samples of the window the host works and the device does nothing."""
    samples = 200
    edges = np.linspace(facts.low, facts.high, samples + 1)
    host = iv.subtract(iv.merge((facts.main_ops, _python(facts))), facts.waiting)
    starved = 0
    for low, high in pairwise(edges.tolist()):
        length = high - low
        working = iv.measure(iv.clip(host, low, high)) / length
        busy = iv.measure(iv.clip(facts.busy, low, high)) / length
        starved += working > limits["host"] and busy < limits["device"]
    share = starved / samples
    idle = ledger.take_idle(iv.measure(facts.idle) * share)
    if share < limits["samples"] or facts.share(idle) < 0.05:
        return None
    evidence = (
        Evidence("samples with host at work, device idle", f"{starved} of {samples}"),
        Evidence("device busy", percent(1 - facts.idle_share)),
    )
    return Hit(idle, evidence, {"share": percent(share)}, idle=idle, confidence="medium")


def _python(facts: Facts) -> iv.Intervals:
    """User frames on the main thread; the program's outermost frames span everything."""
    frames = facts.trace.frames
    rows = facts.in_window(frames)
    rows = rows[frames.thread[rows] == facts.steps.main_thread]
    short = frames.end[rows] - frames.start[rows] < facts.window
    return facts.spans(frames, rows[short])


CHECKS = {
    "D1": _waits_for_data,
    "D2": _no_workers,
    "D3": _pageable,
    "D4": _exposed,
    "D5": _small_copies,
    "D6": _filled_on_host,
    "D7": _starved,
}
