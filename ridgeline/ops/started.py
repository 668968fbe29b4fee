"""Collectives in two parts: start when the operand is ready, wait when the result is read.

What is computed between the two hides the communication.

Starting returns a ticket, a number under which the calling rank finds the operation. A start reads
the ticket of the one before, so all ranks start their collectives in program order; on a CPU a wait
reads the operand too, so that its memory is not reused before.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import count
from time import perf_counter

import numpy as np

from ridgeline.communicators.agreements import Agreement, words_of
from ridgeline.communicators.current import current_rank
from ridgeline.communicators.interface import Work
from ridgeline.devices import CPU
from ridgeline.dtypes import int64
from ridgeline.graph.node import Attrs, Node, Op, TensorType, node
from ridgeline.graph.origins import describe
from ridgeline.ops.collectives import (
    COLLECTIVES,
    OPERANDS,
    REDUCE_TO,
    SEND,
    GroupCallAttrs,
    asked_of_group,
    started,
)
from ridgeline.scalars import Array

_numbers = count(1)


@dataclass(frozen=True, slots=True)
class WaitAttrs(Attrs):
    """What comes of a collective: its op, its group, and the type of the result."""

    op: str
    call: GroupCallAttrs
    result: TensorType


def _infer_start(types: Sequence[TensorType], attrs: GroupCallAttrs) -> tuple[TensorType, ...]:
    return (TensorType((), int64, types[0].device),)


def _started(current: Node, inputs: Sequence[Array]) -> tuple[Array, ...]:
    ticket = next(_numbers)
    under_way: dict[int, tuple[Work, float]] = current_rank().under_way
    under_way[ticket] = begun(current, inputs), perf_counter()
    return (np.array(ticket, np.int64),)


def begun(
    current: Node,
    inputs: Sequence[Array],
    out: Array | None = None,
    agreement: Agreement | None = None,
) -> Work:
    """Begin what a start is of; `inputs` are its operands, behind a ticket if it has one."""
    op = _OPS[current.op]
    *counts, operand = inputs[-OPERANDS.get(op.name, 1) :]
    return started(current, op, operand, counts, out, agreement)


def operands(start: Node) -> tuple[Node, ...]:
    """What a collective that is started reads, without the ticket before it."""
    return start.inputs[-OPERANDS.get(_OPS[start.op].name, 1) :]


def announced(start: Node) -> tuple[str, str] | None:
    """What is said of a start: in words, and the part that all ranks have to say alike."""
    attrs: GroupCallAttrs = start.attrs
    call = asked_of_group(_OPS[start.op], attrs, operand_of(start).type)
    if call is None:
        return None
    return words_of(call, attrs.group.axis, describe(start)), repr(call.agreed)


def _infer_wait(types: Sequence[TensorType], attrs: WaitAttrs) -> tuple[TensorType, ...]:
    return (attrs.result,)


def _waited(current: Node, inputs: Sequence[Array]) -> tuple[Array, ...]:
    rank, attrs = current_rank(), current.attrs
    work, began = rank.under_way.pop(int(inputs[0]))
    asked = perf_counter()
    result = work.wait()
    group = rank.group(attrs.call.group.key)
    over = work.over_at() or asked
    group.counters.waited(group.axis, perf_counter() - asked, max(min(over, asked) - began, 0.0))
    return (result_of(attrs, group.rank, result),)


def result_of(attrs: WaitAttrs, rank: int, came: Array) -> Array:
    """What a rank has of what came to it: nothing of what it sent, or is another's."""
    if attrs.op == SEND.name:
        return np.empty(0, came.dtype)
    is_here = attrs.op != REDUCE_TO.name or rank == attrs.call.root
    return came if is_here else np.zeros_like(came)


STARTS = {op: Op(f"start_{op.name}", "library", _infer_start, _started) for op in COLLECTIVES}
WAIT = Op("wait", "library", _infer_wait, _waited)
_OPS = {start: op for op, start in STARTS.items()}


def start(collective: Node, operands: Sequence[Node], before: Node | None) -> Node:
    """The ticket of a collective over its operands, started after the one with another ticket.

    That one is the first operand, so a walk from the results comes to it, and to what it needs,
    before it comes to what this one needs.
    """
    inputs = tuple(operands) if before is None else (before, *operands)
    return node(STARTS[collective.op], inputs, _numberless(collective))


def operand_of(start: Node) -> Node:
    """What a collective that is started is about."""
    return start.inputs[-1]


def wait(collective: Node, ticket: Node, operand: Node) -> Node:
    """The result of a collective that was started; what lies on a GPU was copied by then."""
    attrs = WaitAttrs(collective.op.name, _numberless(collective), collective.types[0])
    inputs = (ticket, operand) if operand.type.device == CPU else (ticket,)
    return node(WAIT, inputs, attrs)


def _numberless(collective: Node) -> GroupCallAttrs:
    """The attributes without the number, which tickets have replaced."""
    attrs: GroupCallAttrs = replace(collective.attrs, number=0)
    return attrs


def is_start(current: Node) -> bool:
    """True for what starts a collective."""
    return current.op in _OPS
