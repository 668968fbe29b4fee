"""Stored values that need not be: others that are stored anyway are near enough.

Each value was stored because its users would else go back to a fold. Seen together, one of a chain
serves them all: of a gelu's steps its input is kept for backward, and the rest is computed again.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence, Set

from ridgeline.fusion.sizes import elements, nbytes, work_bytes
from ridgeline.graph.graph import Graph
from ridgeline.graph.node import Node


def recomputed(
    graph: Graph,
    chosen: Sequence[Node],
    users: Mapping[Node, Sequence[Node]],
    stored: Set[Node],
) -> set[Node]:
    """Those of the chosen values, users first, that cost more to store than to compute again."""
    dropped: set[Node] = set()

    def is_kept(node: Node) -> bool:
        return graph.is_input(node) or (node in stored and node not in dropped)

    for value in chosen:
        sites = _sites(value, users, is_kept)
        if sites is None:
            continue
        sources, work = _sources(value, is_kept)
        if any(source.op.family not in ("pointwise", "leaf") for source in sources):
            continue  # a fold that would have to be stored instead
        read = sum(
            nbytes(source)
            for site in sites
            for source in sources - _sources(site, is_kept, without=value)[0]
        )
        if read + len(sites) * work < nbytes(value) * (1 + len(sites)):
            dropped.add(value)
    return dropped


def _sites(
    value: Node, users: Mapping[Node, Sequence[Node]], is_kept: Callable[[Node], bool]
) -> set[Node] | None:
    """The stored values computed from this one; None where it would be computed many times over."""
    found: set[Node] = set()
    seen, stack = {value}, [value]
    while stack:
        for user in users[stack.pop()]:
            if user in seen:
                continue
            seen.add(user)
            if user.op.family in ("pointwise", "movement") and elements(user) > elements(value):
                return None
            if is_kept(user):
                found.add(user)
            else:
                stack.append(user)
    return found


def _sources(
    value: Node, is_kept: Callable[[Node], bool], without: Node | None = None
) -> tuple[set[Node], float]:
    """What a value is computed from in memory, and the work in bytes that take as long.

    The path through `without` is left out.
    """
    found: set[Node] = set()
    work = 0.0
    seen, stack = {value}, [value]
    while stack:
        node = stack.pop()
        work += work_bytes(node)
        for source in node.inputs:
            if source in seen or source is without:
                continue
            seen.add(source)
            if is_kept(source):
                found.add(source)
            else:
                stack.append(source)
    return found, work
