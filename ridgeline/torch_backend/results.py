"""What a call gives back: values that a program computes, and how torch's tensors are made of them.

A result may be new memory, a view of memory that another result shows too, one of the tensors that
went in, or a view of one.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any, TypeAlias

import torch

from ridgeline.graph.node import Node
from ridgeline.graph.passes.legalize.specialize_sizes import Settled
from ridgeline.graph.sizes import Size
from ridgeline.ops.movement import permute
from ridgeline.record.cells import Cell, strides_of
from ridgeline.record.values import read
from ridgeline.tensors.tensor import Tensor
from ridgeline.torch_backend.capture import CallError, CapturedGraph, Input
from ridgeline.torch_backend.forms import dense_order, dtype_of
from ridgeline.torch_backend.scalars import shown
from ridgeline.torch_backend.strided import offset_of
from ridgeline.torch_backend.tensor_programs import Result


@dataclass(frozen=True, slots=True)
class ComputedValue:
    """A value that the program computes."""

    node: Node
    stored: Node  # the same with its axes in the order in which they lie in memory
    shown: Result  # how the program gives it
    tracked: bool  # gradients flow through it

    @classmethod
    def of(
        cls, node: Node, tracked: bool, stored: Node | None = None,
        view: tuple[int, ...] | None = None,
    ) -> ComputedValue:  # fmt: skip
        """A value, which lies in the order of its axes or as it is stored."""
        stored = node if stored is None else stored
        return cls(node, stored, Result(stored.types[0], view), tracked)


@dataclass(frozen=True, slots=True)
class ValueItself:
    """A result that is a value."""

    number: int


@dataclass(frozen=True, slots=True)
class PartOfValue:
    """A result that shows a part of a value, which others show too."""

    number: int
    size: tuple[Size, ...]
    stride: tuple[Size, ...]
    offset: Size


@dataclass(frozen=True, slots=True)
class SpreadValue:
    """A result whose elements lie with gaps between them, where torch's do."""

    number: int
    size: tuple[Size, ...]
    stride: tuple[Size, ...]


@dataclass(frozen=True, slots=True)
class InputItself:
    """A result that is a tensor that went in."""

    place: int


@dataclass(frozen=True, slots=True)
class PartOfInput:
    """A result that shows a tensor that went in."""

    place: int
    size: tuple[Size, ...]
    stride: tuple[Size, ...]
    offset: Size  # from where that tensor begins
    detached: bool
    dtype: torch.dtype | None  # as which it is seen, if that is another one


@dataclass(frozen=True, slots=True)
class Constant:
    """A result that is no tensor."""

    value: Any


@dataclass(frozen=True, slots=True)
class Several:
    """A tuple or a list of results."""

    kind: type
    parts: tuple[Recipe, ...]


Recipe: TypeAlias = (
    ValueItself | PartOfValue | SpreadValue | InputItself | PartOfInput | Constant | Several
)


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

    def at(self, settled: Settled) -> Results:
        """The same with numbers for sizes that were not known."""
        values = [replace(value, shown=settled.value(value.shown)) for value in self.values]
        return Results(values, [settled.value(r) for r in self.recipes], self.written)


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
        return self._add(ComputedValue.of(node, tracked))

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
        if len(self._readers[cell]) > 1 or self._repeats(theirs):
            shared = self._part_of_made(value, cell)
            if shared is not None:
                return shared
        strides = self._strides(theirs)
        shape = tuple(value.shape)
        number = self._add(self._laid_out(value, strides))
        if strides is not None and _has_gaps(shape, strides):
            return SpreadValue(number, shape, strides)
        return ValueItself(number)

    def _strides(self, theirs: Any) -> tuple[Size, ...] | None:
        """How torch's result lies, if that is known."""
        if not isinstance(theirs, torch.Tensor) or theirs.layout is not torch.strided:
            return None
        strides = self._captured.symbols.sizes(theirs.stride())
        return None if None in strides else tuple(strides)  # type: ignore[arg-type]

    def _repeats(self, theirs: Any) -> bool:
        """True for a result of torch's that shows elements at several places, as `expand` gives."""
        if not isinstance(theirs, torch.Tensor):
            return False
        sizes = self._captured.symbols.sizes(theirs.shape)
        strides = self._captured.symbols.sizes(theirs.stride())
        return any(by == 0 and size != 1 for size, by in zip(sizes, strides))

    def _part_of_given(self, value: Tensor, place: int, node: Any, theirs: Any) -> Recipe:
        """A view of an input, through strides that torch says."""
        captured = self._captured
        mine = shown(captured.placeholders[place])
        given = captured.inputs[place]
        assert given is not None
        if not (isinstance(theirs, torch.Tensor) and isinstance(mine, torch.Tensor)):
            raise CallError(node, "a view of an input, of which torch says no strides")
        other = theirs.dtype if dtype_of(theirs.dtype) != given.form.dtype else None
        if other is not None and mine.storage_offset() != 0:
            raise CallError(node, "a part of memory seen as another element type")
        sizes = captured.symbols.sizes
        size, stride = sizes(theirs.shape), sizes(theirs.stride())
        starts = sizes([theirs.storage_offset(), mine.storage_offset()])
        if None in (*size, *stride, *starts):
            raise CallError(node, "a view whose strides are not known")
        detached = given.form.requires_grad and not value.requires_grad
        if not captured.state.gradients:  # a view of a variable still says that it requires one
            detached = detached and not theirs.requires_grad
        offset = starts[0] - starts[1]  # type: ignore[operator]  # no None is among them
        return PartOfInput(place, tuple(size), tuple(stride), offset, detached, other)  # type: ignore[arg-type]

    def _part_of_made(self, value: Tensor, cell: Cell) -> Recipe | None:
        """A view of memory that several results show; None where no strides express it."""
        shape = cell.node.shape
        stride = strides_of(shape, value._steps)
        offset = offset_of(shape, value._steps)
        if stride is None or offset is None or value.dtype != cell.node.dtype:
            return None
        if cell not in self._bases:
            tracked = any(
                tensor.requires_grad
                for output, _ in self._captured.outputs
                for tensor in _tensors(output)
                if tensor._cell is cell
            )
            self._bases[cell] = self._add(ComputedValue.of(cell.node, tracked))
        number = self._bases[cell]
        if not value._steps:
            return ValueItself(number)
        return PartOfValue(number, tuple(value.shape), tuple(stride), offset)

    def _laid_out(self, value: Tensor, strides: tuple[Size, ...] | None) -> ComputedValue:
        """A value of its own, as torch would lay it out."""
        node, rank = read(value), len(value.shape)
        order = None if strides is None else dense_order(tuple(value.shape), strides)  # type: ignore[arg-type]
        if order is None or order == tuple(range(rank)):
            return ComputedValue.of(node, value.requires_grad)
        back = tuple(order.index(axis) for axis in range(rank))
        return ComputedValue.of(node, value.requires_grad, permute(node, order), back)


def _has_gaps(shape: tuple[Size, ...], strides: tuple[Size, ...]) -> bool:
    """True for elements that lie apart, each at a place of its own."""
    if 0 in shape or dense_order(shape, strides) is not None:  # type: ignore[arg-type]
        return False
    end: Size = 1
    for by, size in sorted(zip(strides, shape)):
        if size == 1:
            continue
        if by < end:
            return False
        end = by * (size - 1) + end
    return True


def _tensors(value: Any) -> list[Tensor]:
    if isinstance(value, tuple | list):
        return [tensor for part in value for tensor in _tensors(part)]
    return [value] if isinstance(value, Tensor) else []
