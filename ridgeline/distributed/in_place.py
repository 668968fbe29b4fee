"""torch.distributed's collectives, which write into tensors that they are given."""

from __future__ import annotations

from collections.abc import MutableSequence, Sequence
from typing import Any

import numpy as np

import ridgeline.distributed.functional as functional
from ridgeline.communicators.interface import Communicator
from ridgeline.communicators.process_group import communicator_of
from ridgeline.distributed.process_groups import (
    ReduceOp,
    place_in,
    reduction_of,
)
from ridgeline.errors import BadValueError
from ridgeline.record.modes import no_grad
from ridgeline.tensors.creation import from_numpy
from ridgeline.tensors.tensor import Tensor


class DoneWork:
    """What `async_op=True` gives: a collective that is recorded, and waits for nothing else."""

    def wait(self, timeout: Any = None) -> bool:
        """True: the tensor can be read."""
        return True

    def is_completed(self) -> bool:
        """True."""
        return True


def _write(target: Tensor, value: Any, async_op: bool) -> DoneWork | None:
    with no_grad():
        target.copy_(value.reshape(target.shape))
    return DoneWork() if async_op else None


def all_reduce(
    tensor: Tensor, op: Any = ReduceOp.SUM, group: Any = None, async_op: bool = False
) -> DoneWork | None:
    """Join the values of all ranks, into the tensor."""
    joined = functional.all_reduce(tensor.detach(), reduction_of(op), group=communicator_of(group))
    return _write(tensor, joined, async_op)


def reduce(
    tensor: Tensor, dst: int = 0, op: Any = ReduceOp.SUM, group: Any = None, async_op: bool = False
) -> DoneWork | None:
    """Join the values of all ranks, into the tensor of one."""
    own = communicator_of(group)
    joined = functional.all_reduce(tensor.detach(), reduction_of(op), group=own)
    if own.rank == place_in(group, dst):
        return _write(tensor, joined, async_op)
    return DoneWork() if async_op else None


def broadcast(
    tensor: Tensor, src: int = 0, group: Any = None, async_op: bool = False
) -> DoneWork | None:
    """Give all ranks the values of one."""
    root = place_in(group, src)
    copied = functional.broadcast(tensor.detach(), root, group=communicator_of(group))
    return _write(tensor, copied, async_op)


def all_gather(
    tensor_list: MutableSequence[Tensor], tensor: Tensor, group: Any = None, async_op: bool = False
) -> DoneWork | None:
    """The values of all ranks, in a list of tensors."""
    own = communicator_of(group)
    _check_places(len(tensor_list), own)
    rows = functional.all_gather(tensor.detach().reshape(1, *tensor.shape), group=own)
    for place, target in enumerate(tensor_list):
        _write(target, rows[place], False)
    return DoneWork() if async_op else None


def all_gather_into_tensor(
    output_tensor: Tensor, input_tensor: Tensor, group: Any = None, async_op: bool = False
) -> DoneWork | None:
    """The values of all ranks in one tensor, one rank after the other."""
    own = communicator_of(group)
    rows = functional.all_gather(input_tensor.detach().reshape(1, *input_tensor.shape), group=own)
    return _write(output_tensor, rows, async_op)


def reduce_scatter_tensor(
    output: Tensor,
    input: Tensor,
    op: Any = ReduceOp.SUM,
    group: Any = None,
    async_op: bool = False,
) -> DoneWork | None:
    """Give every rank its part of the joined values."""
    own = communicator_of(group)
    parts = input.detach().reshape(own.size, *output.shape)
    return _write(output, functional.reduce_scatter(parts, reduction_of(op), group=own), async_op)


def reduce_scatter(
    output: Tensor,
    input_list: Sequence[Tensor],
    op: Any = ReduceOp.SUM,
    group: Any = None,
    async_op: bool = False,
) -> DoneWork | None:
    """Give every rank the joined values of its place in the list."""
    own = communicator_of(group)
    _check_places(len(input_list), own)
    mine = output
    for place, each in enumerate(input_list):
        joined = functional.all_reduce(each.detach(), reduction_of(op), group=own)
        if place == own.rank:
            _write(mine, joined, False)
    return DoneWork() if async_op else None


def all_to_all_single(
    output: Tensor,
    input: Tensor,
    output_split_sizes: Sequence[int] | None = None,
    input_split_sizes: Sequence[int] | None = None,
    group: Any = None,
    async_op: bool = False,
) -> DoneWork | None:
    """Give every rank some rows, and take some from each."""
    exchanged = functional.all_to_all(
        input.detach(),
        counts=input_split_sizes or (),
        receives=output_split_sizes or (),
        group=communicator_of(group),
    )
    return _write(output, exchanged, async_op)


def all_to_all(
    output_tensor_list: MutableSequence[Tensor],
    input_tensor_list: Sequence[Tensor],
    group: Any = None,
    async_op: bool = False,
) -> DoneWork | None:
    """Give every rank a tensor of a list, and take one from each."""
    own = communicator_of(group)
    _check_places(len(input_tensor_list), own)
    _check_places(len(output_tensor_list), own)
    sent = [own.send(_values(each), place) for place, each in enumerate(input_tensor_list)]
    for place, target in enumerate(output_tensor_list):
        _receive(own, target, place)
    for work in sent:
        work.wait()
    return DoneWork() if async_op else None


def gather(
    tensor: Tensor,
    gather_list: MutableSequence[Tensor] | None = None,
    dst: int = 0,
    group: Any = None,
    async_op: bool = False,
) -> DoneWork | None:
    """The values of all ranks, in a list of one of them."""
    own, root = communicator_of(group), place_in(group, dst)
    work = own.send(_values(tensor), root)
    if own.rank == root:
        _check_places(len(gather_list or ()), own)
        for place, target in enumerate(gather_list or ()):
            _receive(own, target, place)
    work.wait()
    return DoneWork() if async_op else None


def scatter(
    tensor: Tensor,
    scatter_list: Sequence[Tensor] | None = None,
    src: int = 0,
    group: Any = None,
    async_op: bool = False,
) -> DoneWork | None:
    """Give every rank its tensor of a list of one of them."""
    own, root = communicator_of(group), place_in(group, src)
    sent = []
    if own.rank == root:
        _check_places(len(scatter_list or ()), own)
        sent = [own.send(_values(each), place) for place, each in enumerate(scatter_list or ())]
    _receive(own, tensor, root)
    for work in sent:
        work.wait()
    return DoneWork() if async_op else None


def _values(tensor: Tensor) -> np.ndarray:
    return np.ascontiguousarray(tensor.detach().cpu().numpy())


def _receive(own: Communicator, target: Tensor, place: int, tag: int = 0) -> None:
    buffer = np.empty(tuple(target.shape), target.dtype.numpy)
    values = from_numpy(own.recv(buffer, place, tag).wait())
    _write(target, values.to(target.device), False)


def _check_places(count: int, own: Communicator) -> None:
    if count != own.size:
        raise BadValueError(f"a list of {count} tensors for {own.size} ranks")
