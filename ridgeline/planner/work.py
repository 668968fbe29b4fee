"""What one layer costs a rank: the seconds of its kernels and collectives, forwards and backwards.

Products are those of the model's own graph: `tracing.py` counts them there, and tests hold both
against one another.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import NamedTuple

from ridgeline.planner.collectives import Groups, NetworkTimes, groups_of
from ridgeline.planner.constants import Constants
from ridgeline.planner.kernels import Timer
from ridgeline.planner.layouts import Job, ParallelLayout
from ridgeline.planner.machines import Cluster
from ridgeline.planner.parts import ModelPart
from ridgeline.planner.shapes import ModelShape
from ridgeline.planner.software import Software


class PassTimes(NamedTuple):
    """Seconds of one pass of a microbatch through something, by what they are spent on.

    Those of collectives are what nothing hides; `hidden` is what runs behind products.
    """

    products: float = 0.0
    attention: float = 0.0
    memory: float = 0.0
    tensor: float = 0.0
    context: float = 0.0
    expert: float = 0.0
    launches: float = 0.0
    hidden: float = 0.0

    @property
    def seconds(self) -> float:
        """All of them."""
        return sum(self[:-1])

    def plus(self, other: PassTimes) -> PassTimes:
        """Both, one after the other."""
        return PassTimes(*(mine + its for mine, its in zip(self, other)))

    def times(self, factor: float) -> PassTimes:
        """All of it so many times."""
        return PassTimes(*(mine * factor for mine in self))


NOTHING = PassTimes()


@dataclass(frozen=True)
class LayerTimes:
    """One layer: forwards, backwards, and what backwards computes again."""

    forward: PassTimes
    backward: PassTimes
    again: PassTimes = NOTHING
    weight_gradients: float = 0.0
    """Of `backward`, the seconds that a split backward pass may put off."""


class TimedCluster:
    """A cluster as constants see it: what times kernels and collectives on it."""

    def __init__(self, cluster: Cluster, constants: Constants) -> None:
        self.cluster, self.constants = cluster, constants
        self.timer = Timer(cluster, constants)
        self._networks: dict[bool, NetworkTimes] = {}

    def network(self, software: Software) -> NetworkTimes:
        """What times collectives, as a software uses the cards of a node."""
        one = software.one_card
        if one not in self._networks:
            self._networks[one] = NetworkTimes(self.cluster, self.constants, one)
        return self._networks[one]


class LayerCosts:
    """The costs of a job's layers on a machine under one layout and software."""

    def __init__(
        self, job: Job, layout: ParallelLayout, software: Software, machine: TimedCluster
    ) -> None:
        self.job, self.layout, self.software, self.machine = job, layout, software, machine
        self.shape: ModelShape = job.shape
        self.network = machine.network(software)
        self.groups: Groups = groups_of(layout, self.network)
        self.rows = layout.microbatch * job.length // layout.context
        self.split = layout.tensor
        # What tensor parallelism does not split it may split along the sequence.
        self.whole = self.split if software.sequence_parallel else 1
        self.narrow = job.precision in ("fp8", "mxfp8")

    def blocks_of(self, part: ModelPart) -> LayerTimes:
        """The layers of a part of a pipeline."""
        one, count = self.layer_times, part.layers
        return LayerTimes(
            one.forward.times(count), one.backward.times(count), one.again.times(count),
            count * one.weight_gradients,
        )  # fmt: skip

    def around(self, part: ModelPart) -> list[LayerTimes]:
        """What a part has besides layers."""
        return [self.embedding()] * part.first + [self.head()] * part.last

    def block_parameters(self, part: ModelPart) -> list[float]:
        """Of each layer of a part, what a rank holds before data-parallel ranks share it out."""
        return [self.shape.layer_parameters / self.layout.tensor] * part.layers

    @cached_property
    def layer_times(self) -> LayerTimes:
        """One layer of the model, timed once."""
        return self.layer()

    def layer(self) -> LayerTimes:
        """One layer of the model."""
        forward, weights = self._forward(), self._weight_gradients()
        again, recompute = NOTHING, self.layout.recompute
        if recompute == "full":
            again = forward.times(self.layout.recomputed)
        elif recompute == "selective":
            again = self._selective(forward)
        return LayerTimes(forward, self._backward(weights), again, weights)

    def _selective(self, forward: PassTimes) -> PassTimes:
        if self.software.selective == "half":
            return PassTimes(products=forward.products / 2, memory=forward.memory)
        if self.software.fuses(self.shape):
            return PassTimes(memory=forward.memory)
        return PassTimes(attention=forward.attention)

    def _products(self) -> list[tuple[int, int, int]]:
        """The products of a layer on one rank: rows, columns, terms of the sum."""
        shape, split = self.shape, self.split
        ups = 2 if shape.gated else 1
        keys = max(shape.keys // split, shape.head)
        around = [
            (self.rows, shape.queries // split + 2 * keys, shape.hidden),
            (self.rows, shape.hidden, shape.queries // split),
        ]
        if shape.experts == 1:
            return [
                *around,
                (self.rows, ups * shape.inner // split, shape.hidden),
                (self.rows, shape.hidden, shape.inner // split),
            ]
        local = max(1, shape.experts // self.layout.expert)
        rows = max(1, self.rows * shape.chosen // local)
        experts = [
            (rows, ups * shape.inner // split, shape.hidden),
            (rows, shape.hidden, shape.inner // split),
        ] * local
        if shape.shared_inner:
            experts += [
                (self.rows, ups * shape.shared_inner // split, shape.hidden),
                (self.rows, shape.hidden, shape.shared_inner // split),
            ]
        return [*around, *experts, (self.rows, shape.experts, shape.hidden)]

    def _feed_forward_width(self) -> int:
        return self.shape.inner * self.shape.chosen + self.shape.shared_inner

    def _forward(self) -> PassTimes:
        timer, products = self.machine.timer, self._products()
        seconds = sum(timer.product(*one, self.narrow) for one in products)
        attention, moved = self._attention(backward=False)
        memory = timer.passes(
            self.software.passes_of(self.shape) * self._elementwise_bytes()
            + moved
            + self._cast_bytes(),
            8,
        )
        return self._finished(seconds, attention, memory, backward=False)

    def _weight_gradients(self) -> float:
        if self.software.frozen_weights:
            return 0.0
        product = self.machine.timer.product
        return sum(product(columns, terms, rows, self.narrow)
                   for rows, columns, terms in self._products())  # fmt: skip

    def _backward(self, weight_gradients: float) -> PassTimes:
        timer = self.machine.timer
        seconds = weight_gradients + sum(
            timer.product(rows, terms, columns, self.narrow)
            for rows, columns, terms in self._products()
        )
        attention, moved = self._attention(backward=True)
        memory = timer.passes(
            2 * self.software.passes_of(self.shape) * self._elementwise_bytes()
            + moved
            + 2 * self._cast_bytes(),
            16,
        )
        return self._finished(seconds, attention, memory, backward=True)

    def _elementwise_bytes(self) -> float:
        """Bytes that norms, residuals, activations and rotations move, each in one kernel."""
        shape, rows = self.shape, self.rows
        blocks = 1 if shape.parallel_block else 2
        norms = blocks * 4 * shape.hidden
        residuals = blocks * (7 if shape.dropout else 6) * shape.hidden
        inner = self._feed_forward_width() * (6 if shape.gated else 4)
        heads = 4 * (shape.queries + 2 * shape.keys)
        return rows * ((norms + residuals) / self.whole + (inner + heads) / self.split)

    def _cast_bytes(self) -> float:
        """Bytes that turning operands of narrow products into float8, twice laid out, moves."""
        if not self.narrow:
            return 0.0
        shape = self.shape
        wide = 2 * shape.hidden / self.whole
        wide += (shape.queries + self._feed_forward_width()) / self.split
        # Scales by blocks of 32 are computed along rows and along columns.
        more = 2.0 if self.job.precision == "mxfp8" else 1.0
        return self.rows * wide * 4 * self.software.cast_passes * more

    def _attention(self, backward: bool) -> tuple[float, float]:
        """Seconds of attention, and bytes that it moves where scores are kept in memory."""
        shape, timer = self.shape, self.machine.timer
        heads = shape.heads / self.split
        seen = min(self.job.length, shape.window) if shape.window else self.job.length
        if self.software.fuses(shape):
            rows, keys = self.rows, seen if shape.window else seen / 2
            seconds = timer.attention(heads, rows, keys, shape.head, backward)
            capability, software = self.machine.cluster.gpu.capability, self.software
            if capability < 90:
                return seconds / software.attention_ampere, 0.0
            return seconds / (software.attention_hopper if capability == 90 else 1.0), 0.0
        pairs = self.rows * seen * heads
        batch = max(1, round(self.layout.microbatch * heads))
        one = timer.batched(batch, self.rows // self.layout.microbatch, seen, shape.head)
        # scaled, masked and normalised in one kernel; dropout in another
        moved = (4 + (5 if shape.dropout else 0)) * pairs
        return (4 if backward else 2) * one, (1.5 if backward else 1.0) * moved

    def _finished(
        self, products: float, attention: float, memory: float, backward: bool
    ) -> PassTimes:
        """With collectives, and with what the host takes to start it all."""
        software = self.software
        tensor, hidden = self._tensor(products, backward)
        context = self._context(attention, backward)
        expert = self._expert()
        kernels = software.kernels * (2 if backward else 1)
        started = software.launch * kernels
        busy = products + attention + memory + tensor + context + expert
        return PassTimes(
            products + self.machine.constants.contention * min(hidden, products),
            attention,
            memory,
            tensor,
            context,
            expert,
            max(0.0, started - busy) + software.layer_seconds / 2,
            hidden,
        )

    def _tensor(self, products: float, backward: bool) -> tuple[float, float]:
        """Seconds of tensor-parallel traffic that nothing hides, and of what is hidden."""
        if self.split == 1:
            return 0.0, 0.0
        network, group = self.network, self.groups.tensor
        size = 2.0 * self.rows * self.shape.hidden
        times = 1 if self.shape.parallel_block else 2
        if not self.software.sequence_parallel:
            return times * network.seconds("all_reduce", size, group), 0.0
        gather = network.seconds("all_gather", size, group)
        scatter = network.seconds("reduce_scatter", size, group)
        total = times * (gather + scatter)
        hidden = min(self.software.overlap_tensor * total, 0.9 * products)
        # Inputs are gathered once more for gradients of weights, behind those of inputs.
        more = times * gather if backward else 0.0
        return total - hidden + max(0.0, more - products / 3), hidden + more

    def _context(self, attention: float, backward: bool) -> float:
        """Seconds in which keys and values travel and attention does not hide them."""
        if self.layout.context == 1:
            return 0.0
        tokens = self.layout.microbatch * self.job.length
        size = 2.0 * 2 * tokens * max(self.shape.keys / self.split, self.shape.head)
        gather = self.network.seconds("all_gather", size, self.groups.context)
        whole = 2 * gather if backward else gather
        behind = 0.8 * attention if self.software.overlap_context else 0.0
        return max(whole / self.layout.context, whole - behind)

    def _expert(self) -> float:
        """Seconds in which tokens travel to experts and back."""
        if self.shape.experts == 1 or self.layout.expert == 1:
            return 0.0
        size = 2.0 * self.rows * self.shape.hidden * self.shape.chosen / self.whole
        return 2 * self.network.seconds("all_to_all", size, self.groups.expert)

    def head(self) -> LayerTimes:
        """The last norm, the scores of all words, and the loss."""
        timer, shape = self.machine.timer, self.shape
        rows, columns, terms = self.rows, shape.vocabulary // self.split, shape.hidden
        forward = PassTimes(
            timer.product(rows, columns, terms), memory=timer.passes(16.0 * rows * columns, 4)
        )
        weights = 0.0 if self.software.frozen_weights else timer.product(columns, terms, rows)
        back = timer.product(rows, terms, columns) + weights
        backward = PassTimes(back, memory=timer.passes(12.0 * rows * columns, 4))
        return LayerTimes(forward, backward, weight_gradients=weights)

    def embedding(self) -> LayerTimes:
        """The table of words, looked up and added to."""
        moved = 2.0 * self.rows * self.shape.hidden
        timer = self.machine.timer
        forward = PassTimes(memory=timer.passes((5 if self.shape.dropout else 2) * moved))
        return LayerTimes(forward, PassTimes(memory=timer.passes(4 * moved)))

    def sent_bytes(self) -> float:
        """Of a microbatch between two stages."""
        return 2.0 * self.rows * self.shape.hidden / self.split
