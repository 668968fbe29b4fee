"""Tensors of a call whose memory overlaps: what is written to one is seen in the others."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import torch

from ridgeline.devices import device
from ridgeline.dtypes import DType
from ridgeline.torch_backend.forms import UnsupportedTensorError, dtype_of, home_of


@dataclass(frozen=True, slots=True)
class SharingTensor:
    """A tensor in memory that it shares with others."""

    place: int
    offset: int  # in elements, from where the memory begins
    size: tuple[int, ...]
    stride: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class SharedMemory:
    """Memory that several tensors of a call show; the first of them begins where it does."""

    dtype: DType
    device: device
    elements: int
    members: tuple[SharingTensor, ...]


Groups = tuple[tuple[tuple[int, int], ...], ...]  # places, and bytes from where the first begins


def overlapping(args: Sequence[Any]) -> Groups:
    """Which tensors of a call overlap in memory."""
    ranges = sorted(
        (arg.data_ptr(), arg.data_ptr() + _extent(arg) * arg.itemsize, place)
        for place, arg in enumerate(args)
        if isinstance(arg, torch.Tensor) and arg.layout is torch.strided and arg.numel()
    )
    groups: list[list[tuple[int, int]]] = []
    end = first = -1
    for start, stop, place in ranges:
        if start < end:
            groups[-1].append((place, start - first))
        else:
            groups.append([(place, 0)])
            first = start
        end = max(end, stop)
    return tuple(tuple(group) for group in groups if len(group) > 1)


def _extent(tensor: torch.Tensor) -> int:
    """From the first element of a tensor to behind its last one, in elements."""
    return 1 + sum((int(n) - 1) * int(by) for n, by in zip(tensor.shape, tensor.stride()))


def spans(args: Sequence[Any], groups: Sequence[Sequence[tuple[int, int]]]) -> list[SharedMemory]:
    """The memory of tensors that overlap, where it has one element type."""
    made = []
    for group in groups:
        tensors = [args[place] for place, _ in group]
        if len({tensor.dtype for tensor in tensors}) > 1:
            raise UnsupportedTensorError("inputs of several element types share memory")
        size = tensors[0].itemsize
        if any(offset % size for _, offset in group):
            raise UnsupportedTensorError("inputs share memory between elements")
        if any(tensor.requires_grad for tensor in tensors):
            raise UnsupportedTensorError("inputs that require gradients share written memory")
        members = tuple(
            SharingTensor(place, offset // size, tuple(t.shape), tuple(t.stride()))
            for (place, offset), t in zip(group, tensors)
        )
        elements = max(m.offset + _extent(t) for m, t in zip(members, tensors))
        dtype, home = dtype_of(tensors[0].dtype), home_of(tensors[0])
        made.append(SharedMemory(dtype, home, elements, members))
    return made


class WritingGraph:
    """A graph that writes to its inputs: a program for each way in which these overlap."""

    def __init__(self, groups: Groups, plan: Any, make: Callable[[], Any]) -> None:
        """`plan` is the program of the first call, `make` makes one for another way."""
        self._make = make
        self._plans: dict[Groups, Any] = {groups: plan}
        self._last: tuple[list[int], Any] = ([], None)

    def __call__(self, args: Sequence[Any]) -> Any:
        addresses = [arg.data_ptr() for arg in args if isinstance(arg, torch.Tensor)]
        known, plan = self._last
        if addresses != known:
            groups = overlapping(args)
            plan = self._plans.get(groups)
            if plan is None:
                plan = self._plans[groups] = self._make()
            self._last = addresses, plan
        return plan(args)
