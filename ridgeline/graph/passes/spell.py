"""Ops that kernels do not have, written out in ops that they have: random bits and sorts."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from ridgeline.graph.node import PROJ, Node, topological
from ridgeline.graph.passes.rebuild import rebuild
from ridgeline.ops import radix, random
from ridgeline.ops.random import RANDOM_BITS
from ridgeline.ops.sort import SORT


def spell(roots: Sequence[Node], stop: Callable[[Node], bool]) -> list[Node]:
    """The graph with draws of random bits and sorts written out."""
    if not any(n.op in (RANDOM_BITS, SORT) for n in topological(roots, stop)):
        return list(roots)
    written: dict[Node, tuple[Node, Node]] = {}

    def replace(current: Node, inputs: Sequence[Node]) -> Node | None:
        if current.op is RANDOM_BITS:
            return random.expand(current, *inputs)
        if current.op is not PROJ or inputs[0].op is not SORT or not radix.sorts(inputs[0]):
            return None
        sort = inputs[0]
        if sort not in written:
            written[sort] = radix.expand(sort, sort.inputs[0])
        return written[sort][current.attrs.output]

    return rebuild(roots, replace, stop)
