"""Batching rules that several ops share.

A rule gets a node and its inputs, of which some have a new leading axis, and gives the node's
outputs with that axis. It is called only where at least one input has the axis.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

from ridgeline.graph.node import Node, node, proj
from ridgeline.ops.movement import spread, spread_all

if TYPE_CHECKING:
    from ridgeline.graph.vectorize import Batching


def outputs_of(made: Node) -> list[Node]:
    """The outputs of a node, one by one."""
    return [proj(made, number) for number in range(len(made.types))]


def leading(
    current: Node, inputs: Sequence[Node], batched: Sequence[bool], batching: Batching
) -> list[Node]:
    """For ops that go elementwise, or count axes from the end: one more axis in front."""
    return outputs_of(node(current.op, spread_all(inputs, batched, batching), current.attrs))


def shift_axis(
    current: Node, inputs: Sequence[Node], batched: Sequence[bool], batching: Batching
) -> list[Node]:
    """For ops along one axis, `attrs.axis`: it moves one place back."""
    attrs = replace(current.attrs, axis=current.attrs.axis + 1)
    return outputs_of(node(current.op, spread_all(inputs, batched, batching), attrs))


def repeated(
    current: Node, inputs: Sequence[Node], batched: Sequence[bool], batching: Batching
) -> list[Node]:
    """For ops without inputs: the same value for every element."""
    return [spread(current, batching.size)]
