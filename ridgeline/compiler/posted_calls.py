"""Collectives that a plan starts and waits for itself, as calls of its layout."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from ridgeline.fusion.materialize import sources
from ridgeline.graph.body import bodies
from ridgeline.ops.collectives import holds_collectives
from ridgeline.ops.started import WAIT, operands

if TYPE_CHECKING:
    from ridgeline.compiler.stages import Stages
    from ridgeline.graph.node import Node

CONTEXT_BYTES = 32  # of what a run has of its rank's mailbox
_MOST_POSTED = 1 << 13  # calls of a program that may all be under way at once


@dataclass(frozen=True, slots=True)
class PostCall:
    """The start of a collective, as a step of the plan: the nodes that start it and wait for it.

    `context` is the slot of what a run has of its rank's mailbox.
    """

    node: int
    awaited: int
    axis: str
    context: int
    ticket: int
    result: int
    operands: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class AwaitCall:
    """The wait for a collective; its operands and its result are in use until then."""

    node: int
    context: int
    ticket: int
    result: int
    operands: tuple[int, ...]


def posted_steps(stages: Stages) -> dict[int, int]:
    """The steps of collectives that the plan itself starts and waits for, each with its start."""
    groups = stages.fusion.groups
    nodes = [group.apart for group in groups]
    step_of = {node: step for step, node in enumerate(nodes) if node is not None}
    waits = {node.inputs[0]: step for node, step in step_of.items() if node.op is WAIT}
    inside = any(holds_collectives(body.order) for node in step_of for body in bodies(node))
    if inside or len(waits) > _MOST_POSTED or not all(start in step_of for start in waits):
        return {}  # a body calls in between
    found = {step: step_of[start] for start, step in waits.items()}
    return found | {start: start for start in found.values()}


def posted_call(
    step: int,
    posted: Mapping[int, int],
    context: int,
    stages: Stages,
    position: Mapping[Node, int],
    slot_of: Mapping[Any, int],
) -> PostCall | AwaitCall:
    """The start of a collective or the wait for it, over the slots of their values."""
    first, last = (stages.fusion.groups[each] for each in _pair(step, posted))
    start, wait = first.apart, last.apart
    assert start is not None and wait is not None
    read = [*sources(start, stages.graph, first.views)][-len(operands(start)) :]
    given = tuple(slot_of[first.shown.get(source, source)] for source in read)
    result = slot_of.get(last.shown.get(wait, wait), -1)
    ticket = slot_of[first.shown.get(start, start)]
    if step != posted[step]:
        return AwaitCall(position[wait], context, ticket, result, given)
    axis = start.attrs.group.axis
    return PostCall(position[start], position[wait], axis, context, ticket, result, given)


def _pair(step: int, posted: Mapping[int, int]) -> tuple[int, int]:
    """The step that starts a collective and the one that waits for it."""
    first = posted[step]
    return first, next(last for last, begin in posted.items() if begin == first != last)
