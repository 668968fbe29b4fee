"""A compiled graph: its layout, what runs it, and the stages it went through."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from ridgeline.compiler.backend import Backend, Executable
from ridgeline.compiler.graph import Graph
from ridgeline.compiler.layout import Layout
from ridgeline.compiler.stages import Stages, lower_graph
from ridgeline.graph.node import Node


class Program:
    """A graph ready to run on one device; results are fresh buffers, or memory given for them."""

    def __init__(
        self,
        layout: Layout,
        target: Backend,
        graph: Graph,
        stages: Stages | None = None,
        pairs: Sequence[tuple[int, int]] = (),
    ) -> None:
        self.layout, self.backend, self.graph = layout, target, graph
        self._stages, self._pairs = stages, pairs
        self.executable: Executable = target.executable(layout, graph)
        # run on the inputs' memory; every output is memory that nobody else has. What else is given
        # is memory for some outputs, by the numbers that `replaceable` gives them.
        self.run: Callable[..., list[Any]] = self.executable.run

    def replaceable(self, output: int, replaced: int) -> int | None:
        """The number of an output's memory if a run may be given that of an input for it.

        No other input may share it; where the output replaces none (-1), it is any memory that is
        no input's.
        """
        layout = self.layout
        number = layout.returns[output] - layout.inputs - len(layout.sizes)
        places = layout.reusable if replaced < 0 else ()
        allowed = number in places or (number, replaced) in layout.in_place
        return number if allowed else None

    def profile(self, inputs: Sequence[Any]) -> list[float]:
        """Run once and give the seconds of every kernel and library call, in order."""
        return self.executable.profile(inputs)

    @property
    def source(self) -> tuple[tuple[Node, ...], tuple[Node, ...]]:
        """The outputs and the inputs of the graph."""
        return self.graph.outputs, self.graph.inputs

    @property
    def order(self) -> list[Node]:
        """The nodes of the program, by which library calls are numbered."""
        return self.graph.order

    @property
    def stages(self) -> Stages:
        """Every stage of the compilation; compiled again if the program came from the cache."""
        if self._stages is None:
            self._stages = lower_graph(
                *self.source,
                target=self.backend,
                pairs=self._pairs,
                checked=self.layout.checked,
            )
        return self._stages

    def explain(self, detail: str = "loops") -> str:
        """The stages of every kernel, printed; `detail` is kernels, loops or code."""
        from ridgeline.explain import explain_program

        return explain_program(self, detail)
