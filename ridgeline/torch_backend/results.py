"""What a call gives back: values that a program computes, and how torch's tensors are made of them.

A result may be new memory, a view of memory that another result shows too, one of the tensors that
went in, or a view of one.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias

import torch

from ridgeline.graph.node import Node, TensorType
from ridgeline.ops.movement import permute
from ridgeline.record.cells import Cell, strides_of
from ridgeline.record.values import read
from ridgeline.tensors.tensor import Tensor
from ridgeline.torch_backend.capture import CallError, CapturedGraph, Input, shown
from ridgeline.torch_backend.forms import dense_order, dtype_of


@dataclass(frozen=True, slots=True)
class ComputedValue:
    """A value that the program computes."""

    node: Node
    stored: Node  # the same with its axes in the order in which they lie in memory
    view: tuple[int, ...] | None  # how memory is permuted to show it
    tracked: bool  # gradients flow through it


@dataclass(frozen=True, slots=True)
class ValueItself:
    """A result that is a value."""

    number: int


@dataclass(frozen=True, slots=True)
class PartOfValue:
    """A result that shows a part of a value, which others show too."""

    number: int
    size: tuple[int, ...]
    stride: tuple[int, ...]
    offset: int


@dataclass(frozen=True, slots=True)
class InputItself:
    """A result that is a tensor that went in."""

    place: int


@dataclass(frozen=True, slots=True)
class PartOfInput:
    """A result that shows a tensor that went in."""

    place: int
    size: tuple[int, ...]
    stride: tuple[int, ...]
    offset: int  # from where that tensor begins
    detached: bool


@dataclass(frozen=True, slots=True)
class Constant:
    """A result that is no tensor."""

    value: Any


@dataclass(frozen=True, slots=True)
class Several:
    """A tuple or a list of results."""

    kind: type
    parts: tuple[Recipe, ...]


Recipe: TypeAlias = ValueItself | PartOfValue | InputItself | PartOfInput | Constant | Several


@dataclass(frozen=True, slots=True)
class Written:
    """A tensor that went in and that the graph has written to."""

    place: int
    number: int  # of the value that it holds afterwards, as it lies in memory


@dataclass(slots=True, eq=False)
class Results:
    """All that a call computes, gives back and writes."""

    values: list[ComputedValue]
    recipes: list[Recipe]
    written: list[Written]


def results_of(captured: CapturedGraph) -> Results:
    """How the outputs of a captured graph are made."""
    with captured.frame.inside():
        return _Described(captured).results()


class _Described:
    def __init__(self, captured: CapturedGraph) -> None:
        self._captured = captured
        self._values: list[ComputedValue] = []
        self._places: dict[Cell, list[int]] = {}
        for place, given in enumerate(captured.inputs):
            if given is not None:
                self._places.setdefault(given.cell, []).append(place)
        self._known: dict[int, Recipe] = {}  # by the identity of a tensor
        self._bases: dict[Cell, int] = {}  # values that several results show
        self._readers: dict[Cell, set[int]] = {}
        for value, _ in captured.outputs:
            for tensor in _tensors(value):
                self._readers.setdefault(tensor._cell, set()).add(id(tensor))

    def results(self) -> Results:
        recipes = [self._recipe(value, node) for value, node in self._captured.outputs]
        written = []
        for place, given in enumerate(self._captured.inputs):
            if given is not None and given.is_written and given.owner == place:
                written.append(Written(place, self._after(given)))
        return Results(self._values, recipes, written)

    def _after(self, given: Input) -> int:
        """What the memory of an input holds afterwards."""
        node = given.cell.node
        # only where gradients are off does torch let anybody write to a variable
        tracked = given.tensor.requires_grad and not (
            given.form.requires_grad and given.form.is_leaf
        )
        return self._add(ComputedValue(node, node, None, tracked))

    def _add(self, value: ComputedValue) -> int:
        self._values.append(value)
        return len(self._values) - 1

    def _recipe(self, value: Any, node: Any) -> Recipe:
        if isinstance(value, tuple | list):
            parts = shown(node) if node is not None else None
            theirs = parts if isinstance(parts, tuple | list) else [None] * len(value)
            made = [self._tensor(v, node, t) for v, t in zip(value, theirs)]
            return Several(list if isinstance(value, list) else tuple, tuple(made))
        return self._tensor(value, node, None if node is None else shown(node))

    def _tensor(self, value: Any, node: Any, theirs: Any) -> Recipe:
        if not isinstance(value, Tensor):
            return Constant(value)
        known = self._known.get(id(value))
        if known is None:
            known = self._known[id(value)] = self._described(value, node, theirs)
        return known

    def _described(self, value: Tensor, node: Any, theirs: Any) -> Recipe:
        cell = value._cell
        for place in self._places.get(cell, ()):
            given = self._captured.inputs[place]
            if given is not None and given.tensor is value:
                return InputItself(place)
        if cell in self._places:
            return self._part_of_given(value, self._places[cell][0], node, theirs)
        if len(self._readers[cell]) > 1:
            shared = self._part_of_made(value, cell)
            if shared is not None:
                return shared
        return ValueItself(self._add(self._laid_out(value, theirs)))

    def _part_of_given(self, value: Tensor, place: int, node: Any, theirs: Any) -> Recipe:
        """A view of an input, through strides that torch says."""
        captured = self._captured
        mine = shown(captured.placeholders[place])
        given = captured.inputs[place]
        assert given is not None
        if not (isinstance(theirs, torch.Tensor) and isinstance(mine, torch.Tensor)):
            raise CallError(node, "a view of an input, of which torch says no strides")
        if dtype_of(theirs.dtype) != given.form.dtype:
            raise CallError(node, "an input seen as another element type")
        numbers = captured.symbols.numbers
        size, stride = numbers(theirs.shape), numbers(theirs.stride())
        starts = numbers([theirs.storage_offset(), mine.storage_offset()])
        if None in (*size, *stride, *starts):
            raise CallError(node, "a view whose strides are not known")
        detached = given.form.requires_grad and not value.requires_grad
        offset = starts[0] - starts[1]  # type: ignore[operator]  # no None is among them
        return PartOfInput(place, tuple(size), tuple(stride), offset, detached)  # type: ignore[arg-type]

    def _part_of_made(self, value: Tensor, cell: Cell) -> Recipe | None:
        """A view of memory that several results show; None where no strides express it."""
        shape = cell.node.shape
        stride = strides_of(shape, value._steps)
        offset = _offset(shape, value._steps)
        if stride is None or offset is None or value.dtype != cell.node.dtype:
            return None
        if cell not in self._bases:
            tracked = any(
                tensor.requires_grad
                for output, _ in self._captured.outputs
                for tensor in _tensors(output)
                if tensor._cell is cell
            )
            self._bases[cell] = self._add(ComputedValue(cell.node, cell.node, None, tracked))
        number = self._bases[cell]
        if not value._steps:
            return ValueItself(number)
        size = tuple(int(s) for s in value.shape)
        return PartOfValue(number, size, tuple(int(s) for s in stride), offset)

    def _laid_out(self, value: Tensor, theirs: Any) -> ComputedValue:
        """A value of its own, as torch would lay it out."""
        node, rank = read(value), len(value.shape)
        order = None
        if isinstance(theirs, torch.Tensor):
            strides = self._captured.symbols.numbers(theirs.stride())
            if None not in strides:
                order = dense_order(tuple(map(int, value.shape)), strides)  # type: ignore[arg-type]
        if order is None or order == tuple(range(rank)):
            return ComputedValue(node, node, None, value.requires_grad)
        back = tuple(order.index(axis) for axis in range(rank))
        return ComputedValue(node, permute(node, order), back, value.requires_grad)


def _tensors(value: Any) -> list[Tensor]:
    if isinstance(value, tuple | list):
        return [tensor for part in value for tensor in _tensors(part)]
    return [value] if isinstance(value, Tensor) else []


def _offset(shape: Sequence[Any], steps: Sequence[Any]) -> int | None:
    """Where a view begins in memory, in elements; None where only a gather says it."""
    offset = 0
    for count, (op, attrs) in enumerate(steps):
        if op.name == "slice":
            strides = strides_of(tuple(shape), steps[:count])
            if strides is None:
                return None
            offset += sum(int(start) * int(by) for start, by in zip(attrs.starts, strides))
        elif op.name not in ("reshape", "permute", "broadcast"):
            return None
    return offset


def type_of(value: ComputedValue) -> TensorType:
    """The type of a value as it lies in memory."""
    return value.stored.types[0]
