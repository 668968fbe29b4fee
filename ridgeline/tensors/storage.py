"""Storage-related methods of tensors, and those that make a handle show other memory."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Self, cast

from ridgeline.errors import GradientError, ShapeError
from ridgeline.layouts import ORDERS, memory_format
from ridgeline.record import mutation
from ridgeline.record.captures import CaptureError
from ridgeline.record.cells import LEAF, rare
from ridgeline.record.memory import settled
from ridgeline.record.modes import modes
from ridgeline.record.upcalls import upcalls
from ridgeline.record.values import H, Handle, shared_array

if TYPE_CHECKING:
    from ridgeline.tensors.tensor import Tensor


class Storage:
    """The memory under a tensor and its views."""

    def __init__(self, owner: Stored) -> None:
        self._owner = owner

    def _buffer(self) -> Any:
        return settled(self._owner._cell).buffer

    def data_ptr(self) -> int:
        """Where the memory begins."""
        buffer = self._buffer()
        return int(getattr(buffer, "address", None) or buffer.device_address)

    def nbytes(self) -> int:
        """Bytes of the memory."""
        return int(self._buffer().nbytes)

    def size(self) -> int:
        """Elements of the memory, or bytes of an untyped one."""
        return self.nbytes()

    __len__ = size


class TypedStorage(Storage):
    """The memory, counted in elements."""

    def size(self) -> int:
        """Elements of the memory."""
        return self.nbytes() // cast("Tensor", self._owner).element_size()

    __len__ = size


class Stored(Handle):
    """Base of Tensor: where its memory is, and in which order its axes lie there."""

    __slots__ = ()

    def untyped_storage(self) -> Storage:
        """The memory under this tensor, in bytes."""
        return Storage(self)

    def storage(self) -> TypedStorage:
        """The memory under this tensor, in elements."""
        return TypedStorage(self)

    def data_ptr(self) -> int:
        """Where the first element lies now; writing may give a tensor other memory."""
        if not self._steps or cast("Tensor", self).is_cuda:
            return Storage(self).data_ptr()
        return int(shared_array(cast("Tensor", self).detach()).__array_interface__["data"][0])

    def storage_offset(self) -> int:
        """How many elements of the memory lie before the first of this tensor."""
        size = cast("Tensor", self).element_size()
        return (self.data_ptr() - Storage(self).data_ptr()) // size

    def is_pinned(self, device: Any = None) -> bool:
        """True where copies to a GPU read the memory itself."""
        return not cast("Tensor", self).is_cuda and settled(self._cell).buffer.device_reads

    def record_stream(self, stream: Any) -> None:
        """Nothing: memory waits for the streams that use it by itself."""

    def resize_(self, *sizes: Any, memory_format: Any = None) -> Self:
        """Another shape for this handle; what it has room for stays in order, the rest is 0."""
        own = cast("Tensor", self)
        wanted = tuple(sizes[0]) if len(sizes) == 1 and not isinstance(sizes[0], int) else sizes
        if own.requires_grad:
            raise GradientError("a tensor that requires gradients cannot be resized")
        flat, room = own.reshape(-1), own.new_zeros(wanted)
        if flat.numel() >= room.numel():
            return show(self, flat[: room.numel()].reshape(wanted), "resize_")
        room.view(-1)[: flat.numel()].copy_(flat)
        return show(self, room, "resize_")

    def resize_as_(self, other: Tensor) -> Self:
        """The shape of another tensor for this handle."""
        return self.resize_(other.shape)

    def apply_(self, callable: Callable[[Any], Any]) -> Self:
        """Each element becomes what a function of Python makes of it: slow, for tests."""
        own = cast("Tensor", self)
        return self._filled([callable(value) for value in own.detach().reshape(-1).tolist()])

    def map_(self, tensor: Tensor, callable: Callable[[Any, Any], Any]) -> Self:
        """Each element becomes what a function makes of it and of that of another tensor."""
        own = cast("Tensor", self)
        others = tensor.detach().expand_as(own).reshape(-1).tolist()
        values = own.detach().reshape(-1).tolist()
        return self._filled([callable(*pair) for pair in zip(values, others, strict=True)])

    def _filled(self, values: list[Any]) -> Self:
        """This tensor with other elements, of which gradients know nothing."""
        own = cast("Tensor", self)
        if own.requires_grad:
            raise GradientError(
                "a function of Python's has no gradient", help="use x.detach().clone() first"
            )
        return cast("Self", own.copy_(own.new_tensor(values).reshape(own.shape)))

    def fill_diagonal_(self, fill_value: Any, wrap: bool = False) -> Self:
        """Write one value along the main diagonal; with `wrap`, again below a tall matrix."""
        own = cast("Tensor", self)
        rows, columns = own.shape[0], own.shape[-1]
        if own.dim() < 2 or (own.dim() > 2 and len(set(own.shape)) > 1):
            raise ShapeError(f"fill_diagonal_ needs a matrix or equal sizes, got {own.shape}")
        if own.dim() > 2:
            for index in range(rows):
                own[(index,) * own.dim()] = fill_value
            return self
        for first in range(0, rows if wrap else min(rows, 1), columns + 1):
            own[first:].diagonal().fill_(fill_value)
        return self


def in_format(source: Tensor, wanted: memory_format | None) -> Tensor:
    """A tensor whose axes lie in memory in the order of a format; itself where they do."""
    order = ORDERS.get(wanted) if wanted is not None else None
    if order is None:
        return source
    if source.dim() != len(order):
        raise ShapeError(f"{wanted} is for {len(order)} axes, not for shape {list(source.shape)}")
    inverse = tuple(order.index(axis) for axis in range(len(order)))
    turned = source.permute(order)
    return source if turned.is_contiguous() else turned.contiguous().permute(inverse)


def fits_format(source: Any, wanted: memory_format) -> bool:
    """Whether the axes of a tensor lie in memory in the order of a format."""
    order = ORDERS[wanted]
    return source.dim() == len(order) and bool(source.permute(order).is_contiguous())


def show(target: H, view: Tensor, what: str) -> H:
    """Let a handle show what another one does, as `x.unsqueeze_(0)` asks for."""
    if modes.capture is not None and target._track.capture is None:
        raise CaptureError(
            f"{what} cannot give a tensor from outside another shape inside jit",
            help=f"go on with the result of {what.rstrip('_')}()",
        )
    if target._track.mode == LEAF:
        if modes.gradients:
            raise GradientError(
                f"{what} on a leaf tensor that requires gradients",
                help="wrap it in `with no_grad():`, or write to x.data",
            )
        cast("Tensor", target).data = view.detach()
        return target
    if modes.capture is None:
        left_behind(target)
    target._cell, target._track = view._cell, view._track
    target._steps, target._seen = view._steps, view._seen
    return target


def left_behind(target: Handle) -> None:
    """A handle is about to show other memory: compiled code that reads the old one ends."""
    mutation.bump()
    rare(target._cell).left = mutation.epoch.value


def turning(name: str) -> Callable[..., Any]:
    """The method of a view with a trailing underscore: the handle itself shows the view."""

    def method(self: Tensor, *args: Any, **kwargs: Any) -> Tensor:
        return show(self, getattr(self, name)(*args, **kwargs), f"{name}_")

    method.__name__ = method.__qualname__ = f"{name}_"
    method.__doc__ = f"Let this tensor show what `{name}` gives."
    return method


def sparse_method(name: str) -> Callable[..., Any]:
    """A method that has to do with sparse tensors, whose module loads when one is called."""

    def method(self: Tensor, *args: Any, **kwargs: Any) -> Any:
        return upcalls.sparse_module().METHODS[name](self, *args, **kwargs)

    method.__name__ = method.__qualname__ = name
    return method


SPARSE = (
    "coalesce", "crow_indices", "indices", "to_dense", "to_sparse", "to_sparse_coo",
    "to_sparse_csr", "values",
)  # fmt: skip
TURNED = ("as_strided", "squeeze", "swapaxes", "swapdims", "t", "transpose", "unsqueeze")
