"""Programs over symbolic sizes: code is made once, the layout for each set of values.

Kernels take the sizes as arguments. What memory a call needs and how many tasks a kernel has is
evaluated when values are first seen.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from math import prod

from ridgeline.compiler.cpu import CpuBackend
from ridgeline.compiler.graph import Graph
from ridgeline.compiler.layout import lay_out
from ridgeline.compiler.program import Program
from ridgeline.compiler.stages import lower_graph
from ridgeline.errors import ComputeError
from ridgeline.fusion.groups import Group
from ridgeline.graph.copying import onto_fresh_leaves
from ridgeline.graph.node import Node, topological
from ridgeline.graph.passes.checks import with_index_flag
from ridgeline.graph.passes.settle import Settled
from ridgeline.graph.sizes import Sym
from ridgeline.loops.ir import Kernel


class SymbolicProgram:
    """A compiled graph over symbolic sizes; `at` gives the program for some values."""

    def __init__(
        self,
        outputs: Sequence[Node],
        inputs: Sequence[Node],
        sizes: Sequence[Sym],
        pairs: Sequence[tuple[int, int]] = (),
    ) -> None:
        """`pairs` are outputs and the inputs whose memory they may take, as in `compile_graph`."""
        _check(outputs, inputs)
        self._highest = {size.name: size.hi for size in sizes}
        results, self._inputs = onto_fresh_leaves(outputs, inputs)
        results, flag = with_index_flag(results, self._inputs)
        self._checked = flag is not None
        self._outputs = results if flag is None else (*results, flag)
        self._target = CpuBackend()
        self.stages = lower_graph(
            self._outputs, self._inputs, target=self._target, pairs=pairs, checked=self._checked
        )
        self._target.compile(list(self.stages.all_kernels()), ())

    def replaceable(self, output: int, replaced: int) -> int | None:
        """Nothing runs before the sizes are known: the program `at` some answers for them."""
        return None

    def at(self, values: Mapping[str, int]) -> Program:
        """The program for these sizes: the same code over memory of their extent."""

        def launch(group: Group, kernel: Kernel | None) -> tuple[int, int] | None:
            assert kernel is not None, "the CPU computes no node whole"
            # a group's time is that of the largest sizes
            share = prod(values[name] / self._highest[name] for name in kernel.sizes)
            return self._target.launch_at(kernel, values, group.seconds * share)

        ordered = {name: values[name] for name in sorted(values)}
        layout = lay_out(self.stages, self._inputs, launch, ordered)
        settled = Settled(values)
        given = set(self._inputs).__contains__
        inputs = tuple(settled.nodes(self._inputs, given))
        graph = Graph(tuple(settled.nodes(self._outputs, given)), inputs, list)
        graph.order = settled.nodes(self.stages.order, given)  # library calls go by place
        checked = replace(layout, checked=self._checked)
        return Program(checked, self._target, graph, replace(self.stages, sizes=ordered))


def _check(outputs: Sequence[Node], inputs: Sequence[Node]) -> None:
    """Raise for what is compiled anew for each size."""
    for node in topological(outputs, set(inputs).__contains__):
        if node.types[0].device != "cpu":
            raise ComputeError("programs over symbolic sizes run on the CPU only")
        if node.op.family == "control":
            raise ComputeError(f"{node.op.name} is compiled for each size")
