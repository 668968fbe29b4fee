"""The printed form of what a pass of the compiler gives, and of the list of passes."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any

from ridgeline.compiler.passes import Pass
from ridgeline.compiler.stages import Stages
from ridgeline.errors import ArgumentError
from ridgeline.fusion.groups import Group
from ridgeline.graph.graph import Graph
from ridgeline.graph.printer import format_graph, format_node, numbered
from ridgeline.loops.printer import print_kernel

State = Graph | Stages


def show(state: State) -> str:
    """A graph as its nodes; a program as far as it is: values in memory, kernels, schedules."""
    if isinstance(state, Graph):
        return format_graph(state.outputs, origins=False)
    if state.kernels:
        return "\n".join(print_kernel(compiled.kernel) for compiled in state.all_kernels())
    if state.groups:
        return "\n".join(map(_group_text, state.groups))
    return "\n".join(_values_text(state))


def _group_text(group: Group) -> str:
    return group.name if group.lowered is None else print_kernel(group.loops.kernel)


def _values_text(stages: Stages) -> Iterable[str]:
    """The nodes, with a mark where a value is written to memory."""
    order, number = numbered(stages.graph.outputs)
    stored: Any = () if stages.values is None else stages.values.stored
    for node in order:
        line = format_node(node, number, origins=False)
        yield f"* {line}" if node in stored else f"  {line}"


@dataclass(slots=True)
class Walk:
    """What the passes did to one function, in order: watched while they run once more."""

    graph: Graph  # as the first pass finds it
    rows: list[tuple[str, str, bool]] = field(default_factory=list)  # name, doc, has it changed
    texts: dict[str, str] = field(default_factory=dict)

    def __call__(self, each: Pass[Any, Any], state: State) -> None:
        before = next(reversed(self.texts.values()), None)
        text = show(state)
        self.rows.append((each.name, each.doc, text != (before or show(self.graph))))
        self.texts[each.name] = text

    def list_text(self) -> str:
        """The passes, one a line; a star marks those that changed something."""
        wide = max((len(name) for name, _, _ in self.rows), default=0)
        return "\n".join(
            f"{'*' if changed else ' '} {name:<{wide}}  {doc}" for name, doc, changed in self.rows
        )

    def after(self, name: str) -> str:
        """What there was after a pass."""
        if name not in self.texts:
            raise ArgumentError(
                f"no pass called {name!r} ran here", help=f"those that did: {', '.join(self.texts)}"
            )
        return self.texts[name]
