"""Printed forms of what the passes return, and of the list of passes."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from types import FunctionType
from typing import Any

from ridgeline.compiler.passes import Pass
from ridgeline.compiler.stages import Stages
from ridgeline.errors import ArgumentError
from ridgeline.fusion.groups import FusionGroup
from ridgeline.graph.body import bodies
from ridgeline.graph.graph import Graph
from ridgeline.graph.node import LEAF
from ridgeline.graph.printer import format_node, numbered
from ridgeline.loops.text.printer import print_kernel

State = Graph | Stages


def show(state: State, *, origins: bool = False) -> str:
    """A graph as its nodes; a program as its stored values, kernels and schedules so far.

    With `origins`, nodes are shown with the line that made them.
    """
    if isinstance(state, Graph):
        return _graph_text(state, origins)
    if state.kernels or state.inner:
        lines = list(_kernels_text(state))
    elif state.groups:
        lines = list(map(_group_text, state.groups))
    else:
        lines = list(_values_text(state, origins))
    return "\n".join([*lines, *_memory_text(state)])


def _kernels_text(stages: Stages) -> Iterable[str]:
    """The loops of every kernel once; if one runs again, preceded by the order of runs."""
    own = {compiled.group.results: compiled.kernel for compiled in stages.kernels}
    if len(own) < len(stages.kernels):
        yield "order: " + ", ".join(compiled.kernel.name for compiled in stages.kernels)
    yield from map(print_kernel, own.values())
    for parts in stages.inner.values():
        for part in parts:
            yield from _kernels_text(part)


def _graph_text(graph: Graph, origins: bool) -> str:
    """One line for each node; an input that is computed elsewhere is shown by its type."""
    number = {node: index for index, node in enumerate(graph.order)}
    lines: list[str] = []
    for node in graph.order:
        if graph.is_input(node) and node.op is not LEAF:
            lines.append(f"%{number[node]} = given : {node.type}")
            continue
        lines.append(format_node(node, number, origins=origins))
        for part in bodies(node):
            lines += ["    " + line for line in _graph_text(part.graph, origins).splitlines()]
    return "\n".join([*lines, "return " + ", ".join(f"%{number[o]}" for o in graph.outputs)])


def _memory_text(stages: Stages) -> Iterable[str]:
    """Which results overwrite what, and which kernels share a launch."""
    for result, source in stages.replacing.inputs.items():
        yield f"{result} may replace {source}"
    for value, other in stages.over.items():
        yield f"{value} lies over {other}"
    for parts in stages.together:
        yield "started as one: " + ", ".join(part.kernel.name for part in parts)


def _group_text(group: FusionGroup) -> str:
    return group.name if group.lowered is None else print_kernel(group.loops.kernel)


def _values_text(stages: Stages, origins: bool) -> Iterable[str]:
    """The nodes, with a mark for each stored value."""
    order, number = numbered(stages.graph.outputs)
    stored: Any = () if stages.values is None else stages.values.stored
    for node in order:
        line = format_node(node, number, origins=origins)
        yield f"* {line}" if node in stored else f"  {line}"


def file_of(each: Pass[Any, Any]) -> str:
    """The file of the function that a pass runs, looking through lambdas."""
    run: Any = each.run
    named = [run.__globals__.get(name) for name in run.__code__.co_names]
    held = [cell.cell_contents for cell in run.__closure__ or ()]
    used = [f for f in (run, *held, *named) if isinstance(f, FunctionType)]
    elsewhere = [f.__module__ for f in used if f.__module__ != "ridgeline.compiler.pipeline"]
    return (elsewhere or [run.__module__])[0].replace(".", "/") + ".py"


@dataclass(slots=True)
class Walk:
    """The effect of each pass on one function: collected while the passes run once more."""

    graph: Graph  # as the first pass finds it
    # each pass, and whether it changed something
    rows: list[tuple[Pass[Any, Any], bool]] = field(default_factory=list)
    texts: dict[str, str] = field(default_factory=dict)  # what there was after each
    _before: str = ""

    def __call__(self, each: Pass[Any, Any], state: State) -> None:
        text = show(state)
        self.rows.append((each, text != (self._before or show(self.graph))))
        self._before = text
        self.texts[each.name] = show(state, origins=True)

    def list_text(self) -> str:
        """The passes, one a line, with a star for those that changed something."""
        wide = max((len(each.name) for each, _ in self.rows), default=0)
        return "\n".join(
            f"{'*' if changed else ' '} {each.name:<{wide}}  {each.doc} ({file_of(each)})"
            for each, changed in self.rows
        )

    def after(self, name: str) -> str:
        """The state after a pass."""
        if name not in self.texts:
            raise ArgumentError(
                f"no pass called {name!r} ran here", help=f"those that did: {', '.join(self.texts)}"
            )
        return self.texts[name]
