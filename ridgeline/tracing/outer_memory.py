"""Memory that a traced function reads and that others write to before it runs.

What a tensor or an array held when it was read is kept while the function is traced. Where it holds
something else the next time, or when the trace ends, what was computed before goes on with what was
kept, and the trace stands for that call alone. The other way round there is no value to be seen: an
array is not read after the trace wrote to a tensor that lies in it.

Tensors may be written to by other threads. Where the function cannot be replayed (one that waits
for threads cannot), what was read before such a write is what was there, too.
"""

from __future__ import annotations

import zlib
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from ridgeline.atomic import Switch
from ridgeline.graph.node import Node, leaf
from ridgeline.graph.origins import user_line
from ridgeline.record.captures import CaptureError
from ridgeline.record.cells import PLAIN, Cell
from ridgeline.record.memory import Shared, adopt, settled
from ridgeline.record.modes import modes
from ridgeline.scalars import Array, cast

if TYPE_CHECKING:
    from ridgeline.dtypes import DType

_MOST = 1 << 26  # bytes that one trace keeps; of what is larger it knows a change, and refuses


@dataclass(frozen=True, slots=True)
class _Read:
    """A leaf for a tensor, and what the tensor was then."""

    shadow: Cell
    start: Node
    version: int
    value: Node


@dataclass(slots=True)
class _Image:
    """The contents of memory when a leaf was made for it."""

    memory: Callable[[], Array | None]
    dtype: DType
    content: Array | None  # None where it is too large to be kept
    checksum: int

    def holds(self) -> bool:
        """True if the memory is unchanged, or nobody outside has it any more."""
        now = self.memory()
        if now is None:
            return True
        if self.content is None:
            return _checksum(now) == self.checksum
        return _bytes(now) == _bytes(self.content)


class OuterMemory:
    """The leaves of one trace for memory that Python may write to."""

    def __init__(self, inputs: dict[Node, Any]) -> None:
        self._inputs = inputs  # of the trace
        self._images: dict[Node, _Image] = {}
        self._latest: dict[Cell, tuple[Cell, Node, Shared]] = {}  # shadows, and their last leaves
        self._values: dict[Cell, _Read] = {}  # of tensors in memory of their own
        self._older: list[_Read] = []  # and what was read of them before they changed
        self._kept = 0
        self.changed = ""  # why the trace stands for this call alone

    def tensor(self, cell: Cell, shadow: Cell, start: Node) -> None:
        """A shadow begins with a leaf for a cell in memory of its own."""
        version = cell.version  # before the value, or that might be an older one
        self._values[cell] = _Read(shadow, start, version, cell.node)

    def tensor_again(self, cell: Cell) -> None:
        """A cell in memory of its own is read or written once more."""
        read = self._values.get(cell)
        if read is None or cell.version == read.version or read.shadow.version:
            return
        self._older.append(read)
        read.shadow.node = made = self._another(read.start)
        if read.shadow.rare is not None:
            read.shadow.rare.key = None
        self.tensor(cell, read.shadow, made)

    def _another(self, start: Node) -> Node:
        made = leaf(start.type)
        made.origins = start.origins
        if start in self._inputs:
            self._inputs[made] = self._inputs[start]
        return made

    def array(self, node: Node, array: Array, dtype: DType) -> None:
        """A leaf stands for an array."""
        self._images[node] = self._image(lambda: array, dtype)

    def cell(self, cell: Cell, shadow: Cell, start: Node, shared: Shared) -> None:
        """A shadow begins with a leaf for the memory of a cell."""
        self._check_unwritten(shared.memory(), cell)
        self._images[start] = self._image(shared.memory, start.dtype)
        self._latest[cell] = shadow, start, shared

    def again(self, cell: Cell) -> None:
        """A cell is read or written again: what Python wrote there since is seen."""
        known = self._latest.get(cell)
        if known is None:
            return
        shadow, start, shared = known
        self._check_unwritten(shared.memory(), cell)
        if self._images[start].holds():
            return
        if shadow.version:
            raise _both(user_line())
        made = self._another(start)
        self._settle(start)
        shadow.node = made
        if shadow.rare is not None:
            shadow.rare.key = None
        self._images[made] = self._image(shared.memory, made.dtype)
        self._latest[cell] = shadow, made, shared
        if made not in self._inputs:
            self._keep(made)

    def end(self, replayed: bool) -> None:
        """The function has returned: leaves whose memory has changed keep what they were.

        One that is replayed waits for nobody: to other threads, it reads all when it runs.
        """
        for cell, read in self._values.items():
            if cell.version != read.version and not read.shadow.version:
                self._older.append(read)
        for read in () if replayed else self._older:
            if read.start in self._inputs:
                read.start.buffer = _buffer(read.value)
                del self._inputs[read.start]
        self._values.clear()
        self._older.clear()
        for shadow, start, _ in self._latest.values():
            if shadow.version and not self._images[start].holds():
                raise _both("")
        for node, image in self._images.items():
            if node in self._inputs and not image.holds():
                self._settle(node)

    def read_by_python(self, array: Any) -> None:
        """Python looks at an array."""
        if self._latest and isinstance(array, np.ndarray):
            self._check_unwritten(array, None)

    def constant(self, node: Node) -> None:
        """A leaf stands for what is there now, in every call."""
        self._keep(node)

    def _image(self, memory: Callable[[], Array | None], dtype: DType) -> _Image:
        now = memory()
        if now is None:
            return _Image(memory, dtype, None, 0)
        self._kept += now.nbytes
        if self._kept > _MOST:
            return _Image(memory, dtype, None, _checksum(now))
        return _Image(memory, dtype, now.copy(), 0)

    def _settle(self, node: Node) -> None:
        """The leaf keeps the old contents of its memory."""
        line = user_line()
        if node in self._inputs:
            self._keep(node)
            del self._inputs[node]
        where = f" (seen at {line})" if line else ""
        self.changed = self.changed or f"an array changes under a tensor that was read{where}"

    def _keep(self, node: Node) -> None:
        image = self._images[node]
        if image.content is None:
            raise CaptureError(
                "an array changes while jit traces a function that has read it as a tensor",
                note=f"the tensor is {node.type}, too large for what it held to be kept",
                help="write to the tensor instead of the array, or to the array outside of the "
                "function",
            )
        node.buffer = adopt(np.ascontiguousarray(cast(image.content, image.dtype)))

    def _check_unwritten(self, memory: Array | None, own: Cell | None) -> None:
        """Raise if memory is read that the trace has written to by another way."""
        if memory is None:
            return
        for cell, (shadow, _, shared) in self._latest.items():
            if shadow.version and cell is not own:
                written = shared.memory()
                if written is not None and np.may_share_memory(written, memory):
                    raise CaptureError(
                        "an array is read after jit traced a write to a tensor that lies in it",
                        note=f"at {user_line()}",
                        help="read the tensor instead, or the array outside of the traced function",
                    )


def _buffer(value: Node) -> Any:
    """The memory of a value, computed if need be."""
    if value.buffer is None:
        with Switch(modes, capture=None):
            return settled(Cell(value, PLAIN, None)).buffer
    return value.buffer


def _both(line: str) -> CaptureError:
    return CaptureError(
        "an array changes after jit traced a write to the tensor that lies in it",
        note=f"at {line}" if line else "",
        help="write to the tensor instead, or to the array outside of the traced function",
    )


def _bytes(array: Array) -> bytes:
    return array.tobytes()


def _checksum(array: Array) -> int:
    return zlib.crc32(np.ascontiguousarray(array).reshape(-1).view(np.uint8).data)
