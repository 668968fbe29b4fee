"""Elementwise functions of nodes by the names that mathematics has for them, for formulas."""

from __future__ import annotations

from collections.abc import Callable

from ridgeline.graph.node import Node, node
from ridgeline.ops.elementwise import ROWS


def _unary(name: str) -> Callable[[Node], Node]:
    row = ROWS[name]
    return lambda x: node(row, (x,))


def _binary(name: str) -> Callable[[Node, Node], Node]:
    row = ROWS[name]
    return lambda a, b: node(row, (a, b))


