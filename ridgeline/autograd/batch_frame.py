"""The capture in which vmap runs a function once, on one element in place of all.

What was written inside to a tensor from outside is handed out at the end if it is the same for all
elements, and is an error otherwise.
"""

from __future__ import annotations

import weakref
from collections.abc import Sequence
from typing import TYPE_CHECKING

from ridgeline import dtypes
from ridgeline.graph.node import Node, TensorType, leaf
from ridgeline.graph.origins import describe, user_line
from ridgeline.graph.sizes import Size
from ridgeline.graph.vectorize import BatchingError
from ridgeline.ops.elementwise import add, full_like, iota, mul
from ridgeline.ops.movement import broadcast_scalar
from ridgeline.record import memory, recorder
from ridgeline.record.cells import Cell, Track
from ridgeline.tracing.subtrace import Enclosure

if TYPE_CHECKING:
    from ridgeline.functions.random import Generator
    from ridgeline.tensors.tensor import Tensor


class Frame(Enclosure):
    """One call of vmap: the leaves that stand for one element, and what the function changed."""

    name = "vmap"

    def __init__(self, size: int, randomness: str) -> None:
        super().__init__()
        self.size, self.randomness = size, randomness
        self.batched: dict[Node, Node] = {}  # leaves, and the values over the batch

    def element(self, value: Node) -> Node:
        """A leaf for one element of a value whose leading axis is the batch."""
        kind = value.types[0]
        made = leaf(TensorType(kind.shape[1:], kind.dtype, kind.device))
        made.origins = value.origins
        self.batched[made] = value
        self.own.add(made)
        return made

    # ---- random streams -------------------------------------------------------------------------

    def random_blocks(self, generator: Generator, count: Size) -> tuple[Node, Node]:
        """The key and the offset of a draw: one for all elements, or one for each."""
        if self.randomness == "error":
            line = user_line()
            raise BatchingError(
                "vmap does not know whether random numbers are the same for all elements",
                note=f"drawn at {line}" if line else "",
                help='pass randomness="different" or randomness="same" to vmap',
            )
        if self.randomness == "same":
            return self.take_outside(generator, count)
        key, start = self.take_outside(generator, count * self.size)
        ramp = iota((self.size,), 0, dtypes.uint64)
        steps = mul(ramp, full_like(ramp, count))
        return key, self.element(add(steps, broadcast_scalar(start, (self.size,))))

    # ---- the end --------------------------------------------------------------------------------

    def finish(self, results: Sequence[Tensor]) -> None:
        """Hand out what the function changed, where it is the same for all elements."""
        written = self.written()
        made = [cell for reference in self.made if (cell := reference()) is not None]
        assigned = [(o, v) for o, v in self.gradients.values() if o._track.capture is not self]
        nodes = [cell.node for cell in (*made, *written.values())]
        differing = self.dependent(nodes)
        for shadow in written.values():
            if shadow.node in differing:
                raise _written_outside(shadow.node, "a tensor from outside")
        for _, value in assigned:
            if value is not None and self.cell(value._cell).node in differing:
                raise _written_outside(value._cell.node, "the .grad of a tensor from outside")
        returned = {id(result._cell) for result in results}
        with self.around():
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
            recorder.record(cell)

    def _apply(self, written: dict[Track, Cell]) -> None:
        for outer, shadow in self.shadows.items():
            target = self._outside_track(outer)
            if outer in written:
                assert isinstance(target, Cell)
                target.set(shadow.node)  # type: ignore[attr-defined]
                memory.written(target)
            if shadow.mode != self._starts[outer][1]:
                target.mode = shadow.mode


def _written_outside(node: Node, what: str) -> BatchingError:
    line = describe(node)
    return BatchingError(
        f"a value that differs from element to element was written to {what}",
        note=f"it was made at {line}" if line else "",
        help="return the value from the function and write it outside of vmap",
    )
