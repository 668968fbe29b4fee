"""Backward passes through what flushes left, from one segment to those before it.

A tensor that a flush left with its graph holds a leaf that knows its segment (`GraphJoint`). From
there gradients go on by programs of the segments' own, which need no nodes; each runs once, with
the gradients of all of its results, later segments before earlier ones. Nothing is changed before
all of them are through. Where hooks watch, or somebody wants more than gradients of variables, the
segments are unfolded: their calls are recorded, and the pass goes through nodes.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from heapq import heappop, heappush
from typing import Any, TypeAlias

from ridgeline.atomic import Change
from ridgeline.graph.interpreter import evaluate
from ridgeline.graph.node import LEAF as LEAF_OP, Node, shows_constant
from ridgeline.ops.differentiate import flowing
from ridgeline.ops.elementwise import add
from ridgeline.record import recorder
from ridgeline.record.cells import (
    CUT,
    PLAIN,
    Cell,
    GraphJoint,
    Segment,
    Unsupported,
    filled_leaf,
)
from ridgeline.record.memory import adopt
from ridgeline.tensors.differentiable import retaining
from ridgeline.tensors.tensor import Tensor, holding

Buffer: TypeAlias = Any


def joints_in(order: Iterable[Node]) -> list[Node]:
    """The nodes behind which the graph is that of a segment."""
    return [node for node in order if node.op is LEAF_OP and isinstance(node.attrs, GraphJoint)]


def unfold(joints: Sequence[Node]) -> None:
    """Have the calls of segments recorded, so that their results have their graphs."""
    recorder.lose("a graph of before the last flush is needed")
    for node in joints:
        if isinstance(node.attrs, GraphJoint):
            node.attrs.segment.unfold()


def opened(outputs: Sequence[Node]) -> list[Node]:
    """All nodes that cotangents may reach, those behind joints too."""
    while joints := joints_in(order := flowing(outputs)):
        unfold(joints)
    return order


class WayBack:
    """What lies behind some joints: segments, their variables and joints between them."""

    def __init__(self, joints: Sequence[Node]) -> None:
        self.joints: dict[Node, None] = {}
        self.nodes: list[Node] = []  # of segments that have some
        self.variables: dict[int, Tensor] = {}  # by identity
        self._segments: set[int] = set()  # by identity
        left = list(joints)
        while left:
            node = left.pop()
            if node in self.joints or not isinstance(node.attrs, GraphJoint):
                continue
            self.joints[node] = None
            segment = node.attrs.segment
            if id(segment) in self._segments:
                continue
            self._segments.add(id(segment))
            self.nodes += segment.nodes()
            for target in segment.targets():
                if isinstance(target, Tensor):
                    self.variables[id(target)] = target
                else:
                    left.append(target)

    def is_retained(self) -> bool:
        """True where somebody wants to keep the gradient of a result, or of a part of it."""
        return any(
            tensor._cell.types is None
            and isinstance(mark := tensor._cell.node.attrs, GraphJoint)
            and id(mark.segment) in self._segments
            for tensor in retaining
        )


def are_watched(variables: Iterable[Tensor]) -> bool:
    """True where somebody wants to see gradients of variables as they come, or joins them."""
    extras = [variable._extra for variable in variables if variable._extra is not None]
    return any(extra.hooks or extra.after or extra.shared is not None for extra in extras)


class Gradients:
    """The gradients of variables and of joints, as far as a pass got."""

    def __init__(self) -> None:
        self._of: dict[int, tuple[Any, Buffer]] = {}  # by the identity of the target

    def total(self, target: Any) -> Buffer:
        """What a target has so far, or None; a variable begins with the gradient it has."""
        known = self._of.get(id(target))
        if known is not None:
            return known[1]
        if isinstance(target, Node) or target.grad is None:
            return None
        return _memory(target.grad)

    def added(self, owner: Tensor, part: Node) -> Node:
        """The gradient of a variable with another part, which is a node."""
        before = self.total(owner)
        return part if before is None else add(filled_leaf(owner._type, before), part)

    def keep(self, target: Any, buffer: Buffer) -> None:
        """Note the gradient of a target, to which nothing is left to be added."""
        self._of[id(target)] = target, buffer

    def pop(self, joint: Node) -> Buffer:
        """The gradient of a joint, which nobody needs again."""
        return self._of.pop(id(joint))[1]

    def changes(self) -> Iterator[Change]:
        """What changes for the variables."""
        for owner, buffer in self._of.values():
            grad = owner.grad
            if grad is None:
                kind = owner._type
                yield owner._details(), "grad", holding(filled_leaf(kind, buffer), PLAIN)
                continue
            cell = grad._cell
            yield cell, "node", filled_leaf(grad._type, buffer)
            yield cell, "version", cell.version + 1


def _memory(gradient: Tensor) -> Buffer:
    """The memory of a gradient that was there, which is written over."""
    cell = gradient._cell
    plain = gradient._track is cell and cell.mode in (PLAIN, CUT) and cell.capture is None
    if not plain or gradient._steps or cell.rare is not None:
        raise Unsupported("a gradient that others share")
    if cell.types is not None or cell.node.buffer is None:
        recorder.realize([cell])
    return cell.node.buffer


def computed(nodes: Sequence[Node]) -> list[Buffer]:
    """The memory of some nodes, computed now with everything that is live."""
    cells = {node: Cell(node, PLAIN, None) for node in nodes if not shows_constant(node)}
    recorder.realize([c for c in cells.values() if c.node.buffer is None], "a backward pass")
    return [cells[n].node.buffer if n in cells else _constant(n) for n in nodes]


def _constant(node: Node) -> Buffer:
    return adopt(evaluate([node])[0], node.types[0].device)


def pass_back(
    given: Mapping[Node, Buffer], gradients: Gradients
) -> list[tuple[Segment, frozenset[int]]]:
    """Go through all segments behind some joints; the results that each of them lost.

    Raises `Unsupported` where there is a segment without a program for that.
    """
    waiting: dict[int, tuple[Segment, dict[int, Node]]] = {}  # by the number of the segment
    later: list[int] = []

    def reach(joint: Node) -> None:
        mark = joint.attrs
        if not isinstance(mark, GraphJoint):
            raise Unsupported("a graph that was let go")
        serial = -mark.segment.serial
        if serial not in waiting:
            waiting[serial] = mark.segment, {}
            heappush(later, serial)
        waiting[serial][1][mark.number] = joint

    for joint, buffer in given.items():
        gradients.keep(joint, buffer)
        reach(joint)
    lost: list[tuple[Segment, frozenset[int]]] = []
    while later:
        segment, joints = waiting.pop(heappop(later))
        found, gone = segment.back(
            {number: gradients.pop(joint) for number, joint in joints.items()}, gradients.total
        )
        for target, buffer in found:
            gradients.keep(target, buffer)
            if isinstance(target, Node):
                reach(target)
        lost.append((segment, gone))
    return lost


def joints_let_go(lost: Iterable[tuple[Segment, frozenset[int]]]) -> Iterator[Change]:
    """What becomes of tensors whose graph a pass let go."""
    for segment, numbers in lost:
        for number in numbers & segment.joints.keys():
            yield from segment.joints[number].let_go()
