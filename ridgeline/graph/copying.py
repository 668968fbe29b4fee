"""Copying a graph onto fresh leaves, so that keeping it keeps no values alive."""

from __future__ import annotations

from collections.abc import Sequence

from ridgeline.graph.node import Node, leaf, over, topological
from ridgeline.graph.origins import inherit


def onto_fresh_leaves(
    outputs: Sequence[Node], inputs: Sequence[Node]
) -> tuple[tuple[Node, ...], tuple[Node, ...]]:
    """The same graph with every input replaced by a new leaf of its type."""
    new: dict[Node, Node] = {}
    for given in inputs:
        if given not in new:
            new[given] = leaf(given.type)
    for old in topological(outputs, stop=new.__contains__):
        if old in new:
            continue
        made = over(old, tuple([new[i] for i in old.inputs]))
        if not made.origins:
            inherit(made, old.origins)
        new[old] = made
    return tuple(new[o] for o in outputs), tuple(new[i] for i in inputs)
