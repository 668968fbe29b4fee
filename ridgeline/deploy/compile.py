"""Machine code for a program file: compiled as for `jit`, for any machine, and not loaded.

What is compiled is kept in the disk cache with the programs of `jit`, so an export that comes again
compiles nothing.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any

from ridgeline.codegen.llvm.machine_code import compile_ir
from ridgeline.compiler.memory_plan import HostCall, Layout
from ridgeline.compiler.pipeline import compilation, optimize
from ridgeline.compiler.program import machine_form
from ridgeline.compiler.stages import CompiledKernel
from ridgeline.deploy.contents import ExportError
from ridgeline.fusion.groups import FusionGroup
from ridgeline.graph.graph import Graph, structure
from ridgeline.graph.node import Node
from ridgeline.graph.origins import lines_of
from ridgeline.ops.index_checks import checked_nodes
from ridgeline.runtime.cpu.backend import CpuBackend
from ridgeline.weak import Structure


class AheadBackend(CpuBackend):
    """The CPU's backend without a CPU: code for the target, which this process does not run."""

    posts_collectives = False  # a program file has no ranks

    def compile(
        self,
        kernels: Sequence[CompiledKernel],
        library_calls: Sequence[FusionGroup] = (),
        joined: Sequence[Sequence[CompiledKernel]] = (),
        begun: Mapping[str, Any] = MappingProxyType({}),
    ) -> bytes:
        """Object code for all kernels, each once."""
        unique = list({compiled.kernel.name: compiled.kernel for compiled in kernels}.values())
        return compile_ir(self.source(unique)) if unique else b""


@dataclass(frozen=True, slots=True)
class Compiled:
    """A graph as code and layout; `checked_at` are the lines whose indices it checks."""

    layout: Layout
    code: bytes
    checked_at: tuple[str, ...]


def compile_static(graph: Graph, pairs: Sequence[tuple[int, int]] = ()) -> Compiled:
    """The code of a graph of known sizes, for the machine that `compiling_for` names."""
    to = compilation(graph, AheadBackend(), pairs=tuple(pairs))
    key = Structure((structure(graph), to.target.key(), to.pairs, *sorted(to.left_out)))
    made = machine_form(key, graph.on_fresh_leaves(), to)
    refuse_calls(graph, made.layout, lambda: optimize(made.graph, made.compilation).order)
    return Compiled(made.layout, made.code, checked_lines(graph))


def refuse_calls(graph: Graph, layout: Layout, nodes: Callable[[], Sequence[Node]]) -> None:
    """Raise where NumPy would have to compute something, which a program file has not.

    `nodes` are those by whose places the layout names its calls.
    """
    calls = [call for call in layout.calls if isinstance(call, HostCall)]
    if not calls:
        return
    order = nodes()
    found = dict.fromkeys(_described(order[call.node], graph) for call in calls)
    raise ExportError(
        f"{len(calls)} ops are calls of NumPy, which a program file has not: {'; '.join(found)}",
        help="docs/library_calls.md lists such ops; compute what needs them outside the function",
    )


def _described(node: Node, graph: Graph) -> str:
    """An op with the line that made it; passes may have made the node anew."""
    lines = lines_of([node]) or lines_of([n for n in graph.order if n.op is node.op])
    return f"{node.op.name} at {lines[0]}" if lines else node.op.name


def checked_lines(graph: Graph) -> tuple[str, ...]:
    """The lines of ops whose indices are checked while a program runs."""
    return tuple(str(line) for line in lines_of(checked_nodes(graph)))
