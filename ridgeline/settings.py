"""Settings of the whole process under torch's names: threads, devices, precision, printing."""

from __future__ import annotations

import os
import warnings
from typing import Any

from ridgeline.config import config
from ridgeline.dtypes import DType, as_dtype
from ridgeline.errors import BadValueError
from ridgeline.functions import operands
from ridgeline.functions.operands import defaults
from ridgeline.record.modes import modes
from ridgeline.runtime.buffer import check_device
from ridgeline.tensors import display

_PRECISIONS = ("highest", "high", "medium")
_asked = {"precision": "highest", "interop": 1}


def set_num_threads(int: int) -> None:
    """How many threads kernels of the CPU use: `config.threads`."""
    config.threads = int


def get_num_threads() -> int:
    """How many threads kernels of the CPU use."""
    return config.threads or len(os.sched_getaffinity(0))


def set_num_interop_threads(int: int) -> None:
    """Kept and read back: independent kernels share the one pool of threads."""
    _asked["interop"] = int


def get_num_interop_threads() -> int:
    """What `set_num_interop_threads` was told."""
    number = _asked["interop"]
    assert isinstance(number, int)
    return number


def set_float32_matmul_precision(precision: str) -> None:
    """Below "highest", float32 products on a GPU may be shortened: `config.allow_tf32`."""
    if precision not in _PRECISIONS:
        raise BadValueError(f"a precision is one of {_PRECISIONS}, not {precision!r}")
    _asked["precision"] = precision
    config.allow_tf32 = precision != "highest"


def get_float32_matmul_precision() -> str:
    """What `set_float32_matmul_precision` was told."""
    return str(_asked["precision"])


def set_default_device(device: Any) -> None:
    """Where new tensors are made if no device is named; None is the CPU."""
    defaults.device = check_device("cpu" if device is None else device)


def get_default_device() -> Any:
    """Where new tensors are made if no device is named."""
    return check_device(defaults.device)


def set_printoptions(
    precision: int | None = None,
    threshold: float | None = None,
    edgeitems: int | None = None,
    linewidth: int | None = None,
    profile: str | None = None,
    sci_mode: bool | None = None,
) -> None:
    """How tensors print: digits, when and how much is left out, the width of a line."""
    profiles = {"default": (4, 1000, 3), "short": (2, 1000, 2), "full": (4, float("inf"), 3)}
    if profile is not None:
        if profile not in profiles:
            raise BadValueError(f"a profile is one of {', '.join(profiles)}, not {profile!r}")
        display.PRECISION, display.THRESHOLD, display.EDGE = profiles[profile]
    display.PRECISION = display.PRECISION if precision is None else precision
    display.THRESHOLD = display.THRESHOLD if threshold is None else threshold
    display.EDGE = display.EDGE if edgeitems is None else edgeitems
    display.WIDTH = display.WIDTH if linewidth is None else linewidth
    display.SCIENTIFIC = sci_mode


def set_flush_denormal(mode: bool) -> bool:
    """False: numbers below the normal range are kept as they are."""
    return False


def set_deterministic_debug_mode(debug_mode: int | str) -> None:
    """`use_deterministic_algorithms` by a number or "default", "warn", "error"."""
    config.deterministic = debug_mode not in (0, "default")


def get_deterministic_debug_mode() -> int:
    """2 where `config.deterministic` is on, else 0."""
    return 2 * config.deterministic


def set_warn_always(mode: bool) -> None:
    """Show a repeated warning each time, or once."""
    warnings.simplefilter("always" if mode else "default")


def promote_types(type1: DType, type2: DType) -> DType:
    """The smallest element type that holds what both do."""
    return operands.promote_types(as_dtype(type1), as_dtype(type2))


def can_cast(from_: DType, to: DType) -> bool:
    """Whether values may be converted without changing their kind to a lower one."""
    order = ("bool", "uint", "int", "float", "complex")
    kinds = [order.index(as_dtype(dtype).kind) for dtype in (from_, to)]
    return kinds[0] <= kinds[1] or {from_.kind, to.kind} == {"int", "uint"}


def is_inference_mode_enabled() -> bool:
    """Whether gradients are off, as `inference_mode` has them."""
    return not modes.gradients


def is_anomaly_enabled() -> bool:
    """Whether `detect_anomaly` is on."""
    return modes.anomaly is not None


def is_deterministic_algorithms_warn_only_enabled() -> bool:
    """False: what is not deterministic is not warned of but refused.

    >>> rl.is_deterministic_algorithms_warn_only_enabled()
    False
    """
    return False
