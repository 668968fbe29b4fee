"""The bodies of control flow: each is a graph of its own, and passes go through it too."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from ridgeline.graph.body import Body, bodies, with_bodies
from ridgeline.graph.graph import Graph
from ridgeline.graph.node import Node, node


def in_bodies(graph: Graph, changed: Callable[[Body], Body]) -> Graph:
    """The graph with every body of its control flow changed."""
    if not any(n.op.family == "control" for n in graph.order):
        return graph

    def replace(current: Node, inputs: Sequence[Node]) -> Node | None:
        held = bodies(current)
        if not held:
            return None
        return node(current.op, inputs, with_bodies(current.attrs, [changed(b) for b in held]))

    return graph.rebuilt(replace)
