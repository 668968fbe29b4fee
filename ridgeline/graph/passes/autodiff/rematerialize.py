"""Recompute or store: what a forward pass keeps for the backward one, by a minimum cut.

A value that the backward pass needs is read from memory or computed again from others. Keeping a
value costs the bytes written and read, reading one that is in memory anyway its bytes, computing
one again its operations. The cheapest choice for all values together is the smallest cut between
what only the forward pass computes and what the backward pass needs.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from ridgeline.graph.costs import nbytes, work_bytes
from ridgeline.graph.node import Node
from ridgeline.graph.passes.autodiff.max_flow import UNLIMITED, Network


def cheapest_to_keep(
    needed: Sequence[Node], is_known: Callable[[Node], bool], is_fixed: Callable[[Node], bool]
) -> list[Node]:
    """The values to read in order to have all `needed` ones.

    Known values are in memory anyway; fixed ones are never computed again.
    """
    network = Network()
    entry: dict[Node, int] = {}
    order: list[Node] = []
    waiting = list(needed)
    while waiting:
        node = waiting.pop()
        if node in entry:
            continue
        entry[node] = network.place()
        leave = network.place()
        order.append(node)
        known = is_known(node)
        network.pipe(entry[node], leave, nbytes(node) * (1 if known else 2))
        if known or is_fixed(node):
            network.pipe(0, entry[node], UNLIMITED)
            continue
        network.pipe(0, entry[node], int(work_bytes(node)))
        waiting += node.inputs
    for node in order:
        if not (is_known(node) or is_fixed(node)):
            for source in node.inputs:
                network.pipe(entry[source] + 1, entry[node], UNLIMITED)
    for node in dict.fromkeys(needed):
        network.pipe(entry[node] + 1, 1, UNLIMITED)
    before = network.source_side()
    return [n for n in order if entry[n] in before and entry[n] + 1 not in before]
