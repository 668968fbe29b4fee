"""Backward propagation of placements: what the readers of a value will want of it.

A sum over ranks is brought together where it is first needed. Whether all of it or a rank's shard
is wanted then is said later in the graph: by a `placed` node, or by the memory that a result takes.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from ridgeline.graph.graph import Graph
from ridgeline.graph.node import Node
from ridgeline.ops.movement import PERMUTE, RESHAPE
from ridgeline.ops.placed import (
    PLACED,
    PLACED_AS_STATE,
    PLACED_LIKE,
    OnStage,
    Placement,
    Shard,
)
from ridgeline.sharding.mesh_shapes import REPLICATE, MeshShape, Spec, state_spec
from ridgeline.sharding.rules.movement import reshaped_spec
from ridgeline.sharding.share import known_sizes

Hint = tuple[Placement | None, ...]


def hints(
    graph: Graph, shape: MeshShape, given: Mapping[Node, Spec], pairs: Mapping[Node, Node]
) -> dict[Node, Hint]:
    """Placements that are wanted of values; `pairs` are outputs that take the place of inputs."""
    found: dict[Node, Hint] = {}
    for output, memory in pairs.items():
        _add(found, output, given[memory])
    for node in reversed(graph.order):
        if graph.is_input(node):
            continue
        if node.op is PLACED:
            wishes = dict(node.attrs.forward)
            asked = [wishes.get(name) for name in shape.names]
            _add(found, node.inputs[0], tuple(None if isinstance(p, OnStage) else p for p in asked))
        elif node.op is PLACED_LIKE and node.inputs[1] in given:
            _add(found, node.inputs[0], given[node.inputs[1]])
        elif node.op is PLACED_AS_STATE and node.inputs[1] in given:
            of_state = state_spec(shape, given[node.inputs[1]], known_sizes(node))
            _add(found, node.inputs[0], of_state)
        if node in found:
            _pass_on(found, node, shape)
    return found


def _pass_on(found: dict[Node, Hint], node: Node, shape: MeshShape) -> None:
    """What is wanted of a result is wanted of what it is made of, where elements correspond."""
    hint = found[node]
    if node.op.family == "pointwise" or node.op in (PLACED, PLACED_LIKE, PLACED_AS_STATE):
        for source in node.inputs:
            if source.shape == node.shape:
                _add(found, source, hint)
    elif node.op is PERMUTE:
        order = node.attrs.order
        moved = tuple(replace(p, dim=order[p.dim]) if isinstance(p, Shard) else p for p in hint)
        _add(found, node.inputs[0], moved)
    elif node.op is RESHAPE:
        old, new = known_sizes(node.inputs[0]), known_sizes(node)
        kept = tuple(p if isinstance(p, Shard) else None for p in hint)
        for axis, placement in enumerate(kept):
            if placement is not None:
                alone = tuple(placement if a == axis else None for a in range(len(kept)))
                spec: Spec = tuple(p or REPLICATE for p in alone)
                made = reshaped_spec(shape, spec, new, old)[axis]
                _add(found, node.inputs[0], tuple(made if p else None for p in alone))


def _add(found: dict[Node, Hint], node: Node, hint: Hint) -> None:
    """A wish for a value, along axes for which there is none yet."""
    wishes = tuple(p if isinstance(p, Shard) else None for p in hint)
    known = found.get(node)
    found[node] = wishes if known is None else tuple(a or b for a, b in zip(known, wishes))
