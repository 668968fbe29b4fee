"""Parts of the compiler's pipeline over a graph by itself, for tests of what they do."""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from dataclasses import replace
from typing import Any

from ridgeline.compiler.backend import Libraries
from ridgeline.compiler.cpu import CpuBackend
from ridgeline.compiler.pipeline import compilation, optimize, prepare
from ridgeline.compiler.settings import Recorded
from ridgeline.compiler.stages import CompiledKernel
from ridgeline.fusion.groups import Fuser, Fusion, Group, Roofline
from ridgeline.fusion.materialize import choose_values
from ridgeline.graph.graph import Graph
from ridgeline.graph.node import Node
from ridgeline.loops.ir import Kernel
from ridgeline.ops.attention import ATTENTION, ATTENTION_GRADIENT, CALLS
from ridgeline.ops.contract import BIASED
from ridgeline.ops.convolve import CONVOLVE
from ridgeline.schedules.machine import Machine

_NONE = Libraries()


class Stated(CpuBackend):
    """A CPU with libraries, or with blocks of threads that share memory."""

    def __init__(
        self, libraries: Libraries = _NONE, shared_bytes: int = 0, recompute: bool = False
    ) -> None:
        self._libraries, self._shared_bytes = libraries, shared_bytes
        self._recompute = recompute

    def roofline(self, facts: Machine) -> Roofline:
        return replace(super().roofline(facts), recompute=self._recompute)

    def computes(self, node: Node) -> bool:
        """What libraries have, and attention that was not written out."""
        return node.op in (ATTENTION, ATTENTION_GRADIENT, CONVOLVE, BIASED, *CALLS)

    def join_key(self, kernel: CompiledKernel) -> Any:
        return "all" if self._shared_bytes else None

    def join_fits(self, parts: Sequence[CompiledKernel]) -> bool:
        return True

    def launch(self, group: Group, kernel: Kernel | None) -> tuple[int, int] | None:
        return None if kernel is None else super().launch(group, kernel)

    def libraries(self) -> Libraries:
        return self._libraries

    def shared_bytes(self) -> int:
        return self._shared_bytes


def prepared(
    outputs: Sequence[Node],
    inputs: Sequence[Node],
    computes: Callable[[Node], bool] = lambda node: False,
) -> list[Node]:
    """A recorded graph as the compiler takes it."""
    return list(prepare(Graph(outputs, inputs), Recorded("jit", computes)).outputs)


def optimized(
    *roots: Node,
    inputs: Collection[Node] = (),
    libraries: Libraries = _NONE,
    shared_bytes: int = 0,
) -> list[Node]:
    """A graph over its leaves and some inputs as kernels are made of it."""
    graph = Graph.below(roots, set(inputs).__contains__)
    return list(optimize(graph, compilation(graph, Stated(libraries, shared_bytes))).outputs)


def fused(outputs: Sequence[Node], inputs: Sequence[Node], roofline: Roofline) -> Fusion:
    """The kernels of a graph as it is."""
    fuser = Fuser(choose_values(Graph(outputs, inputs)), roofline, lambda node: False)
    fuser.merge()
    return fuser.fusion()
