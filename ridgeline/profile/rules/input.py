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
    Fix,
    Ledger,
    Match,
    Rule,
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


def _loader_match(facts: Facts, ledger: Ledger, rows: Ints, minimum: float) -> Match | None:
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
    return Match(
        idle,
        tuple(evidence),
        {"share": percent(share), "grade": "badly " if share >= 0.2 else ""},
        idle=idle,
        places=tuple(facts.op_places(main)),
        spans=waits,
    )


def _waits_for_data(facts: Facts, ledger: Ledger, limits: Mapping[str, float]) -> Match | None:
    """D1: workers exist, but do not keep up."""
    rows = facts.ops_named(_LOADER, prefix=True)
    rows = rows[~facts.trace.name_mask(_SINGLE)[facts.trace.ops.name[rows]]]
    return _loader_match(facts, ledger, rows, limits["share"]) if len(rows) else None


def _no_workers(facts: Facts, ledger: Ledger, limits: Mapping[str, float]) -> Match | None:
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
) -> Match:
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
    return Match(
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


def _pageable(facts: Facts, ledger: Ledger, limits: Mapping[str, float]) -> Match | None:
    rows = _copies(facts, ledger, "Pageable -> Device", "Device -> Pageable")
    time = iv.measure(_with_calls(facts, rows)) if len(rows) else 0.0
    if not len(rows) or (facts.share(time) <= limits["share"] and len(rows) <= limits["copies"]):
        return None
    return _copy_match(facts, ledger, rows, {"share": percent(facts.share(time))}, "default")


def _exposed(facts: Facts, ledger: Ledger, limits: Mapping[str, float]) -> Match | None:
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
    return Match(
        iv.measure(exposed),
        evidence,
        {"share": percent(share)},
        rows=rows,
        places=tuple(facts.top_places(rows, facts.gpu_time(rows))),
        spans=exposed,
    )


def _small_copies(facts: Facts, ledger: Ledger, limits: Mapping[str, float]) -> Match | None:
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


def _filled_on_host(facts: Facts, ledger: Ledger, limits: Mapping[str, float]) -> Match | None:
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
    return Match(
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


def _starved(facts: Facts, ledger: Ledger, limits: Mapping[str, float]) -> Match | None:
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
    return Match(idle, evidence, {"share": percent(share)}, idle=idle, confidence="medium")


def _python(facts: Facts) -> iv.Intervals:
    """User frames on the main thread; the program's outermost frames span everything."""
    frames = facts.trace.frames
    rows = facts.in_window(frames)
    rows = rows[frames.thread[rows] == facts.steps.main_thread]
    short = frames.end[rows] - frames.start[rows] < facts.window
    return facts.spans(frames, rows[short])


RULES = (
    Rule(
        id="D1",
        title="waiting for data",
        threshold="the main thread waits in DataLoader.__next__ for 5% of a step (20%: badly)",
        message="the training loop is {grade}input-bound: {share} of each step waits for a batch, "
        "although worker processes are in use",
        check=_waits_for_data,
        fixes={
            "default": Fix(
                "make samples cheaper (decode or resize ahead of time, store smaller files), then "
                "raise num_workers towards the number of cores and prefetch_factor",
                """\
-loader = DataLoader(dataset, batch_size=64, num_workers=2)
+loader = DataLoader(dataset, batch_size=64, num_workers=os.cpu_count(),
+                    persistent_workers=True, prefetch_factor=4)""",
            )
        },
        source="PyTorch TensorBoard plugin; XProf input-pipeline analysis",
        disproof="replace the loader by one batch repeated for ever: if the step is not faster by "
        "about the time at stake, the loader was not what it waited for",
        meaning="The main thread stands in the DataLoader's __next__ while the device has nothing "
        "to do. At stake is the smaller of the time waited and the device's idle time: a loader "
        "that is never waited for cannot save more than either.",
        order=20,
        limits={"share": 0.05},
    ),
    Rule(
        id="D2",
        title="data loaded in the training process",
        threshold="as D1, and the loader has no worker processes",
        message="the loader runs inside the training process: {share} of each step goes into "
        "fetching the batch",
        check=_no_workers,
        fixes={
            "default": Fix(
                "give the loader worker processes",
                """\
-loader = DataLoader(dataset, batch_size=64)
+loader = DataLoader(dataset, batch_size=64, num_workers=8,
+                    persistent_workers=True, pin_memory=True)""",
            ),
            "host": Fix(
                "give the loader worker processes",
                """\
-loader = DataLoader(dataset, batch_size=64)
+loader = DataLoader(dataset, batch_size=64, num_workers=8,
+                    persistent_workers=True)""",
            ),
        },
        source="TorchTidy (torch.profiler._pattern_matcher)",
        disproof="set num_workers=8: if the step does not get shorter, samples cost less than "
        "handing them between processes",
        meaning="num_workers=0 means that __getitem__, decoding and collation run on the main "
        "thread, in turn with the training step. Workers run them beside it.",
        order=10,
        limits={"share": 0.02},
        case_of="D1",
    ),
    Rule(
        id="D3",
        title="copies from pageable memory",
        threshold="pageable copies take more than 5% of the time, or there are more than 10",
        message="copies between ordinary (pageable) memory and the device take {share} of the "
        "time; they stop the host and run at a fraction of the link's speed",
        check=_pageable,
        fixes={
            "default": Fix(
                "keep host batches in page-locked memory and do not wait for the copy",
                """\
-loader = DataLoader(dataset, batch_size=64)
+loader = DataLoader(dataset, batch_size=64, pin_memory=True)
 for batch in loader:
-    batch = batch.to("cuda")
+    batch = batch.to("cuda", non_blocking=True)""",
            )
        },
        source="Nsight Systems expert rule for pageable memory; TraceLens",
        disproof="time batch.pin_memory() once ahead of the loop and copy from there: if the copy "
        "is not faster, the link and not the memory kind is the limit",
        meaning="The driver must stage pageable memory through its own buffer, and the call waits "
        "for it. On an H200 a pageable copy ran at 8 to 10 GB/s where a pinned one ran at 55.",
        order=8,
        limits={"share": 0.05, "copies": 10},
        needs=frozenset({"gpu"}),
    ),
    Rule(
        id="D4",
        title="copies that nothing hides",
        threshold="copies beside no kernel take 3% of the time",
        message="{share} of the time goes into copies during which no kernel runs",
        check=_exposed,
        fixes={
            "default": Fix(
                "start the copy of the next batch on a side stream before computing this one",
                """\
+side = torch.cuda.Stream()
 def prefetch(batch):
-    return batch.to("cuda", non_blocking=True)
+    with torch.cuda.stream(side):
+        return batch.to("cuda", non_blocking=True)
+# before use: torch.cuda.current_stream().wait_stream(side)""",
            )
        },
        source="own",
        disproof="remove the copy (reuse a batch already on the device): if the step stays as "
        "long, the copy was not on the critical path",
        meaning="A copy engine works beside the multiprocessors, but a copy issued on the compute "
        "stream runs in turn with the kernels.",
        order=24,
        limits={"share": 0.03},
        needs=frozenset({"gpu"}),
    ),
    Rule(
        id="D5",
        title="many small copies",
        threshold="16 or more copies a step to the device, mean below 1 MiB, below half of the "
        "link's speed",
        message="{count} copies of {size} each go to the device in every step; each costs more to "
        "start than to run",
        check=_small_copies,
        fixes={
            "default": Fix(
                "pack them into one page-locked buffer, copy once, and split on the device",
                """\
-parts = [part.to("cuda", non_blocking=True) for part in parts]
+packed = torch.cat([part.flatten() for part in parts]).pin_memory()
+packed = packed.to("cuda", non_blocking=True)
+parts = packed.split([part.numel() for part in parts])""",
            )
        },
        source="own",
        disproof="copy one buffer of the same total size: if that takes as long, the link is the "
        "limit",
        meaning="Starting a copy costs the host some ten microseconds and the device one or two, "
        "whatever its size.",
        order=6,
        limits={"copies": 16, "bytes": 1 << 20, "link": 0.5},
        needs=frozenset({"gpu"}),
    ),
    Rule(
        id="D6",
        title="made on the host, used on the device",
        threshold="a host fill followed by a copy of the same tensor, in any step",
        message="tensors are filled on the host ({op}) and then copied to the device",
        check=_filled_on_host,
        fixes={
            "default": Fix(
                "create the tensor where it is used",
                """\
-mask = torch.ones(rows, columns).to("cuda")
+mask = torch.ones(rows, columns, device="cuda")""",
            )
        },
        source="TorchTidy",
        disproof="make the tensor once before the loop: if the step stays as long, it was hidden",
        meaning="Filling device memory runs at the speed of that memory, thousands of times "
        "faster than filling host memory and sending it over the link.",
        order=4,
        limits={"share": 0.001},
        needs=frozenset({"gpu"}),
    ),
    Rule(
        id="D7",
        title="the host cannot keep up",
        threshold="in half of 200 samples the host works over 90% while the device is under 10%",
        message="in {share} of the samples the host is at work and the device waits, and no "
        "narrower rule explains it",
        check=_starved,
        fixes={
            "default": Fix(
                "profile the Python side (py-spy record -- python train.py), move work out of the "
                "loop, compile the step"
            )
        },
        source="SageMaker Debugger CPUBottleneck",
        disproof="time the step with the device work removed: if it gets much shorter, the host "
        "was not the limit",
        meaning="Samples are equal slices of the steady window. This rule claims only idle time "
        "that no other rule explains, so it is weighed after the S and L rules.",
        order=90,
        limits={"host": 0.9, "device": 0.1, "samples": 0.5},
        needs=frozenset({"gpu"}),
        folds_into=("L2", "L1", "L3", "L8", "L9", "L7"),
    ),
)
