"""What one layer costs a rank: the seconds of its kernels and collectives, forwards and backwards.

Products are those of the model's own graph: `tracing.py` counts them there, and tests hold both
against one another.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace
from functools import cached_property
from typing import NamedTuple

from ridgeline.planner.collectives import Groups, NetworkTimes, groups_of
from ridgeline.planner.constants import Constants
from ridgeline.planner.kernels import Timer
from ridgeline.planner.layer_products import RankProduct, layer_products
from ridgeline.planner.layouts import Job, ParallelLayout
from ridgeline.planner.machines import Cluster
from ridgeline.planner.parts import HeldParameters, ModelPart, layer_share, shares_of_experts
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

    def plus(self, other: LayerTimes) -> LayerTimes:
        """Both, one after the other."""
        return LayerTimes(
            self.forward.plus(other.forward), self.backward.plus(other.backward),
            self.again.plus(other.again), self.weight_gradients + other.weight_gradients,
        )  # fmt: skip

    def times(self, factor: float) -> LayerTimes:
        """All of it so many times."""
        return LayerTimes(
            self.forward.times(factor), self.backward.times(factor), self.again.times(factor),
            factor * self.weight_gradients,
        )  # fmt: skip


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
        found = self.layer_times.times(part.layers - part.dense)
        return found.plus(self.dense_times.times(part.dense)) if part.dense else found

    def around(self, part: ModelPart) -> list[LayerTimes]:
        """What a part has besides layers."""
        return [self.embedding()] * part.first + [self.head()] * part.last

    def block_parameters(self, part: ModelPart) -> list[HeldParameters]:
        """Of each layer of a part, what a rank holds before data-parallel ranks share it out."""
        tensor, experts = self.layout.tensor, shares_of_experts(self.layout)
        alike = [layer_share(self.shape, tensor, experts, False)] * (part.layers - part.dense)
        return [layer_share(self.shape, tensor, experts, True)] * part.dense + alike

    @cached_property
    def layer_times(self) -> LayerTimes:
        """One layer of the model, timed once."""
        return self.layer(dense=False)

    @cached_property
    def dense_times(self) -> LayerTimes:
        """One of the first layers, where those have no experts and others have."""
        return self.layer(dense=True)

    def layer(self, dense: bool) -> LayerTimes:
        """One layer of the model."""
        products = layer_products(self.shape, self.layout, self.rows, dense)
        forward, weights = self._forward(products, dense), self._weight_gradients(products)
        again, recompute = NOTHING, self.layout.recompute
        if recompute == "full":
            again = forward.times(self.layout.recomputed)
        elif recompute == "selective":
            again = self._selective(forward)
        return LayerTimes(forward, self._backward(products, weights, dense), again, weights)

    def _selective(self, forward: PassTimes) -> PassTimes:
        if self.software.selective == "half":
            return PassTimes(products=forward.products / 2, memory=forward.memory)
        if not self.software.fuses(self.shape):
            return PassTimes(attention=forward.attention)
        unfolded = 0.0
        if self.shape.latent is not None:
            products = layer_products(self.shape, self.layout, self.rows, dense=True)
            unfolded = self._time(p for p in products if p.terms == self.shape.latent.rank
                                  or p.terms == self.shape.latent.query_rank)  # fmt: skip
        return PassTimes(products=unfolded, memory=forward.memory)

    def _time(self, products: Iterable[RankProduct]) -> float:
        """Seconds of products."""
        product, grouped = self.machine.timer.product, self.machine.timer.grouped
        return sum(
            product(rows, columns, terms, self.narrow)
            if count == 1
            else grouped(count, rows, columns, terms, self.narrow)
            for rows, columns, terms, count in products
        )

    def _forward(self, products: list[RankProduct], dense: bool) -> PassTimes:
        attention, moved = self._attention(backward=False)
        adapted, copied = self._adapters(products, backward=False)
        memory = self.machine.timer.passes(
            self.software.passes_of(self.shape) * self._elementwise_bytes(dense)
            + moved
            + self._cast_bytes(dense)
            + self._unpacked_bytes(dense)
            + copied,
            8,
        )
        return self._finished(self._time(products) + adapted, attention, memory, False, dense)

    def _weight_gradients(self, products: list[RankProduct]) -> float:
        if self.software.frozen_weights:
            return 0.0
        return self._time(RankProduct(c, t, r, n) for r, c, t, n in products)

    def _backward(
        self, products: list[RankProduct], weight_gradients: float, dense: bool
    ) -> PassTimes:
        seconds = weight_gradients + self._time(RankProduct(r, t, c, n) for r, c, t, n in products)
        attention, moved = self._attention(backward=True)
        adapted, copied = self._adapters(products, backward=True)
        memory = self.machine.timer.passes(
            2 * self.software.passes_of(self.shape) * self._elementwise_bytes(dense)
            + moved
            + 2 * self._cast_bytes(dense)
            + self._unpacked_bytes(dense)
            + copied,
            16,
        )
        return self._finished(seconds + adapted, attention, memory, True, dense)

    def _adapters(self, products: list[RankProduct], backward: bool) -> tuple[float, float]:
        """Seconds of products with LoRA's matrices beside others, and bytes of adding them up."""
        rank, product = self.software.adapter_rank, self.machine.timer.product
        beside = len(self.shape.projections(1)) - 1 if self.software.adapted_attention else None
        seconds = moved = 0.0
        for rows, columns, terms, count in products[:beside] if rank else ():
            there = ((rows, rank, terms), (rows, columns, rank))
            back = ((rows, rank, columns), (columns, rank, rows),
                    (rows, terms, rank), (rank, terms, rows))  # fmt: skip
            seconds += count * sum(product(*one) for one in (back if backward else there))
            # Read, read and written: what is added to what, in 16 bits.
            moved += 3 * 2.0 * count * rows * (terms if backward else columns)
        return seconds, moved

    def _unpacked_bytes(self, dense: bool) -> float:
        """Bytes that making 16-bit weights of a layer out of narrower ones moves."""
        each = self.software.unpacked_bytes
        if not each:
            return 0.0
        experts = shares_of_experts(self.layout)
        held = layer_share(self.shape, self.layout.tensor, experts, dense)
        return each * (held.layers + held.experts)

    def _elementwise_bytes(self, dense: bool) -> float:
        """Bytes that norms, residuals, activations and rotations move, each in one kernel."""
        shape, rows = self.shape, self.rows
        blocks = 1 if shape.parallel_block else 2
        norms = blocks * 4 * shape.hidden
        residuals = blocks * (7 if shape.dropout else 6) * shape.hidden
        inner = shape.feed_forward_width(dense) * (6 if shape.gated else 4)
        heads = 4 * (shape.queries + 2 * shape.keys)
        sorted_ = 0.0
        if shape.experts > 1 and not dense:
            # Tokens are copied to their experts and back; those of other ranks are sorted, too.
            copies = 4 * shape.chosen + 4 + (8 * shape.chosen if self.layout.expert > 1 else 0)
            sorted_ = copies * shape.hidden
        return rows * ((norms + residuals + sorted_) / self.whole + (inner + heads) / self.split)

    def _cast_bytes(self, dense: bool) -> float:
        """Bytes that turning operands of narrow products into float8, twice laid out, moves."""
        if not self.narrow:
            return 0.0
        shape = self.shape
        wide = 2 * shape.hidden / self.whole
        wide += (shape.queries + shape.feed_forward_width(dense)) / self.split
        # Scales by blocks of 32 are computed along rows and along columns.
        more = 2.0 if self.job.precision == "mxfp8" else 1.0
        return self.rows * wide * 4 * self.software.cast_passes * more

    def _attention(self, backward: bool) -> tuple[float, float]:
        """Seconds of attention, and bytes that it moves where scores are kept in memory."""
        shape, timer = self.shape, self.machine.timer
        heads = shape.heads / self.split
        if self.software.fuses(shape):
            return self._fused_attention(heads, backward), 0.0
        seen = shape.seen(self.job.seen, causal=False)
        pairs = self.rows * seen * heads
        batch = max(1, round(self.layout.microbatch * heads))
        one = timer.batched(batch, self.rows // self.layout.microbatch, round(seen), shape.head)
        # scaled, masked and normalised in one kernel; dropout in another
        moved = (4 + (5 if shape.dropout else 0)) * pairs
        return (4 if backward else 2) * one, (1.5 if backward else 1.0) * moved

    def _fused_attention(self, heads: float, backward: bool) -> float:
        """Seconds of attention whose scores stay on the chip, a mean over the model's layers."""
        shape, timer = self.shape, self.machine.timer
        width, length = (shape.head + shape.value_head) // 2, self.job.seen
        kinds = [(1.0, length / 2)]
        if 0 < shape.window < length:
            kinds = [(shape.windowed, float(shape.window)), (1 - shape.windowed, length / 2)]
        seconds = sum(
            share * timer.attention(heads, self.rows, keys, width, backward)
            for share, keys in kinds
            if share
        )
        capability, software = self.machine.cluster.gpu.capability, self.software
        if capability < 90:
            return seconds / software.attention_ampere
        return seconds / (software.attention_hopper if capability == 90 else 1.0)

    def _finished(
        self, products: float, attention: float, memory: float, backward: bool, dense: bool
    ) -> PassTimes:
        """With collectives, and with what the host takes to start it all."""
        software = self.software
        tensor, hidden = self._tensor(products, backward)
        context = self._context(attention, backward)
        # What runs behind products of other tokens is no longer than these.
        traffic = 0.0 if dense else self._expert()
        behind = min(software.overlap_expert * traffic, products)
        expert, hidden = traffic - behind, hidden + behind
        sorting = 0
        if self.shape.experts > 1 and not dense:
            local = max(1, self.shape.experts // self.layout.expert)
            sorting = software.sorting_kernels + software.expert_kernels * local
        kernels = (software.kernels + sorting) * (2 if backward else 1)
        started = software.launch * kernels
        busy = products + attention + memory + tensor + context + expert
        return PassTimes(
            products + self.machine.constants.contention * min(hidden, products),
            attention,
            memory,
            tensor,
            context,
            expert,
            max(0.0, started - busy),
            hidden,
        )

    def _tensor(self, products: float, backward: bool) -> tuple[float, float]:
        """Seconds of tensor-parallel traffic that nothing hides, and of what is hidden."""
        if self.split == 1:
            return 0.0, 0.0
        network, group = self.network, self.groups.tensor
        size = 2.0 * self.rows * self.shape.hidden
        times = 1 if self.shape.parallel_block else 2
        wait = self.software.tensor_wait
        if not self.software.sequence_parallel:
            return times * (wait + network.seconds("all_reduce", size, group)), 0.0
        gather = network.seconds("all_gather", size, group) + wait
        scatter = network.seconds("reduce_scatter", size, group) + wait
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
        group, chosen = self.groups.expert, self.shape.chosen
        size = 2.0 * self.rows * self.shape.hidden / (self.whole // self.layout.expert_split)
        if not self.software.deduplicated or group.nodes == 1:
            return 2 * self.network.seconds("all_to_all", size * chosen, group)
        # Of nodes that all are as likely, so many have an expert for a token.
        reached = group.nodes * (1 - (1 - 1 / group.nodes) ** chosen)
        across = self.network.seconds("all_to_all", size * reached, group)
        inside = replace(group, size=group.in_node, in_pod=group.in_node)
        return 2 * (across + self.network.seconds("all_to_all", size * chosen, inside))

    def head(self) -> LayerTimes:
        """The last norm, the scores of all words, and the loss."""
        timer, shape = self.machine.timer, self.shape
        rows, columns, terms = self.rows, shape.vocabulary // self.split, shape.hidden
        # Scores are cast, read for their largest and for their sum, and written as gradients.
        moved = self.software.score_bytes * float(rows) * columns
        forward = PassTimes(
            timer.product(rows, columns, terms), memory=timer.passes(1.6 * moved, 4)
        )
        weights = 0.0 if self.software.frozen_weights else timer.product(columns, terms, rows)
        back = timer.product(rows, terms, columns) + weights
        backward = PassTimes(back, memory=timer.passes(1.2 * moved, 4))
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
