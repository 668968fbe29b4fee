"""The frame in which vmap runs a function once, on one element that stands for all of them.

It is a capture like jit's, but what the function reads from outside keeps its nodes, so the graph
that comes out hangs together with the one around it: derivatives pass, and frames nest. Inside, a
shadow stands for every cell from outside; what was written to one is handed out at the end if it
is the same for all elements, and is an error otherwise.
"""

from __future__ import annotations

import weakref
from collections.abc import Callable, Hashable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from ridgeline import dtypes
from ridgeline.functions.operands import lift
from ridgeline.graph.node import Node, TensorType, leaf, topological
from ridgeline.graph.origins import describe, user_frame
from ridgeline.graph.passes.batch import BatchingError
from ridgeline.ops.elementwise import add, full_like, iota, mul
from ridgeline.ops.movement import broadcast_scalar
from ridgeline.tensors import execute
from ridgeline.tensors.cells import Cell, Rare, Track
from ridgeline.tensors.modes import modes
from ridgeline.tracing.capture import Capture
from ridgeline.tracing.guards import Lifted

if TYPE_CHECKING:
    from ridgeline.dtypes import DType
    from ridgeline.random import Generator
    from ridgeline.tensors.tensor import Tensor

_WORD = TensorType((), dtypes.uint64)


class Frame(Capture):
    """One call of vmap: the leaves that stand for one element, and what the function changed."""

    name = "vmap"

    def __init__(self, size: int, randomness: str) -> None:
        super().__init__()
        self.outer = modes.capture
        self.size, self.randomness = size, randomness
        self.batched: dict[Node, Node] = {}  # leaves, and the values over the batch
        self._starts: dict[Track, tuple[int, int]] = {}  # version and mode of shadows at first

    @contextmanager
    def inside(self) -> Iterator[None]:
        """Run code that sees one element."""
        before = modes.capture
        modes.capture = self
        try:
            yield
        finally:
            modes.capture = before

    def element(self, value: Node) -> Node:
        """A leaf for one element of a value whose leading axis is the batch."""
        kind = value.types[0]
        made = leaf(TensorType(kind.shape[1:], kind.dtype, kind.device))
        made.origins = value.origins
        self.batched[made] = value
        return made

    # ---- cells ----------------------------------------------------------------------------------

    def cell(self, cell: Cell) -> Cell:
        """What stands for a cell here: a shadow that starts with the same node."""
        if cell.capture is self:
            return cell
        shadow = self.shadows.get(cell)
        if shadow is None:
            source = self._outside(cell)
            if source.rare is not None and source.rare.shared is not None:
                execute.refresh(source)
            shadow = Cell(source.node, source.mode, self)
            shadow.version = source.version
            shadow.rare = _copied(source.rare)
            self._start(cell, shadow, source.version)
        assert isinstance(shadow, Cell)
        return shadow

    def track(self, track: Track) -> Track:
        """What stands for a track here."""
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
        if track.capture is not None:
            raise execute.LeakError(
                f"this tensor was made while {track.capture.name} traced another function",
                help="return it from that function",
            )

    def depends(self, node: Node) -> bool:
        """True where a value is not the same for all elements, or not known outside either."""
        if self._dependent([node]):
            return True
        return self.outer is not None and self.outer.depends(node)

    def _dependent(self, nodes: Iterable[Node]) -> set[Node]:
        """The nodes, and those below them, that differ from element to element."""
        found: set[Node] = set()
        for node in topological(nodes, lambda n: n.buffer is not None):
            if node in self.batched or any(source in found for source in node.inputs):
                found.add(node)
        return found

    # ---- gradients, numbers, random streams -----------------------------------------------------

    def read_grad(self, owner: Tensor) -> Tensor | None:
        """`.grad` as the function sees it."""
        found = self.gradients.get(id(owner))
        if found is not None:
            return found[1]
        if self.outer is not None:
            return self.outer.read_grad(owner)
        return owner._extra.grad if owner._extra is not None else None

    def check_backward(self, order: list[Node]) -> None:
        """What holds outside holds here."""
        if self.outer is not None:
            self.outer.check_backward(order)

    def number(self, name: Hashable, getter: Callable[[], float], value: float) -> Lifted:
        """A number that jit reads anew on every call; without jit, what it is now."""
        if self.outer is not None:
            return self.outer.number(name, getter, value)
        return Lifted(getter, value)

    def lifted(self, number: Lifted, dtype: DType) -> Node:
        """Such a number as a node."""
        if self.outer is not None:
            return self.outer.lifted(number, dtype)
        return lift(float(number.getter()), dtype)

    def watch(self, obj: Any) -> None:
        """Only jit has to know what a function depends on."""
        if self.outer is not None:
            self.outer.watch(obj)

    def require(self, holds: Callable[[], bool], text: str) -> None:
        """Only jit has to know what a function depends on."""
        if self.outer is not None:
            self.outer.require(holds, text)

    def random_blocks(self, generator: Generator, count: int) -> tuple[Node, Node]:
        """The key and the offset of a draw: one for all elements, or one for each."""
        if self.randomness == "error":
            frame = user_frame(2)
            place = f"{frame.f_code.co_filename}:{frame.f_lineno}" if frame is not None else ""
            raise BatchingError(
                "vmap does not know whether random numbers are the same for all elements",
                note=f"drawn at {place}" if place else "",
                help='pass randomness="different" or randomness="same" to vmap',
            )
        if self.randomness == "same":
            return self._take(generator, count)
        key, start = self._take(generator, count * self.size)
        ramp = iota((self.size,), 0, dtypes.uint64)
        steps = mul(ramp, full_like(ramp, count))
        return key, self.element(add(steps, broadcast_scalar(start, (self.size,))))

    def _take(self, generator: Generator, count: int) -> tuple[Node, Node]:
        with self._around():
            return generator.take(count)

    @contextmanager
    def _around(self) -> Iterator[None]:
        """Run code outside this frame."""
        before = modes.capture
        modes.capture = self.outer
        try:
            yield
        finally:
            modes.capture = before

    # ---- the end --------------------------------------------------------------------------------

    def finish(self, results: Sequence[Tensor]) -> None:
        """Hand out what the function changed, where it is the same for all elements."""
        written = {
            outer: shadow
            for outer, shadow in self.shadows.items()
            if isinstance(shadow, Cell) and shadow.version != self._starts[outer][0]
        }
        made = [cell for reference in self.made if (cell := reference()) is not None]
        assigned = [(o, v) for o, v in self.gradients.values() if o._track.capture is not self]
        nodes = [cell.node for cell in (*made, *written.values())]
        differing = self._dependent(nodes)
        for shadow in written.values():
            if shadow.node in differing:
                raise _written_outside(shadow.node, "a tensor from outside")
        for _, value in assigned:
            if value is not None and self.cell(value._cell).node in differing:
                raise _written_outside(value._cell.node, "the .grad of a tensor from outside")
        returned = {id(result._cell) for result in results}
        with self._around():
            for cell in made:
                if cell.node not in differing and id(cell) not in returned:
                    self._release(cell)
            self._apply(written)
            for owner, value in assigned:
                owner.grad = value

    def _release(self, cell: Cell) -> None:
        """A tensor made inside that is the same for all elements is an ordinary one outside."""
        cell.capture = self.outer
        if self.outer is not None:
            self.outer.made.append(weakref.ref(cell))
        elif cell.node.buffer is None:
            execute.record(cell)

    def _apply(self, written: dict[Track, Cell]) -> None:
        for outer, shadow in self.shadows.items():
            target = self._outside_track(outer)
            if outer in written:
                assert isinstance(target, Cell)
                target.set(shadow.node)  # type: ignore[attr-defined]
                execute.written(target)
            if shadow.mode != self._starts[outer][1]:
                target.mode = shadow.mode


def _copied(rare: Rare | None) -> Rare | None:
    """The rare part of a shadow: the same variable under the same key; no shared memory."""
    if rare is None:
        return None
    made = Rare()
    made.owner, made.key, made.key_version = rare.owner, rare.key, rare.key_version
    made.spent = rare.spent
    return made


def _written_outside(node: Node, what: str) -> BatchingError:
    place = describe(node)
    return BatchingError(
        f"a value that differs from element to element was written to {what}",
        note=f"it was made at {place}" if place else "",
        help="return the value from the function and write it outside of vmap",
    )
