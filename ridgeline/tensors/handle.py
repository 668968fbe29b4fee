"""Handle: what a tensor is before it can do anything, and what is known without computing.

A handle is a cell (the memory and the node that stands for its value), a chain of view steps, and
a track (how the value stands to differentiation).
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from ridgeline.devices import CPU, device
from ridgeline.dtypes import DType
from ridgeline.functions.operands import axis_of
from ridgeline.graph.node import Node, TensorType
from ridgeline.tensors import execute
from ridgeline.tensors.cells import (
    Cell,
    Step,
    Track,
    apply_steps,
    contiguous_strides,
    strides_of,
)
from ridgeline.tensors.modes import modes

if TYPE_CHECKING:
    from ridgeline.tensors.differentiable import Extra


class Size(tuple[int, ...]):
    """A shape: a tuple of ints that prints like torch's."""

    __slots__ = ()

    def numel(self) -> int:
        """The number of elements."""
        total = 1
        for size in self:
            total *= size
        return total

    def __repr__(self) -> str:
        return f"ridgeline.Size({list(self)})"


class Handle:
    """Base of Tensor: a view of a cell, with its shape, element type and place."""

    __slots__ = ("__weakref__", "_cell", "_extra", "_seen", "_steps", "_track")
    _cell: Cell
    _track: Track  # the cell itself, unless the handle was detached
    _steps: tuple[Step, ...]
    _seen: tuple[Node, Node] | None  # the last base a view was applied to, and the result
    _extra: Extra | None

    @property
    def _base(self) -> Node:
        """The node whose type all of the memory has; symbolic sizes are those of the trace."""
        cell, capture = self._cell, modes.capture
        if capture is None or cell.capture is capture or not capture.symbolic:
            return cell.node
        return capture.cell(cell).node

    def _resolved(self) -> tuple[Cell, Track]:
        """The cell and the track; inside a capture, what stands for them there."""
        cell, track, capture = self._cell, self._track, modes.capture
        if cell.capture is capture and track.capture is capture:
            return cell, track
        return execute.foreign(cell, track, capture)

    @property
    def _type(self) -> TensorType:
        base = self._base
        if not self._steps:
            return base.types[0]
        seen = self._seen if base is self._cell.node else None
        return seen[1].types[0] if seen is not None else apply_steps(base, self._steps).types[0]

    @property
    def shape(self) -> Size:
        """The sizes of the axes."""
        return Size(self._type.shape)  # type: ignore[arg-type]

    @property
    def dtype(self) -> DType:
        """The element type."""
        return self._type.dtype

    @property
    def device(self) -> device:
        """Where the values are."""
        return device(self._cell.node.types[0].device)

    @property
    def is_cuda(self) -> bool:
        """True where the values are on an NVIDIA GPU."""
        return self._cell.node.types[0].device != CPU

    @property
    def ndim(self) -> int:
        """The number of axes."""
        return len(self._type.shape)

    def dim(self) -> int:
        """The number of axes."""
        return len(self._type.shape)

    def size(self, dim: int | None = None) -> Any:
        """The shape, or the size of one axis."""
        return self.shape if dim is None else self.shape[axis_of(dim, len(self.shape))]

    def numel(self) -> int:
        """The number of elements."""
        return self.shape.numel()

    nelement = numel

    def element_size(self) -> int:
        """Bytes of one element."""
        return self.dtype.itemsize

    @property
    def itemsize(self) -> int:
        """Bytes of one element."""
        return self.dtype.itemsize

    @property
    def nbytes(self) -> int:
        """Bytes of all elements."""
        return self.numel() * self.dtype.itemsize

    def is_floating_point(self) -> bool:
        """True for real floating types."""
        return self.dtype.is_floating_point

    def is_complex(self) -> bool:
        """True for complex types."""
        return self.dtype.is_complex

    def stride(self, dim: int | None = None) -> Any:
        """Steps in memory, in elements."""
        shape = self._base.types[0].shape
        found = strides_of(shape, self._steps) or contiguous_strides(self._type.shape)
        return found if dim is None else found[dim]

    def is_contiguous(self) -> bool:
        """True where the elements lie in row-major order."""
        wanted = contiguous_strides(self._type.shape)
        pairs = zip(self.shape, self.stride(), wanted)
        return 0 in self.shape or all(own == want or size == 1 for size, own, want in pairs)

    @property
    def _version(self) -> int:
        """How often the memory was written."""
        return self._cell.version
