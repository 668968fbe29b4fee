"""NVIDIA's driver through `cuda.bindings`, every call checked, and where its libraries are.

Of a device's failure all that can be known are the lines whose work was enqueued last: kernels run
long after they were enqueued, and the driver reports a fault to whoever asks next. Each device
keeps the results of the programs that it was given last, and results know their lines.

Libraries are found in the wheels that pip installs or on the system. What they make is destroyed
when the next such thing is made: finalizers only note it (`device.py`).
"""

from __future__ import annotations

import ctypes
from collections import deque
from collections.abc import Callable, Iterable, Sequence
from functools import lru_cache, partial
from importlib import import_module
from importlib.util import find_spec
from itertools import product
from pathlib import Path
from typing import Any, TypeAlias

from ridgeline.errors import DeviceError, OutOfMemoryError, RidgelineError
from ridgeline.graph.node import Node
from ridgeline.graph.origins import lines_of

MOST_PROGRAMS = 4  # that a device remembers
_SHOWN = 8
Results: TypeAlias = Sequence[Node]


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


def blamed(error: DeviceFailure, recent: Iterable[Results]) -> DeviceFailure:
    """A failure, with the lines of the programs that were enqueued last."""
    lines = dict.fromkeys(line for results in reversed([*recent]) for line in shown_lines(results))
    text = "\n".join(["enqueued last, the latest first:", *list(lines)[:_SHOWN]])
    if lines and text not in error.note:
        error.note = f"{error.note}\n{text}" if error.note else text
    return error


def shown_lines(results: Results) -> list[str]:
    """The lines that recorded some results."""
    return [str(line) for line in lines_of(results)][:_SHOWN]


def load(folders: Sequence[str], names: Sequence[str]) -> Any:
    """The first library of these names, in folders of the wheels first; None if there is none."""
    found = find_spec("nvidia")
    roots = (found.submodule_search_locations or ()) if found else ()
    for root, folder, name in product(roots, folders, names):
        path = Path(root) / folder / name
        if path.exists():
            return ctypes.CDLL(str(path))
    for name in names:
        try:
            return ctypes.CDLL(name)
        except OSError:
            continue
    return None


_discarded: deque[Callable[[], object]] = deque()


def destroying(destroy: Callable[..., object], made: object) -> Callable[[], object]:
    """What the holder of something that a library made does at its end, for `__del__`: C code."""
    return partial(_discarded.append, partial(destroy, made))


def destroy_discarded() -> None:
    """Destroy what nobody holds any more."""
    while _discarded:
        try:
            destroy = _discarded.popleft()
        except IndexError:  # another thread took it
            return
        destroy()
