"""Machine code on a device: CUBIN images loaded once, their functions found by name."""

from __future__ import annotations

from typing import Any

from ridgeline.runtime.cuda.device import Device
from ridgeline.runtime.cuda.driver import bindings, call
from ridgeline.runtime.cuda.memory import with_room

_PLAIN_SHARED = 48 << 10  # more shared memory than this has to be asked for


class Modules:
    """The functions that one device has loaded."""

    def __init__(self, device: Device) -> None:
        self._device = device
        self._functions: dict[str, Any] = {}
        self._images: list[Any] = []

    def __contains__(self, symbol: str) -> bool:
        return symbol in self._functions

    def __getitem__(self, symbol: str) -> Any:
        return self._functions[symbol]

    def load(self, image: bytes, launches: list[tuple[str, int]]) -> None:
        """Load an image; for each of its functions the symbol and the shared memory it uses."""
        self._device.activate()
        module = with_room(self._device, lambda: call("cuModuleLoadData", image))
        self._images.append(module)
        attribute = bindings().CUfunction_attribute.CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES
        for symbol, shared in launches:
            found = call("cuModuleGetFunction", module, symbol.encode())
            if shared > _PLAIN_SHARED:
                call("cuFuncSetAttribute", found, attribute, shared)
            self._functions[symbol] = found
