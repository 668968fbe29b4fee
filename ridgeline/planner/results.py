"""What a plan says, as data: for JSON, for the terminal and for a page.

Every figure has a tag: *exact* follows from shapes, *measured* was read off a machine, *modelled*
is what this planner believes.
"""

from __future__ import annotations

from typing import Any

from ridgeline.planner.layouts import SHARDING, Job, ParallelLayout
from ridgeline.planner.memory import rank_memory, verdict
from ridgeline.planner.parts import parts_of
from ridgeline.planner.search import Candidate, Search
from ridgeline.planner.software import Software
from ridgeline.planner.traffic import traffic
from ridgeline.planner.work import TimedCluster

EXACT, MEASURED, MODELLED = "exact", "measured", "modelled"


def flops(job: Job, layout: ParallelLayout, software: Software, tokens: float) -> dict[str, float]:
    """TFLOP/s of a GPU under the three conventions, side by side."""
    frozen = software.frozen_weights
    full = job.shape.flops_per_token(job.seen, False, frozen)
    causal = job.shape.flops_per_token(job.seen, True, frozen)
    again = recomputed_flops(job, layout, software)
    return {
        "full attention": tokens * full / 1e12,
        "causal attention": tokens * causal / 1e12,
        "hardware, with recomputation": tokens * (causal + again) / 1e12,
    }


def recomputed_flops(job: Job, layout: ParallelLayout, software: Software) -> float:
    """FLOPs of a token that the backward pass computes a second time."""
    shape, frozen = job.shape, software.frozen_weights
    products = shape.flops_per_token(0, True, frozen)
    attention = (shape.flops_per_token(job.seen, True, frozen) - products) / 3
    products /= 2 if frozen else 3
    if layout.recompute == "full":
        return layout.recomputed * (products + attention)
    if layout.recompute == "none":
        return 0.0
    if software.selective == "half":
        return products / 2
    return 0.0 if software.fuses(shape) else attention


def plan_settings(job: Job, layout: ParallelLayout, software: Software) -> dict[str, Any]:
    """What `distributed.parallelize` takes."""
    stages = parts_of(job.shape, layout.pipeline, layout.chunks)
    return {
        "zero": SHARDING.index(layout.sharding),
        "sequence": software.sequence_parallel and layout.tensor > 1,
        "recompute": layout.recompute,
        "schedule": layout.schedule,
        "microbatches": job.microbatches(layout),
        "chunks": layout.chunks,
        "stages": [part.layers for part in stages] if layout.pipeline > 1 else [],
    }


def mesh_of(layout: ParallelLayout) -> dict[str, int]:
    """The mesh of a layout, by axis; expert ranks see samples of their own, as replicas do."""
    apart = layout.split_experts and layout.expert > 1
    found = {"dp": layout.data // (layout.expert if apart else 1), "pp": layout.pipeline}
    found |= {"ep": layout.expert} if apart else {}
    return found | {"cp": layout.context, "tp": layout.tensor}


def described(
    job: Job, candidate: Candidate, software: Software, machine: TimedCluster
) -> dict[str, Any]:
    """One layout, with all that is known of it."""
    layout, step = candidate.layout, candidate.step
    capacity = machine.cluster.capacity
    stages = [rank_memory(job, layout, software, stage) for stage in range(layout.pipeline)]
    return {
        "layout": str(layout),
        "mesh": mesh_of(layout),
        "plan": plan_settings(job, layout, software),
        "prediction": {
            "unit": job.shape.unit,
            "tokens_per_second_per_gpu": candidate.tokens,
            "tokens_per_second": candidate.tokens * layout.ranks,
            "step_seconds": step.seconds,
            "bound_tokens_per_second_per_gpu": candidate.bound,
            "simulated": candidate.simulated,
            "breakdown_seconds": step.parts,
            "idle_share_of_stages": list(step.idle),
            "tflops_per_gpu": flops(job, layout, software, candidate.tokens),
            "tag": MODELLED,
        },
        "memory": {
            "capacity_bytes": capacity,
            "worst_stage": candidate.memory.stage,
            "worst_bytes": candidate.memory.total,
            "verdict": verdict(candidate.memory.total, capacity),
            "stages": [
                {
                    "stage": one.stage, "total": one.total, "weights": one.weights,
                    "gradients": one.gradients, "optimizer": one.optimizer,
                    "activations": one.activations, "scores": one.scores, "buffers": one.buffers,
                }
                for one in stages
            ],
            "tag": MODELLED,
        },
        "traffic": [
            {
                "axis": one.axis, "collective": one.kind, "bytes": one.bytes, "calls": one.calls,
                "algorithm": one.algorithm, "seconds": one.seconds, "tag": EXACT,
            }
            for one in traffic(job, layout, software, machine)
        ],
    }  # fmt: skip


def document(
    job: Job, gpus: int, found: Search, software: Software, machine: TimedCluster, top: int = 5
) -> dict[str, Any]:
    """The whole answer: the best layout at its top, others below it."""
    best = described(job, found.found[0], software, machine)
    shape = job.shape
    return {
        **best,
        "model": {
            "name": shape.name, "parameters": shape.parameters(), "layers": shape.layers,
            "hidden": shape.hidden, "heads": shape.heads, "key_heads": shape.key_heads,
            "inner": shape.inner, "vocabulary": shape.vocabulary, "experts": shape.experts,
            "tag": EXACT,
        },
        "job": {
            "gpus": gpus, "sequence": job.length, "sequences": job.sequences,
            "tokens_per_step": job.tokens, "precision": job.precision, "tag": EXACT,
        },
        "cluster": {
            "gpu": machine.cluster.gpu.name, "node": machine.cluster.node,
            "link_gb_s": machine.cluster.link, "network_gb_s": machine.cluster.network,
            "pod": machine.cluster.pod, "oversubscription": machine.cluster.oversubscription,
            "source": machine.cluster.gpu.source,
            "published_runs": machine.cluster.compared[0],
            "median_error": machine.cluster.compared[1],
            "ceilings": MEASURED if machine.cluster.product_share else MODELLED,
        },
        "software": software.name,
        "search": {"considered": found.considered, "fitting": len(found.found),
                   "left_out": dict(found.pruned)},
        "alternatives": [
            described(job, one, software, machine) for one in found.found[1:top]
        ],
    }  # fmt: skip
