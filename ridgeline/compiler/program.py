"""A compiled graph: its layout, what runs it, and the stages it went through."""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from dataclasses import replace
from typing import Any

from ridgeline.compiler.backend import Backend, Executable, Run
from ridgeline.compiler.libraries.numpy_call import NumpyCalls
from ridgeline.compiler.memory_plan import Layout
from ridgeline.compiler.passes import Compilation, Observer
from ridgeline.compiler.pipeline import CHECK, lower, optimize, write_out
from ridgeline.compiler.stages import Stages
from ridgeline.graph.graph import Graph
from ridgeline.graph.node import Node


class Program:
    """A graph ready to run on one device; results are fresh buffers, or memory given for them."""

    def __init__(
        self,
        layout: Layout,
        to: Compilation,
        calls: NumpyCalls,
        stages: Stages | None = None,
    ) -> None:
        self.layout, self.compilation, self._calls, self._stages = layout, to, calls, stages
        self.executable: Executable = to.target.executable(layout, calls)
        # run on the inputs' memory; every output is memory that nobody else has
        self.run: Callable[[Sequence[Any]], list[Any]] = self.executable.run
        # the same over memory for some outputs, by the numbers that `replaceable` gives them
        self.begin: Callable[[list[Any], Collection[int]], Run] = self.executable.begin
        self.exclusive = self.executable.exclusive

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
    def backend(self) -> Backend:
        """What it was compiled by."""
        return self.compilation.target

    @property
    def graph(self) -> Graph:
        """What it computes; an index flag is the last output, where there is one."""
        return self._calls.graph

    @property
    def order(self) -> Sequence[Node]:
        """The nodes of the program, by which library calls are numbered."""
        return self._calls.order

    def forget_stages(self) -> None:
        """Drop how it was made, which `stages` makes again."""
        self._stages = None

    @property
    def stages(self) -> Stages:
        """Every stage of the compilation; compiled again if the program came from the cache."""
        if self._stages is None:
            to = replace(self.compilation, ahead=False)
            self._stages = lower(optimize(self.graph, to), to)
        return self._stages

    def walk(self, observe: Observer) -> None:
        """Go through the passes once more, as they made this program, and show each."""
        to = replace(self.compilation, ahead=False)
        if self.layout.checked:
            observe(CHECK[0], self.graph)
        write_out(lower(optimize(self.graph, to, observe), to, observe), to, observe)

    def explain(self, detail: str = "loops") -> str:
        """The stages of every kernel, printed; `detail` is kernels, loops or code."""
        from ridgeline.explain import explain_program

        return explain_program(self, detail)
