"""What of a program runs in NumPy: library calls, by their places in the graph."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import cached_property

import numpy as np

from ridgeline.graph.graph import Graph
from ridgeline.graph.node import Node
from ridgeline.graph.sizes import Size
from ridgeline.scalars import Array


class LibraryCalls:
    """The graph behind a program, and the nodes by whose places its library calls are numbered.

    `order` gives these nodes when a call first asks: most programs have no such call.
    """

    def __init__(self, graph: Graph, order: Callable[[], Sequence[Node]]) -> None:
        self.graph, self._order = graph, order

    @cached_property
    def order(self) -> Sequence[Node]:
        """The nodes of the graph as kernels and library calls are made of it."""
        return self._order()

    def call(self, place: int, operands: Sequence[Array]) -> tuple[Array, ...]:
        """A library call: the NumPy value of its node."""
        node = self.order[place]
        with np.errstate(all="ignore"):
            return node.op.value(node, operands)


def known(shape: tuple[Size, ...]) -> tuple[int, ...]:
    """A shape that is all numbers, as it is when a program runs."""
    assert all(isinstance(size, int) for size in shape), "sizes are known when a program runs"
    return shape  # type: ignore[return-value]
