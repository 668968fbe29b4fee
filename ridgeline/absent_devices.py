"""torch.mps and torch.xpu: kinds of devices of which there are none here, as a program asks it."""

from __future__ import annotations

from typing import Any

from ridgeline.errors import RidgelineError


def is_available() -> bool:
    """False: there is no such device."""
    return False


is_initialized = is_bf16_supported = is_built = is_available


def device_count() -> int:
    """None of them."""
    return 0


def empty_cache() -> None:
    """Nothing: there is no memory of such a device."""


def manual_seed(seed: int) -> None:
    """Nothing: `ridgeline.manual_seed` is for all devices that there are."""


manual_seed_all = manual_seed


def memory_allocated(device: Any = None) -> int:
    """No bytes."""
    return 0


current_allocated_memory = driver_allocated_memory = recommended_max_memory = memory_allocated
max_memory_allocated = memory_reserved = max_memory_reserved = memory_allocated


def reset_peak_memory_stats(device: Any = None) -> None:
    """Nothing: no memory was taken."""


def _refused(*args: Any, **kwargs: Any) -> Any:
    """What needs the device says that there is none."""
    raise RidgelineError(
        "there is no device of that kind here", help="ask is_available() first, or take cuda or cpu"
    )


synchronize = current_device = set_device = current_stream = Stream = Event = _refused
get_device_name = get_device_properties = get_rng_state = set_rng_state = _refused
