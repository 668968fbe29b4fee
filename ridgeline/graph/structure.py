"""The structure of a graph: what it computes, without which leaves it computes it from."""

from __future__ import annotations

from collections.abc import Sequence

from ridgeline.graph.node import Node, topological


def structure(outputs: Sequence[Node], inputs: Sequence[Node]) -> tuple[object, ...]:
    """A key that is equal for graphs that compute the same of equally typed inputs."""
    number: dict[Node, int] = {}
    rows: list[object] = []
    for node in inputs:
        if node not in number:
            number[node] = len(number)
            rows.append(node.types)
        else:  # the same node given twice reads one buffer
            rows.append(number[node])
    given = set(inputs)
    for node in topological(outputs, stop=given.__contains__):
        if node not in number:
            number[node] = len(number)
            rows.append((node.op.name, node.attrs, tuple([number[i] for i in node.inputs])))
    return (tuple(rows), tuple([number[o] for o in outputs]))
