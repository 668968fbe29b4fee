"""Bodies: the sub-graphs that control flow holds, such as one iteration of a loop.

A body has leaves of its own as inputs and reads nothing else. Bodies are interned by structure:
tracing one function twice gives one object, so nodes that hold bodies compare by identity, and
what is derived from a body (its gradient, its batched form) is derived once.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import fields, replace
from typing import Any

from ridgeline.graph.graph import Graph, structure
from ridgeline.graph.node import LEAF, Node, TensorType, node, topological
from ridgeline.weak import Structure, WeakTable


class Body:
    """A graph from `inputs`, which are leaves, to `outputs`. Make one with `body()`."""

    __slots__ = ("__weakref__", "inputs", "key", "outputs")

    def __init__(self, inputs: tuple[Node, ...], outputs: tuple[Node, ...], key: Structure) -> None:
        self.inputs, self.outputs, self.key = inputs, outputs, key

    @property
    def types(self) -> tuple[TensorType, ...]:
        """The types of its outputs."""
        return tuple([output.types[0] for output in self.outputs])

    @property
    def graph(self) -> Graph:
        """The body as a graph."""
        return Graph(self.outputs, self.inputs)

    @property
    def order(self) -> list[Node]:
        """The nodes, inputs before users."""
        return topological(self.outputs)

    def __repr__(self) -> str:
        """The whole structure, so that the key of a graph with bodies is complete."""
        return f"Body{self.key!r}"

    def __str__(self) -> str:
        inputs = ", ".join(str(i.types[0]) for i in self.inputs)
        return f"({inputs}) -> ({', '.join(map(str, self.types))})"


_bodies: WeakTable[Body] = WeakTable()


def body(inputs: Sequence[Node], outputs: Sequence[Node]) -> Body:
    """The unique body of this structure."""
    graph = Graph(outputs, inputs)
    key = structure(graph)
    found = _bodies.get(key)
    if found is None:
        assert all(map(graph.is_input, (n for n in graph.order if n.op is LEAF))), "an open body"
        assert all(len(n.types) == 1 for n in outputs), "an output is one value"
        found = _bodies.keep(key, Body(graph.inputs, graph.outputs, key))
    return found


def bodies(node: Node) -> tuple[Body, ...]:
    """The bodies that a node holds; only control flow has any."""
    if node.op.family != "control":
        return ()
    values = [getattr(node.attrs, field.name) for field in fields(node.attrs)]
    return tuple([value for value in values if isinstance(value, Body)])


def with_bodies(attrs: Any, new: Sequence[Body]) -> Any:
    """The attributes of a control-flow node with new bodies, in the same order."""
    names = [f.name for f in fields(attrs) if isinstance(getattr(attrs, f.name), Body)]
    return replace(attrs, **dict(zip(names, new)))


def in_bodies(graph: Graph, changed: Callable[[Body], Body]) -> Graph:
    """Apply a function to every body of a graph's control flow."""

    def replace(current: Node, inputs: Sequence[Node]) -> Node | None:
        held = bodies(current)
        if not held:
            return None
        return node(current.op, inputs, with_bodies(current.attrs, [changed(b) for b in held]))

    return graph.rebuilt(replace)
