"""Closure conversion: values that a traced function captured become inputs of its body."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from ridgeline.graph.body import Body, body
from ridgeline.graph.graph import Graph, substitute
from ridgeline.graph.node import LEAF, Node, leaf, node, topological
from ridgeline.ops.movement import BROADCAST, PERMUTE, RESHAPE, SLICE
from ridgeline.ops.tracking import ERASED, TAG, VARIABLE, TagAttrs

_VIEWS = (BROADCAST, PERMUTE, RESHAPE, SLICE)


def invariant(outputs: Sequence[Node], own: set[Node]) -> set[Node]:
    """The values that do not depend on `own` and are computed once, outside a loop.

    Constants stay inside, where they cost nothing, and so do views, so that they are read in place.
    Variables stay outside even if they are constants: gradients go there.
    """
    outside: set[Node] = set()
    moving: set[Node] = set()
    literal: set[Node] = set()
    for current in topological(outputs, lambda n: n.buffer is not None):
        if current in own or any(i in moving for i in current.inputs):
            moving.add(current)
        elif current.buffer is None and current.op is not LEAF:
            if current.op not in ERASED and all(i in literal for i in current.inputs):
                literal.add(current)
            elif current.op not in _VIEWS:
                outside.add(current)
        else:
            outside.add(current)
    return outside


def entered(outputs: Sequence[Node], starts: set[Node]) -> set[Node]:
    """What existed before the function ran; what it computes itself stays inside."""

    def is_outside(current: Node) -> bool:
        ready = current.buffer is not None or current.op in (LEAF, VARIABLE)
        return ready or current in starts

    return {n for n in topological(outputs, is_outside) if is_outside(n)}


def close(
    parts: Sequence[tuple[Sequence[Node], Sequence[Node]]],
    outside: Callable[[Sequence[Node]], set[Node]],
) -> tuple[list[Node], list[Body]]:
    """Graphs with (own inputs, outputs) as bodies over their own inputs and all captured values."""
    frontiers = [outside(outputs) for _, outputs in parts]
    captured: dict[Node, None] = {}
    for (own, outputs), found in zip(parts, frontiers):
        given = {*own, *found}
        order = topological(outputs, given.__contains__)
        captured.update(dict.fromkeys(n for n in order if n in found and n not in own))
    bodies = []
    for own, outputs in parts:
        leaves = {n: leaf(n.types[0]) for n in captured}
        for n, made in leaves.items():
            made.origins = n.origins
        closed = _renumbered(substitute(outputs, leaves))
        bodies.append(body([*own, *leaves.values()], closed))
    return list(captured), bodies


def _renumbered(outputs: Sequence[Node]) -> list[Node]:
    """Tags counted from the start, so that tracing a function twice gives equal bodies."""
    count = 0

    def replace(current: Node, inputs: Sequence[Node]) -> Node | None:
        nonlocal count
        if current.op is not TAG:
            return None
        count -= 1  # negative: apart from all tags that stand outside bodies
        return node(TAG, inputs, TagAttrs(count))

    return list(Graph.below(outputs).rebuilt(replace).outputs)
