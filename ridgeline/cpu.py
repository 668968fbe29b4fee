"""torch.cpu: the host asked as if it were one of several devices."""

from __future__ import annotations

from typing import Any

from ridgeline.amp import cpu as amp  # noqa: F401  (torch.cpu.amp)
from ridgeline.module_paths import unknown as _unknown
from ridgeline.record import recorder


def is_available() -> bool:
    """True: there is always a host."""
    return True


is_initialized = is_available


def device_count() -> int:
    """One, however many cores it has."""
    return 1


def current_device() -> str:
    """The name of the host."""
    return "cpu"


def set_device(device: Any) -> None:
    """Nothing: there is one host."""


def synchronize(device: Any = None) -> None:
    """Compute what was recorded."""
    recorder.flush()


__getattr__ = _unknown(__name__)
