"""Storages: runs of bytes in a file, and the tensors over them, tied as they were.

Tensors over one storage are views of one memory here too, each with its offset and strides. Where
a storage belongs to one dense tensor, that tensor has the memory for itself.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, TypeAlias

import numpy as np

from ridgeline.devices import CPU, device
from ridgeline.dtypes import DType
from ridgeline.errors import InputFileError
from ridgeline.nn.parameter import Buffer, Parameter
from ridgeline.scalars import Array
from ridgeline.tensors.creation import from_numpy
from ridgeline.tensors.tensor import Tensor, from_array

MapLocation: TypeAlias = (
    str | device | Mapping[str, str] | Callable[["FileStorage", str], Any] | None
)
Bytes = Callable[[], Array]  # reads a storage's bytes


@dataclass(eq=False)
class FileStorage:
    """The bytes of one storage and where they go; read when the first tensor lies over them."""

    dtype: DType | None  # None: bytes, and each tensor says its type
    nbytes: int
    location: str
    read: Bytes | None  # None: they come later in the file, so tensors over it are not made yet
    owned: bool  # may its memory be kept, or is it the file's
    _memory: dict[DType, Tensor] = field(default_factory=dict)

    def cpu(self) -> FileStorage:
        """On the host; for functions given as `map_location`."""
        return self._at(CPU)

    def cuda(self, index: int | None = None) -> FileStorage:
        """On a GPU; for functions given as `map_location`."""
        return self._at("cuda" if index is None else f"cuda:{index}")

    def _at(self, target: str) -> FileStorage:
        self.location = target
        return self

    def whole(self, dtype: DType, size: tuple[int, ...]) -> Tensor:
        """All of the memory in a shape; the first tensor over it needs no view."""
        if dtype in self._memory:
            return self._memory[dtype].view(size)
        assert self.read is not None
        elements = self.nbytes // dtype.itemsize * dtype.itemsize
        array = self.read()[:elements].view(dtype.numpy).reshape(size)
        made = from_array(array, dtype) if self.owned else from_numpy(array)
        self._memory[dtype] = made.to(device(self.location))
        return self._memory[dtype]


def placed(storage: FileStorage, saved: str, where: MapLocation) -> FileStorage:
    """A storage with the place that `map_location` gives it."""
    storage.location = saved
    if isinstance(where, str):  # a device is its name
        storage.location = where
    elif isinstance(where, Mapping):
        storage.location = str(where.get(saved, saved))
    elif callable(where):
        found = where(storage, saved)
        if isinstance(found, FileStorage):
            storage.location = CPU if found.location == saved else found.location
        elif found is not None:
            storage.location = str(found)
    return storage


def tensor(storage: Any, offset: Any, size: Any, stride: Any) -> Tensor:
    """What torch writes as `_rebuild_tensor`."""
    return _over(storage, None, offset, size, stride)


def tensor_v2(
    storage: Any,
    offset: Any,
    size: Any,
    stride: Any,
    requires_grad: Any,
    hooks: Any = None,
    metadata: Any = None,
) -> Tensor:
    """The same with gradients, and with marks for conjugate and negative views."""
    return _marked(_over(storage, None, offset, size, stride), requires_grad, metadata)


def tensor_v3(
    storage: Any,
    offset: Any,
    size: Any,
    stride: Any,
    requires_grad: Any,
    hooks: Any,
    dtype: Any,
    metadata: Any = None,
) -> Tensor:
    """The same over bytes, with the element type."""
    return _marked(_over(storage, dtype, offset, size, stride), requires_grad, metadata)


def parameter(data: Any, requires_grad: Any, hooks: Any = None, state: Any = None) -> Parameter:
    """A module's parameter."""
    if not isinstance(data, Tensor):
        raise ValueError("a parameter without a tensor")
    return Parameter(data, requires_grad is True)


def of_type(made: Any, kind: Any, arguments: Any, state: Any) -> Any:
    """A tensor of a class of torch's: its buffers are buffers here."""
    if not hasattr(made, "make") or type(arguments) is not tuple:
        raise ValueError("a tensor of an unknown kind")
    found = made.make(*arguments)
    marked = type(state) is tuple and any(isinstance(s, dict) and "persistent" in s for s in state)
    return Buffer(found) if marked or (isinstance(state, dict) and "persistent" in state) else found


def _marked(made: Tensor, requires_grad: Any, metadata: Any) -> Tensor:
    if isinstance(metadata, dict):
        made = made.conj() if metadata.get("conj") else made
        made = -made if metadata.get("neg") else made
    return made.requires_grad_() if requires_grad is True else made


def _over(storage: Any, dtype: Any, offset: Any, size: Any, stride: Any) -> Tensor:
    """The tensor at an offset and strides of a storage, all of which were checked."""
    if not isinstance(storage, FileStorage):
        raise ValueError("a tensor without a storage")
    dtype = storage.dtype if dtype is None else dtype
    if not isinstance(dtype, DType):
        raise ValueError("a tensor without an element type")
    sizes, steps = _whole(size), _whole(stride)
    if len(sizes) != len(steps) or type(offset) is not int or offset < 0:
        raise ValueError("sizes and strides that do not fit")
    if storage.read is None:
        return from_array(np.zeros((), dtype.numpy), dtype)
    count = math.prod(sizes)
    last = offset + sum((n - 1) * by for n, by in zip(sizes, steps)) if count else 0
    if count and last >= storage.nbytes // dtype.itemsize:
        raise InputFileError(
            f"the file is damaged: a tensor of shape {list(sizes)} lies beyond its storage of "
            f"{storage.nbytes} bytes",
            help="use another copy of it",
        )
    return _view(storage, dtype, offset, sizes, steps)


def _whole(numbers: Any) -> tuple[int, ...]:
    found = tuple(numbers)
    if not all(type(n) is int and n >= 0 for n in found):
        raise ValueError("a size that is no number")
    return found


def _view(
    storage: FileStorage, dtype: DType, offset: int, size: tuple[int, ...], stride: tuple[int, ...]
) -> Tensor:
    """The elements at strided places: turned rows where they lie densely, a gather elsewhere."""
    count, total = math.prod(size), storage.nbytes // dtype.itemsize
    order = sorted(range(len(size)), key=lambda axis: (-stride[axis], -size[axis]))
    rows = tuple(size[axis] for axis in order)
    if count and tuple(stride[a] for a in order if size[a] > 1) != _dense(rows):
        return storage.whole(dtype, (total,)).as_strided(size, stride, offset)
    if count == total and order == list(range(len(size))):
        return storage.whole(dtype, size)
    dense = storage.whole(dtype, (total,))[offset : offset + count].view(rows)
    return dense.permute([order.index(axis) for axis in range(len(size))])


def _dense(rows: Sequence[int]) -> tuple[int, ...]:
    """The strides of dense memory, of axes longer than one."""
    return tuple(math.prod(rows[n + 1 :]) for n, size in enumerate(rows) if size > 1)
