"""What collectives cost: for each algorithm and protocol a latency and a bandwidth, and the best.

The choice follows the cost table of NCCL: rings pay a hop for every rank and have all of the
bandwidth, trees pay one for every doubling and have most of it; protocols trade bandwidth for
latency. A group of ranks is how many there are and how many of them share a node.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

from ridgeline.planner.constants import Constants
from ridgeline.planner.layouts import ParallelLayout
from ridgeline.planner.machines import Cluster

_MICRO = 1e-6


@dataclass(frozen=True)
class Protocol:
    """How data is marked as arrived: seconds for a hop, and the bandwidth that is left."""

    name: str
    link_hop: float
    network_hop: float
    bandwidth: float
    base: float


PROTOCOLS = (
    Protocol("LL", 0.6 * _MICRO, 2.7 * _MICRO, 0.5, 6.6 * _MICRO),
    Protocol("LL128", 1.9 * _MICRO, 4.0 * _MICRO, 0.92, 8.0 * _MICRO),
    Protocol("Simple", 3.4 * _MICRO, 14.0 * _MICRO, 1.0, 10.0 * _MICRO),
)
# In-switch sums: of the link's bandwidth, by generation.
_IN_SWITCH = {90: 0.85, 100: 0.74, 103: 0.74}


@dataclass(frozen=True)
class Ranks:
    """A group: its size, and how many of its ranks are in one node and one pod."""

    size: int
    in_node: int
    in_pod: int

    @property
    def nodes(self) -> int:
        """Nodes that it spans."""
        return math.ceil(self.size / self.in_node)


@dataclass(frozen=True)
class Collective:
    """One collective operation as it would run."""

    seconds: float
    algorithm: str
    protocol: str


class NetworkTimes:
    """Seconds of collectives on one cluster."""

    def __init__(self, cluster: Cluster, constants: Constants, one_card: bool = False) -> None:
        self.cluster, self.one_card = cluster, one_card
        self.link = (cluster.link_measured or cluster.link * constants.link) * 1e9
        self.network = (cluster.network_measured or cluster.network * constants.network) * 1e9
        self._known: dict[tuple[str, float, Ranks], Collective] = {}

    def ranks(self, size: int, stride: int) -> Ranks:
        """A group whose neighbours are `stride` ranks apart."""
        node, pod = self.cluster.node, self.cluster.pod or 1 << 40
        return Ranks(size, _within(size, stride, node), _within(size, stride, pod))

    def _bandwidth(self, group: Ranks) -> float:
        """Bytes a second that pass each rank of a ring: the narrowest cut of it."""
        if group.nodes == 1:
            return self.link
        over = 1.0
        if group.in_pod < group.size:
            # A ring leaves a pod once, whatever number of its ranks are in there.
            over = max(1.0, self.cluster.oversubscription / group.in_pod)
        # Every rank of a node brings its own card, and rings are spread over them.
        cards = 1 if self.one_card else group.in_node
        return min(self.link, self.network / over * cards)

    def intensity(self, group: Ranks) -> float:
        """Bytes that a group's traffic moves through a GPU by the second, of what its links do."""
        return self._bandwidth(group) / self.link

    def collective(self, kind: str, size: float, group: Ranks) -> Collective:
        """The fastest way to do `all_reduce`, `all_gather`, `reduce_scatter` or `all_to_all`.

        `size` is the bytes of the whole result (of the sum; of the gathered tensor).
        """
        if group.size == 1 or size <= 0:
            return Collective(0.0, "none", "none")
        key = (kind, size, group)
        found = self._known.get(key)
        if found is None:
            found = self._known[key] = min(
                self._candidates(kind, size, group), key=lambda one: one.seconds
            )
        return found

    def _candidates(self, kind: str, size: float, group: Ranks) -> list[Collective]:
        bandwidth, ranks, nodes = self._bandwidth(group), group.size, group.nodes
        rounds = 2 if kind == "all_reduce" else 1
        found = []
        for protocol in PROTOCOLS:
            between = rounds * (nodes - 1)
            hops = rounds * (ranks - 1)
            slow = 1.4 if nodes > 1 and protocol.name == "Simple" else 1.0
            latency = protocol.base + (
                (hops - between) * protocol.link_hop
                + between * (protocol.network_hop + self.cluster.latency) * slow
            )
            share = (ranks - 1) / ranks
            moved = rounds * share * size / (bandwidth * protocol.bandwidth)
            if kind == "all_to_all":
                latency = protocol.base + protocol.network_hop * math.log2(ranks)
                moved = self._exchanged(size, group) / protocol.bandwidth
            found.append(Collective(latency + moved, "ring", protocol.name))
            if kind == "all_reduce":
                doublings = math.log2(nodes) if nodes > 1 else 0.0
                latency = protocol.base + 2 * (
                    (group.in_node - 1) * protocol.link_hop
                    + doublings * (protocol.network_hop + self.cluster.latency)
                )
                grown = min(1.0, 0.4 + 0.6 * math.log2(max(size / 2**16, 1)) / 10)
                moved = 2 * size / (bandwidth * protocol.bandwidth * 0.92 * grown)
                found.append(Collective(latency + moved, "tree", protocol.name))
        in_switch = _IN_SWITCH.get(self.cluster.gpu.capability)
        if in_switch and nodes == 1 and ranks > 2 and self.cluster.node >= 8:
            reach = self.cluster.link * 1e9 * in_switch
            moved = size / reach if kind == "all_reduce" else (ranks - 1) / ranks * size / reach
            if kind != "all_to_all":
                found.append(Collective(14 * _MICRO + moved, "in-switch", "Simple"))
        return found

    def _exchanged(self, size: float, group: Ranks) -> float:
        """Seconds of an exchange: what leaves a node goes over its network cards."""
        outside = (group.size - group.in_node) / group.size
        inside = (group.in_node - 1) / group.size
        return max(size * outside / self.network, size * inside / self.link)

    def seconds(self, kind: str, size: float, group: Ranks) -> float:
        """Of `collective`, the time alone."""
        return self.collective(kind, size, group).seconds

    def message(self, size: float, stride: int) -> float:
        """One message between ranks that are `stride` apart."""
        if stride < self.cluster.node:
            return 8 * _MICRO + size / self.link
        over = self.cluster.oversubscription if 0 < self.cluster.pod <= stride else 1.0
        return 15 * _MICRO + self.cluster.latency + size * over / self.network


def _within(size: int, stride: int, room: int) -> int:
    """Of a group with a stride, how many ranks fall into one block of `room` GPUs."""
    return max(1, min(size, room // stride))


@dataclass(frozen=True)
class Groups:
    """The groups of a layout's ranks, one for each way of splitting."""

    tensor: Ranks
    context: Ranks
    data: Ranks
    """All ranks that hold the same weights and see other tokens: data and context parallel ones."""
    replicas: Ranks
    """Of them, those that see other sequences."""
    sharers: Ranks
    """Of them, those that share one copy of states out."""
    copies: Ranks
    """Ranks that have the same share of different copies."""
    expert: Ranks
    expert_data: Ranks
    """Ranks that hold the same experts and see other tokens."""
    pipeline_stride: int


def groups_of(layout: ParallelLayout, network: NetworkTimes) -> Groups:
    """Where the ranks of each group lie."""
    inner = layout.tensor * layout.context
    data_stride = inner * layout.pipeline if layout.data_outermost else inner
    pipeline_stride = inner if layout.data_outermost else inner * layout.data
    context = network.ranks(layout.context, layout.tensor)
    replicas = network.ranks(layout.data, data_stride)
    data = _together(context, replicas)
    sharers, copies = data, network.ranks(1, 1)
    if 0 < layout.sharers < data.size:
        within = max(1, layout.sharers // layout.context)
        sharers = _together(context, network.ranks(within, data_stride))
        copies = network.ranks(data.size // sharers.size, data_stride * within)
    expert, expert_data = network.ranks(1, 1), data
    if layout.expert > 1:
        # Whole experts are shared out among tensor-parallel ranks first, split ones by replicas.
        stride = data_stride if layout.expert_split == layout.tensor else 1
        expert = network.ranks(layout.expert, stride)
        alike = data.size * layout.tensor // (layout.expert * layout.expert_split)
        expert_data = network.ranks(max(1, alike), stride * layout.expert)
    return Groups(
        network.ranks(layout.tensor, 1), context, data, replicas, sharers, copies, expert,
        expert_data, pipeline_stride,
    )  # fmt: skip


def _together(context: Ranks, data: Ranks) -> Ranks:
    """Ranks along the sequence and replicas, as one group."""
    size = data.size * context.size
    return Ranks(
        size, min(size, context.in_node * data.in_node), min(size, context.in_pod * data.in_pod)
    )
