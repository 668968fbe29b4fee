"""The collectives of a rank's graph in the order that all ranks of a mesh agree on."""

from __future__ import annotations

from collections.abc import Mapping

from ridgeline.graph.graph import Graph
from ridgeline.graph.node import Node
from ridgeline.graph.passes.libraries.collectives import started_in_order


def in_order(graph: Graph, places: Mapping[Node, tuple[int, int]]) -> Graph:
    """The graph with its collectives started by their places."""
    there = [node for node in graph.computed if node in places]
    return started_in_order(graph, sorted(there, key=places.__getitem__))
