"""What a tensor knows without computing: shape, element type, device and strides."""

from __future__ import annotations

from typing import Any

from ridgeline.devices import CPU, device
from ridgeline.dtypes import DType
from ridgeline.functions.operands import axis_of
from ridgeline.layouts import ORDERS, contiguous_format, memory_format, strided
from ridgeline.record.cells import contiguous_strides, strides_of
from ridgeline.record.modes import modes
from ridgeline.record.values import Handle
from ridgeline.tensors.storage import fits_format


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
        return device(self._memory.device)

    @property
    def is_cuda(self) -> bool:
        """True where the values are on an NVIDIA GPU."""
        return self._memory.device != CPU

    @property
    def is_cpu(self) -> bool:
        """True where the values are in the host's memory."""
        return self._memory.device == CPU

    def get_device(self) -> int:
        """The number of the GPU, or -1."""
        index = self.device.index
        return -1 if index is None else index

    # what no tensor here is: a value of another kind of device, quantized, nested, or lazy
    is_meta = is_mps = is_xpu = is_xla = is_mkldnn = is_quantized = is_nested = False
    is_sparse = is_sparse_csr = False
    layout = strided
    name = None

    def is_conj(self) -> bool:
        """False: a conjugate is computed."""
        return False

    is_neg = is_inference = is_shared = is_conj

    def is_nonzero(self) -> bool:
        """The truth of the one element."""
        return bool(self)

    def is_signed(self) -> bool:
        """True for types with negative numbers."""
        return self.dtype.kind not in ("bool", "uint")

    def is_same_size(self, other: Described) -> bool:
        """True for equal shapes."""
        return self.shape == other.shape

    @property
    def ndim(self) -> int:
        """The number of axes."""
        return len(self._type.shape)

    def dim(self) -> int:
        """The number of axes."""
        return len(self._type.shape)

    ndimension = dim

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
        shape = self._memory.shape
        found = strides_of(shape, self._steps) or contiguous_strides(self._type.shape)
        return found if dim is None else found[dim]

    def is_contiguous(self, memory_format: memory_format = contiguous_format) -> bool:
        """True where the elements lie in row-major order, or in that of a format."""
        if memory_format in ORDERS:
            return fits_format(self, memory_format)
        wanted = contiguous_strides(self._type.shape)
        pairs = zip(self.shape, self.stride(), wanted)
        return 0 in self.shape or all(own == want or size == 1 for size, own, want in pairs)

    @property
    def _version(self) -> int:
        """How often the memory was written."""
        if modes.call_recorder is not None and self._cell.capture is None:
            modes.call_recorder.opens("how often a tensor was written is asked for")
        return self._cell.version
