"""Which rank this process is, by the variables of what launched it, and the world it joins."""

from __future__ import annotations

import importlib.util
import os
from collections.abc import Mapping
from dataclasses import dataclass

from ridgeline.communicators.current import WorldFinder, alone
from ridgeline.communicators.interface import Communicator
from ridgeline.communicators.mpi import mpi_world
from ridgeline.communicators.mpi_engine import TIMEOUT
from ridgeline.communicators.rendezvous import MeetingPlace, fetch, hand_out
from ridgeline.errors import RidgelineError


class JobStartError(RidgelineError):
    """Processes that were launched in a way in which they cannot find each other."""

    code = "RL0903"


@dataclass(frozen=True, slots=True)
class Launched:
    """The place of a process in its job."""

    launcher: str
    rank: int
    size: int
    local_rank: int


# launchers, in the order in which they are looked for: rank, size, rank on this machine
_VARIABLES = {
    "Open MPI": ("OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_SIZE", "OMPI_COMM_WORLD_LOCAL_RANK"),
    "MPICH": ("PMI_RANK", "PMI_SIZE", "MPI_LOCALRANKID"),
    # programs under MPI set these too, and torchrun may run inside a step of Slurm
    "torchrun": ("RANK", "WORLD_SIZE", "LOCAL_RANK"),
    "Slurm": ("SLURM_PROCID", "SLURM_STEP_NUM_TASKS", "SLURM_LOCALID"),
}
_START = (
    "start it under MPI: ridgeline launch -n 4 train.py, or mpiexec -n 4 python train.py; "
    "pip install 'ridgeline[distributed]' brings MPI"
)


def launched(environment: Mapping[str, str] | None = None) -> Launched | None:
    """The place of this process in a job; None where nothing launched it as one of several."""
    found = os.environ if environment is None else environment
    for launcher, names in _VARIABLES.items():
        texts = [found.get(name, "") for name in names]
        if not texts[0] or not texts[1]:
            continue
        try:
            rank, size, local = (int(text) for text in (*texts[:2], texts[2] or texts[0]))
        except ValueError:
            shown = ", ".join(f"{name}={text!r}" for name, text in zip(names, texts, strict=True))
            raise JobStartError(f"{launcher}'s variables are no numbers: {shown}") from None
        if not 0 <= rank < size:
            raise JobStartError(f"{launcher} says that this is rank {rank} of {size}")
        return Launched(launcher, rank, size, local)
    return None


def find_world() -> Communicator:
    """The world of this process: of the job it was launched in, or alone."""
    place = launched()
    if place is None or (place.launcher == "torchrun" and place.size == 1):
        return alone()
    if place.launcher == "torchrun":
        return _over_nccl(place)
    if importlib.util.find_spec("mpi4py") is None:
        raise JobStartError(
            f"{place.launcher} started {place.size} processes, and mpi4py is not installed",
            help="pip install 'ridgeline[distributed]'",
        )
    return _joined(place)


def _over_nccl(place: Launched) -> Communicator:
    """The world of processes that torchrun started: they have GPUs, and no MPI."""
    from ridgeline.distributed.nccl_groups import nccl_world
    from ridgeline.runtime.cuda import nccl
    from ridgeline.runtime.cuda.driver import missing

    why_not = missing()
    if why_not:
        raise JobStartError(
            f"torchrun started {place.size} processes, which have no way to talk on CPUs "
            f"(no GPU: {why_not})",
            help=_START,
        )
    if nccl.library() is None:
        raise JobStartError(
            f"torchrun started {place.size} processes, and there is no libnccl for their GPUs",
            help="pip install nvidia-nccl-cu13, or " + _START,
        )
    where, wait = MeetingPlace.of(os.environ), float(os.environ.get(TIMEOUT, "300"))

    def share(name: bytes) -> bytes:
        if place.rank:
            return fetch(where, place.rank, wait)
        hand_out(where, name, place.size - 1, wait)
        return name

    return nccl_world(place.rank, place.size, place.local_rank, share)


def _joined(place: Launched) -> Communicator:
    try:
        world = mpi_world()
    except (ImportError, RuntimeError) as error:
        raise JobStartError(
            f"MPI cannot be loaded: {error}",
            help="pip install 'ridgeline[distributed]' brings mpi4py and MPICH",
        ) from error
    if world.size != place.size:
        raise JobStartError(
            f"{place.launcher} started {place.size} processes, and MPI sees {world.size}",
            help="mpiexec and the MPI that mpi4py loads are not the same; " + _START,
        )
    return world


WorldFinder.world = staticmethod(find_world)
