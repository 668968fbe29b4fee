"""Process groups as torch names them: some ranks of a job, over a communicator of theirs."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from ridgeline.communicators.current import current_rank, joined_rank
from ridgeline.communicators.interface import Communicator
from ridgeline.errors import BadValueError, RidgelineError


class ProcessGroup:
    """Some of the ranks of a job."""

    def __init__(self, communicator: Communicator, ranks: Sequence[int]) -> None:
        self.communicator, self.ranks = communicator, tuple(ranks)

    def rank(self) -> int:
        """The place of the calling rank."""
        return self.communicator.rank

    def size(self) -> int:
        """How many ranks there are."""
        return self.communicator.size


def is_initialized() -> bool:
    """Whether this rank has formed a group."""
    rank = joined_rank()  # asking joins no job
    return rank is not None and bool(rank.process_group)


def communicator_of(group: Any) -> Communicator:
    """The communicator of a group; of all ranks where none is named."""
    if isinstance(group, ProcessGroup):
        return group.communicator
    if isinstance(group, Communicator):
        return group
    if group is None:
        return current_rank().world
    raise BadValueError(f"this rank is not in the group {group!r}")


def formed_group(group: Any, who: str) -> Communicator:
    """The communicator of a group that was formed for a layer or a loader that needs one."""
    if group is None and not is_initialized():
        raise RidgelineError(
            f"{who} needs a process group",
            help="distributed.init_process_group() forms it, alone too; models on a mesh "
            "(distributed.parallelize) need none",
        )
    return communicator_of(group)
