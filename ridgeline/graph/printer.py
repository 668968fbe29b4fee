"""The printed form of a graph: one line per node, operands by number.

%0 = leaf : float32[64, 10]
%2 = add %0, %1 : float32[64, 10]        train.py:12 in encoder.fc1
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import fields
from typing import Any

from ridgeline.graph.body import bodies
from ridgeline.graph.node import LEAF, Node, topological
from ridgeline.graph.origins import describe


def attributes(attrs: Any) -> str:
    """The typed attributes of a node as `name=value` pairs."""
    parts = []
    for field in (f for f in fields(attrs) if f.repr):
        value = getattr(attrs, field.name)
        parts.append(f"{field.name}={_short(value)}")
    return ", ".join(parts)


def _short(value: Any) -> str:
    if isinstance(value, tuple):
        inner = ", ".join(map(_short, value))
        return f"({inner})"
    name = getattr(value, "name", None)
    return name if isinstance(name, str) else str(value)


def numbered(roots: Sequence[Node]) -> tuple[list[Node], dict[Node, int]]:
    """All nodes below `roots` in order, and the number under which each is printed."""
    order = topological(roots)
    return order, {node: number for number, node in enumerate(order)}


def format_node(node: Node, number: dict[Node, int], *, origins: bool = True) -> str:
    """One line of the printed form."""
    operands = ", ".join(f"%{number[i]}" for i in node.inputs)
    details = "" if node.op is LEAF else attributes(node.attrs)
    text = f"%{number[node]} = {node.op.name}"
    text += f" {operands}" if operands else ""
    text += f" [{details}]" if details else ""
    text += " : " + ", ".join(map(repr, node.types))
    line = describe(node) if origins else ""
    return f"{text:<72}  {line}" if line else text


def format_graph(roots: Sequence[Node], *, origins: bool = True, at_most: int | None = None) -> str:
    """The graph below `roots`, inputs first; `at_most` shows that many lines of a long one."""
    order, number = numbered(roots)
    lines = []
    for node in order[:at_most]:
        lines.append(format_node(node, number, origins=origins))
        for part in bodies(node):
            inside = format_graph(part.outputs, origins=origins, at_most=at_most)
            lines += ["    " + line for line in inside.splitlines()]
    if at_most is not None and len(order) > at_most:
        lines.append(f"… {len(order) - at_most} more")
    lines.append("return " + ", ".join(f"%{number[root]}" for root in roots))
    return "\n".join(lines)
