"""The structure of a graph: what it computes, without which leaves it computes it from."""

from __future__ import annotations

from ridgeline.graph.graph import Graph
from ridgeline.graph.node import Node


def structure(graph: Graph) -> tuple[object, ...]:
    """A key that is equal for graphs that compute the same of equally typed inputs."""
    number: dict[Node, int] = {}
    rows: list[object] = []
    for node in graph.inputs:
        if node not in number:
            number[node] = len(number)
            rows.append(node.types)
        else:  # the same node given twice reads one buffer
            rows.append(number[node])
    for node in graph.order:
        if node not in number:
            number[node] = len(number)
            rows.append((node.op.name, node.attrs, tuple([number[i] for i in node.inputs])))
    return (tuple(rows), tuple([number[o] for o in graph.outputs]))
