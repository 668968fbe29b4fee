"""Rules L: the device waits because work arrives too slowly or in pieces too small."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from ridgeline.profile import intervals as iv
from ridgeline.profile.analysis.facts import Facts
from ridgeline.profile.rules.base import EXACT, Evidence, Hit, Ledger, ms, per_step, percent
from ridgeline.profile.trace.model import Ints

LAUNCHES = (
    "cudaLaunchKernel",
    "cudaLaunchKernelExC",
    "cuLaunchKernel",
    "cuLaunchKernelEx",
    "cudaLaunchCooperativeKernel",
    "hipLaunchKernel",
    "hipExtModuleLaunchKernel",
    "cudaGraphLaunch",
)
_COMPILED = ("Torch-Compiled Region", "CompiledFunction", "## Call CompiledFxGraph")
_SLOW_BY_NATURE = (
    "cudaMalloc",
    "cudaFree",
    "cudaHostAlloc",
    "cudaMemcpy",
    "cuModuleLoad",
    "cuLibrary",
    "cudaEventSynchronize",
    "cudaDeviceSynchronize",
    "cudaStreamSynchronize",
    "cuMem",
    "cudaGraphInstantiate",
)


def _next_remedy(facts: Facts) -> str:
    """The first remedy not already in use: compile, then graphs, then larger pieces."""
    if len(facts.calls_named("cudaGraphLaunch", "cuGraphLaunch")):
        return "batch"
    compiled = facts.trace.name_mask(*_COMPILED, prefix=True).any()
    triton = facts.trace.name_mask("triton_", prefix=True).any()
    return "graph" if compiled or triton else "default"


def _launch_time(facts: Facts) -> float:
    return iv.measure(facts.spans(facts.trace.calls, facts.calls_named(*LAUNCHES)))


def _launch_bound(facts: Facts, ledger: Ledger, limits: Mapping[str, float]) -> Hit | None:
    """L1: much of the step is spent inside launch calls while the device idles."""
    share = facts.share(_launch_time(facts))
    if share < limits["share"] or facts.share(ledger.idle) < limits["idle"]:
        return None
    stake = ledger.take_idle(ledger.idle)
    evidence = (
        Evidence("inside launch calls", f"{percent(share)} of the time"),
        Evidence("kernels", f"{len(facts.kernels) / facts.steps.count:.0f} a step", EXACT),
        Evidence("device idle, not otherwise explained", f"{per_step(facts, stake)} a step"),
    )
    grade = "badly " if share >= limits["bad"] else ""
    return Hit(
        stake,
        evidence,
        {"share": percent(share), "grade": grade},
        idle=stake,
        places=_launch_places(facts, facts.kernels),
        fix=_next_remedy(facts),
        confidence="medium",
    )


def _launch_places(facts: Facts, rows: Ints) -> tuple[str, ...]:
    return tuple(facts.top_places(rows, np.ones(len(rows))))


def _tiny_kernels(facts: Facts, ledger: Ledger, limits: Mapping[str, float]) -> Hit | None:
    """L2: kernels of a few microseconds, and a device that idles between them."""
    rows = ledger.free(facts.kernels)
    if not len(rows):
        return None
    times = facts.gpu_time(rows)
    if float(times.mean()) >= limits["mean"] or facts.share(ledger.idle) <= limits["idle"]:
        return None
    tiny = rows[times < limits["mean"]]
    inside = float(facts.gpu_time(tiny).sum())
    stake = ledger.take_idle(ledger.idle)
    evidence = (
        Evidence("kernels", f"{len(rows) / facts.steps.count:.0f} a step", EXACT),
        Evidence("mean kernel", ms(float(times.mean()))),
        Evidence("device idle, not otherwise explained", f"{per_step(facts, stake)} a step"),
        Evidence("time inside the tiny kernels", f"{per_step(facts, inside)} a step"),
    )
    return Hit(
        stake + inside,
        evidence,
        {"count": f"{len(tiny) / facts.steps.count:.0f}", "mean": ms(float(times.mean()))},
        idle=stake,
        rows=tiny,
        places=_launch_places(facts, tiny),
        fix=_next_remedy(facts),
    )


def _shorter_than_launch(facts: Facts, ledger: Ledger, limits: Mapping[str, float]) -> Hit | None:
    """L3: most kernels take less time to run than to launch."""
    rows = facts.kernels[facts.links.call_of_gpu[facts.kernels] >= 0]
    if not len(rows) or facts.share(ledger.idle) < limits["idle"]:
        return None
    calls = facts.trace.calls
    launch = facts.links.call_of_gpu[rows]
    shorter = facts.gpu_time(rows) < calls.end[launch] - calls.start[launch]
    share = float(shorter.mean())
    if share < limits["share"]:
        return None
    stake = ledger.take_idle(ledger.idle)
    evidence = (Evidence("kernels shorter than their launch", percent(share)),)
    return Hit(
        stake,
        evidence,
        {"share": percent(share)},
        idle=stake,
        fix=_next_remedy(facts),
        places=_launch_places(facts, rows[shorter]),
        confidence="medium",
    )


def _slow_calls(facts: Facts, ledger: Ledger, limits: Mapping[str, float]) -> Hit | None:
    """L4: launch calls, or the way from call to kernel, take unusually long."""
    calls, gpu = facts.trace.calls, facts.trace.gpu
    natural = facts.trace.name_mask(*_SLOW_BY_NATURE, prefix=True)
    rows = facts.host_calls[~natural[calls.name[facts.host_calls]]]
    slow = rows[calls.end[rows] - calls.start[rows] > limits["call"]]
    excess = float(np.sum(calls.end[slow] - calls.start[slow] - limits["call"]))
    launched = facts.kernels[facts.links.call_of_gpu[facts.kernels] >= 0]
    end_of_call = calls.end[facts.links.call_of_gpu[launched]]
    delay = gpu.start[launched] - end_of_call
    # The queue was empty if the device was idle from the call to the kernel.
    ends = np.concatenate(([-np.inf], facts.busy[:, 1]))
    last_end = ends[np.searchsorted(ends[1:], gpu.start[launched] - 1e-3)]
    late = (delay > limits["delay"]) & (last_end <= end_of_call)
    excess += float(np.sum(delay[late] - limits["delay"]))
    count = len(slow) + int(late.sum())
    stake = ledger.take_idle(excess)
    if count < facts.steps.count or facts.share(stake) < limits["share"]:
        return None
    evidence = (
        Evidence(
            f"calls over {limits['call']:.0f} µs", f"{len(slow) / facts.steps.count:.1f} a step"
        ),
        Evidence(f"launch to start over {limits['delay']:.0f} µs", f"{int(late.sum())}"),
        Evidence("time above those limits", f"{per_step(facts, excess)} a step"),
    )
    return Hit(stake, evidence, {"count": count}, idle=stake, confidence="low")


def _under_used(facts: Facts, ledger: Ledger, limits: Mapping[str, float]) -> Hit | None:
    """L5: the device is busy less than half of the time, and nothing narrower says why."""
    busy = 1 - facts.idle_share
    stake = ledger.take_idle(ledger.idle)
    if busy >= limits["busy"] or facts.share(stake) < 0.05:
        return None
    working = iv.measure(
        iv.intersect(facts.idle, facts.spans(facts.trace.calls, facts.calls_named(*LAUNCHES)))
    )
    evidence = (
        Evidence("device busy", percent(busy)),
        Evidence("idle while the host launches", f"{per_step(facts, working)} a step"),
        Evidence("idle otherwise", f"{per_step(facts, max(0.0, stake - working))} a step"),
    )
    return Hit(stake, evidence, {"busy": percent(busy)}, idle=stake, confidence="low")


def _long_gap(facts: Facts, ledger: Ledger, limits: Mapping[str, float]) -> Hit | None:
    """L6: one gap so long that it must be a checkpoint, an evaluation or a collection."""
    loader = facts.spans(facts.trace.ops, facts.ops_named("enumerate(DataLoader)#", prefix=True))
    idle = iv.subtract(facts.idle, iv.merge((loader, _compiling(facts)[0])))
    long = idle[idle[:, 1] - idle[:, 0] >= limits["gap"]]
    if not len(long):
        return None
    stake = ledger.take_idle(iv.measure(long))
    middle = [
        facts.links.place_at(facts.steps.main_thread, float(low + high) / 2) for low, high in long
    ]
    evidence = (
        Evidence("gaps", f"{len(long)} in {facts.steps.count} steps", EXACT),
        Evidence("longest", ms(float(np.max(long[:, 1] - long[:, 0])))),
    )
    return Hit(
        stake,
        evidence,
        {"longest": ms(float(np.max(long[:, 1] - long[:, 0])))},
        idle=stake,
        places=tuple(dict.fromkeys(name for name in middle if name))[:3],
        spans=long,
    )


def _per_tensor_optimizer(facts: Facts, ledger: Ledger, limits: Mapping[str, float]) -> Hit | None:
    """L7: the optimizer walks over the parameters one by one."""
    ops = facts.trace.ops
    steps = facts.ops_named("Optimizer.step#", prefix=True)
    if not len(steps):
        return None
    spans = facts.spans(ops, steps)
    inside = _started_in(facts, spans)
    names = ops.name[inside]
    batched = facts.trace.name_mask("aten::_foreach_", "aten::_fused_", prefix=True)
    if batched[names].any():
        return None
    updates = facts.trace.name_mask(
        "aten::add_", "aten::mul_", "aten::addcdiv_", "aten::lerp_", "aten::addcmul_", "aten::copy_"
    )
    count = int(updates[names].sum()) / len(steps)
    if count < limits["updates"]:
        return None
    rows = ledger.free(facts.launched_in(spans))
    inside_kernels = float(facts.gpu_time(rows).sum())
    stake = ledger.take_idle(iv.measure(spans))
    evidence = (
        Evidence("single-tensor updates", f"{count:.0f} a step", EXACT),
        Evidence("host time in optimizer.step", f"{per_step(facts, iv.measure(spans))} a step"),
        Evidence("kernels of it", f"{per_step(facts, inside_kernels)} a step"),
    )
    return Hit(
        stake + inside_kernels,
        evidence,
        {"count": f"{count:.0f}"},
        idle=stake,
        rows=rows,
        places=tuple(facts.op_places(steps)),
        spans=spans,
        fix="default" if facts.has_gpu else "host",
    )


def _started_in(facts: Facts, spans: iv.Intervals) -> Ints:
    """Steady ops that start inside the given time."""
    starts = facts.trace.ops.start[facts.host_ops]
    position = np.searchsorted(spans[:, 0], starts, side="right") - 1
    inside = position >= 0
    inside[inside] = starts[inside] < spans[position[inside], 1]
    return facts.host_ops[inside]


def _select_runs(facts: Facts, least: int, farthest: int) -> list[Ints]:
    """Runs of `select` on one shape with little between them: a Python loop over a tensor."""
    ops, parents = facts.trace.ops, facts.links.ops.parent
    runs: list[Ints] = []
    current: list[int] = []
    shape: object = None
    for row in facts.ops_named("aten::select").tolist():
        if facts.op_name(int(parents[row])) == "aten::unbind":
            continue
        here = (int(ops.thread[row]), facts.arguments(row).dims[:1])
        close = current and row - current[-1] <= farthest and here == shape
        if not close:
            if len(current) >= least:
                runs.append(np.array(current))
            current, shape = [], here
        current.append(row)
    if len(current) >= least:
        runs.append(np.array(current))
    return runs


def _select_loop(facts: Facts, ledger: Ledger, limits: Mapping[str, float]) -> Hit | None:
    """L8: a Python loop picks a tensor apart."""
    runs = _select_runs(facts, int(limits["selects"]), int(limits["apart"]))
    if not runs:
        return None
    ops = facts.trace.ops
    bounds = []
    for run in runs:
        period = float(np.median(np.diff(ops.start[run])))
        bounds.append((float(ops.start[run[0]]), float(ops.start[run[-1]]) + period))
    edges = np.array(bounds)
    spans = iv.clip(iv.union(edges[:, 0], edges[:, 1]), facts.low, facts.high)
    rows = ledger.free(facts.launched_in(spans))
    inside = float(facts.gpu_time(rows).sum())
    stake = ledger.take_idle(iv.measure(spans))
    if facts.share(stake + inside) < limits["share"]:
        return None
    rounds = sum(len(run) for run in runs) / len(runs)
    evidence = (
        Evidence("loop rounds", f"{rounds:.0f} in a row, {len(runs)} times", EXACT),
        Evidence("host time in the loops", f"{per_step(facts, iv.measure(spans))} a step"),
    )
    return Hit(
        stake + inside,
        evidence,
        {"rounds": f"{rounds:.0f}"},
        idle=stake,
        rows=rows,
        places=tuple(facts.op_places(np.concatenate(runs))),
        spans=spans,
    )


def _compiling(facts: Facts) -> tuple[iv.Intervals, int]:
    """When torch.compile compiles in the steady steps, and how often."""
    frames = facts.ops_named("entire_frame_compile", "_compile.compile_inner (dynamo_timed)")
    inside = facts.spans(facts.trace.ops, frames)
    return facts.with_bare_time(inside), len(inside)


def _recompiles(facts: Facts, ledger: Ledger, limits: Mapping[str, float]) -> Hit | None:
    """L9: the compiler still runs after warm-up."""
    spans, count = _compiling(facts)
    if count <= limits["count"]:
        return None
    stake = ledger.take_idle(iv.measure(spans))
    rows = facts.ops_named("entire_frame_compile", "_compile.compile_inner (dynamo_timed)")
    evidence = (
        Evidence("compilations", f"{count} in {facts.steps.count} steps", EXACT),
        Evidence("host time compiling", f"{per_step(facts, iv.measure(spans))} a step"),
    )
    return Hit(
        stake,
        evidence,
        {"count": count, "steps": facts.steps.count},
        idle=stake,
        places=tuple(facts.op_places(rows)),
        spans=spans,
    )


CHECKS = {
    "L1": _launch_bound,
    "L2": _tiny_kernels,
    "L3": _shorter_than_launch,
    "L4": _slow_calls,
    "L5": _under_used,
    "L6": _long_gap,
    "L7": _per_tensor_optimizer,
    "L8": _select_loop,
    "L9": _recompiles,
}
