"""The memory of cells: values computed on demand, and memory shared with NumPy.

A cell whose memory somebody outside may write to has no lasting node: each read is a fresh leaf,
and what is written to it is written there at once.
"""

from __future__ import annotations

import operator
import sys
import weakref
from collections.abc import Callable, Iterable
from functools import partial
from itertools import starmap
from typing import Any

import numpy as np

from ridgeline.atomic import Change, apply, steps
from ridgeline.devices import CPU
from ridgeline.dtypes import uint8
from ridgeline.errors import RidgelineError
from ridgeline.graph.node import Node, TensorType
from ridgeline.graph.origins import running
from ridgeline.record.cells import Cell, filled_leaf, rare
from ridgeline.record.recorder import hold, lend, realize, record
from ridgeline.record.turns import turn_of
from ridgeline.runtime.buffer import HostBuffer, space
from ridgeline.scalars import Array
from ridgeline.weak import WeakSet


def _held_once() -> int:
    """What `getrefcount` returns for an object held by one other and a local variable."""
    holder = [object()]
    probe = holder[0]
    return sys.getrefcount(probe)


_SOLE_OWNER = _held_once()  # not the same in every version of Python


def settled(cell: Cell) -> Node:
    """The node of a cell, computed if necessary, to look at its value."""
    running.looked = True
    if cell.types is not None:  # a result of deferred calls, which may be computed as it is
        realize([cell])
    node = refresh(cell)
    while node.buffer is None:  # again where another thread wrote to it in the meantime
        realize([cell])
        node = cell.node
    return node


def array_of(node: Node) -> Array:
    array: Array = node.buffer.array(node.dtype, node.shape)
    return array


class Export:
    """Memory of a tensor handed to NumPy; arrays made from it keep this object alive."""

    __slots__ = ("__weakref__", "buffer")

    def __init__(self, buffer: HostBuffer) -> None:
        self.buffer = buffer

    @property
    def __array_interface__(self) -> dict[str, Any]:
        return self.buffer.__array_interface__


# Leaves over memory that somebody outside may write to, as long as graphs hold them.
_open: WeakSet[Node] = WeakSet()


def reads_shared(nodes: Iterable[Node]) -> bool:
    """True if some nodes are leaves over memory that others may write to."""
    return bool(_open) and any(node in _open for node in nodes)


def may_change(node: Node) -> bool:
    """True for a tensor's node over memory that others may write to."""
    while node.inputs:
        node = node.inputs[0]
    return node in _open


class Shared:
    """Memory that others may read and write: an array of theirs, or our own, exported."""

    __slots__ = ("_view", "array", "buffer", "export", "leaves", "type")

    def __init__(
        self, type: TensorType, array: Array | None = None, export: Export | None = None
    ) -> None:
        self.type, self.array = type, array
        # through which all leaves borrow the array: so it is known how often we hold that
        dense = array is not None and array.flags.c_contiguous
        self._view = array.reshape(array.shape) if dense and array is not None else None
        # an export lives as long as somebody outside holds an array made from it
        self.buffer = None if export is None else export.buffer
        self.export = None if export is None else weakref.ref(export)
        self.leaves: WeakSet[Node] = WeakSet()

    def memory(self) -> Array | None:
        """The memory, or None if nobody else holds it any more."""
        if self.array is not None:
            return None if self._is_alone() else self.array
        export = self.export() if self.export is not None else None
        if export is None:
            return None
        shape: Any = self.type.shape
        return np.asarray(export).view(self.type.dtype.numpy).reshape(shape)

    def leaf(self) -> Node:
        """A fresh leaf over the memory, whose contents may have changed since the last one."""
        if self.array is not None:
            dense = np.ascontiguousarray(self.array) if self._view is None else self._view
            made = filled_leaf(self.type, HostBuffer.borrow(dense))
            if self._view is not None and not self._is_alone():
                _open.add(made)
        else:
            assert self.buffer is not None
            exported = self.export is not None and self.export() is not None
            memory = self.buffer.again() if exported else self.buffer.renewed()
            made = filled_leaf(self.type, memory)
            if exported:
                _open.add(made)
        self.leaves.add(made)
        return made

    def _is_alone(self) -> bool:
        """True for an array that nobody else holds, nor a view or an export of its memory."""
        if self._view is None or self.array is None:
            return False
        if self.array.base is None:
            return bool(self.array.flags.owndata) and self.holders() <= _ALONE
        owner = self.array.base
        if type(owner) is not np.ndarray or not owner.flags.owndata:
            return False
        del owner
        return all(map(operator.le, self.holders(), _VIEW_ALONE))

    def holders(self) -> tuple[int, int]:
        """How often the array is held, and what it is a view of."""
        array = self.array
        base = None if array is None else array.base
        return sys.getrefcount(array), 0 if base is None else sys.getrefcount(base)

    def stands_for(self, variable: Node) -> None:
        """A variable's own leaf lies in this memory, too."""
        self.leaves.add(variable)
        _open.add(variable)

    def write(self, memory: Array, value: Array, changes: list[Change]) -> Callable[[], object]:
        """C calls that change the memory to the value of `value`.

        Graphs that still read the memory, for gradients, keep its old contents.
        """
        if not memory.flags.writeable:
            raise RidgelineError("the NumPy array under this tensor is read-only")
        readers = list(self.leaves)
        if readers:
            before = adopt(memory)
            for reader in readers:
                changes.append((reader, "buffer", before))
        return partial(memory.__setitem__, ..., value)


def _holders_alone(make: Callable[[], Array]) -> tuple[int, int]:
    """The reference count of an array that only we hold."""
    shared = Shared(TensorType((1,), uint8), make())
    return shared.holders()


_ALONE = _holders_alone(lambda: np.zeros(1, np.uint8))
_VIEW_ALONE = _holders_alone(lambda: np.zeros(2, np.uint8)[:1])


def share(cell: Cell, shared: Shared) -> None:
    """From now on the cell's value is in memory that others may write to."""
    rare(cell).shared = shared


def refresh(cell: Cell) -> Node:
    """The node of a cell; over shared memory a new leaf, since its contents may have changed."""
    details = cell.rare
    shared = None if details is None else details.shared
    if details is None or shared is None:
        return cell.node
    made: Node = shared.leaf()
    details.key = None
    if shared.memory() is None:  # nobody shares it any more
        turn = turn_of(cell)
        with (attempt := turn.tried()):  # or a step is giving the cell another value
            if attempt.is_mine and details.shared is shared and turn_of(cell) is turn:
                cell.node = made
                details.shared = None
    return made


def written(cell: Cell) -> None:
    """Update shared memory after a cell was given a new value."""
    details = cell.rare
    if details is not None and details.shared is not None and cell.capture is None:
        memory = details.shared.memory()
        if memory is not None:
            realize([cell])  # and whatever still reads the memory as it was
            changes: list[Change] = []
            write = details.shared.write(memory, array_of(cell.node), changes)
            apply(steps((write,), changes))
            cell.node = details.shared.leaf()
            details.key = None
            return
        details.shared = None
    if cell.capture is None and cell.node.buffer is None:
        record(cell)


def note_write(
    cell: Cell, node: Node, changes: list[Change], calls: list[Callable[[], object]]
) -> Node:
    """The node that a cell will hold for a value that C calls compute.

    If the cell shares its memory, that gets the value too.
    """
    details = cell.rare
    shared = None if details is None else details.shared
    if shared is None:
        return node
    memory = shared.memory()
    if memory is None:
        changes.append((details, "shared", None))
        return node
    calls.append(shared.write(memory, array_of(node), changes))
    changes.append((details, "key", None))
    made: Node = shared.leaf()
    return made


def shared_memory(cell: Cell) -> Array:
    """The memory of a cell, shared from now on; no step changes the cell meanwhile."""
    details = rare(cell)
    while details.shared is not None:
        memory: Array | None = details.shared.memory()
        if memory is not None:
            return memory
        refresh(cell)
    node = settled(cell)
    lend(cell)
    buffer = node.buffer
    # memory that is not ours, or that another tensor or recorded work reads, is not given away
    held = sys.getrefcount(node) > _SOLE_OWNER or sys.getrefcount(buffer) > _SOLE_OWNER
    if buffer.borrowed or held:
        buffer = adopt(array_of(node))
    export = Export(buffer)
    shared = Shared(node.types[0], export=export)
    made = shared.leaf()
    # of another version: what variables have in graphs, over the memory of before, is read no more
    changes = (cell, "node", made), (details, "shared", shared), (cell, "version", cell.version + 1)
    apply(starmap(setattr, changes))
    memory = shared.memory()
    assert memory is not None
    return memory


def adopt(array: Array, device: str = CPU) -> Any:
    """A buffer of a device with a copy of an array."""
    hold(array.nbytes)
    return space(device).take_in(array)
