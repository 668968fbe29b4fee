"""Erase what only differentiation sees: tags, variables, custom rules.

%1 = tag %0           becomes   %2 = mul %0, %0
%2 = mul %1, %1
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from ridgeline.graph.graph import Graph
from ridgeline.graph.node import PROJ, Node
from ridgeline.ops.tracking import CUSTOM, ERASED


def needs_erasing(order: Iterable[Node]) -> bool:
    """True where a graph holds nodes that the compiler must not see."""
    return any(current.op in ERASED for current in order)


def erase(graph: Graph) -> Graph:
    """The same values without tracking nodes."""
    if not needs_erasing(graph.order):
        return graph

    outputs: dict[Node, Sequence[Node]] = {}  # what each custom node passes through

    def replace(current: Node, inputs: Sequence[Node]) -> Node | None:
        if current.op is PROJ and current.inputs[0].op is CUSTOM:
            passed: Node = outputs[current.inputs[0]][current.attrs.output]
            return passed
        if current.op is CUSTOM:
            outputs[current] = inputs[: current.attrs.outputs]
            return inputs[0]
        return inputs[0] if current.op in ERASED else None

    return graph.rebuilt(replace)
