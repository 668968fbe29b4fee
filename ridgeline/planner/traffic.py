"""What a rank gives to collectives in one step, by axis and kind: the bytes that counters count.

Bytes are those of whole results: of the gathered tensor, of the sum. Tests hold them against what
the communicators of a training step count.
"""

from __future__ import annotations

from dataclasses import dataclass

from ridgeline.planner.collectives import Ranks, groups_of
from ridgeline.planner.layouts import Job, ParallelLayout
from ridgeline.planner.parts import stage_parameters
from ridgeline.planner.software import Software
from ridgeline.planner.step import StepModel
from ridgeline.planner.work import TimedCluster


@dataclass(frozen=True)
class AxisBytes:
    """Calls of one kind along one axis of the mesh, in one step of one rank."""

    axis: str
    kind: str
    calls: float
    bytes: float
    algorithm: str
    seconds: float
    """Of all of them, hidden or not."""


def traffic(
    job: Job, layout: ParallelLayout, software: Software, machine: TimedCluster, element: int = 2
) -> list[AxisBytes]:
    """All that a rank of the first stage takes part in; `element` is the bytes of an activation."""
    network = machine.network(software)
    groups = groups_of(layout, network)
    found = []

    def add(axis: str, kind: str, calls: float, size: float, group: Ranks) -> None:
        if group.size > 1 and calls:
            one = network.collective(kind, size, group)
            found.append(
                AxisBytes(axis, kind, calls, calls * size, one.algorithm, calls * one.seconds)
            )

    model = StepModel(job, layout, software, machine)
    layers = sum(part.layers for part in model.parts[:: layout.pipeline])
    passes = layers * model.count
    rows = layout.microbatch * job.length // layout.context
    activation = float(element * rows * job.shape.hidden)
    for kind, each in tensor_calls(layout, software).items():
        add("tp", kind, each * passes, activation, groups.tensor)
    keys = 2.0 * element * rows * layout.context * job.shape.keys / layout.tensor
    add("cp", "all_gather", 2 * passes, keys, groups.context)
    add("cp", "reduce_scatter", passes, keys, groups.context)
    parameters = stage_parameters(job.shape, layout, 0)
    held, replicas = sum(parameters), groups.replicas
    # Ranks along the sequence have the same weights: they sum gradients before replicas do.
    add("cp", "all_reduce", 1, software.reduce_bytes * held, groups.context)
    if layout.expert > 1:
        # Tokens go to experts and come back, and so do gradients.
        sent = activation * job.shape.chosen
        add("ep", "all_to_all", 4 * passes, sent, groups.expert)
        beside = software.reduce_bytes * (held - parameters.experts)
        add("ep", "all_reduce", 1, beside, groups.expert)
        replicas = network.ranks(layout.data // layout.expert, layout.tensor * layout.context)
    if layout.sharding == "none" or software.reduced_whole:
        add("dp", "all_reduce", 1, software.reduce_bytes * held, replicas)
    else:
        times = model.count if layout.sharding == "parameters" else 1
        add("dp", "reduce_scatter", times, software.reduce_bytes * held, replicas)
        gathers = 2 * times if layout.sharding == "parameters" else 1
        add("dp", "all_gather", gathers, element * held, replicas)
    if layout.pipeline > 1:
        calls = 2.0 * model.count * layout.chunks
        size = model.layers.sent_bytes()
        seconds = calls * network.message(size, groups.pipeline_stride)
        found.append(AxisBytes("pp", "send", calls, calls * size, "point to point", seconds))
    return found


def tensor_calls(layout: ParallelLayout, software: Software) -> dict[str, int]:
    """Collectives of tensor parallelism in a layer and microbatch, forwards and backwards.

    Along the sequence, inputs are gathered and results scattered, there and back, and inputs are
    gathered once more for gradients of weights; what is recomputed is gathered and scattered again.
    """
    if layout.tensor == 1:
        return {}
    again = 2 if layout.recompute == "full" else 0
    if software.sequence_parallel:
        return {"all_gather": 6 + again, "reduce_scatter": 4 + again}
    return {"all_reduce": 4 + again}
