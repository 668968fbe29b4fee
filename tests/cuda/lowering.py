"""From a graph to the kernels of a GPU, as the compiler does it, without a GPU."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from ridgeline.fusion.groups import Roofline
from ridgeline.graph.graph import Graph
from ridgeline.graph.node import Node, topological
from ridgeline.loops.interpreter.interpret import interpret
from ridgeline.loops.ir import Kernel
from ridgeline.loops.lowering.iteration_space import Lowered
from ridgeline.loops.schedule import replay
from ridgeline.loops.text.printer import print_kernel
from ridgeline.schedules.gpu.default import steps
from ridgeline.schedules.gpu.machine import GpuMachine
from tests.compiler.passing import fused
from tests.loops.parser import parse_kernel

# few multiprocessors, so that small shapes are cut into pieces as large ones are on a real GPU
SMALL_GPU = GpuMachine("sm_90a", 4, 232_448, 1 << 20, cluster=8, block_accesses=0)

ROOFLINE = Roofline(4e12, 50e12, launch_seconds=2e-6, recompute=True)


@dataclass(frozen=True, slots=True)
class Scheduled:
    """A kernel before and after its schedule."""

    lowered: Lowered
    kernel: Kernel


def schedule(outputs: Sequence[Node], inputs: Sequence[Node], gpu: GpuMachine) -> list[Scheduled]:
    """The kernels of a graph that has loops throughout."""
    found = []
    for group in fused(outputs, inputs, ROOFLINE).groups:
        assert group.lowered is not None, f"{group.name} has no loops"
        found.append(Scheduled(group.loops, replay(group.loops.kernel, steps(group.loops, gpu))))
    return found


def interpreted(
    outputs: Sequence[Node], inputs: Sequence[Node], arrays: Sequence[Any]
) -> list[Any]:
    """The values of a graph, kernel by kernel, with checks of bounds and races."""
    known = dict(zip(inputs, arrays))
    for scheduled in schedule(outputs, inputs, SMALL_GPU):
        assert parse_kernel(print_kernel(scheduled.kernel)) == scheduled.kernel
        slots, reads = scheduled.lowered.slots, scheduled.lowered.reads
        memory = {
            n: np.ascontiguousarray(known[s]) if n < reads else np.zeros(s.shape, s.dtype.numpy)  # type: ignore[arg-type]
            for n, s in enumerate(slots)
        }
        interpret(scheduled.kernel, memory, {})
        known |= {s: memory[n] for n, s in enumerate(slots) if n >= reads}
    return [known[output] for output in outputs]


def closed(
    outputs: Sequence[Node], inputs: Sequence[Node]
) -> tuple[list[Node], list[Node], list[Any]]:
    """The same graph with the constants it holds as further inputs, and their values."""
    given = set(inputs)
    held = [n for n in topological(outputs, given.__contains__) if n.buffer is not None]
    held = [n for n in held if n not in given]
    values = [n.buffer.array(n.dtype, n.shape) for n in held]  # type: ignore[union-attr, arg-type]
    fresh = Graph(outputs, [*inputs, *held]).on_fresh_leaves()
    return list(fresh.outputs), list(fresh.inputs), values


def random_inputs(inputs: Sequence[Node], seed: int) -> list[np.ndarray[Any, Any]]:
    """Values for inputs: numbers around zero, and small non-negative integers."""
    rng = np.random.default_rng(seed)
    found = []
    for node in inputs:
        shape = tuple(int(s) for s in node.shape)  # type: ignore[arg-type]
        if node.dtype.kind == "float":
            found.append(rng.standard_normal(shape).astype(node.dtype.numpy))
        else:
            found.append(rng.integers(0, 5, shape).astype(node.dtype.numpy))
    return found
