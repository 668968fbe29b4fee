"""Collectives of tensors that give new tensors, and through which gradients flow.

They work undecorated, eager, inside `jit`, `grad` and `vmap`. Without a group they are over all
ranks. Undecorated, a collective happens when it is called: a read on one rank alone never waits for
another. Derivatives are those of the sum of what all ranks compute.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from ridgeline.communicators.current import world
from ridgeline.communicators.interface import Communicator
from ridgeline.errors import AxisError, BadTypeError
from ridgeline.graph.node import Node
from ridgeline.graph.origins import here, stamp
from ridgeline.ops import collectives
from ridgeline.ops.collectives import GroupName
from ridgeline.record import recorder
from ridgeline.record.cells import GRAPH, PLAIN
from ridgeline.record.modes import modes
from ridgeline.record.values import owned, read, result_mode
from ridgeline.tensors.tensor import Tensor, wrap


def all_reduce(
    tensor: Tensor, reduction: str = "sum", *, group: Communicator | None = None
) -> Tensor:
    """The values of all ranks, joined: `sum`, `mean`, `product`, `min` or `max`."""
    return _called(tensor, group, lambda a, name: collectives.all_reduce(a, name, reduction))


def all_gather(
    tensor: Tensor, dim: int = 0, *, counts: Sequence[int] = (), group: Communicator | None = None
) -> Tensor:
    """The parts of all ranks, one after the other along an axis; `counts` where lengths differ."""
    axis, lengths = _axis(tensor, dim), tuple(counts)
    return _called(tensor, group, lambda a, n: collectives.all_gather(a, n, axis, lengths))


def reduce_scatter(
    tensor: Tensor,
    reduction: str = "sum",
    dim: int = 0,
    *,
    counts: Sequence[int] = (),
    group: Communicator | None = None,
) -> Tensor:
    """This rank's part along an axis of the joined values; `counts` are the parts' lengths."""
    axis, lengths = _axis(tensor, dim), tuple(counts)
    rank = (group or world()).rank
    return _called(
        tensor,
        group,
        lambda a, n: collectives.reduce_scatter(a, n, reduction, axis, lengths, rank),
    )


def all_to_all(
    tensor: Tensor,
    dim: int = 0,
    *,
    counts: Sequence[int] = (),
    receives: Sequence[int] = (),
    group: Communicator | None = None,
) -> Tensor:
    """A part along an axis to each rank, and one from each: `counts` to, `receives` from each."""
    axis, given, taken = _axis(tensor, dim), tuple(counts), tuple(receives)
    return _called(tensor, group, lambda a, n: collectives.all_to_all(a, n, axis, given, taken))


def broadcast(tensor: Tensor, root: int = 0, *, group: Communicator | None = None) -> Tensor:
    """The values of one rank; the others give a tensor of the same shape."""
    return _called(tensor, group, lambda a, name: collectives.broadcast_from(a, name, root))


def shift(tensor: Tensor, by: int = 1, *, group: Communicator | None = None) -> Tensor:
    """The values of the rank `by` places before this one, around the ring of the group."""
    return _called(tensor, group, lambda a, name: collectives.shift(a, name, by))


def _called(
    tensor: Tensor, group: Communicator | None, build: Callable[[Node, GroupName], Node]
) -> Tensor:
    if not isinstance(tensor, Tensor):
        raise BadTypeError(f"a collective takes a tensor, not {type(tensor).__name__}")
    name = GroupName.of(world() if group is None else group)
    made = build(read(tensor), name)
    stamp(made, here(3))
    mode = result_mode(tensor._resolved()[1].mode)
    if mode == GRAPH and not made.types[0].dtype.is_differentiable:
        mode = PLAIN
    result = wrap(made if mode == GRAPH else owned(made), mode)
    if modes.capture is None:
        recorder.realize([result._cell], "a collective, which all ranks come to together")
    return result


def _axis(tensor: Tensor, dim: int) -> int:
    rank = tensor.dim()
    if not -rank <= dim < rank:
        raise AxisError(f"there is no axis {dim} in a tensor with {rank} axes")
    return dim % rank
