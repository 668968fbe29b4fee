"""Checks of values for functions that are written over tensors; see `ops/checked.py`."""

from __future__ import annotations

from ridgeline.functions.index_checks import as_index
from ridgeline.functions.registry import public
from ridgeline.graph.node import Node
from ridgeline.ops import checked


@public(method=False)
def _labels(input: Node, classes: int, what: str, besides: int | None = None) -> Node:
    """The input, whose elements must name classes or be `besides`."""
    return checked.labels(as_index(input, what), classes, what, besides)


@public(method=False)
def _within(input: Node, low: float, high: float, what: str) -> Node:
    """The input, whose elements must lie in low … high."""
    return checked.within(input, low, high, what)
