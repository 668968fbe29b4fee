"""Segments of recorded work: what a flush of nodes leaves with its graph, as known ones do.

So a run that leads on from there is the same whether the calls before the flush were matched or
recorded, and the runs of a step are learnt together, each by itself.
"""

from __future__ import annotations

import weakref
from collections.abc import Callable, Hashable, Iterator, Mapping, Sequence
from itertools import starmap
from typing import Any

from ridgeline.atomic import Change, apply
from ridgeline.graph.node import Node
from ridgeline.ops.differentiate import flowing
from ridgeline.ops.tracking import must_run
from ridgeline.record.cells import GRAPH, Cell, GraphJoint, Joined, filled_leaf, serials
from ridgeline.record.graph_recorder import GraphRecorder
from ridgeline.record.upcalls import upcalls
from ridgeline.tape.memory import is_joint
from ridgeline.tape.pass_graph import PassGraph
from ridgeline.tape.segments import apart
from ridgeline.tensors.differentiable import observed


class NodeSegment:
    """What a flush of recorded work left with its graph: nodes that have their values."""

    def __init__(self, recorder: GraphRecorder, nodes: Sequence[Node]) -> None:
        self.serial = next(serials)
        self._recorder = recorder
        self._nodes = dict(enumerate(nodes))
        self.joints: dict[int, Joined] = {}

    def unfold(self) -> None:
        """Put the nodes behind the leaves that stand for them."""
        changes: list[Change] = []
        held: list[weakref.ref[Cell]] = []
        for number, joined in self.joints.items():
            changes += joined.unfolded(self._nodes[number])
            held.append(joined.cell)
        self._recorder.with_graphs.extend(held)
        apply(starmap(setattr, changes))

    def nodes(self) -> Sequence[Node]:
        """The recorded nodes that a backward pass goes through."""
        return flowing(self._nodes.values())

    def targets(self) -> Iterator[Any]:
        """The variables, and results of flushes before, that gradients may flow to."""
        found = map(_target_of, self.nodes())
        return iter({id(target): target for target in found if target is not None}.values())

    def back(
        self, given: Mapping[int, Any], total: Callable[[Any], Any]
    ) -> tuple[list[tuple[Any, Any]], frozenset[int]]:
        """A backward pass from some results, by their nodes."""
        targets: dict[int, Any] = {}

        def target_of(node: Node) -> Hashable | None:
            target = _target_of(node)
            if target is not None:
                targets[id(target)] = target
            return None if target is None else id(target)

        graph = PassGraph([self._nodes[number] for number in given], self._nodes, target_of)
        cotangents = [
            filled_leaf(kind, buffer) for kind, buffer in zip(graph.types, given.values())
        ]
        totals = {
            key: filled_leaf(graph.type_of(key), buffer)
            for key in graph.targets
            if (buffer := total(targets[key])) is not None
        }
        gradients, roots = graph.differentiated(cotangents, totals)
        if roots:
            upcalls.match(roots, [], "a backward pass").run()
        buffers = apart([node.buffer for node in gradients], [*given.values()])
        return [(targets[key], b) for key, b in zip(graph.targets, buffers)], graph.lost()


def _target_of(node: Node) -> Any:
    """The variable or the result of a flush before that a node stands for; None for others."""
    if is_joint(node):
        return node
    return None if node.owner is None else node.owner()


def join(recorder: GraphRecorder, cells: Sequence[Cell]) -> list[Cell]:
    """Give cells that were computed with their graph a segment; those that cannot have one."""
    plain = [c for c in cells if c.mode == GRAPH and c.rare is None and c.capture is None]
    nodes = {cell: cell.node for cell in plain if cell.node.buffer is not None}
    order = flowing(nodes.values())
    if any(map(must_run, order)) or (observed and any(node in observed for node in order)):
        return [*cells]
    segment = NodeSegment(recorder, [*nodes.values()])
    changes: list[Change] = []
    for number, (cell, node) in enumerate(nodes.items()):
        made = filled_leaf(node.types[0], node.buffer)
        made.attrs, made.origins = GraphJoint(node.types[0], segment, number), node.origins
        segment.joints[number] = Joined(made, cell)
        if cell.node is node:
            changes.append((cell, "node", made))
    apply(starmap(setattr, changes))
    return [cell for cell in cells if cell not in nodes]
