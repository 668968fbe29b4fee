"""Bytes that each rank holds: weights, gradients, optimizer, saved tensors, and more.

Saved tensors are counted by what a layer's backward pass reads; `tracing.py` counts the same in the
graph of a model, and tests hold both against the closed formulas of the literature.
"""

from __future__ import annotations

from dataclasses import dataclass

from ridgeline.planner.layouts import SHARDING, Job, ParallelLayout
from ridgeline.planner.parts import (
    ModelPart,
    layer_share,
    shares_of_experts,
    stage_parameters,
    stage_parts,
    updated_parameters,
)
from ridgeline.planner.shapes import ModelShape
from ridgeline.planner.software import Software
from ridgeline.planner.traced_models import TracedShape

TIGHT = 0.90
"""Above this share of what a GPU has, a layout is called tight."""
# Allocators round, keep and scatter: what is held of saved tensors beyond their bytes.
FRAGMENTATION = 1.04


@dataclass(frozen=True)
class RankMemory:
    """Bytes of one rank at its fullest, by what they are for."""

    stage: int
    weights: float
    gradients: float
    optimizer: float
    activations: float
    scores: float
    """The scores of all words, of the last stage."""
    buffers: float

    @property
    def total(self) -> float:
        """All of it."""
        return (
            self.weights + self.gradients + self.optimizer + self.activations + self.scores
            + self.buffers
        )  # fmt: skip

    @property
    def state_and_activations(self) -> float:
        """What papers count that compute memory, not measure it."""
        return self.weights + self.gradients + self.optimizer + self.activations


def saved_bytes(
    job: Job, layout: ParallelLayout, software: Software, dense: bool = False
) -> tuple[float, float]:
    """Bytes that one layer keeps for a microbatch, and those it holds while it is computed.

    With everything recomputed, only the layer's input is kept, and one layer at a time is whole.
    """
    shape = job.shape
    rows = layout.microbatch * job.length / layout.context
    split = layout.tensor
    whole = split if software.sequence_parallel else 1
    # Operands of float8 products are kept as such.
    operand = 1 if job.precision in ("fp8", "mxfp8") else 2
    blocks = 1 if shape.parallel_block else 2
    inner = shape.feed_forward_width(dense)
    norms = blocks * (2 + operand) * shape.hidden + (2 * shape.hidden if shape.dropout else 0)
    if shape.experts > 1 and not dense:
        # Each expert has a copy of its tokens; what it gave was weighed before its last product.
        norms += operand * shape.chosen * shape.hidden
    values = shape.heads * shape.value_head
    heads = 2 * shape.queries + max(operand, 2) * values
    if shape.latent is None:
        heads += 4 * max(shape.keys, shape.head * split)
    else:
        folded = (shape.latent.query_rank or 0) + shape.latent.rank
        heads += 2 * shape.queries + 2 * values + operand * split * folded
    activated = (4 if shape.gated else 2) * inner + operand * inner
    if shape.gated and software.passes > 1:
        # The activation and its product with the other half are two kernels.
        activated += 2 * inner
    everything = rows * (norms / whole + (heads + activated) / split)
    seen = shape.seen(job.seen, causal=False)
    scores = 0.0
    if not software.fuses(shape):
        # What softmax gave, what dropout left of it, and where.
        scores = rows * seen * shape.heads / split * (5 if shape.dropout else 2)
    # Backwards holds one layer whole, and the gradients of what it is computing.
    working = everything + scores + 4 * rows * shape.hidden
    if software.gathered_inputs and split > 1:
        working += 6 * rows * shape.hidden
    remade = rows * (blocks * operand * shape.hidden / whole + operand * inner / split)
    if layout.recompute == "full":
        share = layout.recomputed
        kept = rows * 2 * shape.hidden / whole
        return share * kept + (1 - share) * (everything + scores), working
    if layout.recompute == "selective":
        if software.selective == "half":
            kept = (
                4 * shape.hidden / whole + (4 * shape.queries + 2 * shape.keys + 2 * inner) / split
            )
            return rows * kept, working
        if shape.latent is not None:
            # Queries, keys and values are unfolded again.
            remade += rows * (4 * shape.queries + 2 * values) / split
        return everything - (remade if software.fuses(shape) else 0.0), working
    if software.lean:
        return everything - remade + scores, working
    return everything + scores, working


def in_flight(layout: ParallelLayout, microbatches: int, stage: int) -> int:
    """The most (microbatch, chunk) pairs that a stage keeps; what the schedule's table holds."""
    behind, stages, chunks = layout.pipeline - stage - 1, layout.pipeline, layout.chunks
    if layout.schedule == "gpipe":
        return microbatches
    if layout.schedule == "zero-bubble":
        return min(stages, microbatches)
    if chunks == 1:
        return min(behind + 1, microbatches)
    run = -(-microbatches // max(1, microbatches // stages))
    return min(2 * behind + (chunks - 1) * run + 1, microbatches * chunks)


def _state(
    layout: ParallelLayout, software: Software, held: float, shared: float
) -> tuple[float, float, float]:
    """Bytes of weights, gradients and the optimizer's copies of `held` elements.

    `shared` is what is left of them where data-parallel ranks share them out.
    """
    level = SHARDING.index(layout.sharding)
    weights = software.weight_bytes * (shared if level == 3 else held)
    if software.weight_bytes > 2 and level:
        # The weights that are kept are sharded, in float32; those of products are whole.
        weights = software.weight_bytes * shared + (2 * held if level < 3 else 0.0)
    gradients = software.gradient_bytes * (shared if level >= 2 else held)
    optimizer = software.optimizer_bytes * (shared if level >= 1 else held)
    return weights, gradients, optimizer


def _gathered(
    shape: ModelShape, layout: ParallelLayout, software: Software, tables: float
) -> float:
    """Bytes that are whole for a while where weights or their float32 copies are sharded."""
    layer = sum(layer_share(shape, layout.tensor, shares_of_experts(layout), False))
    # What gathers less than layers gathers the weights of one product, at least.
    live = max(software.most_gathered, 2 * shape.hidden * shape.inner / layout.tensor)
    if layout.sharding == "parameters":
        # Two layers are whole at once, in the precision of products, and one's gradients.
        whole = software.gathered_bytes * min(2 * layer, live) + 2 * tables
        # Weights that were packed are whole numbers of 16 bits one layer at a time.
        unpacked = 2 * layer if software.unpacked_bytes else 0.0
        return whole + unpacked + software.reduce_bytes * min(layer, live)
    if layout.sharding != "none" and software.weight_bytes > 2:
        # A layer's gradients as they come, and laid out to be summed.
        return 2 * layer + software.reduce_bytes * layer
    return 0.0


def _activations(job: Job, layout: ParallelLayout, software: Software, stage: int) -> float:
    """Bytes of tensors that are saved or passed on for the microbatches in flight."""
    shape, count = job.shape, job.microbatches(layout)
    parts = stage_parts(shape, layout, stage)
    kept = sum(part_bytes(job, layout, software, part) for part in parts) / layout.chunks
    working = working_bytes(job, layout, software, stage)
    rows = layout.microbatch * job.length / layout.context
    passed = 2 * rows * shape.hidden / (layout.tensor if software.sequence_parallel else 1)
    beside = received = 0.0
    if layout.pipeline > 1:
        beside = software.pipeline_buffers * passed
        received = software.received_buffers * passed * count * layout.chunks
    return in_flight(layout, count, stage) * (kept + beside) + received + working


def part_bytes(job: Job, layout: ParallelLayout, software: Software, part: ModelPart) -> float:
    """Bytes that a part of a pipeline keeps for one microbatch."""
    shape = job.shape
    if not isinstance(shape, TracedShape):
        kept = (part.layers - part.dense) * saved_bytes(job, layout, software)[0]
        if part.dense:
            kept += part.dense * saved_bytes(job, layout, software, dense=True)[0]
        return kept
    blocks = shape.blocks[part.start : part.start + part.layers]
    around = [shape.before] * part.first + [shape.after] * part.last
    again = layout.recompute == "full"
    kept = sum(block.saved for block in around)
    kept += sum(2 * block.sent if again else block.saved for block in blocks)
    return kept * layout.microbatch / shape.samples


def working_bytes(job: Job, layout: ParallelLayout, software: Software, stage: int) -> float:
    """Bytes of the layer that a stage is computing backwards."""
    shape = job.shape
    if not isinstance(shape, TracedShape):
        return saved_bytes(job, layout, software)[1]
    parts = stage_parts(shape, layout, stage)
    largest = max(b.saved for p in parts for b in shape.blocks[p.start : p.start + p.layers])
    return largest * layout.microbatch / shape.samples


def rank_memory(job: Job, layout: ParallelLayout, software: Software, stage: int) -> RankMemory:
    """What a rank of a stage holds when it holds most."""
    shape = job.shape
    parameters = stage_parameters(shape, layout, stage)
    held = sum(parameters)
    shared = updated_parameters(shape, layout, stage)
    weights, gradients, optimizer = _state(layout, software, held, shared)
    if software.table_bytes:
        wider = (software.table_bytes - software.weight_bytes) * parameters.tables
        weights += wider * (shared / held if layout.sharding == "parameters" else 1)
    rows = layout.microbatch * job.length / layout.context
    last = stage == layout.pipeline - 1
    scores = rows * shape.vocabulary / layout.tensor * software.score_bytes if last else 0.0
    sent = 2 * rows * shape.hidden * (4 if layout.pipeline > 1 else 1)
    return RankMemory(
        stage,
        weights + _gathered(shape, layout, software, parameters.tables),
        gradients,
        optimizer,
        _activations(job, layout, software, stage) * FRAGMENTATION,
        scores,
        software.workspace * 1e9 + sent,
    )


def worst_rank(job: Job, layout: ParallelLayout, software: Software) -> RankMemory:
    """The stage that holds most: the first has most in flight, the last the scores."""
    stages = {0, min(1, layout.pipeline - 1), layout.pipeline - 1}
    return max(
        (rank_memory(job, layout, software, stage) for stage in stages), key=lambda one: one.total
    )


def verdict(held: float, capacity: float) -> str:
    """`fits`, `tight` or `does not fit`: bytes against those a GPU has."""
    if held > capacity:
        return "does not fit"
    return "tight" if held > TIGHT * capacity else "fits"
