"""Programs over symbolic sizes: code is made once, the layout for each set of values.

Kernels take the sizes as arguments. What memory a call needs and how many tasks a kernel has is
evaluated when values are first seen.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from math import prod

from ridgeline.compiler.backend import NumpyCalls
from ridgeline.compiler.memory_plan import lay_out
from ridgeline.compiler.pipeline import check, compilation, lower, optimize
from ridgeline.compiler.program import Program
from ridgeline.errors import ComputeError
from ridgeline.fusion.groups import Group
from ridgeline.graph.graph import Graph
from ridgeline.graph.passes.legalize.specialize_sizes import Settled
from ridgeline.graph.sizes import Sym
from ridgeline.loops.ir import Kernel
from ridgeline.runtime.cpu.backend import (
    CpuBackend,
    TaskLaunch,
    launch_of,
    machine,
    machine_code,
    task_count,
)


class _AtSizes(CpuBackend):
    """Launches for some values of symbolic sizes."""

    def __init__(
        self,
        values: Mapping[str, int],
        highest: Mapping[str, int],
        fixed: dict[str, TaskLaunch | None],
    ) -> None:
        self._values, self._highest = values, highest
        self._fixed = fixed  # launches that are the same at all values, by kernel
        self._machine = machine()

    def launch(self, group: Group, kernel: Kernel) -> TaskLaunch | None:
        """The tasks of a kernel; a group's time is that of the largest sizes."""
        values = self._values
        if kernel.sizes:
            share = prod([values[name] / self._highest[name] for name in kernel.sizes])
            own = {name: values[name] for name in kernel.sizes}
            return launch_of(task_count(kernel, own), group.seconds * share, self._machine)
        if kernel.name not in self._fixed:
            self._fixed[kernel.name] = launch_of(task_count(kernel), group.seconds, self._machine)
        return self._fixed[kernel.name]


class SymbolicProgram:
    """A compiled graph over symbolic sizes; `at` gives the program for some values."""

    def __init__(
        self,
        graph: Graph,
        sizes: Sequence[Sym],
        pairs: Sequence[tuple[int, int]] = (),
    ) -> None:
        """`pairs` are outputs and the inputs whose memory they may take, as in `compile_graph`."""
        _check(graph)
        self._highest = {size.name: size.hi for size in sizes}
        self._fixed: dict[str, TaskLaunch | None] = {}
        self._target = CpuBackend()
        to = compilation(graph, self._target, pairs=tuple(pairs))
        self._graph, checked = check(graph.on_fresh_leaves(), to)
        self._to = replace(to, checked=checked)
        self.stages = lower(optimize(self._graph, self._to), self._to)
        kernels = list(self.stages.all_kernels())
        self._target.compile(kernels, ())
        # keeps the code mapped for the programs to come
        self._code = machine_code.held(compiled.kernel.name for compiled in kernels)

    def replaceable(self, output: int, replaced: int) -> int | None:
        """Nothing runs before the sizes are known: the program `at` some answers for them."""
        return None

    def at(self, values: Mapping[str, int]) -> Program:
        """The program for these sizes: the same code over memory of their extent."""
        ordered = {name: values[name] for name in sorted(values)}
        layout = lay_out(self.stages, _AtSizes(values, self._highest, self._fixed), ordered)
        settled = Settled(values)
        calls = NumpyCalls(
            lambda: settled.graph(self._graph),
            lambda: settled.graph(self._graph.giving(self.stages.order)).outputs,
        )
        checked = replace(layout, checked=self._to.checked)
        stages = replace(self.stages, sizes=ordered)
        return Program(checked, self._to, calls, stages)


def _check(graph: Graph) -> None:
    """Raise for what is compiled anew for each size."""
    for node in graph.order:
        if node.types[0].device != "cpu":
            raise ComputeError("programs over symbolic sizes run on the CPU only")
        if node.op.family == "control":
            raise ComputeError(f"{node.op.name} is compiled for each size")
