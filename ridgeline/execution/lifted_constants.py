"""Programs with whole-number constants as inputs, where nothing else changes.

Control flow is compiled for each size, so no program over symbolic sizes holds a loop. A number
that is only computed with, such as that of a step, needs none: it is an input like a float.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from typing import Any

from ridgeline.compiler.passes import Observer
from ridgeline.compiler.program import Program, compile_graph
from ridgeline.graph.graph import Graph, substitute
from ridgeline.graph.node import leaf
from ridgeline.graph.sizes import evaluate
from ridgeline.ops.elementwise import EXTENT
from ridgeline.record.numbers import Number0d


class LiftedProgram:
    """A compiled graph whose unknowns stand in constants alone; `at` gives it for some values."""

    def __init__(self, graph: Graph) -> None:
        constants = [node for node in graph.order if node.op is EXTENT]
        leaves = {node: leaf(node.types[0]) for node in constants}
        outputs = substitute(graph.outputs, leaves)
        self._program = compile_graph(Graph(outputs, [*graph.inputs, *leaves.values()]))
        self._sizes = [(node.attrs.size, node.attrs.dtype) for node in constants]

    def at(self, values: Mapping[str, int]) -> LiftedAt:
        """The program with the numbers that the unknowns give."""
        numbers = [Number0d(evaluate(size, values), dtype) for size, dtype in self._sizes]
        return LiftedAt(self._program, tuple(numbers))


@dataclass(frozen=True, slots=True)
class LiftedAt:
    """Such a program with its numbers, run like any other."""

    program: Program
    numbers: tuple[Number0d, ...]

    @property
    def exclusive(self) -> AbstractContextManager[Any] | None:
        """What holds others off while it runs."""
        return self.program.exclusive

    def run(self, inputs: Sequence[Any]) -> list[Any]:
        """The memory of the results, for that of the inputs."""
        return self.program.run([*inputs, *self.numbers])

    def begin(self, inputs: list[Any], given: Collection[int]) -> Any:
        """A run that may be given the memory of some results."""
        return self.program.begin([*inputs, *self.numbers], given)

    def replaceable(self, output: int, replaced: int) -> int | None:
        """Which result may take the memory of which input."""
        return self.program.replaceable(output, replaced)

    def walk(self, observe: Observer) -> None:
        """The passes that made it."""
        self.program.walk(observe)
