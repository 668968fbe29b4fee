"""The pool's state and its one setting, the number of threads.

The memory is mapped for good and belongs to no Python object: workers go on reading it while the
interpreter ends. There is one pool in a process; the code that works on it is in `pool_ir`.
"""

from __future__ import annotations

import ctypes
import mmap
import os
from functools import lru_cache, partial

from ridgeline.codegen.llvm.target import target
from ridgeline.config import config
from ridgeline.runtime.cpu.pool_ir import CALLS, LIMIT, STARTED, STATE_BYTES

_WIPE_ON_FORK = getattr(mmap, "MADV_WIPEONFORK", 18)

_libc = ctypes.CDLL(None, use_errno=True)
_libc.mmap.restype = ctypes.c_void_p
_libc.mmap.argtypes = [ctypes.c_void_p, ctypes.c_size_t, *[ctypes.c_int] * 3, ctypes.c_long]
_libc.madvise.argtypes = [ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int]


def map_state(nbytes: int) -> int:
    """Zeroed memory that stays until the process ends; a forked child finds page one zeroed."""
    flags = mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS
    address = _libc.mmap(None, nbytes, mmap.PROT_READ | mmap.PROT_WRITE, flags, -1, 0)
    if address in (None, ctypes.c_void_p(-1).value):
        raise MemoryError(f"cannot map {nbytes} bytes: {os.strerror(ctypes.get_errno())}")
    if _libc.madvise(address, mmap.PAGESIZE, _WIPE_ON_FORK):
        # A kernel without this: the same through Python, which sees only forks made by Python.
        os.register_at_fork(after_in_child=partial(ctypes.memset, address, 0, mmap.PAGESIZE))
    return int(address)


@lru_cache(maxsize=1)
def state() -> int:
    """The address of the pool's two pages."""
    address = map_state(STATE_BYTES)
    ctypes.c_int64.from_address(address + LIMIT).value = 1
    return address


def threads() -> int:
    """How many threads a parallel step may use, the calling one included."""
    return config.threads or target().threads


def set_limit(wanted: int, wake: int) -> None:
    """Set how many threads work; workers now too many are woken, by `wake`, so that they end."""
    limit = ctypes.c_int64.from_address(state() + LIMIT)
    shrinks = wanted < limit.value
    limit.value = wanted
    if shrinks:
        ctypes.CFUNCTYPE(None, ctypes.c_void_p, ctypes.c_int32)(wake)(state(), 0x7FFFFFFF)


def workers() -> int:
    """How many worker threads exist now; they start with the first parallel step."""
    return ctypes.c_int32.from_address(state() + STARTED).value


def calls() -> int:
    """How many native calls have run a plan since the process began."""
    return ctypes.c_int64.from_address(state() + CALLS).value
