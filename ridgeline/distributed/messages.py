"""torch.distributed's messages between two ranks, of tensors and of objects."""

from __future__ import annotations

import pickle
from collections.abc import Callable, MutableSequence, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from ridgeline.communicators.interface import Communicator, Work
from ridgeline.communicators.process_group import communicator_of
from ridgeline.distributed.process_groups import place_in
from ridgeline.errors import BadValueError
from ridgeline.record.modes import no_grad
from ridgeline.tensors.creation import from_numpy
from ridgeline.tensors.tensor import Tensor


class TensorWork:
    """A message under way; `wait` returns when its tensor may be read, or written to."""

    def __init__(self, work: Work, then: Callable[[np.ndarray], None] | None = None) -> None:
        self._work, self._then = work, then

    def wait(self, timeout: Any = None) -> bool:
        """Wait for it."""
        found, then, self._then = self._work.wait(), self._then, None
        if then is not None:
            then(found)
        return True

    def is_completed(self) -> bool:
        """True where waiting takes no time."""
        return self._work.done()


def isend(tensor: Tensor, dst: int, group: Any = None, tag: int = 0) -> TensorWork:
    """Start to give a tensor to a rank."""
    values = np.array(tensor.detach().cpu().numpy())  # the tensor may be written to meanwhile
    return TensorWork(communicator_of(group).send(values, place_in(group, dst), tag))


def irecv(tensor: Tensor, src: int | None = None, group: Any = None, tag: int = 0) -> TensorWork:
    """Start to take a tensor from a rank; it has the values when one has waited."""
    if src is None:
        raise BadValueError("irecv needs to know from which rank", help="give src=")

    def write(found: np.ndarray) -> None:
        with no_grad():
            tensor.copy_(from_numpy(found).to(tensor.device))

    buffer = np.empty(tuple(tensor.shape), tensor.dtype.numpy)
    return TensorWork(communicator_of(group).recv(buffer, place_in(group, src), tag), write)


def send(tensor: Tensor, dst: int, group: Any = None, tag: int = 0) -> None:
    """Give a tensor to a rank, which calls `recv`."""
    isend(tensor, dst, group, tag).wait()


def recv(tensor: Tensor, src: int | None = None, group: Any = None, tag: int = 0) -> int:
    """Take a tensor from a rank, which calls `send`."""
    irecv(tensor, src, group, tag).wait()
    assert src is not None
    return src


@dataclass
class P2POp:
    """One of several messages that start together: `isend` or `irecv`, a tensor and a peer."""

    op: Callable[..., TensorWork]
    tensor: Tensor
    peer: int
    group: Any = None
    tag: int = 0

    def __post_init__(self) -> None:
        if self.op not in (isend, irecv):
            raise BadValueError("a P2POp is of isend or irecv")


def batch_isend_irecv(p2p_op_list: Sequence[P2POp]) -> list[TensorWork]:
    """Start several messages."""
    return [each.op(each.tensor, each.peer, each.group, each.tag) for each in p2p_op_list]


# ---- objects -------------------------------------------------------------------------------------


def _packed(value: Any) -> np.ndarray:
    return np.frombuffer(pickle.dumps(value), np.uint8)


def _send_object(own: Communicator, value: Any, place: int) -> list[Work]:
    data = _packed(value)
    return [own.send(np.array([data.size], np.int64), place), own.send(data, place)]


def _receive_object(own: Communicator, place: int) -> Any:
    length = own.recv(np.empty(1, np.int64), place).wait()[0]
    return pickle.loads(own.recv(np.empty(length, np.uint8), place).wait().tobytes())


def all_gather_object(object_list: MutableSequence[Any], obj: Any, group: Any = None) -> None:
    """The objects of all ranks, in a list."""
    own = communicator_of(group)
    _check_places(len(object_list), own)
    data = _packed(obj)
    counts = own.all_gather(np.array([data.size], np.int64)).tolist()
    rows, start = own.all_gather(data, counts), 0
    for place, count in enumerate(counts):
        object_list[place] = pickle.loads(rows[start : start + count].tobytes())
        start += count


def broadcast_object_list(
    object_list: MutableSequence[Any], src: int = 0, group: Any = None, **options: Any
) -> None:
    """Give all ranks the objects of one."""
    own, root = communicator_of(group), place_in(group, src)
    data = _packed(list(object_list))
    length = own.broadcast(np.array([data.size], np.int64), root)[0]
    given = data if own.rank == root else np.empty(length, np.uint8)
    object_list[:] = pickle.loads(own.broadcast(given, root).tobytes())


def gather_object(
    obj: Any, object_gather_list: MutableSequence[Any] | None = None, dst: int = 0,
    group: Any = None,
) -> None:  # fmt: skip
    """The objects of all ranks, in a list of one of them."""
    own, root = communicator_of(group), place_in(group, dst)
    if own.rank == root:
        _check_places(len(object_gather_list or ()), own)
    under_way = _send_object(own, obj, root)
    for place in range(own.size if own.rank == root else 0):
        assert object_gather_list is not None
        object_gather_list[place] = _receive_object(own, place)
    for work in under_way:
        work.wait()


def scatter_object_list(
    scatter_object_output_list: MutableSequence[Any],
    scatter_object_input_list: Sequence[Any] | None = None,
    src: int = 0,
    group: Any = None,
) -> None:
    """Give every rank its object of a list of one of them, as the first of its own list."""
    own, root = communicator_of(group), place_in(group, src)
    under_way: list[Work] = []
    if own.rank == root:
        _check_places(len(scatter_object_input_list or ()), own)
        for place, value in enumerate(scatter_object_input_list or ()):
            under_way += _send_object(own, value, place)
    scatter_object_output_list[0] = _receive_object(own, root)
    for work in under_way:
        work.wait()


def send_object_list(object_list: Sequence[Any], dst: int, group: Any = None) -> None:
    """Give objects to a rank, which calls `recv_object_list`."""
    for work in _send_object(communicator_of(group), list(object_list), place_in(group, dst)):
        work.wait()


def recv_object_list(object_list: MutableSequence[Any], src: int, group: Any = None) -> int:
    """Take objects from a rank, into a list."""
    object_list[:] = _receive_object(communicator_of(group), place_in(group, src))
    return src


def _check_places(count: int, own: Communicator) -> None:
    if count != own.size:
        raise BadValueError(f"a list of {count} objects for {own.size} ranks")
