"""The communicators of the calling rank: of its thread where ranks are simulated, else of the
process. Programs that ranks share name groups by keys, which are looked up here when they run.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Any

from ridgeline.atomic import Switch
from ridgeline.communicators.calls import CommunicationError
from ridgeline.communicators.interface import Communicator, Work
from ridgeline.communicators.simulated_world import SimulatedWorld
from ridgeline.communicators.threads import simulated_ranks


class Rank:
    """What belongs to one rank: its world, and the groups that it is in, by key."""

    def __init__(self, world: Communicator) -> None:
        self.world = world
        self.groups: dict[str, Communicator] = {world.key: world}
        # collectives that programs have started, by ticket, and when
        self.under_way: dict[int, tuple[Work, float]] = {}
        self.mailbox: Any = None  # what its plans post, once one does: `runtime/cpu/mailbox.py`
        self.process_group = ""  # the name of torch's backend, where it has joined its group
        self.grouped_flops = 0  # of products that were counted as they ran: those of experts
        # where it stands on meshes, by the numbers of their shapes
        self.meshes: dict[int, Any] = {}

    def add(self, group: Communicator) -> Communicator:
        """Make a group known to programs by its key."""
        return self.groups.setdefault(group.key, group)

    def group(self, key: str) -> Communicator:
        """The group that a program names."""
        found = self.groups.get(key)
        if found is None:
            raise CommunicationError(
                f"rank {self.world.rank} is in no group {key!r}",
                help="a mesh is made on all ranks, before work that is shared out over it",
            )
        return found


class _Here(threading.local):
    """The simulated rank that this thread is."""

    rank: Rank | None = None


_here = _Here()
_process: list[Rank] = []
_joining = threading.Lock()


def alone() -> Communicator:
    """A world of one rank."""
    return simulated_ranks(SimulatedWorld(1))[0]


class WorldFinder:
    """How a process finds its world; what is above this layer puts another way here."""

    world: Callable[[], Communicator] = staticmethod(alone)


def current_rank() -> Rank:
    """The calling rank; a process joins its world when it is first asked for."""
    if _here.rank is not None:
        return _here.rank
    with _joining:
        if not _process:
            _process.append(Rank(WorldFinder.world()))
    return _process[0]


def simulated_rank() -> Rank | None:
    """The simulated rank that the calling thread is, if it is one."""
    return _here.rank


def joined_rank() -> Rank | None:
    """The calling rank, if it is simulated or its process has joined its world."""
    return _here.rank or (_process[0] if _process else None)


def world() -> Communicator:
    """The world of the calling rank."""
    return current_rank().world


def acting_as(rank: Rank) -> Switch:
    """A block in which this thread is a simulated rank."""
    return Switch(_here, rank=rank)
