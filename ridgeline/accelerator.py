"""torch.accelerator: the GPUs of this machine, whatever their kind; here NVIDIA's."""

from __future__ import annotations

from typing import Any

from ridgeline import cuda
from ridgeline.cuda import (
    current_device as current_device_index,
    current_stream as current_stream,
    device as device_index,
    device_count as device_count,
    empty_cache as empty_cache,
    is_available as is_available,
    max_memory_allocated as max_memory_allocated,
    memory_allocated as memory_allocated,
    memory_reserved as memory_reserved,
    reset_peak_memory_stats as reset_peak_memory_stats,
    set_device as set_device_index,
    synchronize as synchronize,
)
from ridgeline.devices import device

current_device_idx, set_device_idx = current_device_index, set_device_index
__all__ = [
    "current_accelerator", "current_device_idx", "current_device_index", "current_stream",
    "device_count", "device_index", "empty_cache", "is_available", "max_memory_allocated",
    "memory_allocated", "memory_reserved", "reset_peak_memory_stats", "set_device_idx",
    "set_device_index", "synchronize",
]  # fmt: skip


def current_accelerator(check_available: bool = False) -> Any:
    """The kind of device to compute on, or None where there is only the CPU."""
    return device("cuda", 0) if cuda.is_available() else None
