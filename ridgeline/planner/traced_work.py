"""What the blocks of a traced model cost a rank: `work.py` for modules that are no transformers."""

from __future__ import annotations

import math
from dataclasses import replace

from ridgeline.planner.collectives import groups_of
from ridgeline.planner.kernels import Timer
from ridgeline.planner.layouts import Job, ParallelLayout
from ridgeline.planner.parts import HeldParameters, ModelPart
from ridgeline.planner.software import Software
from ridgeline.planner.traced_models import TracedBlock, TracedShape
from ridgeline.planner.work import NOTHING, LayerCosts, LayerTimes, PassTimes, TimedCluster

_ELEMENT = 2
"""Bytes of an activation."""


class TracedCosts:
    """The costs of a traced model's blocks; its ranks are replicas and stages, no others."""

    def __init__(
        self, job: Job, layout: ParallelLayout, software: Software, machine: TimedCluster
    ) -> None:
        assert isinstance(job.shape, TracedShape)
        self.layout, self.software, self.machine = layout, software, machine
        self.shape: TracedShape = job.shape
        self.network = machine.network(software)
        self.groups = groups_of(layout, self.network)
        self.narrow = job.precision in ("fp8", "mxfp8")
        # Counts are those of the example's samples.
        self.scale = layout.microbatch / job.shape.samples

    def blocks_of(self, part: ModelPart) -> LayerTimes:
        """The blocks of a part of a pipeline."""
        found = LayerTimes(NOTHING, NOTHING)
        for block in self.shape.blocks[part.start : part.start + part.layers]:
            one = self._timed(block)
            again = one.forward if self.layout.recompute == "full" else NOTHING
            found = found.plus(replace(one, again=again))
        return found

    def around(self, part: ModelPart) -> list[LayerTimes]:
        """What comes before all blocks, or after them."""
        around = [self.shape.before] * part.first + [self.shape.after] * part.last
        return [self._timed(block) for block in around]

    def block_parameters(self, part: ModelPart) -> list[HeldParameters]:
        """Of each block of a part."""
        blocks = self.shape.blocks[part.start : part.start + part.layers]
        return [HeldParameters(float(block.parameters), 0.0, 0.0) for block in blocks]

    def sent_bytes(self) -> float:
        """Of a microbatch between two stages, where most is sent."""
        return float(_ELEMENT * self.layout.microbatch * self.shape.hidden)

    def _timed(self, block: TracedBlock) -> LayerTimes:
        """One block for a microbatch."""
        timer, counts = self.machine.timer, block.counts
        frozen = self.software.frozen_weights
        there = inputs = weights = 0.0
        for (batch, traced_rows, columns, terms), times in counts.products.items():
            rows = max(1, math.ceil(traced_rows * self.scale))
            if batch > 1:
                # Both operands are activations, or channels are alone: there and twice back.
                one = timer.batched(batch, rows, columns, terms)
                there, inputs = there + times * one, inputs + times * 2 * one
                continue
            there += times * timer.product(rows, columns, terms, self.narrow)
            inputs += times * timer.product(rows, terms, columns, self.narrow)
            if not frozen:
                weights += times * timer.product(columns, terms, rows, self.narrow)
        moved = _ELEMENT * self.software.passes * counts.moved * self.scale
        kernels = counts.kernels
        return LayerTimes(
            self._pass(there, self._attention(timer, block, False), moved, kernels),
            self._pass(inputs + weights, self._attention(timer, block, True), 2 * moved,
                       2 * kernels),
            weight_gradients=weights,
        )  # fmt: skip

    def _attention(self, timer: Timer, block: TracedBlock, backward: bool) -> float:
        return sum(
            times
            * timer.attention(
                one.heads * self.scale, one.rows, one.keys / (2 if one.causal else 1), one.width,
                backward,
            )
            for one, times in block.counts.attention.items()
        )  # fmt: skip

    def _pass(self, products: float, attention: float, moved: float, kernels: int) -> PassTimes:
        memory = self.machine.timer.passes(moved, kernels) if kernels else 0.0
        busy = products + attention + memory
        waits = max(0.0, self.software.launch * kernels - busy)
        return PassTimes(products, attention, memory, launches=waits)


def costs_of(
    job: Job, layout: ParallelLayout, software: Software, machine: TimedCluster
) -> LayerCosts | TracedCosts:
    """What times the layers of a job's model."""
    kind = TracedCosts if isinstance(job.shape, TracedShape) else LayerCosts
    return kind(job, layout, software, machine)
