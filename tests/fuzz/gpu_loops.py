"""A GPU's schedules without a GPU: a program whose scheduled loops the loop interpreter runs.

Kernels are chosen, fused and scheduled as for a stated GPU, their text is compiled, and their loops
are interpreted with checks of bounds and races. What has no loops is computed by the interpreter.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from ridgeline.codegen.cuda import compile_all, generate
from ridgeline.compiler import lower_graph
from ridgeline.compiler.stages import CompiledKernel
from ridgeline.execution.tiers import OwnedResults, as_buffer
from ridgeline.graph.graph import Graph
from ridgeline.graph.interpreter import evaluate
from ridgeline.graph.node import Node
from ridgeline.loops.interpreter.interpret import interpret
from ridgeline.schedules.gpu.machine import GpuMachine
from tests.cuda.stated import StatedGpu
from tests.fuzz.program import Array

# few multiprocessors, so that small shapes are cut into pieces as large ones are on a real GPU
_FEW = GpuMachine("sm_90a", 4, 232_448, 1 << 20, cluster=8, block_accesses=0)


@dataclass
class LoopProgram(OwnedResults):
    """A graph as a GPU would run it, kernel by kernel."""

    graph: Graph
    pairs: Sequence[tuple[int, int]] = ()

    def run(self, inputs: Sequence[Any], reused: Mapping[int, Any] = {}) -> list[Any]:
        """The results, in memory of their own."""
        stages = lower_graph(self.graph, target=StatedGpu(_FEW))
        compile_all([generate(kernel.kernel).text for kernel in stages.kernels], _FEW.arch)
        known = {n: m.array(n.dtype, n.shape) for n, m in zip(self.graph.inputs, inputs)}
        kernels = {kernel.group.number: kernel for kernel in stages.kernels}
        for group in stages.fusion.groups:
            if group.number in kernels:
                _interpret(kernels[group.number], known)
            else:
                known |= dict(zip(group.values, evaluate(group.values, known)))
        return [as_buffer(array, "cpu") for array in evaluate(stages.results, known)]

    def explain(self, detail: str = "loops") -> str:
        """Nothing to say beyond the graph."""
        return "interpreted loops"


def _interpret(made: CompiledKernel, known: dict[Node, Array]) -> None:
    """Run a kernel's scheduled loops; what it writes is known afterwards."""
    lowered = made.group.loops
    memory: dict[int, Array] = {}
    for slot, node in enumerate(lowered.slots):
        if slot < lowered.reads:
            memory[slot] = np.ascontiguousarray(known[node])
        else:
            memory[slot] = np.zeros(node.shape, node.dtype.numpy)  # type: ignore[arg-type]
    # memory is bytes: complex numbers are read as their parts
    kinds = {p.slot: p.dtype.numpy for p in made.kernel.params}
    interpret(made.kernel, {s: memory[s].reshape(-1).view(kind) for s, kind in kinds.items()}, {})
    known |= {node: memory[s] for s, node in enumerate(lowered.slots) if s >= lowered.reads}
