"""Cut a graph with transfers into parts for one device each.

%0 = leaf : float32[4]                    part 0 on cpu:     %1 from %0
%1 = exp %0                               part 1 on cuda:0:  %3 from %2, which holds %1
%2 = transfer %1 [device=cuda:0]
%3 = mul %2, %2

A transfer belongs to no part: it is an input of the parts behind it, with the memory of its source.
Control flow computes where its first result is, and reads what it uses of other devices likewise.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from ridgeline.graph.graph import Graph
from ridgeline.graph.node import Node
from ridgeline.graph.placement import TRANSFER


@dataclass(slots=True)
class Part:
    """Outputs over inputs on one device; `inputs[i]` has the value of `sources[i]`."""

    device: str
    outputs: dict[Node, None] = field(default_factory=dict)
    inputs: dict[Node, Node] = field(default_factory=dict)

    @property
    def graph(self) -> Graph:
        """The part as a graph."""
        return Graph(self.outputs, self.inputs)


def source_of(node: Node, graph: Graph) -> Node:
    """The value that a node shows, looking through transfers that are not inputs."""
    while node.op is TRANSFER and not graph.is_input(node):
        node = node.inputs[0]
    return node


def partition(graph: Graph) -> list[Part]:
    """The parts in the order in which they can run; none for inputs and mere copies."""
    mixed = len({node.type.device for node in graph.order}) > 1
    level = _levels(graph) if mixed else dict.fromkeys(graph.order, 0)
    parts: dict[tuple[int, str], Part] = {}
    home: dict[Node, Part] = {}
    for node in graph.computed:
        if node.op is not TRANSFER:
            maker = graph.maker(node)
            device = maker.type.device
            home[node] = parts.setdefault((level[maker], device), Part(device))
    for node, part in home.items():
        for used in node.inputs:
            if home.get(used) is not part:
                source = source_of(used, graph)
                part.inputs[used] = source
                if source in home:
                    home[source].outputs[source] = None
    for output in graph.outputs:
        root = source_of(output, graph)
        if root in home:
            home[root].outputs[root] = None
    return [parts[key] for key in sorted(parts)]


def _levels(graph: Graph) -> dict[Node, int]:
    """How many copies of computed values each node waits for; as late as possible.

    A projection has the level of its node.
    """
    level: dict[Node, int] = {}
    users: dict[Node, list[Node]] = {}
    for node in graph.order:
        if graph.maker(node) is not node:
            continue
        read = [graph.maker(i) for i in node.inputs] if not graph.is_input(node) else []
        level[node] = max((level[i] + _waits(node, i, graph) for i in read), default=0)
        for source in read:
            users.setdefault(source, []).append(node)
    kept = set(map(graph.maker, graph.outputs))
    for node in reversed(graph.order):
        used = users.get(node, ())
        if used and node not in kept and not any(_waits(user, node, graph) for user in used):
            level[node] = max(level[node], min(level[user] for user in used))
    return level


def _waits(node: Node, used: Node, graph: Graph) -> bool:
    """True if a node waits for a copy of what it uses; control flow may read anything."""
    moves = node.op is TRANSFER or node.type.device != used.type.device
    return moves and not graph.is_input(source_of(used, graph))
