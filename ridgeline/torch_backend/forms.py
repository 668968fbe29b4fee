"""Tensors of torch as memory: element types, how elements lie, and addresses without copies.

A tensor whose elements lie densely in some order of its axes is read and written where it is: as a
value with the axes in that order, and a view of it. Others are copied before they are read.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import lru_cache, partial
from typing import Any

import torch

from ridgeline import dtypes
from ridgeline.devices import CPU, device
from ridgeline.dtypes import DType
from ridgeline.graph.node import TensorType
from ridgeline.graph.sizes import Size
from ridgeline.runtime.buffer import HostBuffer
from ridgeline.torch_backend import gpu


class UnsupportedTensorError(TypeError):
    """A tensor of torch that has no form here, such as a sparse one."""


@lru_cache(maxsize=1)
def _rows() -> dict[Any, DType]:
    rows = {getattr(torch, row.name, None): row for row in dtypes.ALL}
    rows[torch.bool] = dtypes.bool_
    rows.pop(None, None)
    return rows


def dtype_of(dtype: torch.dtype) -> DType:
    """Our element type for one of torch's."""
    found = _rows().get(dtype)
    if found is None:
        raise UnsupportedTensorError(f"there is no element type {dtype} here")
    return found


@lru_cache(maxsize=64)
def torch_dtype(dtype: DType) -> torch.dtype:
    """Torch's element type for one of ours."""
    return next(theirs for theirs, row in _rows().items() if row is dtype)


@dataclass(frozen=True, slots=True)
class TensorForm:
    """How a tensor lies: its axes from the outermost in memory inwards; None where not densely."""

    dtype: DType
    shape: tuple[Size, ...]
    order: tuple[int, ...] | None
    requires_grad: bool
    is_leaf: bool
    device: device = CPU

    @property
    def memory_shape(self) -> tuple[Size, ...]:
        """The lengths of the axes as they lie."""
        order = range(len(self.shape)) if self.order is None else self.order
        return tuple(self.shape[axis] for axis in order)

    @property
    def view(self) -> tuple[int, ...] | None:
        """How memory is permuted to show the tensor; None where it need not be."""
        if self.order is None or self.order == tuple(range(len(self.order))):
            return None
        return tuple(self.order.index(axis) for axis in range(len(self.order)))


def form_of(tensor: torch.Tensor) -> TensorForm:
    """The form of a tensor, if it has one here."""
    if tensor.layout is not torch.strided or tensor.is_quantized:
        raise UnsupportedTensorError(f"a tensor is of layout {tensor.layout}")
    if type(tensor) not in (torch.Tensor, torch.nn.Parameter, torch.nn.Buffer):
        raise UnsupportedTensorError(f"a tensor is a {type(tensor).__name__}")
    shape = tuple(tensor.shape)
    plain = not (tensor.is_conj() or tensor.is_neg())
    order = dense_order(shape, tensor.stride()) if plain else None
    return TensorForm(
        dtype_of(tensor.dtype), shape, order, tensor.requires_grad, tensor.is_leaf, home_of(tensor)
    )


def home_of(tensor: torch.Tensor) -> device:
    """Where a tensor lies, if programs of ours run there."""
    place = gpu.device_of(tensor)
    if place.type == "cuda":
        reason = gpu.why_not()
        if not reason:
            return device("cuda", place.index)
        raise UnsupportedTensorError(
            f"a tensor is on {place}, which Ridgeline cannot use: {reason}"
        )
    if place.type != "cpu":
        raise UnsupportedTensorError(f"a tensor is on {place}")
    return CPU


def dense_order(shape: Sequence[int], strides: Sequence[int]) -> tuple[int, ...] | None:
    """The axes from the outermost in memory inwards, if elements lie side by side."""
    axes = sorted(range(len(shape)), key=lambda axis: (-strides[axis], axis))
    if 0 in shape:
        return tuple(range(len(shape)))
    inner = [axis for axis in axes if shape[axis] != 1]
    step = 1
    for axis in reversed(inner):
        if strides[axis] != step:
            return None
        step *= shape[axis]
    if inner == sorted(inner):
        return tuple(range(len(shape)))
    return tuple(axes)


def usable(tensor: torch.Tensor, home: device) -> torch.Tensor:
    """A tensor whose elements lie in their order, where programs of its device can read them."""
    dense = tensor.contiguous().resolve_conj().resolve_neg()
    return gpu.aligned(dense) if home != CPU else dense


def memory_of(tensor: torch.Tensor, home: device, nbytes: int) -> Any:
    """The memory of a tensor that its owner keeps alive while this is used."""
    if home == CPU:
        return memory_at(tensor.data_ptr(), nbytes)
    return gpu.memory_on(home.index or 0, gpu.address_of(tensor), nbytes)


def memory_at(address: int, nbytes: int) -> HostBuffer:
    """Memory of the host that its owner keeps alive while this is used."""
    buffer = HostBuffer.__new__(HostBuffer)
    buffer.address, buffer.nbytes = address, nbytes
    buffer._owner = buffer._root = None
    buffer.borrowed = True
    return buffer


_CARRIERS = {1: dtypes.uint8, 2: dtypes.int16}


def maker(kind: TensorType) -> Callable[[Any], torch.Tensor]:
    """What makes tensors of torch over memory of a program's, which lives as long as they do."""
    dtype, shape = kind.dtype, tuple(map(int, kind.shape))
    theirs = torch_dtype(dtype)
    if kind.device != CPU:
        return partial(gpu.as_tensor, shape=shape, dtype=theirs)
    if dtype.name in ("bfloat16", "float8_e4m3fn", "float8_e5m2"):  # NumPy has none of these
        carrier = _CARRIERS[dtype.itemsize]

        def relabelled(buffer: HostBuffer) -> torch.Tensor:
            return torch.from_numpy(buffer.array(carrier, shape)).view(theirs)

        return relabelled

    def made(buffer: HostBuffer) -> torch.Tensor:
        return torch.from_numpy(buffer.array(dtype, shape))

    return made
