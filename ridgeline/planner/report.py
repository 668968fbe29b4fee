"""Plans as text: the layouts, memory by stage, the way from peak to tokens, what was left out."""

from __future__ import annotations

from ridgeline.planner.failures import cost, interrupted
from ridgeline.planner.layouts import Job
from ridgeline.planner.memory import rank_memory, verdict
from ridgeline.planner.results import flops
from ridgeline.planner.search import Candidate, Search
from ridgeline.planner.software import Software
from ridgeline.planner.traffic import traffic
from ridgeline.planner.work import TimedCluster

_BAR = 40


def heading(job: Job, gpus: int, software: Software, machine: TimedCluster) -> str:
    """What is planned, and on what."""
    cluster, shape = machine.cluster, job.shape
    size = f"{shape.parameters() / 1e9:.2f} billion parameters, {shape.layers} layers of "
    batch = f"{job.sequences:,} sequences of {job.length:,} tokens: {job.tokens / 1e6:.2f} million"
    if shape.unit == "samples":
        flops = shape.flops_per_token(1, causal=False) / 1e9
        size = f"{shape.parameters() / 1e6:.3g} million parameters, {shape.layers} blocks, traced: "
        batch = f"{job.sequences:,} samples"
    lines = [
        f"{shape.name}: {size}"
        + (
            f"{shape.hidden} (exact)"
            if shape.unit == "tokens"
            else f"{flops:.2f} GFLOP a sample there and back (exact)"
        ),
        f"{gpus:,} x {cluster.gpu.name}, {cluster.node} to a node, {cluster.network:g} GB/s of "
        f"network each; {software.name}, {job.precision}",
        f"{batch} a step",
    ]
    if shape.unit == "samples":
        lines.append("no published run of a model that is no language model was compared with")
    if software.name == "ridgeline":
        lines.append(
            "ridgeline's own steps were measured on one H200 alone (docs/plan.md); --software "
            "plans those that published runs were made with"
        )
    runs, error = cluster.compared
    if not runs:
        lines.append(
            f"{cluster.gpu.name}: never validated, no published run on it was compared with"
        )
    elif shape.unit == "tokens":
        lines.append(
            f"{runs} published run{'s' * (runs > 1)} on {cluster.gpu.name} compared with, half of "
            f"them within {error:.0%}"
        )
    return "\n".join(lines)


def layouts(job: Job, found: Search, machine: TimedCluster, top: int) -> str:
    """The best layouts in a table, with what binds each and what it gives up against the first."""
    best = found.found[0]
    rate = f"{job.shape.unit}/s/GPU"
    lines = [f"{rate:>13} {'step s':>8} {'memory':>14}  layout (modelled)"]
    for one in found.found[:top]:
        share = one.memory.total / (machine.cluster.capacity)
        lines.append(
            f"{one.tokens:>13,.1f} {one.step.seconds:>8.3f} {share:>5.0%} {one.verdict:>8}  "
            f"{one.layout}"
        )
        lines.append(f"{'':>39}{binding(one)}{given_up(job, one, best)}")
    left = ", ".join(f"{count:,} {why}" for why, count in found.pruned.most_common())
    simulated = sum(one.simulated for one in found.found)
    lines.append(
        f"{found.considered:,} layouts considered, {len(found.found):,} fit, {simulated} simulated"
        + (f"; left out: {left}" if left else "")
    )
    return "\n".join(lines)


def binding(one: Candidate) -> str:
    """What takes most of a step beside the products."""
    parts = {name: s for name, s in one.step.parts.items() if name != "products"}
    name = max(parts, key=lambda key: parts[key])
    products = one.step.parts["products"] / one.step.seconds
    return f"products {products:.0%}, then {name} {parts[name] / one.step.seconds:.0%}"


def separating(one: Candidate, other: Candidate) -> str:
    """The term of a step that most separates a layout from a faster one."""
    mine, its = one.step.parts, other.step.parts
    return max(mine, key=lambda name: mine[name] - its[name])


def given_up(job: Job, one: Candidate, best: Candidate) -> str:
    """By how much a layout is slower, the term that separates it and the figures behind that."""
    slower = 1 - one.tokens / best.tokens
    if one is best or abs(slower) < 5e-4:
        return "" if one is best else "; as fast as the best"
    name = separating(one, best) if slower > 0 else separating(best, one)
    text = (
        f"; {abs(slower):.1%} {'slower' if slower > 0 else 'faster'}: {name} takes "
        f"{one.step.parts[name]:.3f} s, not {best.step.parts[name]:.3f} s"
    )
    if name == "pipeline":
        counts = [f"{job.microbatches(c.layout)} microbatches" for c in (one, best)]
        stages = [f"{c.layout.pipeline}×{c.layout.chunks}" for c in (one, best)]
        text += f" ({counts[0]} through {stages[0]} parts, not {counts[1]} through {stages[1]})"
    return text


SWEEP = (
    "tensor", "context", "pipeline", "data", "expert", "schedule", "chunks", "microbatch",
    "recompute", "sharding", "tokens_s_gpu", "bound_tokens_s_gpu", "step_s", "memory_gb", "verdict",
    "simulated",
)  # fmt: skip


def sweep(found: Search) -> str:
    """Every layout that fits, as CSV."""
    lines = [",".join(SWEEP)]
    for one in found.found:
        layout = [str(getattr(one.layout, name)) for name in SWEEP[:10]]
        figures = [
            f"{one.tokens:.2f}", f"{one.bound:.2f}", f"{one.step.seconds:.4f}",
            f"{one.memory.total / 1e9:.2f}", one.verdict, str(int(one.simulated)),
        ]  # fmt: skip
        lines.append(",".join([*layout, *figures]))
    return "\n".join(lines)


def conventions(job: Job, one: Candidate, software: Software) -> str:
    """TFLOP/s under the three conventions."""
    found = flops(job, one.layout, software, one.tokens)
    return "TFLOP/s a GPU: " + ", ".join(f"{value:.0f} {name}" for name, value in found.items())


def waterfall(job: Job, one: Candidate, software: Software, machine: TimedCluster) -> str:
    """From peak FLOPs to the step that is left, loss by loss."""
    gpu = machine.cluster.gpu
    peak = (gpu.float8 if job.precision in ("fp8", "mxfp8") else gpu.sixteen_bit) or gpu.float32
    each = job.shape.flops_per_token(job.seen, True, software.frozen_weights)
    useful = job.tokens * each / one.layout.ranks
    ideal = useful / (peak * 1e12)
    step = one.step
    losses = dict(step.parts)
    products = losses.pop("products")
    attention = losses.pop("attention")
    rows = [("useful FLOPs at peak (exact)", ideal)]
    rows.append(("products and attention below peak, and again", products + attention - ideal))
    rows += [(name, seconds) for name, seconds in losses.items() if seconds > 0.0005 * step.seconds]
    lines, so_far = ["step, seconds (modelled)"], 0.0
    for name, seconds in rows:
        start = round(so_far / step.seconds * _BAR)
        so_far += seconds
        end = max(start + 1, round(so_far / step.seconds * _BAR))
        lines.append(f"{name:>46} {seconds:9.4f}  {' ' * start}{'█' * (end - start)}")
    lines.append(f"{'in all':>46} {step.seconds:9.4f}  {one.tokens:,.1f} {job.shape.unit}/s/GPU")
    return "\n".join(lines)


_EXPOSED = {
    "tp": "tensor parallel", "cp": "context parallel", "ep": "sharded weights and experts",
    "dp": "data parallel",
}  # fmt: skip


def traffic_table(job: Job, one: Candidate, software: Software, machine: TimedCluster) -> str:
    """What a rank of the first stage takes part in, by axis, and what nothing hides of it."""
    rows = traffic(job, one.layout, software, machine)
    if not rows:
        return "one rank: nothing travels"
    lines = [
        f"{'axis':>4}  {'collective':<15} {'calls':>8} {'GB (exact)':>11} {'seconds':>8}  by "
        "(modelled)"
    ]
    for row in rows:
        lines.append(
            f"{row.axis:>4}  {row.kind:<15} {row.calls:>8,.0f} {row.bytes / 1e9:>11,.2f} "
            f"{row.seconds:>8.3f}  {row.algorithm}"
        )
    parts = one.step.parts
    exposed = {axis: parts[_EXPOSED[axis]] for axis in _EXPOSED if axis in {r.axis for r in rows}}
    if "dp" in exposed and one.layout.sharding == "parameters":
        exposed["dp"] += parts["sharded weights and experts"]
    shown = ", ".join(f"{axis} {seconds:.3f}" for axis, seconds in exposed.items())
    return "\n".join([*lines, f"of it exposed, seconds: {shown}"] if exposed else lines)


def memory_table(job: Job, one: Candidate, software: Software, machine: TimedCluster) -> str:
    """Bytes by stage, in GB, and what would help the worst."""
    capacity = machine.cluster.capacity
    lines = [
        f"{'stage':>5} {'weights':>8} {'gradients':>9} {'optimizer':>9} {'saved':>8} {'scores':>7} "
        f"{'other':>6} {'GB':>8}  of {capacity / 1e9:.0f} GB (modelled)"
    ]
    stages = list(range(one.layout.pipeline))
    if len(stages) > 8:
        stages = stages[:3] + stages[-2:]
    for stage in stages:
        held = rank_memory(job, one.layout, software, stage)
        lines.append(
            f"{stage:>5} {held.weights / 1e9:8.2f} {held.gradients / 1e9:9.2f} "
            f"{held.optimizer / 1e9:9.2f} {held.activations / 1e9:8.2f} {held.scores / 1e9:7.2f} "
            f"{held.buffers / 1e9:6.2f} {held.total / 1e9:8.2f}  {verdict(held.total, capacity)}"
        )
    return "\n".join(lines)


def help_for(one: Candidate, unit: str) -> str:
    """What would make the worst rank of a layout hold less."""
    held, layout = one.memory, one.layout
    parts = {
        "saved tensors": held.activations,
        "optimizer": held.optimizer,
        "weights and gradients": held.weights + held.gradients,
        "scores of words": held.scores,
    }
    most = max(parts, key=lambda key: parts[key])
    advice = {
        "saved tensors": "recompute more, a smaller microbatch, or more tensor or context ranks"
        if unit == "tokens"
        else "recompute more, a smaller microbatch, or more stages",
        "optimizer": "more data-parallel ranks to share it, or 8-bit moments",
        "weights and gradients": "more tensor or pipeline ranks, or sharded parameters"
        if unit == "tokens"
        else "more stages, or sharded parameters",
        "scores of words": "more tensor ranks or a smaller microbatch",
    }
    where = f"stage {held.stage}" if layout.pipeline > 1 else "every rank"
    return f"{where} holds most, above all {most}; what would help: {advice[most]}"


def run_costs(
    job: Job, one: Candidate, machine: TimedCluster, tokens: float, hours: float, save: float
) -> str:
    """A whole run over tokens: days, failures, checkpoints, money."""
    gpus = one.layout.ranks
    seconds = tokens / (one.tokens * gpus)
    lost = interrupted(seconds, gpus, hours, save)
    if lost.effective <= 0:
        return "failures come faster than checkpoints can be read back: this run never ends"
    wall = seconds / lost.effective
    spent, dollars = cost(gpus, wall, machine.cluster.price)
    lines = [
        f"{tokens:.3g} {job.shape.unit}: {wall / 86400:.1f} days, of them {lost.effective:.1%} "
        f"training (modelled)",
        f"{lost.failures:.0f} failures at {hours:,.0f} GPU-hours each; best to save every "
        f"{lost.interval / 60:.0f} minutes, if a save takes {save:.0f} s",
        f"{spent:,.0f} GPU-hours"
        + (
            f", ${dollars:,.0f} at ${machine.cluster.price:g} a GPU-hour"
            if machine.cluster.price
            else ""
        ),
    ]
    return "\n".join(lines)
