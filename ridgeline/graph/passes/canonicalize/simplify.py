"""Simplification: every local rule, applied bottom up in one walk until none fits.

Dead code needs no rule: a walk from the results does not reach it. Common subexpressions need
none either: equal nodes are one node, also when a rewrite makes them equal.
"""

from __future__ import annotations

from collections.abc import Sequence

from ridgeline.graph.graph import Graph
from ridgeline.graph.node import PROJ, Node, node
from ridgeline.graph.passes.canonicalize.algebra import fold, simplify_algebra, simplify_casts
from ridgeline.graph.passes.canonicalize.movement import join_parts, simplify_moves
from ridgeline.ops.elementwise import IOTA

RULES = (fold, simplify_algebra, simplify_casts, simplify_moves, join_parts)


def simplified(current: Node) -> Node:
    """A node after all rules that fit it, one after another."""
    changed = True
    while changed:
        changed = False
        for rule in RULES:
            made = rule(current)
            if made is not None and made is not current:
                current, changed = made, True
    return current


def simplify(graph: Graph) -> Graph:
    """The graph with every node simplified. Rules look below a node, so inputs are to be leaves."""

    def replace(current: Node, inputs: Sequence[Node]) -> Node | None:
        if current.op is PROJ or len(current.types) != 1:
            return None
        if not inputs and current.op is not IOTA:
            return None
        same = tuple(inputs) == current.inputs
        start = current if same else node(current.op, inputs, current.attrs)
        made = simplified(start)
        return None if made is current else made

    return graph.rebuilt(replace)
