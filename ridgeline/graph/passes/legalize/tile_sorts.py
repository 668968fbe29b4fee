"""Radix passes by tiles, for a device on which one thread would take long for a row."""

from __future__ import annotations

from collections.abc import Sequence

from ridgeline.graph.graph import Graph
from ridgeline.graph.node import PROJ, Node
from ridgeline.ops.radix import RADIX
from ridgeline.ops.tiled_radix import tiled

_SHORTEST, _LONGEST = 512, 4096  # elements of a tile
_ELEMENT = 24  # bytes of shared memory that an element takes at most


def tiled_sorts(graph: Graph, shared_bytes: int) -> Graph:
    """The graph with its radix passes, over rows of known length, by tiles."""
    longest = min(1 << (shared_bytes // _ELEMENT).bit_length() - 1, _LONGEST)
    written: dict[Node, Sequence[Node]] = {}

    def replace(current: Node, inputs: Sequence[Node]) -> Node | None:
        if current.op is not PROJ or inputs[0].op is not RADIX:
            return None
        source = inputs[0]
        length = source.inputs[0].shape[-1]
        if not isinstance(length, int) or not length:
            return None
        if source not in written:
            size = min(max(1 << (length - 1).bit_length(), _SHORTEST), longest)
            written[source] = tiled(source.inputs[0], source.inputs[1], source.attrs, size)
        output: int = current.attrs.output
        return written[source][output]

    return graph.rebuilt(replace)
