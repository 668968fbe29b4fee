"""torch.distributed's names: process groups, and collectives that write into their tensors.

A group is a communicator of this rank, whatever its kind: `init_process_group` joins the job that a
launcher started, the ranks of a simulation, or a group of one. torch's collectives are in
`in_place.py`, and those that give new tensors in `functional.py`.
"""

from __future__ import annotations

from typing import Any

from ridgeline.communicators.calls import REDUCTIONS
from ridgeline.communicators.current import current_rank, simulated_rank
from ridgeline.communicators.process_group import (
    ProcessGroup as ProcessGroup,
    communicator_of as communicator_of,
    is_initialized as is_initialized,
)
from ridgeline.distributed.discovery import launched
from ridgeline.errors import BadValueError, RidgelineError


class ReduceOp:
    """How values of several ranks are joined."""

    SUM, AVG, PRODUCT, MIN, MAX = "sum", "mean", "product", "min", "max"


def reduction_of(op: Any) -> str:
    """The name of a reduction, in torch's words or ours."""
    text = str(op).rpartition(".")[2].lower()
    name = {"avg": "mean", "redoptype": "sum", "prod": "product"}.get(text, text)
    if name not in REDUCTIONS:
        raise BadValueError(f"there is no reduction {op!r}", help=f"one of {', '.join(REDUCTIONS)}")
    return name


def is_available() -> bool:
    """True where this process is one of several ranks, under a launcher or simulated."""
    place = launched()
    return simulated_rank() is not None or (place is not None and place.size > 1)


is_mpi_available = is_gloo_available = is_available


def is_nccl_available() -> bool:
    """False: process groups are over host memory."""
    return False


def is_torchelastic_launched() -> bool:
    """True under torchrun."""
    place = launched()
    return place is not None and place.launcher == "torchrun"


def init_process_group(
    backend: str | None = None,
    init_method: str | None = None,
    timeout: Any = None,
    world_size: int = -1,
    rank: int = -1,
    **options: Any,
) -> None:
    """Join the ranks of this job; alone, a group of one."""
    here = current_rank()
    for name, told, found in (
        ("processes", world_size, here.world.size),
        ("rank", rank, here.world.rank),
    ):
        if told >= 0 and told != found:
            what = f"a group of {told} processes" if name == "processes" else f"rank {told}"
            raise RidgelineError(
                f"{what}: this is rank {here.world.rank} of {here.world.size}",
                help="start them with ridgeline launch -n N, or on simulated ranks: dist.run",
            )
    here.process_group = backend or ("gloo" if here.world.size == 1 else here.world.kind)


def destroy_process_group(group: Any = None) -> None:
    """Leave the group."""
    if group is None:
        current_rank().process_group = ""


class _NotAMember:
    """What a rank has of a group that it is not in."""

    def __repr__(self) -> str:
        return "NON_GROUP_MEMBER"


class GroupMember:
    """torch's names for the group of all ranks, and for being in none."""

    WORLD = None
    NON_GROUP_MEMBER: Any = _NotAMember()


class group:
    """torch's name for the group of all ranks."""

    WORLD = None


def place_in(group: Any, rank: int) -> int:
    """The place in a group of a rank of the job, by which torch names roots and peers."""
    if isinstance(group, ProcessGroup):
        if rank not in group.ranks:
            raise BadValueError(f"rank {rank} is not in the group of ranks {list(group.ranks)}")
        return group.ranks.index(rank)
    return rank


def get_rank(group: Any = None) -> int:
    """The place of the calling rank; -1 where no group was formed."""
    return communicator_of(group).rank if is_initialized() else -1


def get_local_rank(group: Any = None) -> int:
    """The place of the calling rank on its machine."""
    place = launched()
    return get_rank() if place is None or simulated_rank() is not None else place.local_rank


get_node_local_rank = get_local_rank


def get_world_size(group: Any = None) -> int:
    """How many ranks there are; -1 where no group was formed."""
    return communicator_of(group).size if is_initialized() else -1


def get_backend(group: Any = None) -> str:
    """The name that the group was formed with."""
    if not is_initialized():
        raise RidgelineError("this rank has formed no group", help="init_process_group() forms it")
    return current_rank().process_group


def get_default_backend_for_device(device: Any) -> str:
    """The backend that torch would take for a kind of device."""
    return "nccl" if str(device).startswith("cuda") else "gloo"


def new_group(ranks: Any = None, *args: Any, **kwargs: Any) -> Any:
    """A group of some ranks; all ranks of the job call it, as they do in torch."""
    here = current_rank()
    members = sorted(range(here.world.size) if ranks is None else ranks)
    inside = here.world.rank in members
    name = "group " + ",".join(map(str, members))
    made = here.world.split(int(inside), here.world.rank, name)
    return ProcessGroup(made, members) if inside else GroupMember.NON_GROUP_MEMBER


def barrier(group: Any = None, *args: Any, **kwargs: Any) -> None:
    """Wait for all ranks."""
    communicator_of(group).barrier()


monitored_barrier = barrier  # who does not come is named in any case


def get_process_group_ranks(group: Any = None) -> list[int]:
    """The ranks of a group, by their places in the job."""
    if isinstance(group, ProcessGroup):
        return list(group.ranks)
    return list(range(communicator_of(group).size))


def get_global_rank(group: Any, group_rank: int) -> int:
    """The place in the job of a rank of a group."""
    ranks = get_process_group_ranks(group)
    if not 0 <= group_rank < len(ranks):
        raise BadValueError(f"there is no rank {group_rank} in a group of {len(ranks)}")
    return ranks[group_rank]


get_group_rank = place_in
