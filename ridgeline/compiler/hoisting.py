"""Loop-invariant code motion for a program that is called repeatedly.

What depends on nothing but inputs that stay the same from call to call (*steady* ones: weights at
inference) is computed once and given to the calls. Where it is computed, and when again, is the
caller's business (`tracing/hoisted.py`).
"""

from __future__ import annotations

from collections.abc import Collection, Mapping

from ridgeline.compiler.weight_packing import narrow_operands
from ridgeline.graph.graph import Graph
from ridgeline.graph.node import Node, topological
from ridgeline.graph.sizes import bounds, product

_PURE = ("pointwise", "movement", "reduce", "contract")


def steady_nodes(graph: Graph, sources: Mapping[Node, int]) -> dict[Node, int]:
    """The nodes that depend on `sources` alone, each with the size of its largest source."""
    below: dict[Node, int] = {}
    for node in graph.order:
        if node in sources:
            below[node] = sources[node]
        elif graph.is_input(node):
            if node.buffer is not None:  # a constant
                below[node] = 0
        elif node.op.family in _PURE and all(i in below for i in node.inputs):
            below[node] = max((below[i] for i in node.inputs), default=0)
    return below


def hoist(graph: Graph, sources: Mapping[Node, int], packed: Collection[Node] = ()) -> Graph:
    """The graph with more inputs: the largest values that depend on these sources alone and take
    work to compute.

    Views cost nothing where they are read, unless their order matters (`packed`), and what is
    larger than all it comes from is cheaper to compute than to read; so are numbers that a product
    takes narrow. Results are made anew by every call.
    """
    below = steady_nodes(graph, sources)
    results, narrow = set(graph.outputs), narrow_operands(graph)

    def is_value(node: Node) -> bool:
        if node not in below or node in sources or node in results or node in narrow:
            return False
        worth = node.op.family != "movement" and 0 < elements(node) <= below[node]
        return worth or node in packed

    tops = topological(graph.outputs, lambda n: graph.is_input(n) or is_value(n))
    values = [node for node in tops if is_value(node)]
    return Graph(graph.outputs, [*graph.inputs, *values]) if values else graph


def elements(node: Node) -> int:
    """The number of elements of a value, or an upper bound."""
    return bounds(product(node.shape))[1]
