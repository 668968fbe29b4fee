"""torch.distributed, as far as programs ask whether there are several processes: there are not."""

from __future__ import annotations

from typing import Any

from ridgeline.module_paths import unknown as _unknown


def is_available() -> bool:
    """False: a program here is one process."""
    return False


is_initialized = is_nccl_available = is_gloo_available = is_mpi_available = is_available
is_torchelastic_launched = is_available


def get_rank(group: Any = None) -> int:
    """-1, as torch answers a process that is in no group."""
    return -1


get_world_size = get_rank


__getattr__ = _unknown(__name__)
