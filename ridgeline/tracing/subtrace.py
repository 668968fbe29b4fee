"""Nested tracing into the surrounding graph, as vmap and control flow do it.

An enclosure is a capture like jit's, but what the function reads from outside keeps its nodes, so
the graph that comes out hangs together with the one around it: derivatives pass, and enclosures
nest. Inside, a shadow stands for every cell from outside.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable
from typing import TYPE_CHECKING, Any

from ridgeline.atomic import Block, Switch
from ridgeline.errors import RidgelineError
from ridgeline.graph.node import Node, topological
from ridgeline.graph.sizes import Size
from ridgeline.record.captures import LeakError, check_held
from ridgeline.record.cells import Cell, Rare, Track
from ridgeline.record.memory import refresh
from ridgeline.record.modes import modes
from ridgeline.record.numbers import Lifted, lift
from ridgeline.tracing.capture import Capture

if TYPE_CHECKING:
    from ridgeline.dtypes import DType
    from ridgeline.functions.random import Generator
    from ridgeline.scalars import Array
    from ridgeline.tensors.tensor import Tensor


class Enclosure(Capture):
    """A capture whose graph continues the one outside; `own` are its own leaves."""

    def __init__(self) -> None:
        super().__init__()
        self.outer = modes.capture
        self.symbolic = self.outer is not None and self.outer.symbolic
        self.own: set[Node] = set()
        self._starts: dict[Track, tuple[int, int]] = {}  # version and mode of shadows at first

    def inside(self) -> Block:
        """Run code that is traced here."""
        return Switch(modes, capture=self)

    def cut(self, tensor: Tensor) -> None:
        """No graph can go on from a handle that is another one afterwards."""
        raise RidgelineError(
            f"a tensor from outside cannot be cut off, or made a variable, inside {self.name}",
            help="use detach()",
        )

    def written(self) -> dict[Track, Cell]:
        """The cells from outside that were written to, and their shadows."""
        return {
            outer: shadow
            for outer, shadow in self.shadows.items()
            if isinstance(shadow, Cell) and shadow.version != self._starts[outer][0]
        }

    # ---- cells ----------------------------------------------------------------------------------

    def sees(self, cell: Cell) -> None:
        """The form of memory from outside was asked for."""
        if self.outer is not None:
            self.outer.sees(cell)

    def cell(self, cell: Cell) -> Cell:
        """The shadow of a cell here, which starts with the same node."""
        if cell.capture is self:
            return cell
        shadow = self.shadows.get(cell)
        if shadow is None:
            source = self._outside(cell)
            shadow = Cell(refresh(source), source.mode, self)
            shadow.version = source.version
            shadow.rare = _copied(source.rare)
            self._start(cell, shadow, source.version)
        assert isinstance(shadow, Cell)
        return shadow

    def track(self, track: Track) -> Track:
        """The shadow of a track here."""
        if track.capture is self:
            return track
        if isinstance(track, Cell):
            return self.cell(track)
        shadow = self.shadows.get(track)
        if shadow is None:
            source = self._outside_track(track)
            shadow = Track(source.mode, self)
            shadow.rare = _copied(source.rare)
            self._start(track, shadow, 0)
        return shadow

    def _start(self, track: Track, shadow: Track, version: int) -> None:
        self.shadows[track] = shadow
        self._starts[track] = (version, shadow.mode)

    def _outside(self, cell: Cell) -> Cell:
        if self.outer is not None:
            return self.outer.cell(cell)
        self._check_outside(cell)
        return cell

    def _outside_track(self, track: Track) -> Track:
        if self.outer is not None:
            return self.outer.track(track)
        self._check_outside(track)
        return track

    def _check_outside(self, track: Track) -> None:
        check_held(track)
        if track.capture is not None:
            raise LeakError(
                f"this tensor was made while {track.capture.name} traced another function",
                help="return it from that function",
            )

    def depends(self, node: Node) -> bool:
        """True if a value is not known while the function is traced, here or outside."""
        if self.dependent([node]):
            return True
        return self.outer is not None and self.outer.depends(node)

    def dependent(self, nodes: Iterable[Node]) -> set[Node]:
        """The nodes, and those below them, that depend on leaves of this enclosure."""
        found: set[Node] = set()
        for node in topological(nodes, lambda n: n.buffer is not None):
            if node in self.own or any(source in found for source in node.inputs):
                found.add(node)
        return found

    # ---- gradients, numbers, streams -------------------------------------------------------------

    def read_grad(self, owner: Tensor) -> Tensor | None:
        """`.grad` as the function sees it."""
        found = self.gradients.get(id(owner))
        if found is not None:
            return found[1]
        if self.outer is not None:
            outside: Tensor | None = self.outer.read_grad(owner)
            return outside
        return owner._extra.grad if owner._extra is not None else None

    def check_backward(self, order: list[Node]) -> None:
        """What holds outside holds here."""
        if self.outer is not None:
            self.outer.check_backward(order)

    def set_number(self, name: Hashable, owner: Any, value: Any) -> None:
        """What holds outside holds here."""
        if self.outer is not None:
            self.outer.set_number(name, owner, value)

    def number(self, name: Hashable, getter: Callable[[], float], value: float) -> Any:
        """A number that jit reads anew on every call; without jit, what it is now."""
        if self.outer is not None:
            return self.outer.number(name, getter, value)
        return Lifted(getter, value)

    def lifted(self, number: Lifted, dtype: DType) -> Node:
        """Such a number as a node."""
        if self.outer is not None:
            return self.outer.lifted(number, dtype)
        return lift(float(number.getter()), dtype)

    def array(self, array: Array, dtype: DType) -> Node | None:
        """Outside of jit an array is what it is now."""
        return None if self.outer is None else self.outer.array(array, dtype)

    def lend(self, cell: Cell, array: Array) -> bool:
        """Here it is a tensor of its own, with what the array holds now."""
        return False

    def watch(self, obj: Any) -> None:
        """Only jit has to know what a function depends on."""
        if self.outer is not None:
            self.outer.watch(obj)

    def refuse(self, error: Exception) -> None:
        """What jit cannot trace it cannot trace here."""
        if self.outer is not None:
            self.outer.refuse(error)

    def require(self, holds: Callable[[], bool], text: str) -> None:
        """Only jit has to know what a function depends on."""
        if self.outer is not None:
            self.outer.require(holds, text)

    def take_outside(self, generator: Generator, count: Size) -> tuple[Node, Node]:
        with self.around():
            return generator.take(count)

    def around(self) -> Block:
        """Run code outside this frame."""
        return Switch(modes, capture=self.outer)


def _copied(rare: Rare | None) -> Rare | None:
    """The rare part of a shadow: the same variable under the same key; no shared memory."""
    if rare is None:
        return None
    made = Rare()
    made.owner, made.key, made.key_version = rare.owner, rare.key, rare.key_version
    made.steps, made.spent = rare.steps, rare.spent
    return made
