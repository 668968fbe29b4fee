"""Names of devices: `cpu`, `cuda:0`, `cuda:1` … A device is a string, so types compare cheaply."""

from __future__ import annotations

import threading
from collections.abc import Callable
from importlib import import_module
from operator import methodcaller
from typing import Any, NamedTuple

from ridgeline.errors import DeviceError, DeviceKindError


class Kind(NamedTuple):
    """What a kind of device is made of: classes, as `module:name`, made with a device's number.

    They are imported when such a device is first used: they load a compiler or a driver.
    """

    backend: str  # what compiles for it (`compiler/backend.py`)
    space: str  # its memory (`runtime/buffer.py`)


# One line for each kind of device that there is.
KINDS = {
    "cpu": Kind("ridgeline.runtime.cpu.backend:CpuBackend", "ridgeline.runtime.buffer:HostSpace"),
    "cuda": Kind(
        "ridgeline.runtime.cuda.backend:CudaBackend", "ridgeline.runtime.cuda.space:DeviceSpace"
    ),
    "mesh": Kind("ridgeline.sharding.backend:MeshBackend", "ridgeline.sharding.memory:MeshSpace"),
}


def part_of(owner: device, part: str) -> Any:
    """The backend or the space of a device, made anew."""
    module, _, name = getattr(KINDS[owner.type], part).partition(":")
    return getattr(import_module(module), name)(owner.index or 0)


class _Current(threading.local):
    """What `cuda` without a number means to the calling thread; see `ridgeline.cuda.device`."""

    index: int = 0


current = _Current()


class device(str):
    """Where values are: `device("cuda")`, `device("cuda:1")`, `device("cuda", 1)`.

    The name is spelled out: `device("cuda") == "cuda:0"` where that is the current GPU, and there
    is one `cpu`.
    """

    __slots__ = ()

    def __new__(cls, name: Any, index: int | None = None) -> device:
        """The device under a name; whether this machine has it is not asked."""
        if type(name) is cls and index is None:
            return name
        if isinstance(name, int) and not isinstance(name, bool):
            name, index = "cuda", name
        kind, colon, number = str(name).partition(":")
        if kind not in KINDS or (colon and not number.isdecimal()) or (colon and index is not None):
            kind_of_error = DeviceError if isinstance(name, str) else DeviceKindError
            raise kind_of_error(
                f"there is no device {str(name)!r}", help='devices are "cpu", "cuda", "cuda:1" …'
            )
        default = current.index if kind == "cuda" else 0
        chosen = int(number) if colon else default if index is None else index
        if chosen < 0 or (kind == "cpu" and chosen):
            raise DeviceError(f"there is no device number {chosen} of kind {kind}")
        return super().__new__(cls, "cpu" if kind == "cpu" else f"{kind}:{chosen}")

    @property
    def type(self) -> str:
        """The kind: `cpu` or `cuda`."""
        return self.split(":")[0]

    @property
    def index(self) -> int | None:  # type: ignore[override]
        """Which of the devices of its kind; None for the CPU."""
        number = self.partition(":")[2]
        return int(number) if number else None

    def __repr__(self) -> str:
        return f"device({str(self)!r})"

    def __reduce__(self) -> tuple[Any, ...]:
        return (device, (str(self),))


CPU = device("cpu")


# True for a mesh of ranks, whose values lie shared out over their own devices
is_mesh: Callable[[str], bool] = methodcaller("startswith", "mesh")
