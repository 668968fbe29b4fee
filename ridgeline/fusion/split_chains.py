"""Where long pointwise work is cut into several kernels.

Nothing else bounds a kernel: a chain of 100,000 additions would be one, and compiling takes longer
than in proportion to a kernel's size.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Set

from ridgeline.graph.graph import Graph
from ridgeline.graph.node import Node

MOST_NODES = 128  # in one kernel


def cuts(graph: Graph, stored: Set[Node]) -> Iterable[Node]:
    """Pointwise values to store as well, so that no kernel computes more than `MOST_NODES`."""
    order, is_input = graph.order, graph.is_input
    if len(order) <= MOST_NODES:
        return
    uses = Counter(source for node in order for source in node.inputs)
    inside: dict[Node, set[Node]] = {}  # what the kernel that needs a value computes for it
    for node in order:
        needed: set[Node] = set()
        for source in node.inputs if not is_input(node) else ():
            uses[source] -= 1
            part = inside[source] if uses[source] else inside.pop(source)
            if uses[source] or len(part) < len(needed):
                needed |= part
            else:  # nobody else needs the larger set, so it may grow
                part |= needed
                needed = part
        if is_input(node) or node in stored:
            needed = set()
        elif len(needed) >= MOST_NODES and node.op.family == "pointwise":
            needed = set()
            yield node
        inside[node] = needed
        needed.add(node)
