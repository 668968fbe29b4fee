"""The graph behind a program, for what runs in NumPy: library calls."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import cached_property

from ridgeline.graph.node import Node, topological
from ridgeline.graph.passes.complex_pairs import complex_pairs
from ridgeline.graph.passes.simplify import Arrange, simplify
from ridgeline.graph.sizes import Size
from ridgeline.scalars import Array


class Graph:
    """Outputs over inputs, both on one device."""

    def __init__(
        self, outputs: tuple[Node, ...], inputs: tuple[Node, ...], arrange: Arrange
    ) -> None:
        self.outputs, self.inputs, self._arrange = outputs, inputs, arrange

    @cached_property
    def order(self) -> list[Node]:
        """The nodes of the simplified graph, by which library calls are numbered."""
        is_input = set(self.inputs).__contains__
        return topological(arranged(self.outputs, is_input, self._arrange), is_input)

    def call(self, place: int, operands: Sequence[Array]) -> tuple[Array, ...]:
        """A library call: the NumPy value of its node."""
        node = self.order[place]
        return node.op.value(node, operands)


def arranged(
    outputs: Sequence[Node], is_input: Callable[[Node], bool], arrange: Arrange
) -> list[Node]:
    """The graph as kernels and library calls are made of it."""
    return simplify(complex_pairs(outputs, is_input), is_input, arrange)


def known(shape: tuple[Size, ...]) -> tuple[int, ...]:
    """A shape that is all numbers, as it is when a program runs."""
    assert all(isinstance(size, int) for size in shape), "sizes are known when a program runs"
    return shape  # type: ignore[return-value]
