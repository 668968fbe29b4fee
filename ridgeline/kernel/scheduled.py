"""A hand-scheduled kernel: its loops, counts and code, and running it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from html import escape
from typing import Any, Self

from ridgeline.compiler.backend import Backend, NumpyCalls, backend
from ridgeline.compiler.kernel_profile import quantity
from ridgeline.compiler.memory_plan import lay_out
from ridgeline.compiler.pipeline import compilation
from ridgeline.compiler.program import Program
from ridgeline.compiler.stages import CompiledKernel, Stages
from ridgeline.devices import CPU
from ridgeline.errors import ShapeError
from ridgeline.fusion.groups import Fusion
from ridgeline.graph.graph import Graph
from ridgeline.kernel.arguments import LoopsError, check_not_traced, memory_of
from ridgeline.kernel.roofline import KernelRoofline, limits_for
from ridgeline.kernel.steps import Steps
from ridgeline.loops.analysis.counts import compulsory_bytes, moved_bytes, useful
from ridgeline.loops.ir import For, Kernel, named, statements
from ridgeline.loops.lowering.iteration_space import Lowered
from ridgeline.loops.schedule import Step, from_json, replay, to_json
from ridgeline.loops.text.printer import print_kernel
from ridgeline.record.cells import PLAIN, filled_leaf
from ridgeline.record.modes import is_grad_enabled
from ridgeline.record.values import read
from ridgeline.tensors.tensor import Tensor, wrap


@dataclass(frozen=True, eq=False)
class Loops(Steps):
    """A kernel and the schedule applied to it so far; every method gives a new one."""

    stages: Stages  # of one kernel
    graph: Graph  # as it was recorded
    arguments: int  # how many of the graph's inputs a call gives; the others are `constants`
    constants: tuple[Any, ...]
    steps: tuple[Step, ...] = ()

    @property
    def lowered(self) -> Lowered:
        """The loops before any step."""
        return self.stages.fusion.groups[0].loops

    @property
    def device(self) -> str:
        """Where the kernel runs."""
        return self.graph.device

    @cached_property
    def kernel(self) -> Kernel:
        """The scheduled loops."""
        return replay(self.lowered.kernel, self.steps)

    def apply(self, step: Step) -> Self:
        """One more step, checked now."""
        made = replace(self, steps=(*self.steps, step))
        made.__dict__["kernel"] = step.apply(self.kernel)
        return made

    def replay(self, trace: Sequence[dict[str, Any]]) -> Self:
        """Apply a stored schedule, see `trace`."""
        made = self
        for step in from_json(trace):
            made = made.apply(step)
        return made

    def default(self) -> Self:
        """The schedule the compiler would choose."""
        made = replace(self, steps=())
        target = self._backend
        for step in target.schedule(self.lowered, target.facts()):
            made = made.apply(step)
        return made

    @property
    def trace(self) -> list[dict[str, Any]]:
        """The schedule as plain data, to store and replay."""
        return to_json(self.steps)

    @property
    def flops(self) -> int:
        """Useful operations: what the expression needs, whatever the schedule."""
        return int(useful(self.lowered.kernel).flops)

    @property
    def bytes(self) -> int:
        """Compulsory traffic: every element read once and every result written once."""
        return int(compulsory_bytes(self.lowered.kernel))

    @property
    def intensity(self) -> float:
        """Useful operations per compulsory byte."""
        return self.flops / self.bytes if self.bytes else 0.0

    def roofline(self) -> KernelRoofline:
        """What this machine's measured ceilings allow the expression, whatever the schedule."""
        counts = useful(self.lowered.kernel)
        moved = moved_bytes(self.kernel)
        traffic: dict[str, int] = {}
        for side in (moved.read, moved.written):
            for scope, amount in side.items():
                traffic[scope] = traffic.get(scope, 0) + int(amount)
        return KernelRoofline(
            {cost: int(n) for cost, n in counts.operations.items()},
            self.flops,
            self.bytes,
            traffic,
            limits_for(self.device, self.lowered),
        )

    def source(self) -> str:
        """The generated code: LLVM IR, or CUDA C++ where axes are bound to a GPU."""
        if self._bound() is None:
            return self._backend.source([self.kernel])
        from ridgeline.codegen.cuda import generate

        return generate(self.kernel).text

    def __str__(self) -> str:
        return print_kernel(self.kernel)

    __repr__ = __str__

    def _repr_html_(self) -> str:
        """The counts, the schedule and the loops, for notebooks."""
        steps = "".join(f"<li><code>{escape(repr(step))}</code></li>" for step in self.steps)
        return (
            f"<b>{escape(self.kernel.name)}</b>: {quantity(self.flops, 'FLOP')}, "
            f"{quantity(self.bytes, 'B')} (exact), {self.intensity:.2f} FLOP/B"
            f"<ol>{steps}</ol><pre>{escape(str(self))}</pre>"
        )

    def __call__(self, *tensors: Tensor) -> Tensor | tuple[Tensor, ...]:
        """Run the kernel on tensors of the shapes it was made for."""
        check_not_traced("a kernel of rl.loops runs")
        if len(tensors) != self.arguments:
            raise LoopsError(f"this kernel takes {self.arguments} tensors, not {len(tensors)}")
        memory = []
        for given, node in zip(tensors, self.graph.inputs):
            memory.append(memory_of(given))
            if given.requires_grad and is_grad_enabled():
                raise LoopsError(
                    "a kernel of rl.loops has no derivative, and this tensor requires gradients",
                    help="call it under rl.no_grad(), or give it x.detach()",
                )
            if read(given).type != node.type:
                raise ShapeError(f"this kernel was made for {node.type}, not {read(given).type}")
        made = self._program.run([*memory, *self.constants])
        values = [wrap(filled_leaf(n.type, m), PLAIN) for n, m in zip(self.graph.outputs, made)]
        return values[0] if len(values) == 1 else tuple(values)

    @property
    def _backend(self) -> Backend:
        return backend(self.device)

    def _bound(self) -> str | None:
        """An axis that only a GPU can run."""
        loops = (s for s in statements(self.kernel.body) if isinstance(s, For))
        return next((loop.name for loop in loops if loop.kind in ("grid", "thread")), None)

    @cached_property
    def _program(self) -> Program:
        bound = self._bound()
        if bound is not None and self.device == CPU:
            raise LoopsError(
                f"axis {bound!r} is bound to a GPU, and this kernel's tensors are on the CPU",
                help="make the kernel with tensors on a GPU, or use parallel() in place of bind()",
            )
        views = {buffer: buffer for buffer in self.kernel.params}
        own = replace(self.lowered, body=self.kernel.body, views=views)  # no library's loops
        group = replace(self.stages.fusion.groups[0], lowered=own)
        values = tuple(own.slots[buffer.slot] for buffer in self.kernel.params)
        kernel = CompiledKernel(group, list(self.steps), named(self.kernel), values)
        stages = replace(self.stages, fusion=Fusion([group], []), kernels=(kernel,))
        target = self._backend
        layout = lay_out(stages, target)
        target.compile([kernel], ())
        calls = NumpyCalls(lambda: self.graph, lambda: stages.order)
        return Program(layout, compilation(self.graph, own=True), calls, stages)
