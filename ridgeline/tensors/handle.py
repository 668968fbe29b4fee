"""What is known of a tensor without computing: its shape, element type, place and strides."""

from __future__ import annotations

from typing import Any

from ridgeline.devices import CPU, device
from ridgeline.dtypes import DType
from ridgeline.functions.operands import axis_of
from ridgeline.record.cells import contiguous_strides, strides_of
from ridgeline.record.values import Handle


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


class Described(Handle):
    """Base of Tensor: its shape, element type and place."""

    __slots__ = ()

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
