"""The inputs and effects of a trace, and how each is found in a live call."""

from __future__ import annotations

from collections.abc import Sequence, Set
from dataclasses import dataclass
from typing import Any
from weakref import ref

import numpy as np

from ridgeline import dtypes
from ridgeline.graph.node import Node, TensorType
from ridgeline.graph.origins import running
from ridgeline.graph.sizes import Size
from ridgeline.record import memory
from ridgeline.record.captures import foreign
from ridgeline.record.cells import CUT, GRAPH, LEAF, PLAIN, Cell, Track, filled_leaf, rare
from ridgeline.record.memory import adopt
from ridgeline.record.numbers import Lifted
from ridgeline.record.values import read
from ridgeline.runtime.buffer import HostBuffer
from ridgeline.scalars import cast
from ridgeline.tensors.tensor import Tensor, alias, holding
from ridgeline.tracing.capture import (
    ArgumentInput,
    ArrayInput,
    Capture,
    CellInput,
    GradientInput,
    NumberInput,
    RandomInput,
    Source,
    StateInput,
)


@dataclass(frozen=True, slots=True)
class Fresh:
    """A returned tensor or a gradient: a new tensor over output number `output`."""

    output: int
    type: TensorType
    mode: int
    spent: bool = False  # backward() ran through it inside: gradients do not flow on

    @property
    def tracked(self) -> bool:
        """True where gradients flow on through the result."""
        return self.mode == GRAPH and not self.spent


@dataclass(frozen=True, slots=True)
class Given:
    """A returned tensor that existed before the call, or a view of one."""

    source: Source | None  # how its cell is found again
    tensor: Tensor
    argument: int | None  # among the arguments, when it is an argument itself
    mode: int | None = None  # how a handle that was detached inside stands to differentiation
    gradient: Fresh | None = None  # the `.grad` of a handle that was made a variable inside


@dataclass(frozen=True, slots=True)
class Argument:
    """A returned object that is no tensor, and that the call was given."""

    index: int


@dataclass(frozen=True, slots=True)
class CellWrite:
    """A cell that the call wrote to."""

    source: Source | ref[Cell]
    output: int
    type: TensorType
    mode: int
    spent: bool = False  # backward() ran through it inside: gradients do not flow on


@dataclass(frozen=True, slots=True)
class GradientWrite:
    """A `.grad` that the call assigned: None, a new tensor, or one that existed."""

    owner: Tensor
    argument: int | None  # when the owner is an argument
    value: Fresh | Tensor | None


@dataclass(slots=True)
class Tracked:
    """Outputs through which gradients flow on, as graphs over the trace's inputs."""

    outputs: dict[int, Node]  # by output number
    saved: dict[int, Node]  # what their backward reads, by output number
    keys: list[tuple[Node, Source, Track]]  # nodes that stand for variables
    inputs: dict[Node, Source]


@dataclass(slots=True)
class Effects:
    """Everything that a replay sets, in order."""

    writes: list[CellWrite]
    gradients: list[GradientWrite]
    modes: list[tuple[Track, int]]
    drawn: list[tuple[Any, Size]]  # generators, and how many blocks were drawn


def fresh(spec: Fresh, nodes: Sequence[Node]) -> Tensor:
    made = holding(nodes[spec.output], GRAPH if spec.mode == GRAPH else PLAIN)
    if spec.spent:
        rare(made._cell).spent = True
        running.let_go += 1
    return made


def result_of(spec: Any, nodes: Sequence[Node], leaves: Sequence[Any]) -> Any:
    """One leaf of what a call returns."""
    if isinstance(spec, Fresh):
        return fresh(spec, nodes)
    if isinstance(spec, Lifted):
        return spec.getter()
    if isinstance(spec, Argument):
        return leaves[spec.index]
    return given(spec, nodes, leaves) if isinstance(spec, Given) else spec


def given(spec: Given, nodes: Sequence[Node], leaves: Sequence[Any]) -> Tensor:
    if spec.argument is not None:
        found: Tensor = leaves[spec.argument]
        return found
    if spec.source is None:
        return spec.tensor
    made = alias(spec.tensor)
    made._cell, made._seen = live_cell(spec.source, leaves), None
    if isinstance(spec.source, ArgumentInput) and spec.mode is None:
        made._track = leaves[spec.source.index]._track
    else:
        made._track = Track(CUT, None)
    if spec.mode == LEAF:
        made.requires_grad_()
    if spec.gradient is not None:
        made.grad = fresh(spec.gradient, nodes)
    return made


def live_cell(source: Source, leaves: Sequence[Any]) -> Cell:
    """The cell of an input in this call."""
    if isinstance(source, CellInput):
        return source.cell
    if isinstance(source, ArgumentInput):
        cell: Cell = leaves[source.index]._cell
        return cell
    if isinstance(source, StateInput):
        return source.held.cell(source.number)
    assert isinstance(source, GradientInput)
    gradient = source.owner.grad
    assert gradient is not None, "the guards saw to it that there is a gradient"
    return gradient._cell


class LiveNumber:
    """A number that every call reads anew; its memory is kept for the next call."""

    __slots__ = ("_last", "_source")

    def __init__(self, source: NumberInput) -> None:
        self._source = source
        self._last: tuple[Any, HostBuffer] | None = None

    def buffer(self) -> HostBuffer:
        """The number as it is now."""
        value = self._source.getter()
        last = self._last  # one read: several threads may be here
        if last is not None and last[0] is value:
            return last[1]
        made = _number(value, self._source)
        if type(value) in (float, int, bool, complex):  # what cannot change
            self._last = value, made
        return made


def _number(value: Any, source: NumberInput) -> HostBuffer:
    return HostBuffer.borrow(np.array(value, source.dtype.numpy))


def live_buffer(source: Source, leaves: Sequence[Any]) -> HostBuffer:
    """The value of an input in this call."""
    if isinstance(source, NumberInput):
        return _number(source.getter(), source)
    if isinstance(source, ArrayInput):
        return HostBuffer.borrow(np.ascontiguousarray(cast(source.array, source.dtype)))
    if isinstance(source, RandomInput):
        seed, offset = source.generator.get_state()
        return HostBuffer.borrow(np.array(seed if source.part == "seed" else offset, np.uint64))
    return settled(live_cell(source, leaves))


def settled(cell: Cell) -> HostBuffer:
    """The buffer of a cell's value, computed if need be."""
    if cell.capture is not None and cell.node.buffer is None:
        foreign(cell, cell, None)
    found: HostBuffer = memory.settled(cell).buffer
    return found


def live_node(source: Source, leaves: Sequence[Any]) -> Node:
    """The node of an input in this call."""
    if isinstance(source, ArrayInput):
        buffer = adopt(live_buffer(source, leaves).array(source.dtype, source.array.shape))
        return filled_leaf(TensorType(source.array.shape, source.dtype), buffer)
    if isinstance(source, NumberInput | RandomInput):
        kind = source.dtype if isinstance(source, NumberInput) else None
        buffer = live_buffer(source, leaves)
        return filled_leaf(TensorType((), kind or dtypes.uint64), buffer)
    return live_cell(source, leaves).node


def argument_index(value: Any, leaves: Sequence[Any]) -> int | None:
    """At which place this very object was given."""
    for index, leaf in enumerate(leaves):
        if leaf is value:
            return index
    return None


def track_source(capture: Capture, track: Track, leaves: Sequence[Any]) -> Source:
    """How the cell under a track is found again."""
    if isinstance(track, Cell):
        return capture.source(track)
    for index, leaf in enumerate(leaves):
        if isinstance(leaf, Tensor) and leaf._track is track:
            return ArgumentInput(index)
    owner = track.rare.owner() if track.rare is not None and track.rare.owner is not None else None
    assert owner is not None, "a variable's tensor is alive while it is traced"
    return CellInput(owner._cell)


def return_spec(
    capture: Capture,
    tensor: Tensor,
    leaves: Sequence[Any],
    outputs: list[Node],
    donated: Set[int] = frozenset(),
) -> Fresh | Given:
    outside = tensor._cell.capture is None and tensor._cell not in capture.lent
    source = capture.source(tensor._cell) if outside else None
    gone = isinstance(source, ArgumentInput) and source.index in donated
    argument = argument_index(tensor, leaves)
    if argument is not None and not gone:
        return Given(None, tensor, argument)
    if source is not None and not gone:
        inside = tensor._track.capture is not None
        # another handle on an argument (a slice of all of it) follows the argument
        known = tensor._cell in capture.shadows and (inside or tensor._steps)
        followed = known or isinstance(source, ArgumentInput)
        mode = tensor._track.mode if inside else None
        gradient = _gradient_inside(capture, tensor, outputs) if mode == LEAF else None
        return Given(source if followed else None, tensor, None, mode, gradient)
    node = read(tensor)
    outputs.append(node)
    track = tensor._resolved()[1]
    spent = track.rare is not None and track.rare.spent
    return Fresh(len(outputs) - 1, node.types[0], track.mode, spent)


def _gradient_inside(capture: Capture, owner: Tensor, outputs: list[Node]) -> Fresh | None:
    """The gradient that backward() left in a variable made inside."""
    value = capture.gradients.get(id(owner), (owner, None))[1]
    return None if value is None else _new_value(value, outputs)


def gradient_write(
    capture: Capture,
    owner: Tensor,
    value: Tensor | None,
    leaves: Sequence[Any],
    outputs: list[Node],
) -> GradientWrite | None:
    argument = argument_index(owner, leaves)
    if value is None:
        return GradientWrite(owner, argument, None)
    before = owner._extra.grad if owner._extra is not None else None
    if value is before:
        return None  # the same tensor, written in place
    if value._cell.capture is None and value._cell not in capture.lent:
        return GradientWrite(owner, argument, value)
    return GradientWrite(owner, argument, _new_value(value, outputs))


def _new_value(value: Tensor, outputs: list[Node]) -> Fresh:
    """A tensor made inside, as one more output."""
    node = read(value)
    outputs.append(node)
    return Fresh(len(outputs) - 1, node.types[0], value._resolved()[1].mode)
