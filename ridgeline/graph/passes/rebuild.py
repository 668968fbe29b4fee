"""Replace nodes of a graph by others; `Graph.rebuilt` is the frame of passes that rewrite."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from ridgeline.graph.node import Node, over, topological
from ridgeline.graph.origins import inherit


def substitute(roots: Sequence[Node], replacements: Mapping[Node, Node]) -> list[Node]:
    """The roots with some nodes replaced by others; what only they used is not visited."""
    new: dict[Node, Node] = dict(replacements)
    for current in topological(roots, replacements.__contains__):
        if current in new:
            continue
        new[current] = over(current, tuple([new[i] for i in current.inputs]))
        if not new[current].origins:
            inherit(new[current], current.origins)
    return [new[root] for root in roots]
