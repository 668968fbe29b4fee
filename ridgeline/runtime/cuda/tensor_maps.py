"""What the copy engine of Hopper is told of a tensor, encoded by the driver.

The driver writes 128 bytes, at an address that its own bindings do not promise to align; so this
one function is called in the library itself.
"""

from __future__ import annotations

import ctypes
from ctypes import c_uint32, c_uint64, c_void_p
from functools import lru_cache
from typing import Any

from ridgeline.codegen.cuda.source import TileMap
from ridgeline.runtime.cuda.driver import DeviceFailure, load

BYTES, ALIGNED = 128, 64
_KINDS = {  # the number that the driver has for a type, and bytes; what is only moved is a byte
    "float16": (6, 2), "float32": (7, 4), "bfloat16": (9, 2), "int8": (0, 1), "uint8": (0, 1),
    "float8_e4m3fn": (0, 1), "float8_e5m2": (0, 1),
}  # fmt: skip
_SWIZZLE_128 = 3  # 16-byte pieces of a row of 128 bytes are exchanged
_FETCH_256 = 3  # bytes that the L2 cache gets at once


@lru_cache(maxsize=1)
def _encode() -> Any:
    library = load((), ("libcuda.so.1", "libcuda.so"))
    if library is None:
        raise DeviceFailure("the library of NVIDIA's driver was not found")
    return library.cuTensorMapEncodeTiled


def encode(of: TileMap, address: int, into: int) -> None:
    """Write the map of a tensor that lies at an address to aligned memory of the host."""
    kind, itemsize = _KINDS[of.dtype]
    rank = len(of.sizes)
    status = _encode()(
        c_void_p(into), kind, c_uint32(rank), c_void_p(address + of.offset * itemsize),
        (c_uint64 * rank)(*of.sizes),
        (c_uint64 * rank)(*(step * itemsize for step in of.strides)),
        (c_uint32 * rank)(*of.box), (c_uint32 * rank)(*[1] * rank),
        0, _SWIZZLE_128, _FETCH_256, 0,
    )  # fmt: skip
    if status:
        raise DeviceFailure(f"cuTensorMapEncodeTiled failed with status {status} for {of}")


class TensorMaps:
    """The maps of a launch, where its parameters point to, encoded again when memory moves."""

    def __init__(self, maps: tuple[TileMap, ...]) -> None:
        self.maps = maps
        self._memory = ctypes.create_string_buffer(BYTES * len(maps) + ALIGNED)
        first = -(-ctypes.addressof(self._memory) // ALIGNED) * ALIGNED
        self.addresses = [first + BYTES * n for n in range(len(maps))]
        self._encoded: list[int | None] = [None] * len(maps)

    def lie_at(self, number: int, address: int) -> None:
        """The tensor of a map lies at an address."""
        if self._encoded[number] != address:
            encode(self.maps[number], address, self.addresses[number])
            self._encoded[number] = address
