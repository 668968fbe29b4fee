"""What of a program runs in NumPy, between kernels: ops without loops, by their places in a graph.

Element types that kernels do not compute in go this way too, and control flow that needs Python.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import cached_property
from typing import Any

from ridgeline.compiler.memory_plan import HostCall
from ridgeline.graph.graph import Graph
from ridgeline.graph.node import Node, TensorType
from ridgeline.graph.sizes import Size
from ridgeline.scalars import Array

Fill = Callable[[Any, Array, TensorType], None]


class NumpyCalls:
    """The graph behind a program, and the nodes by whose places its calls of NumPy are numbered.

    `order` gives these nodes when a call first asks: most programs have no such call.
    """

    def __init__(self, graph: Graph, order: Callable[[], Sequence[Node]]) -> None:
        self.graph, self._order = graph, order

    @cached_property
    def order(self) -> Sequence[Node]:
        """The nodes of the graph as kernels and library calls are made of it."""
        return self._order()

    def run(self, call: HostCall, held: Sequence[Any], fill: Fill) -> None:
        """Make a call over the memory of all slots; `fill` puts a result of a type into memory."""
        node = self.order[call.node]
        operands = [
            held[slot].array(source.dtype, known(source.shape))
            for slot, source in zip(call.inputs, node.inputs)
        ]
        values = node.op.value(node, operands)
        for slot, value, made in zip(call.outputs, values, node.types):
            if slot >= 0:
                fill(held[slot], value.astype(made.dtype.numpy, copy=False), made)

    def shown(self, memory: Mapping[int, Any]) -> dict[Node, Array]:
        """The values of some inputs, by number, as NumPy sees them."""
        nodes = self.graph.inputs
        return {
            nodes[n]: held.array(nodes[n].dtype, known(nodes[n].shape))
            for n, held in memory.items()
        }


def known(shape: tuple[Size, ...]) -> tuple[int, ...]:
    """A shape that is all numbers, as it is when a program runs."""
    assert all(isinstance(size, int) for size in shape), "sizes are known when a program runs"
    return shape  # type: ignore[return-value]
