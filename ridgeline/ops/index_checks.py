"""Which computed indices are surely in range, and a flag for the others.

Kernels clamp an index they are not sure of, so that a wrong one never touches foreign memory; the
flag, computed beside the results, tells that the results must not be used. Values that are checked
for other reasons (`checked`) are part of the same flag.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import NoReturn

from ridgeline.errors import IndexRangeError
from ridgeline.graph.graph import Graph
from ridgeline.graph.interpreter import evaluate
from ridgeline.graph.node import Node
from ridgeline.graph.sizes import Size, bounds
from ridgeline.ops.checked import CHECKED
from ridgeline.ops.elementwise import CAST, CONSTANT, IOTA, full_like
from ridgeline.ops.gather import GATHER, SCATTER, check_range
from ridgeline.ops.movement import BROADCAST, PERMUTE, RESHAPE, SLICE, reshape
from ridgeline.ops.radix import source_length
from ridgeline.ops.reduce import reduce
from ridgeline.scalars import Array


def stays_below(index: Node, size: Size) -> bool:
    """True if every element of an index array is known to lie in 0 … size-1."""
    while index.op in (BROADCAST, PERMUTE, RESHAPE, SLICE, CAST, GATHER):
        index = index.inputs[0]
    limit = bounds(size)[0]
    length = source_length(index)
    if length is not None:
        return bounds(length)[1] <= limit
    if index.op is IOTA:
        return bounds(index.shape[index.attrs.axis])[1] <= limit
    return index.op is CONSTANT and 0 <= index.attrs.value < limit


def checked_nodes(graph: Graph) -> list[Node]:
    """The nodes whose indices, or values, may be found wrong while a program runs."""
    return [*(node for node, *_ in _checked(graph)), *_values(graph)]


def _checked(graph: Graph) -> Iterator[tuple[Node, Node, int, Size]]:
    """Every index that is not surely in range: the node that uses it, itself, its axis and size."""
    for node in graph.computed:
        if node.op in (GATHER, SCATTER):
            first = 1 if node.op is GATHER else 2
            for index, axis in zip(node.inputs[first:], node.attrs.axes):
                size = node.inputs[0].shape[axis]
                if not stays_below(index, size):
                    yield node, index, axis, size


def _values(graph: Graph) -> Iterator[Node]:
    """Every value that is checked for another reason."""
    return (node for node in graph.computed if node.op is CHECKED)


def index_flag(graph: Graph) -> Node | None:
    """A scalar that is true if any index of the graph's kernels, or a checked value, is wrong."""
    wrong: dict[Node, None] = {}  # where elements are wrong, each once
    for _, index, _, size in _checked(graph):
        low = index < 0
        wrong[low | (full_like(index, size) <= index)] = None
    for node in _values(graph):
        wrong[node.attrs.wrong(node.inputs[0])] = None
    flag: Node | None = None
    for positions in wrong:
        here = reshape(reduce(positions, "any", tuple(range(len(positions.shape)))), ())
        flag = here if flag is None else flag | here
    return flag


def index_inputs(graph: Graph) -> tuple[int, ...]:
    """The places of the inputs that a flag, the last output, depends on."""
    reached = set(graph.giving(graph.outputs[-1:]).order)
    return tuple(index for index, node in enumerate(graph.inputs) if node in reached)


def check_indices(outputs: Sequence[Node], given: Mapping[Node, Array]) -> None:
    """Raise if an index is out of range, given the inputs that the flag depends on."""
    graph = Graph(outputs, given)
    for node, index, axis, size in _checked(graph):
        check_range(evaluate([index], given)[0], size, axis, node)
    for checked in _values(graph):
        evaluate([checked], given)


def report_index(outputs: Sequence[Node], given: Mapping[Node, Array]) -> NoReturn:
    """Raise for an index that is out of range, whether it can be named or not."""
    check_indices(outputs, given)
    raise IndexRangeError("an index is out of range")
