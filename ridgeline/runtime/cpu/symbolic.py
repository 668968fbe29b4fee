"""Programs over symbolic sizes: code is made once, a layout for each set of values.

Kernels take the sizes as arguments. What memory a call needs and how many tasks a kernel has is
evaluated when values are first seen.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from math import prod
from typing import TypeAlias

from ridgeline.compiler.backend import NumpyCalls
from ridgeline.compiler.memory_plan import (
    Call,
    HeldBytes,
    KernelCall,
    Layout,
    bytes_at,
    grows_with_sizes,
    held_by,
    lay_out,
    made_results,
)
from ridgeline.compiler.pipeline import check, compilation, lower, optimize
from ridgeline.compiler.program import Program
from ridgeline.compiler.stages import Stages
from ridgeline.errors import ComputeError
from ridgeline.fusion.groups import FusionGroup
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

MOST_LAUNCHES = 1 << 14  # that are kept
_LaunchKey: TypeAlias = tuple[str, tuple[int, ...]]  # a kernel, and the sizes that it takes


class _AtSizes(CpuBackend):
    """Launches for some values of symbolic sizes; those that were seen are kept in a table."""

    def __init__(
        self,
        values: Mapping[str, int],
        highest: Mapping[str, int],
        known: dict[_LaunchKey, TaskLaunch | None],
    ) -> None:
        self._values, self._highest, self._known = values, highest, known

    def launch(self, group: FusionGroup, kernel: Kernel) -> TaskLaunch | None:
        """The tasks of a kernel; a group's time is that of the largest sizes."""
        own = {name: self._values[name] for name in kernel.sizes}
        key = kernel.name, tuple(own.values())
        if key not in self._known:
            if len(self._known) >= MOST_LAUNCHES:
                self._known.clear()
            share = prod([value / self._highest[name] for name, value in own.items()])
            tasks = task_count(kernel, own)
            self._known[key] = launch_of(tasks, group.seconds * share, machine())
        return self._known[key]


class SymbolicProgram:
    """A compiled graph over symbolic sizes; `at` gives the program for some values."""

    def __init__(
        self,
        graph: Graph,
        sizes: Sequence[Sym],
        pairs: Sequence[tuple[int, int]] = (),
        budget: int = 0,
    ) -> None:
        """`pairs` are outputs and the inputs whose memory they may take, as in `compile_graph`.

        A `budget` is kept for each set of values by itself.
        """
        self._budget = budget
        require_sizes(graph)
        self._highest = {size.name: size.hi for size in sizes}
        self._launches: dict[_LaunchKey, TaskLaunch | None] = {}
        self._layouts: dict[tuple[int, ...], Layout] = {}  # by sizes that are rounded up
        self._target = CpuBackend()
        to = compilation(graph, self._target, pairs=tuple(pairs))
        self._graph, checked = check(graph.on_fresh_leaves(), to)
        self._to = replace(to, checked=checked)
        self.stages = lower(optimize(self._graph, self._to), self._to)
        self._grows = grows_with_sizes(self.stages) and not budget
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
        stages = self.stages
        if self._grows:
            layout = self._laid_out(ordered)
        else:
            if self._budget:
                stages = self._within_budget(ordered)
            layout = lay_out(stages, self._launches_at(ordered), ordered)
        settled = Settled(values)
        calls = NumpyCalls(
            lambda: settled.graph(self._graph),
            lambda: settled.graph(self._graph.giving(self.stages.order)).outputs,
        )
        checked = replace(layout, checked=self._to.checked, exact=self._budget > 0)
        return Program(checked, self._to, calls, replace(stages, sizes=ordered))

    def _within_budget(self, values: Mapping[str, int]) -> Stages:
        """The same kernels, some of them more than once, so that a call keeps the budget."""
        from ridgeline.compiler.budget.fit import fit  # for `jit(memory=)`

        inputs = [bytes_at(node, values) for node in self._graph.inputs]
        at = self._launches_at(values)

        def planned(stages: Stages) -> HeldBytes:
            layout = replace(lay_out(stages, at, values), checked=self._to.checked, exact=True)
            return held_by(layout, inputs, at.block_bytes, at.workspace(layout))

        return fit(self.stages, replace(self._to, budget=self._budget), planned, sizes=values)

    def _laid_out(self, values: Mapping[str, int]) -> Layout:
        """A layout for these sizes: temporaries lie as they would for sizes that are rounded up.

        Values only shrink below these, so what lies apart stays apart, and lengths that change in
        every call have few layouts. Results are as large as they are.
        """
        wide = {name: self._rounded(name, value) for name, value in values.items()}
        key = tuple(wide.values())
        layout = self._layouts.get(key)
        if layout is None:
            layout = self._layouts[key] = lay_out(self.stages, self._launches_at(wide), wide)
        exact = self._launches_at(values)
        kernels = {compiled.kernel.name: compiled for compiled in self.stages.kernels}
        calls: list[Call] = []
        check = layout.check
        for number, call in enumerate(layout.calls):
            if isinstance(call, KernelCall):
                compiled = kernels[call.symbol]
                started = exact.launch(compiled.group, compiled.kernel)
                if started is None:  # nothing is left to do at these sizes
                    check -= number < layout.check
                    continue
                call = KernelCall(call.symbol, call.slots, started)
            calls.append(call)
        made = tuple([bytes_at(value, values) for value in made_results(self.stages)])
        sizes = tuple(values.values())
        return replace(layout, calls=tuple(calls), made=made, sizes=sizes, check=check)

    def _launches_at(self, values: Mapping[str, int]) -> _AtSizes:
        return _AtSizes(values, self._highest, self._launches)

    def _rounded(self, name: str, value: int) -> int:
        """The least power of two that is as large, within the bounds of the unknown."""
        return min(1 << max(value - 1, 0).bit_length(), self._highest[name])


def require_sizes(graph: Graph) -> None:
    """Raise for graphs that must be compiled anew for each size."""
    for node in graph.order:
        if node.types[0].device != "cpu":
            raise ComputeError("programs over symbolic sizes run on the CPU only")
        if node.op.family == "control":
            raise ComputeError(f"{node.op.name} is compiled for each size")
