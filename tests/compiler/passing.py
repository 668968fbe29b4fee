"""Parts of the compiler's pipeline over a graph by itself, for tests of what they do."""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from dataclasses import replace
from typing import Any

from ridgeline.compiler.backend import Libraries, LibraryOp
from ridgeline.compiler.passes import Recorded
from ridgeline.compiler.pipeline import compilation, optimize, prepare
from ridgeline.compiler.stages import CompiledKernel
from ridgeline.fusion.groups import Fuser, Fusion, FusionGroup, Roofline
from ridgeline.fusion.materialize import choose_values
from ridgeline.graph.graph import Graph
from ridgeline.graph.node import Node
from ridgeline.graph.passes.libraries.attention import CALLS
from ridgeline.ops.attention import ATTENTION, ATTENTION_GRADIENT
from ridgeline.ops.contract import PRODUCT
from ridgeline.ops.convolve import CONVOLVE
from ridgeline.ops.strides import View, itself
from ridgeline.runtime.cpu.backend import CpuBackend
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

    def library_ops(self) -> Sequence[LibraryOp]:
        """What libraries have, and attention that was not written out."""
        return (AnyCall(),)

    def horizontal_fusion(self) -> Together | None:
        return Together() if self._shared_bytes else None

    def libraries(self) -> Libraries:
        return self._libraries

    def shared_memory_bytes(self) -> int:
        return self._shared_bytes


class AnyCall:
    """Calls of a library that reads every operand in order, and does nothing."""

    ops = (ATTENTION, ATTENTION_GRADIENT, CONVOLVE, PRODUCT, *CALLS)

    def operands(self, node: Node, graph: Graph) -> Sequence[View]:
        return [itself(operand) for operand in node.inputs]

    def launch(self, group: FusionGroup) -> Any:
        return None


class Together:
    """Any kernels may be started as one."""

    def key(self, kernel: CompiledKernel) -> str:
        return "all"

    def fits(self, parts: Sequence[CompiledKernel]) -> bool:
        return True

    def join(self, parts: Sequence[CompiledKernel]) -> tuple[str, Any]:
        raise AssertionError("nothing is started")


def prepared(
    outputs: Sequence[Node],
    inputs: Sequence[Node],
    is_library_call: Callable[[Node], bool] = lambda node: False,
) -> list[Node]:
    """A recorded graph as the compiler takes it."""
    return list(prepare(Graph(outputs, inputs), Recorded("jit", is_library_call)).outputs)


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
    fuser = Fuser(choose_values(Graph(outputs, inputs)), roofline)
    fuser.merge()
    return fuser.fusion()
