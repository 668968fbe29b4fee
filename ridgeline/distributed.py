"""torch.distributed for a program that is one process: a group of one, in which nothing is sent.

`is_available()` is False, so programs that ask go on alone; those that do not ask, and form a group
of one, find that collectives give each process its own values. More processes are refused.
"""

from __future__ import annotations

import os
from collections.abc import MutableSequence
from typing import Any

from ridgeline.errors import RidgelineError
from ridgeline.module_paths import unknown as _unknown
from ridgeline.tensors.tensor import Tensor

__path__: list[str] = []
_groups: list[str] = []


class ReduceOp:
    """How values of several processes are joined; those of one stay."""

    SUM, AVG, PRODUCT, MIN, MAX = "sum", "avg", "product", "min", "max"


def is_available() -> bool:
    """False: a program here is one process."""
    return False


is_nccl_available = is_gloo_available = is_mpi_available = is_torchelastic_launched = is_available


def is_initialized() -> bool:
    """Whether a group of one was formed."""
    return bool(_groups)


def init_process_group(
    backend: str | None = None,
    init_method: str | None = None,
    timeout: Any = None,
    world_size: int = -1,
    rank: int = -1,
    **options: Any,
) -> None:
    """Form a group of one process; of more it is refused."""
    size = world_size if world_size >= 0 else int(os.environ.get("WORLD_SIZE", "1"))
    if size != 1:
        raise RidgelineError(
            f"a group of {size} processes: a program here is one process",
            help="run it without a launcher, or set world_size=1",
        )
    _groups[:] = [backend or "gloo"]


def destroy_process_group(group: Any = None) -> None:
    """Leave the group."""
    _groups.clear()


def get_rank(group: Any = None) -> int:
    """0 in the group of one, -1 where there is none."""
    return 0 if _groups else -1


get_local_rank = get_node_local_rank = get_rank


def get_world_size(group: Any = None) -> int:
    """1 in the group of one, -1 where there is none."""
    return 1 if _groups else -1


def get_backend(group: Any = None) -> str:
    """The name that the group was formed with."""
    return _groups[0]


def get_default_backend_for_device(device: Any) -> str:
    """The backend that torch would take for a kind of device."""
    return "nccl" if str(device).startswith("cuda") else "gloo"


def barrier(*args: Any, **kwargs: Any) -> None:
    """Wait for all processes: for none."""


def all_reduce(
    tensor: Tensor, op: Any = ReduceOp.SUM, group: Any = None, async_op: bool = False
) -> None:
    """Join the values of all processes; those of one stay."""


def broadcast(tensor: Tensor, src: int = 0, group: Any = None, async_op: bool = False) -> None:
    """Give all processes the values of one."""


reduce = broadcast


def all_gather(
    tensor_list: MutableSequence[Tensor], tensor: Tensor, group: Any = None, async_op: bool = False
) -> None:
    """The values of all processes, in a list of tensors."""
    tensor_list[0].copy_(tensor)


def all_gather_object(object_list: MutableSequence[Any], obj: Any, group: Any = None) -> None:
    """The objects of all processes, in a list."""
    object_list[0] = obj


def broadcast_object_list(
    object_list: Any, src: int = 0, group: Any = None, **options: Any
) -> None:
    """Give all processes the objects of one."""


class ProcessGroup:
    """Some of the processes: here always the one that there is."""


class group:
    """torch's name for the group of all processes."""

    WORLD = ProcessGroup()


def new_group(ranks: Any = None, *args: Any, **kwargs: Any) -> ProcessGroup:
    """The group of the one process."""
    return group.WORLD


def all_gather_into_tensor(
    output_tensor: Tensor, input_tensor: Tensor, group: Any = None, async_op: bool = False
) -> None:
    """The values of all processes in one tensor."""
    output_tensor.copy_(input_tensor.reshape(output_tensor.shape))


reduce_scatter_tensor = _all_gather_base = _reduce_scatter_base = all_gather_into_tensor


def all_to_all_single(
    output: Tensor,
    input: Tensor,
    output_split_sizes: Any = None,
    input_split_sizes: Any = None,
    group: Any = None,
    async_op: bool = False,
) -> None:
    """Give every process its part: the one process has all of it."""
    output.copy_(input)


def reduce_scatter(
    output: Tensor,
    input_list: Any,
    op: Any = ReduceOp.SUM,
    group: Any = None,
    async_op: bool = False,
) -> None:
    """Give every process the joined values of its place in the list."""
    output.copy_(input_list[0])


def gather(
    tensor: Tensor, gather_list: Any = None, dst: int = 0, group: Any = None, async_op: bool = False
) -> None:
    """The values of all processes, in a list of one of them."""
    if gather_list:
        gather_list[0].copy_(tensor)


def scatter(
    tensor: Tensor,
    scatter_list: Any = None,
    src: int = 0,
    group: Any = None,
    async_op: bool = False,
) -> None:
    """Give every process its tensor of a list of one of them."""
    if scatter_list:
        tensor.copy_(scatter_list[0])


__getattr__ = _unknown(__name__)
