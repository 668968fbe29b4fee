"""A training step: stages of a pipeline, the traffic between replicas, the optimizer.

`estimate` is a closed formula, for going through thousands of layouts; `simulate` runs the very
table that a pipeline executes, action by action, with each stage's own times.
"""

from __future__ import annotations

import math
import random
from collections import Counter
from dataclasses import dataclass, field
from functools import lru_cache

from ridgeline.distributed.schedules import (
    BACKWARD,
    FORWARD,
    INPUT_GRADIENT,
    WEIGHT_GRADIENT,
    ActionSpan,
    PipelineSchedule,
    action_times,
    pipeline_schedule,
)
from ridgeline.planner.layouts import Job, ParallelLayout
from ridgeline.planner.parts import (
    HeldParameters,
    ModelPart,
    parts_of,
    stage_parameters,
    updated_parameters,
)
from ridgeline.planner.software import Software
from ridgeline.planner.traced_work import costs_of
from ridgeline.planner.work import NOTHING, PassTimes, TimedCluster

MOST_ACTIONS = 12_000
"""A step of more actions than this is simulated in part: its middle repeats itself."""


_HOST_SHARE = 0.05
"""Of a step, the most that GPUs wait for their hosts."""


@dataclass(frozen=True)
class StepTime:
    """Seconds of a step, by what they are spent on, as the critical path has them."""

    seconds: float
    parts: dict[str, float]
    tokens_per_gpu: float
    """Tokens a second and GPU."""
    idle: tuple[float, ...] = ()
    """The share of the pipeline's time in which each stage waits."""
    times: tuple[list[list[float]], list[list[float]]] = field(
        default_factory=lambda: ([], []), compare=False, repr=False
    )
    """Where it was simulated, when every action of each stage starts, and when it ends."""
    schedule: PipelineSchedule | None = None

    @property
    def spans(self) -> list[list[ActionSpan]]:
        """Where it was simulated, when every action of each stage runs."""
        return [[*map(ActionSpan, *times)] for times in zip(*self.times)]


@dataclass(frozen=True)
class _Costs:
    """What a step is made of: passes of each part, and what comes once a step."""

    forward: list[PassTimes]
    backward: list[PassTimes]
    weights: list[float]
    """Of `backward`, the seconds of gradients of weights."""
    sent: float
    gradients: float
    """Seconds of summing gradients and gathering weights that nothing hides."""
    optimizer: float
    overhead: float


class StepModel:
    """A job under a layout and a software on a machine."""

    def __init__(
        self, job: Job, layout: ParallelLayout, software: Software, machine: TimedCluster
    ) -> None:
        self.job, self.layout, self.software, self.machine = job, layout, software, machine
        self.layers = costs_of(job, layout, software, machine)
        self.parts = parts_of(job.shape, layout.pipeline, layout.chunks)
        self._at = {part: at for at, part in enumerate(self.parts)}
        self.count = job.microbatches(layout)
        self.costs = self._costs()

    def _costs(self) -> _Costs:
        known: dict[ModelPart, tuple[PassTimes, PassTimes, float]] = {}
        for part in self._at:
            blocks = self.layers.blocks_of(part)
            f, b = blocks.forward, blocks.backward.plus(blocks.again)
            w = blocks.weight_gradients
            if self.layout.sharding == "parameters":
                f, b = self._sharded(f, b, self.layers.block_parameters(part))
            for one in self.layers.around(part):
                f, b, w = f.plus(one.forward), b.plus(one.backward), w + one.weight_gradients
            known[part] = f, b, w
        forward = [known[part][0] for part in self.parts]
        backward = [known[part][1] for part in self.parts]
        network = self.layers.network
        sent = network.message(self.layers.sent_bytes(), self.layers.groups.pipeline_stride)
        return _Costs(
            forward,
            backward,
            [known[part][2] for part in self.parts],
            sent if self.layout.pipeline > 1 else 0.0,
            self._gradients(forward, backward),
            self._optimizer(),
            self._host(forward, backward),
        )

    def _host(self, forward: list[PassTimes], backward: list[PassTimes]) -> float:
        """Seconds of a step in which GPUs wait for their hosts."""
        # Fitted on steps of seconds; of short ones hosts issue several ahead.
        busy = self.count * sum(one.seconds for one in (*forward, *backward))
        return min(self.machine.constants.host, _HOST_SHARE * busy / self.layout.pipeline)

    # Weights that are sharded are gathered layer by layer, and gradients scattered.

    def _travel(self, kind: str, each: float, held: HeldParameters, calls: int = 1) -> float:
        """Seconds of a collective over states, of so many bytes for each element, in some calls."""
        network, groups = self.layers.network, self.layers.groups
        size = each * (held.layers + held.tables) / calls
        among = groups.data if kind == "all_reduce" else groups.sharers
        seconds = network.seconds(kind, size, among)
        if kind == "reduce_scatter" and groups.copies.size > 1:
            seconds += network.seconds("all_reduce", size / among.size, groups.copies)
        experts = network.seconds(kind, each * held.experts / calls, groups.expert_data)
        return calls * (seconds + experts)

    def _sharded(
        self, forward: PassTimes, backward: PassTimes, held: list[HeldParameters]
    ) -> tuple[PassTimes, PassTimes]:
        """Passes through layers whose weights are gathered before each, behind the one before."""
        software, gather, scatter = self.software, 0.0, 0.0
        for one, times in Counter(held).items():
            gather += times * self._travel("all_gather", software.gathered_bytes, one)
            scatter += times * self._travel("reduce_scatter", software.reduce_bytes, one)
        return (
            self._behind(forward, gather, len(held)),
            self._behind(backward, gather + scatter, len(held)),
        )

    def _behind(self, times: PassTimes, traffic: float, layers: int) -> PassTimes:
        """A pass with traffic beside it: the longer of both, and the first layer's in full."""
        if not traffic:
            return times
        behind = self.software.overlap_sharded * times.seconds * (1 - 1 / layers)
        exposed = max(traffic / layers, traffic - behind)
        intensity = self.layers.network.intensity(self.layers.groups.data)
        slowed = self.machine.constants.contention * intensity * (traffic - exposed)
        return PassTimes(
            times.products + slowed, times.attention, times.memory, times.tensor, times.context,
            times.expert + exposed, times.launches, times.hidden + traffic - exposed,
        )  # fmt: skip

    def parameters_of_stage(self, stage: int) -> float:
        """Parameters that a rank of a stage holds, before data-parallel ranks share them out."""
        return sum(stage_parameters(self.job.shape, self.layout, stage))

    def _gradients(self, forward: list[PassTimes], backward: list[PassTimes]) -> float:
        """Seconds after the last backward pass in which gradients and weights still travel."""
        layout, group = self.layout, self.layers.groups.data
        if group.size == 1:
            return 0.0
        held = stage_parameters(self.job.shape, layout, 0)
        if layout.sharding == "parameters":
            # Those of layers travel with the passes through them.
            held = HeldParameters(0.0, 0.0, held.tables)
        each, network = self.software.reduce_bytes, self.layers.network
        # A layer after the other, or what comes to as much.
        calls = self._owners() or max(1, self.job.shape.layers // layout.pipeline)
        if layout.sharding == "none":
            reduced, gathered = self._travel("all_reduce", each, held, calls), 0.0
        else:
            kind = "all_reduce" if self.software.reduced_whole else "reduce_scatter"
            reduced = self._travel(kind, each, held, calls)
            gathered = self._travel("all_gather", 2, held, calls)
        if not self.software.overlap_data:
            return reduced + gathered
        seconds = {p: (forward[at].seconds, backward[at].seconds) for p, at in self._at.items()}
        own = [seconds[part] for part in self.parts[:: layout.pipeline]]
        stage_forward, stage_backward = sum(f for f, _ in own), sum(b for _, b in own)
        deep = max(1.0, layout.pipeline * (layout.chunks - 1) / layout.chunks)
        layers = max(2.0, self.job.shape.layers / layout.pipeline)
        room = 1 - 1 / layers
        late = max(reduced / layers, reduced - room * stage_backward * deep)
        early = max(gathered / layers, gathered - room * stage_forward * deep)
        if self._owners():
            early = gathered
        beside = reduced + gathered - late - early
        return late + early + self.machine.constants.contention * network.intensity(group) * beside

    def _owners(self) -> int:
        """Ranks that own whole tensors: each is sent their sums, and hands them on; 0 for none."""
        if self.layout.sharding in ("none", "parameters"):
            return 0
        tensors = self.software.owned_tensors * self.job.shape.layers // self.layout.pipeline
        return min(tensors, self.layers.groups.sharers.size)

    def _optimizer(self) -> float:
        """Seconds of updating the parameters of the fullest stage."""
        ends = {0, self.layout.pipeline - 1}
        updated = max(updated_parameters(self.job.shape, self.layout, stage) for stage in ends)
        software, cluster = self.software, self.machine.cluster
        there = software.offloaded_bytes * updated / cluster.host_link / 1e9
        beyond = software.host_passes * updated / cluster.host_memory / 1e9
        passes = self.machine.timer.passes(software.optimizer_passes * updated, 10)
        return there + beyond + passes

    # The step.

    def _both(self) -> list[float]:
        """Seconds of a microbatch on each stage, there and back."""
        seconds = {
            part: self.costs.forward[at].seconds + self.costs.backward[at].seconds
            for part, at in self._at.items()
        }
        stages = self.layout.pipeline
        return [sum(seconds[part] for part in self.parts[s::stages]) for s in range(stages)]

    def estimate(self) -> StepTime:
        """The step by formula: the slowest stage all the time, and the way through the others."""
        both = self._both()
        slowest = max(both)
        return self._step(self._pipelined(both, self.count), slowest, both.index(slowest))

    def _pipelined(self, both: list[float], count: int) -> float:
        """Seconds that so many microbatches take through all stages, by formula."""
        costs, layout, slowest = self.costs, self.layout, max(both)
        fill = (sum(both) - slowest) / layout.chunks
        if layout.schedule == "zero-bubble":
            # Gradients of weights fill most of it.
            filled = 2 * (sum(costs.weights) - costs.weights[both.index(slowest)])
            fill = max(0.0, fill - filled)
        sent = 2 * costs.sent * (len(self.parts) - 1)
        filled_and_sent = count * slowest + fill + sent
        if self.software.overlap_pipeline:
            filled_and_sent += self._awaited(both, count)
        # Few microbatches: a chunk waits until the first has come round through all stages.
        heaviest = max(f.seconds + b.seconds for f, b in zip(costs.forward, costs.backward))
        again = max(slowest / layout.chunks, heaviest)
        around = sum(both) + (count - 1) * again
        if layout.schedule == "zero-bubble":
            around -= sum(costs.weights) - max(costs.weights)
        pipelined = max(filled_and_sent, around + sent)
        if not self.software.overlap_pipeline and layout.pipeline > 1:
            pipelined += 2 * costs.sent * layout.chunks * count
        return pipelined

    def _awaited(self, both: list[float], count: int) -> float:
        """Seconds in which the slowest stage awaits messages, once the pipeline is full."""
        costs, stages, slowest = self.costs, self.layout.pipeline, max(both)
        if self.layout.chunks == 1:
            # Of as many microbatches as stages follow, the first must be back before the next.
            back, awaited = -2 * costs.sent, 0.0
            zero_bubble = self.layout.schedule == "zero-bubble"
            for following in range(1, stages + 1):
                stage = stages - following
                back += both[stage] + 2 * costs.sent - slowest
                back -= costs.weights[stage] if zero_bubble else 0.0
                awaited = max(awaited, (count - 1) // following * back)
            return awaited
        # A chunk begins when as many microbatches as stages have come from the chunk before.
        stage, awaited = both.index(slowest), 0.0
        for first in range(0, len(self.parts), stages):
            ways = zip(costs.forward[first : first + stages], costs.backward[first:])
            around = sum(max(f.seconds, b.seconds) for f, b in ways) / stages + costs.sent
            own = costs.forward[first + stage].seconds + costs.backward[first + stage].seconds
            awaited += max(0.0, around - own)
        return max(0, count - stages) * awaited

    def _step(
        self, pipelined: float, slowest: float, stage: int, idle: tuple[float, ...] = (),
        times: tuple[list[list[float]], list[list[float]]] = ([], []),
        schedule: PipelineSchedule | None = None,
    ) -> StepTime:  # fmt: skip
        """The whole step around a pipeline that takes so long."""
        costs, layout = self.costs, self.layout
        nodes = max(1, math.ceil(layout.ranks / self.machine.cluster.node))
        total = pipelined + costs.gradients + costs.optimizer + costs.overhead
        slow = self.machine.constants.spread * math.log2(nodes) * total
        whole = NOTHING
        for rows in (costs.forward, costs.backward):
            for one, alike in Counter(rows[stage :: layout.pipeline]).items():
                whole = whole.plus(one.times(alike * self.count))
        parts = {
            "products": whole.products,
            "attention": whole.attention,
            "memory": whole.memory,
            "launches": whole.launches,
            "tensor parallel": whole.tensor,
            "context parallel": whole.context,
            "sharded weights and experts": whole.expert,
            "pipeline": pipelined - self.count * slowest,
            "data parallel": costs.gradients,
            "optimizer": costs.optimizer,
            "host": costs.overhead,
            "stragglers": slow,
        }
        seconds = total + slow
        rate = self.job.tokens / seconds / layout.ranks
        return StepTime(seconds, parts, rate, idle, times, schedule)

    def _simulated_microbatches(self) -> int:
        """As many as a simulation needs: all, or enough to fill the pipeline several times."""
        each = 2 * len(self.parts)
        if self.count * each <= MOST_ACTIONS:
            return self.count
        stages = self.layout.pipeline
        # A stage of one chunk repeats itself once every stage has something to do.
        filled = stages + 8 if self.layout.chunks == 1 else 2 * stages
        enough = max(filled, MOST_ACTIONS // each // stages * stages)
        return min(self.count, enough + self.count % stages)

    def simulate(self, jitter: float = 0.0, seed: int = 0) -> StepTime:
        """The step by running the schedule's table; `jitter` is the spread of an action's time."""
        costs, layout = self.costs, self.layout
        count = self._simulated_microbatches()
        schedule = schedule_of(layout, count)
        # A stage that waits for what it sends has sent it when it goes on.
        sending, delay = (0.0, costs.sent) if self.software.overlap_pipeline else (costs.sent, 0.0)
        seconds = self._action_seconds(schedule, sending)
        if jitter:
            noise = random.Random(seed)
            seconds = [[s * max(0.5, noise.gauss(1.0, jitter)) for s in row] for row in seconds]
        times = action_times(schedule, seconds, delay)
        total = max(row[-1] for row in times[1])
        idle = tuple(1 - sum(row) / total for row in seconds)
        both = self._both()
        slowest = max(both)
        if count < self.count:
            # What is left out of a long step is more of the same, with what stages await in it.
            total += self._pipelined(both, self.count) - self._pipelined(both, count)
        return self._step(total, slowest, both.index(slowest), idle, times, schedule)

    def _action_seconds(self, schedule: PipelineSchedule, sending: float) -> list[list[float]]:
        """Of every action of each stage, with the seconds that it takes to send what it made."""
        costs = self.costs
        forward = [one.seconds + sending for one in costs.forward]
        backward = [one.seconds + sending for one in costs.backward]
        found = []
        for stage, row in enumerate(schedule.table):
            known: dict[tuple[str, int], float] = {}
            for chunk in range(schedule.chunks):
                part = schedule.part(stage, chunk)
                known[FORWARD, chunk] = forward[part]
                known[BACKWARD, chunk] = backward[part]
                known[INPUT_GRADIENT, chunk] = backward[part] - costs.weights[part]
                known[WEIGHT_GRADIENT, chunk] = costs.weights[part]
            found.append([known[kind, chunk] for kind, _, chunk in row])
        return found


_schedule = lru_cache(maxsize=64)(pipeline_schedule)


def schedule_of(layout: ParallelLayout, microbatches: int) -> PipelineSchedule:
    """The table that a layout's pipeline executes."""
    return _schedule(layout.schedule, layout.pipeline, microbatches, layout.chunks)
