"""NVIDIA's driver through `cuda.bindings`: found when first asked for, every call checked."""

from __future__ import annotations

from collections.abc import Callable
from functools import lru_cache
from importlib import import_module
from typing import Any

from ridgeline.errors import DeviceError, OutOfMemoryError, RidgelineError


class DeviceFailure(RidgelineError):
    """The driver or a kernel failed; work on the device since the last read is lost."""

    code = "RL0109"


class DriverOutOfMemory(OutOfMemoryError):
    """The driver has no memory left; the pool says more in an error of its own."""


@lru_cache(maxsize=1)
def bindings() -> Any:
    """The module of the driver's functions, initialised; an error that says what is missing."""
    reason = missing()
    if reason:
        raise DeviceError(
            f"there is no CUDA device: {reason}",
            help='pip install "ridgeline[cuda]" on a machine with NVIDIA\'s driver, '
            'or use device="cpu"',
        )
    return import_module("cuda.bindings.driver")


@lru_cache(maxsize=1)
def missing() -> str:
    """Why no GPU can be used; empty if one can."""
    try:
        module: Any = import_module("cuda.bindings.driver")
    except ImportError:
        return "the package cuda-bindings is not installed"
    try:
        error = module.cuInit(0)[0]
        if int(error):
            return f"the driver does not start ({error.name})"
        error, count = module.cuDeviceGetCount()
    except Exception as error:  # the bindings raise kinds of their own where libcuda is not found
        return str(error).strip().splitlines()[0] or "NVIDIA's driver is not installed"
    return "" if not int(error) and count else "the driver finds no GPU"


def call(name: str, *arguments: Any) -> Any:
    """Call a function of the driver; its results, or an error that names it."""
    return checked(name, getattr(bindings(), name)(*arguments))


def checked(name: str, answer: tuple[Any, ...]) -> Any:
    """What a call gave besides its status: nothing, one value or a tuple."""
    status = answer[0]
    if int(status):
        raise failure(name, status)
    return answer[1] if len(answer) == 2 else answer[1:] if len(answer) > 2 else None


def failure(name: str, status: Any) -> Exception:
    """The error for a status that is not success."""
    title = getattr(status, "name", str(status))
    if title == "CUDA_ERROR_OUT_OF_MEMORY":
        return DriverOutOfMemory(
            f"{name} found no memory left",
            help="let go of tensors you no longer need, or leave other programs more of the device",
        )
    return DeviceFailure(
        f"{name} failed on the device: {title}",
        note="an earlier kernel may be the cause: work on the device is asynchronous",
        help="run under ridgeline.eager() to see the line, or under compute-sanitizer",
    )


def function(name: str) -> Callable[..., Any]:
    """A function of the driver for hot paths, where the caller looks at the status."""
    found: Callable[..., Any] = getattr(bindings(), name)
    return found
