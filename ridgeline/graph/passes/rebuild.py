"""Rebuild a graph bottom up, replacing nodes on the way; the frame of every rewriting pass."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

from ridgeline.graph.node import Node, over, topological
from ridgeline.graph.origins import inherit

Replace = Callable[[Node, Sequence[Node]], Node | None]


def rebuild(
    roots: Sequence[Node], replace: Replace, stop: Callable[[Node], bool] = lambda n: False
) -> list[Node]:
    """The roots after `replace(node, new inputs)`; None keeps a node, over its new inputs."""
    new: dict[Node, Node] = {}
    for current in topological(roots, stop):
        if stop(current):
            new[current] = current
            continue
        inputs = tuple([new[i] for i in current.inputs])
        made = replace(current, inputs)
        if made is None:
            made = over(current, inputs)
        if made is not current and not made.origins:
            inherit(made, current.origins)
        new[current] = made
    return [new[root] for root in roots]


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
