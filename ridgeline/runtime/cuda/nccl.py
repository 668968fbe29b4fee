"""NCCL by a thin binding: the collectives of GPUs, enqueued on our streams.

The library is found in NVIDIA's wheels or on the system, as cuBLASLt is.
"""

from __future__ import annotations

import ctypes
from ctypes import byref, c_int, c_size_t, c_void_p
from functools import lru_cache
from itertools import repeat
from operator import call
from typing import Any

from ridgeline.atomic import Block
from ridgeline.runtime.cuda.driver import DeviceFailure, load

UNIQUE_BYTES = 128
TYPES = {
    "int8": 0, "uint8": 1, "int32": 2, "uint32": 3, "int64": 4, "uint64": 5, "float16": 6,
    "float32": 7, "float64": 8, "bfloat16": 9,
}  # fmt: skip
REDUCTIONS = {"sum": 0, "mean": 0, "product": 1, "max": 2, "min": 3}
_FOLDERS = ("nccl/lib", "cu13/lib", "cu12/lib")
_NAMES = ("libnccl.so.2", "libnccl.so")
_SPLITS = 21800  # the version from which on groups can be split


class UniqueId(ctypes.Structure):
    """ncclUniqueId: what ranks of a new group must all have."""

    _fields_ = (("internal", ctypes.c_uint8 * UNIQUE_BYTES),)


@lru_cache(maxsize=1)
def library() -> Any:
    """The library, or None where it is not installed."""
    return load(_FOLDERS, _NAMES)


def check(status: int, what: str) -> None:
    """Raise where a call failed."""
    if status:
        text = library().ncclGetErrorString
        text.restype = ctypes.c_char_p
        raise DeviceFailure(f"NCCL: {what} failed: {(text(c_int(status)) or b'?').decode()}")


def unique_id() -> bytes:
    """The name of a new group, made on one rank for all."""
    made = UniqueId()
    check(library().ncclGetUniqueId(byref(made)), "ncclGetUniqueId")
    return bytes(made.internal)


def join(size: int, name: bytes, rank: int) -> c_void_p:
    """A rank's handle of a group, on the current device; returns when all ranks are there."""
    made, given = c_void_p(), UniqueId.from_buffer_copy(name)
    status = library().ncclCommInitRank(byref(made), c_int(size), given, c_int(rank))
    check(status, "ncclCommInitRank")
    return made


def split(group: c_void_p, color: int, key: int) -> c_void_p:
    """The handle of a part of a group: the ranks with the same colour."""
    version = c_int()
    check(library().ncclGetVersion(byref(version)), "ncclGetVersion")
    if version.value < _SPLITS:
        raise DeviceFailure(
            f"NCCL {version.value} cannot split groups; version 2.18 and newer ones can"
        )
    made = c_void_p()
    status = library().ncclCommSplit(group, c_int(color), c_int(key), byref(made), c_void_p())
    check(status, "ncclCommSplit")
    return made


def enqueue(name: str, stream: int, group: c_void_p, *words: Any) -> None:
    """Put a call onto a stream: its words, then the group and the stream."""
    status = getattr(library(), name)(*words, group, c_void_p(stream))
    check(status, name)


def together() -> Block:
    """A block whose calls go as one; the library is told of both ends by C code alone."""
    begin, end = library().ncclGroupStart, library().ncclGroupEnd
    return Block(map(call, repeat(begin)), map(check, map(call, repeat(end)), repeat(end.__name__)))


def abort(group: c_void_p) -> None:
    """End what a group has under way."""
    library().ncclCommAbort(group)


def address(start: int, bytes_on: int = 0) -> c_void_p:
    """An address as a word of a call."""
    return c_void_p(start + bytes_on)


def count(elements: int) -> c_size_t:
    """A number of elements as a word of a call."""
    return c_size_t(elements)
