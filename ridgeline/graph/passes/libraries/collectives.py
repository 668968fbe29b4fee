"""Split collectives into a start and a wait.

%2 = all_reduce %1      becomes      %2 = start_all_reduce %1
                                     %3 = wait %2 %1
"""

from __future__ import annotations

from ridgeline.graph.graph import Graph
from ridgeline.graph.node import Node, over
from ridgeline.graph.origins import inherit
from ridgeline.ops.collectives import COLLECTIVES
from ridgeline.ops.started import start, wait


def split_collectives(graph: Graph) -> Graph:
    """The graph with every collective in two parts, started in program order."""
    new: dict[Node, Node] = {}
    before: Node | None = None
    for current in graph.order:
        if graph.is_input(current):
            new[current] = current
            continue
        inputs = tuple([new[source] for source in current.inputs])
        if current.op in COLLECTIVES:
            before = start(current, inputs, before)
            new[current] = wait(current, before, inputs[-1])
        else:
            new[current] = over(current, inputs)
        inherit(new[current], current.origins)
    return graph.giving([new[output] for output in graph.outputs])
