"""Capture: run a function once and record what it reads, computes and changes.

Cells that exist already are not touched: inside the capture a *shadow* stands for each, starting
as a fresh leaf. What the function reads becomes inputs of one graph; returned tensors, written
cells and assigned gradients become its outputs. An exception leaves everything as it was.
"""

from __future__ import annotations

import weakref
from collections.abc import Callable, Hashable, Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import TYPE_CHECKING, Any

from ridgeline import dtypes
from ridgeline.atomic import Change
from ridgeline.devices import CPU
from ridgeline.graph.node import Node, TensorType, leaf, topological
from ridgeline.graph.sizes import Size
from ridgeline.ops.elementwise import add, constant
from ridgeline.record.captures import CaptureError, LeakError, check_held
from ridgeline.record.cells import GRAPH, Cell, Rare, Step, Track
from ridgeline.record.numbers import Lifted
from ridgeline.tracing import guards
from ridgeline.tracing.outer_memory import OuterMemory

if TYPE_CHECKING:
    from ridgeline.dtypes import DType
    from ridgeline.functions.random import Generator
    from ridgeline.scalars import Array
    from ridgeline.tensors.tensor import Tensor
    from ridgeline.tracing.counted import CountedMasks
    from ridgeline.tracing.kept_state import Held

_WORD = TensorType((), dtypes.uint64)


@dataclass(frozen=True, slots=True, eq=False)
class CellInput:
    """A cell from outside, kept alive by what the guards cover."""

    cell: Cell


@dataclass(frozen=True, slots=True, eq=False)
class ArgumentInput:
    """The cell of a tensor among the leaves of the arguments."""

    index: int


@dataclass(frozen=True, slots=True, eq=False)
class GradientInput:
    """The cell of a tensor's `.grad`."""

    owner: Tensor


@dataclass(frozen=True, slots=True, eq=False)
class NumberInput:
    """A lifted number, read on every call."""

    getter: Callable[[], float]
    dtype: DType


@dataclass(frozen=True, slots=True, eq=False)
class RandomInput:
    """The seed or the position of a generator."""

    generator: Generator
    part: str  # "seed" or "offset"


@dataclass(frozen=True, slots=True, eq=False)
class ArrayInput:
    """A NumPy array of the user's, too large to guard by value: read on every call."""

    array: Array
    dtype: DType


@dataclass(frozen=True, slots=True, eq=False)
class StateInput:
    """The cell of a tensor that the function left in an object and reads there again."""

    held: Held
    number: int  # among the tensors that are held there


Source = (
    CellInput | ArgumentInput | GradientInput | NumberInput | RandomInput | ArrayInput | StateInput
)


@dataclass(frozen=True, slots=True)
class GradientForm:
    """How a `.grad` shows its memory: another one of the same shape may be a view, or shared."""

    type: TensorType  # of the memory
    steps: tuple[Step, ...]
    first: int  # the number of the first gradient that was read with the same memory


@dataclass(slots=True)
class _Stream:
    """A generator inside a capture: its inputs, and the number of blocks drawn so far."""

    key: Node
    offset: Node
    used: Size = 0


class SizesNeeded(Exception):
    """Raised if a function traced with plain sizes selects by values: it is traced again."""


@dataclass(slots=True, eq=False)
class Setting:
    """How a lifted number is read on every call, unless the function writes it."""

    getter: Callable[[], float]

    def __call__(self) -> float:
        return self.getter()


class Capture:
    """What one traced call has read and changed so far."""

    name = "jit"  # what traces, for messages

    def __init__(self, types: Mapping[int, TensorType] = MappingProxyType({})) -> None:
        self._types = types  # of arguments with symbolic sizes, by place
        self.symbolic = bool(types)
        self.inputs: dict[Node, Source] = {}
        self.shadows: dict[Track, Track] = {}
        self._seen: set[Cell] = set()  # cells from outside whose form was asked for
        self.made: list[weakref.ref[Cell]] = []  # cells of tensors made inside
        self.tracks: list[weakref.ref[Track]] = []  # detached handles made inside
        self.detached: list[Change] = []  # what handles from outside were before `detach_()`
        self.gradients: dict[int, tuple[Tensor, Tensor | None]] = {}  # assigned inside
        self.gradients_read: dict[int, tuple[Tensor, GradientForm | None]] = {}  # at the start
        self._gradient_memory: dict[Cell, int] = {}  # whose number among them comes first
        self.streams: dict[Generator, _Stream] = {}
        self.watched: dict[int, tuple[Any, Any]] = {}  # object and its snapshot when first seen
        self.requirements: list[tuple[Callable[[], bool], str]] = []
        self.refusal: Exception | None = None  # why the function cannot be traced
        self._numbers: dict[Hashable, Any] = {}  # lifted ones, and those that the function wrote
        self._number_owners: list[Any] = []
        self._number_inputs: dict[tuple[int, DType], tuple[Lifted, Node]] = {}
        self._origin: dict[Cell, Source] = {}  # cells that are reached in a particular way
        self.counted: CountedMasks | None = None  # where sizes may follow from values
        self.memory = OuterMemory(self.inputs)
        self.lent: dict[Cell, Array] = {}  # tensors over arrays that were made inside

    # ---- cells ----------------------------------------------------------------------------------

    def argument(self, cell: Cell, index: int) -> None:
        """The cell belongs to an argument: a replay reads that of its own argument."""
        self._origin.setdefault(cell, ArgumentInput(index))

    def cell(self, cell: Cell) -> Cell:
        """The shadow of a cell inside this capture."""
        if cell.capture is self:
            return cell
        shadow = self.shadows.get(cell)
        shared = None if cell.rare is None else cell.rare.shared
        if shadow is not None:
            if shared is None:
                self.memory.tensor_again(cell)
            else:
                self.memory.again(cell)
        else:
            check_held(cell)
            if cell.capture is not None:
                raise LeakError(
                    "this tensor was made while jit traced another function",
                    help="return it from the jitted function",
                )
            source = self.source(cell)
            kind = cell.node.types[0]
            if isinstance(source, ArgumentInput):
                kind = self._types.get(source.index, kind)
            start = leaf(kind)
            start.origins = cell.node.origins
            shadow = Cell(start, cell.mode, self)
            shadow.rare = _copied(cell.rare)
            if shared is None:
                self.memory.tensor(cell, shadow, start)
            else:
                self.memory.cell(cell, shadow, start, shared)
            lent = self.lent.get(cell)
            if lent is None:
                self.inputs[start] = source
            elif lent.nbytes > guards.SMALL_ARRAY:
                self.inputs[start] = ArrayInput(lent, kind.dtype)
            else:  # guards compare it by value
                self.memory.constant(start)
            self.shadows[cell] = shadow
        assert isinstance(shadow, Cell)
        return shadow

    def hold(self, held: Held) -> bool:
        """Read some tensors anew in every call; False if more is known of one of them."""
        for tensor in held.tensors:
            shadow = self.shadows.get(tensor._cell)
            written = isinstance(shadow, Cell) and shadow.version
            differentiated = id(tensor) in self.gradients or id(tensor) in self.gradients_read
            if tensor._cell in self._origin or written or differentiated:
                return False
        for number, tensor in enumerate(held.tensors):
            source = self._origin[tensor._cell] = StateInput(held, number)
            for node, known in self.inputs.items():
                if isinstance(known, CellInput) and known.cell is tensor._cell:
                    self.inputs[node] = source
        self.require(held.fits, f"{held} is of the same kind")
        return True

    def source(self, cell: Cell) -> Source:
        """How a replay finds a cell from outside."""
        return self._origin.get(cell) or CellInput(cell)

    def track(self, track: Track) -> Track:
        """The shadow of a track inside this capture."""
        if track.capture is self:
            return track
        if isinstance(track, Cell):
            return self.cell(track)
        shadow = self.shadows.get(track)
        if shadow is None:
            shadow = Track(track.mode, self)
            shadow.rare = _copied(track.rare)
            self.shadows[track] = shadow
        return shadow

    def sees(self, cell: Cell) -> None:
        """The form of memory from outside was asked for: its shape, type or place."""
        self._seen.add(cell)

    def outer_cells(self) -> set[Cell]:
        """The cells on which the trace depends beside those that every call finds anew."""
        read = {source.cell for source in self.inputs.values() if isinstance(source, CellInput)}
        return read | {cell for cell in self._seen if cell not in self._origin}

    def cut(self, tensor: Tensor) -> None:
        """A handle from outside is about to be detached, or to be a variable of its own."""
        self.detached.append((tensor, "_track", tensor._track))

    def close(self) -> None:
        """The trace is over: handles that it made on outer memory become ordinary ones."""
        shadows = {id(shadow) for shadow in self.shadows.values()}
        for reference in self.tracks:
            track = reference()
            if track is not None and id(track) not in shadows:
                track.capture = None

    def depends(self, node: Node) -> bool:
        """True if a value is not known while tracing."""
        order = topological([node], lambda n: n.buffer is not None)
        return any(n in self.inputs for n in order)

    # ---- gradients ------------------------------------------------------------------------------

    def read_grad(self, owner: Tensor) -> Tensor | None:
        """`.grad` as the traced program sees it."""
        found = self.gradients.get(id(owner))
        if found is not None:
            return found[1]
        before = owner._extra.grad if owner._extra is not None else None
        if owner._track.capture is None and id(owner) not in self.gradients_read:
            self.gradients_read[id(owner)] = owner, self._form(before)
        if before is not None:
            self._origin.setdefault(before._cell, GradientInput(owner))
        return before

    def _form(self, gradient: Tensor | None) -> GradientForm | None:
        """What the trace assumes of a gradient that it read."""
        if gradient is None:
            return None
        first = self._gradient_memory.setdefault(gradient._cell, len(self.gradients_read))
        return GradientForm(gradient._cell.node.types[0], gradient._steps, first)

    def write_grad(self, owner: Tensor, value: Tensor | None) -> None:
        """Assign `.grad` inside the traced program."""
        self.gradients[id(owner)] = (owner, value)

    def check_backward(self, order: list[Node]) -> None:
        """Refuse gradients from the traced function into graphs recorded outside."""
        outside = {
            shadow.node: cell
            for cell, shadow in self.shadows.items()
            if isinstance(cell, Cell) and isinstance(shadow, Cell) and cell.mode == GRAPH
        }
        for node in order:
            if node in outside and node in self.inputs:
                raise CaptureError(
                    "backward() inside jit would have to go on through a tensor that was computed "
                    "outside",
                    note=f"the tensor is {node.types[0]}",
                    help="detach() it before the call, or compute it inside the jitted function",
                )

    # ---- numbers, random streams, guards --------------------------------------------------------

    def set_number(self, name: Hashable, owner: Any, value: Any) -> None:
        """A number under a name was written while the function is traced."""
        before = self._numbers.get(name)
        if isinstance(before, Lifted) and isinstance(before.getter, Setting):
            # what was computed with it before is of the old one, which is gone when that runs
            setting, old = before.getter, before.value
            getter, setting.getter = setting.getter, lambda: old
            self.require(lambda: getter() == old, f"a number that the function sets is {old!r}")
        self._numbers[name] = value
        self._number_owners.append(owner)  # or another's name might be the same one day

    def number(self, name: Hashable, getter: Callable[[], float], value: float) -> Any:
        """The lifted number of a name: one input, however often it is read."""
        found = self._numbers.get(name)
        if found is None:
            found = self._numbers[name] = Lifted(Setting(getter), value)
        return found

    def lifted(self, number: Lifted, dtype: DType) -> Node:
        """A number as an input that is read on every call."""
        key = (id(number), dtype)
        found = self._number_inputs.get(key)
        if found is None:
            made = leaf(TensorType((), dtype))
            self.inputs[made] = NumberInput(number.getter, dtype)
            found = self._number_inputs[key] = (number, made)  # the number keeps its id
        return found[1]

    def array(self, array: Array, dtype: DType) -> Node | None:
        """A large array as an input; None for one that guards compare by value."""
        if array.nbytes <= guards.SMALL_ARRAY:
            return None
        made = leaf(TensorType(array.shape, dtype))
        self.inputs[made] = ArrayInput(array, dtype)
        self.memory.array(made, array, dtype)
        return made

    def lend(self, cell: Cell, array: Array) -> bool:
        """A tensor over an array is made inside, and sees what Python writes to the array."""
        self.lent[cell] = array
        return True

    def random_blocks(self, generator: Generator, count: Size) -> tuple[Node, Node]:
        """The key and the offset of the next blocks of a generator's stream."""
        stream = self.streams.get(generator)
        if stream is None:
            stream = self.streams[generator] = _Stream(leaf(_WORD), leaf(_WORD))
            self.inputs[stream.key] = RandomInput(generator, "seed")
            self.inputs[stream.offset] = RandomInput(generator, "offset")
        start = stream.offset
        if stream.used:
            start = add(start, constant(stream.used, dtypes.uint64))
        stream.used = stream.used + count
        return stream.key, start

    def watch(self, obj: Any) -> None:
        """The trace depends on the attributes of a module or an optimizer."""
        if id(obj) not in self.watched:
            self.watched[id(obj)] = (obj, guards.snapshot(obj))

    def refuse(self, error: Exception) -> None:
        """Give up: the function cannot be traced, whatever its code does about the error."""
        if self.refusal is None:
            self.refusal = error

    def require(self, holds: Callable[[], bool], text: str) -> None:
        """The trace is valid only while `holds()` is true."""
        self.requirements.append((holds, text))

    def places(self, mask: Node) -> list[Node] | None:
        """Index vectors of a mask's true elements, of unknown length, if it may be unknown."""
        counted = self.counted
        if counted is None or mask.type.device != CPU:
            return None
        if not counted.begin():
            needed = SizesNeeded()
            self.refuse(needed)
            raise needed
        found = counted.add(mask)
        self.inputs |= {n: ArgumentInput(i) for i, n in enumerate(found.places, found.first)}
        return list(found.places)


def _copied(rare: Rare | None) -> Rare | None:
    """The rare part of a shadow: the same variable, with a key of its own."""
    if rare is None:
        return None
    made = Rare()
    made.owner, made.steps, made.spent = rare.owner, rare.steps, rare.spent
    return made
