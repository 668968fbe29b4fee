"""All layouts of a job on a cluster: those that fit by formula, the best of them by simulation.

What cannot be is left out with a reason, and counted: `Search.pruned`. When nothing is left, an
error says why and names the nearest request that is possible.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field

from ridgeline.errors import BadValueError
from ridgeline.planner.layouts import Job, ParallelLayout
from ridgeline.planner.memory import RankMemory, verdict, worst_rank
from ridgeline.planner.software import Software
from ridgeline.planner.step import StepModel, StepTime
from ridgeline.planner.traced_models import TracedShape
from ridgeline.planner.work import TimedCluster

MOST_GPUS = 10_000_000
"""More than anybody has; every mesh of so many is gone through in seconds."""
SIMULATED = 50
"""How many of the best layouts by formula are simulated."""
FORMULA_MARGIN = 0.12
"""By how much the formula may exceed the simulated tokens a second; tests hold it to that."""
_MICROBATCHES = (1, 2, 4, 8)
# Samples of models that are no language models are smaller than a sequence.
_SAMPLES = tuple(1 << power for power in range(13))
_MOST_CHUNKS = 10


@dataclass(frozen=True)
class Candidate:
    """A layout with what it holds and how long a step takes."""

    layout: ParallelLayout
    memory: RankMemory
    verdict: str
    bound: float
    """Tokens a second and GPU by formula."""
    step: StepTime
    simulated: bool

    @property
    def tokens(self) -> float:
        """Tokens a second and GPU."""
        return self.step.tokens_per_gpu


@dataclass
class Search:
    """What a search found: the best first, and how many were left out for what."""

    found: list[Candidate]
    considered: int
    pruned: Counter[str] = field(default_factory=Counter)
    smallest: tuple[float, ParallelLayout] | None = None
    """The layout that holds least, where nothing fits."""


def divisors(number: int) -> list[int]:
    """All of them, smallest first."""
    low = [d for d in range(1, math.isqrt(number) + 1) if number % d == 0]
    return sorted({*low, *(number // d for d in low)})


def _powers(most: int) -> list[int]:
    return [1 << n for n in range(most.bit_length()) if 1 << n <= most]


def _shares(
    job: Job, gpus: int, machine: TimedCluster, pruned: Counter[str]
) -> Iterator[ParallelLayout]:
    """Every way to share GPUs out over the four axes that the model allows."""
    shape = job.shape
    for tensor in _powers(min(machine.cluster.node, shape.heads)):
        if gpus % tensor or shape.heads % tensor or shape.inner % tensor:
            pruned["tensor ranks do not divide heads, width or GPUs"] += 1
            continue
        for context in _powers(max(1, job.length // 2048)):
            if (gpus // tensor) % context or job.length % (2 * context if context > 1 else 1):
                pruned["context ranks do not divide the sequence or GPUs"] += 1
                continue
            for pipeline in divisors(gpus // tensor // context):
                if pipeline > shape.layers:
                    pruned["more stages than layers"] += 1
                    continue
                data = gpus // tensor // context // pipeline
                yield ParallelLayout(
                    tensor, context, pipeline, data, data_outermost=machine.cluster.pod > 0
                )


def meshes(
    job: Job, gpus: int, machine: TimedCluster, pruned: Counter[str]
) -> Iterator[ParallelLayout]:
    """Every way to share GPUs out over the four axes that the model and the batch allow."""
    for mesh in _shares(job, gpus, machine, pruned):
        if job.sequences % mesh.data:
            pruned["replicas do not divide the sequences of a step"] += 1
        else:
            yield mesh


def variants(job: Job, mesh: ParallelLayout, software: Software) -> Iterator[ParallelLayout]:
    """One mesh with every microbatch, cut into chunks, recomputation and sharding."""
    shape, share = job.shape, job.sequences // mesh.data
    chunked = [1]
    if mesh.pipeline > 1 and software.interleaved:
        per_stage = -(-shape.layers // mesh.pipeline)
        chunked = [v for v in divisors(per_stage) if v <= _MOST_CHUNKS]
        if isinstance(shape, TracedShape):
            chunked = [v for v in chunked if v * mesh.pipeline <= shape.layers]
    expert = 1
    if shape.experts > 1:
        expert = math.gcd(shape.experts, mesh.data)
    shardings = ["optimizer"] if mesh.data * mesh.context > 1 else ["none"]
    if mesh.pipeline == 1 and mesh.data > 1:
        shardings.append("parameters")
    recomputed: tuple[str, ...] = ("none", "selective", "full")
    sizes: tuple[int, ...] = _MICROBATCHES
    if isinstance(shape, TracedShape):
        recomputed = ("none", "full") if shape.listed else ("none",)
        sizes = _SAMPLES
    for microbatch in sizes:
        if share % microbatch:
            continue
        for chunks in chunked:
            for sharding in shardings:
                for recompute in recomputed:
                    one = mesh.with_(
                        microbatch=microbatch, chunks=chunks, recompute=recompute, expert=expert,
                        split_experts=software.split_experts,
                        sharding=sharding, schedule="interleaved" if chunks > 1 else "1f1b",
                    )  # fmt: skip
                    yield one
                    if software.zero_bubble and mesh.pipeline > 1 and chunks == 1:
                        yield one.with_(schedule="zero-bubble")


def search(
    job: Job, gpus: int, software: Software, machine: TimedCluster, simulated: int = SIMULATED,
    jitter: float = 0.0,
) -> Search:  # fmt: skip
    """The best layouts: all by formula, the best of them simulated, fastest first.

    `jitter` is the spread of the time of every simulated action.
    """
    check_request(job, gpus)
    capacity = machine.cluster.capacity
    pruned: Counter[str] = Counter()
    kept: list[tuple[float, ParallelLayout, RankMemory, StepModel, StepTime]] = []
    considered, smallest = 0, None
    for mesh in meshes(job, gpus, machine, pruned):
        fitted: set[tuple[int, int, str, str]] = set()
        for layout in variants(job, mesh, software):
            considered += 1
            kind = (layout.microbatch, layout.chunks, layout.sharding, layout.schedule)
            if kind in fitted:
                # What is recomputed less fits already, and is never slower.
                pruned["recomputes more than fitting takes"] += 1
                continue
            memory = worst_rank(job, layout, software)
            if memory.total > capacity:
                pruned["does not fit"] += 1
                if smallest is None or memory.total < smallest[0]:
                    smallest = (memory.total, layout)
                continue
            fitted.add(kind)
            model = StepModel(job, layout, software, machine)
            step = model.estimate()
            kept.append((step.tokens_per_gpu, layout, memory, model, step))
    kept.sort(key=lambda one: -one[0])
    found = [_candidate(one, capacity, index < simulated, jitter) for index, one in enumerate(kept)]
    found.sort(key=lambda one: (not one.simulated, -one.tokens))
    return Search(found, considered, pruned, smallest)


def _candidate(
    one: tuple[float, ParallelLayout, RankMemory, StepModel, StepTime],
    capacity: float,
    simulate: bool,
    jitter: float,
) -> Candidate:
    bound, layout, memory, model, step = one
    if simulate:
        step = model.simulate(jitter)
    return Candidate(layout, memory, verdict(memory.total, capacity), bound, step, simulate)


def candidate(
    job: Job, software: Software, machine: TimedCluster, layout: ParallelLayout, jitter: float
) -> Candidate:
    """One layout, simulated, whether it fits or not."""
    memory = worst_rank(job, layout, software)
    model = StepModel(job, layout, software, machine)
    step = model.estimate()
    capacity = machine.cluster.capacity
    return _candidate((step.tokens_per_gpu, layout, memory, model, step), capacity, True, jitter)


def check_request(job: Job, gpus: int) -> None:
    """Refuse what no layout can be, with the nearest that could."""
    if not 1 <= gpus <= MOST_GPUS:
        raise BadValueError(f"{gpus:,} GPUs", help=f"give 1 to {MOST_GPUS:,}")
    if job.sequences < 1:
        raise BadValueError(
            f"a batch of less than one sequence of {job.length} tokens",
            help=f"give at least {job.length} tokens a batch",
        )


def nearest_batch(job: Job, gpus: int, machine: TimedCluster) -> int | None:
    """The number of sequences nearest to a job's with which some layout of GPUs exists."""
    replicas = {mesh.data for mesh in _shares(job, gpus, machine, Counter())}
    batches = [max(1, round(job.sequences / data)) * data for data in replicas]
    return min(batches, key=lambda batch: abs(batch - job.sequences), default=None)


def fewest_gpus(
    job: Job, software: Software, machine: TimedCluster, most: int = 1 << 16
) -> tuple[int, Candidate] | None:
    """The smallest number of GPUs on which some layout fits, and the fastest of them there."""
    for gpus in _counts(machine.cluster.node, most):
        if job.sequences < 1:
            return None
        result = search(job, gpus, software, machine, 8)
        if result.found:
            return gpus, result.found[0]
    return None


def _counts(node: int, most: int) -> Iterator[int]:
    """Numbers of GPUs that one rents: parts of a node, then nodes by powers and threes."""
    yield from (n for n in _powers(node) if n < node)
    nodes = 1
    while nodes * node <= most:
        yield nodes * node
        if nodes > 1 and nodes * node * 3 // 2 <= most:
            yield nodes * node * 3 // 2
        nodes *= 2


def fastest(
    job: Job, software: Software, machine: TimedCluster, most: int = 1 << 17
) -> tuple[int, Candidate] | None:
    """The number of GPUs on which a job's steps are shortest, of those that one rents."""
    best: tuple[int, Candidate] | None = None
    for gpus in _counts(machine.cluster.node, min(most, 64 * job.sequences)):
        found = search(job, gpus, software, machine, 0).found
        if found and (best is None or found[0].step.seconds < best[1].step.seconds):
            best = gpus, found[0]
    return best


def gpus_for(
    job: Job, software: Software, machine: TimedCluster, tokens: float, seconds: float,
    most: int = 1 << 17,
) -> tuple[int, Candidate] | None:  # fmt: skip
    """The fewest GPUs that train on so many tokens in so long."""
    for gpus in _counts(machine.cluster.node, most):
        enough = tokens / (gpus * seconds)
        if machine.timer.rate16 * 2 < enough * job.shape.flops_per_token(job.seen, causal=True):
            continue
        best = search(job, gpus, software, machine, 8).found
        if best and best[0].tokens >= enough:
            return gpus, best[0]
    return None
