"""Machine code on a device: CUBIN images whose functions are found by name.

An image that nobody uses is unloaded, but never from a finalizer and never while a launch of it may
be pending: see `Device.unload_discarded`.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

from ridgeline.codegen.caches import LoadedCode
from ridgeline.runtime.cuda.device import Device
from ridgeline.runtime.cuda.driver import bindings, call
from ridgeline.runtime.cuda.memory import with_room

MOST_CODE = 32 << 20  # bytes of images that stay loaded besides what programs use
MOST_DISCARDED = 64  # images that wait to be unloaded: for that the device has to come to rest
_PLAIN_SHARED = 48 << 10  # more shared memory than this has to be asked for


@dataclass(frozen=True, slots=True)
class DeviceFunction:
    """A kernel in the driver's words, and the module that has to stay loaded while it is used."""

    handle: Any
    module: object


class Cubin:
    """An image on a device; after this object is let go, loading others unloads it."""

    __slots__ = ("__del__", "__weakref__", "functions", "nbytes")
    __del__: Callable[[], object]

    def __init__(self, device: Device, image: bytes, launches: Sequence[tuple[str, int]]) -> None:
        """For each of its functions the symbol and the shared memory it uses."""
        device.activate()
        handle = with_room(device, lambda: call("cuModuleLoadData", image))
        self.__del__ = partial(device.discarded_modules.append, handle)
        self.nbytes = len(image)
        attribute = bindings().CUfunction_attribute.CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES
        self.functions: dict[str, Any] = {}
        for symbol, shared in launches:
            found = call("cuModuleGetFunction", handle, symbol.encode())
            if shared > _PLAIN_SHARED:
                call("cuFuncSetAttribute", found, attribute, shared)
            self.functions[symbol] = found


class Modules:
    """The functions that one device has loaded."""

    def __init__(self, device: Device) -> None:
        self._device = device
        self._loaded: LoadedCode[Cubin] = LoadedCode(MOST_CODE)

    def __getitem__(self, symbol: str) -> DeviceFunction:
        module = self._loaded.code(symbol)
        return DeviceFunction(module.functions[symbol], module)

    def load(self, images: Sequence[tuple[bytes, Sequence[tuple[str, int]]]]) -> None:
        """Load images whose functions are not there yet, each with its launches."""
        self._device.unload_discarded(MOST_DISCARDED)
        self._loaded.load(
            ([symbol for symbol, _ in launches], partial(Cubin, self._device, image, launches))
            for image, launches in images
        )
