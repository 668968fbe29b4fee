"""The pool of freed memory blocks behind `Buffer`, by size class.

A block that comes back is only appended to a deque, which is C code: finalizers can run anywhere,
even inside `take`, so they must not wait for a lock, and CPython swallows an interrupt that comes
while one runs in Python. `take` sorts what came back into the free lists. Memory is never released
because the interpreter ends: native threads may still use it.
"""

from __future__ import annotations

import ctypes
import mmap
import os
import sys
import threading
from collections import deque
from collections.abc import Callable
from contextlib import suppress
from functools import lru_cache

from ridgeline.atomic import at_fork
from ridgeline.config import config
from ridgeline.errors import OutOfMemoryError

LARGE = 1 << 20  # from here on blocks are mapped, aligned to huge pages
HUGE_PAGE = 2 << 20
ALIGNMENT = 64
_LITTLE = 6  # one part in so many of a block may be lost to have it in whole huge pages
SLACK = 64  # vector code may read (never write) this far past the end of a block
_PAGE = mmap.PAGESIZE

_libc = ctypes.CDLL("ucrtbase" if sys.platform == "win32" else None, use_errno=True)
_aligned_alloc = _libc._aligned_malloc if sys.platform == "win32" else _libc.aligned_alloc
_aligned_alloc.argtypes, _aligned_alloc.restype = [ctypes.c_size_t] * 2, ctypes.c_void_p
_free = _libc._aligned_free if sys.platform == "win32" else _libc.free
_free.argtypes, _free.restype = [ctypes.c_void_p], None
_mappings: dict[int, mmap.mmap] = {}  # by the addresses of large blocks: what they lie in


class _SizeClass:
    """The free blocks of one size, and when one was last asked for."""

    __slots__ = ("free", "last_use")

    def __init__(self) -> None:
        self.free: list[int] = []
        self.last_use = 0


class Pool:
    """Blocks of memory by size class: taken under a lock, given back without one.

    Where the blocks come from is the caller's: the host's memory, unless told otherwise.
    """

    def __init__(
        self,
        map_block: Callable[[int], int] | None = None,
        unmap_block: Callable[[int, int], None] | None = None,
        limit: int = 0,
    ) -> None:
        self._map = map_block or _map_block
        self._unmap = unmap_block or _unmap_block
        self._limit = limit  # bytes kept for reuse; 0: as config says
        self._lock = threading.Lock()
        self._returned: deque[tuple[int, int]] = deque()
        self.returned = self._returned.append  # what a finalizer calls with a block
        self._classes: dict[int, _SizeClass] = {}
        self._in_use = self._peak = self._cached = self._uses = 0
        # A fork while another thread is in `take` would leave the child a lock nobody opens.
        at_fork(
            before=self._lock.acquire,
            after_in_parent=self._lock.release,
            after_in_child=self._lock.release,
        )

    @property
    def in_use(self) -> int:
        """Bytes of the blocks that buffers hold."""
        with self._lock:
            self._sort_returned()
            return self._in_use

    @property
    def peak(self) -> int:
        """The most bytes ever in use at once."""
        return self._peak

    @property
    def cached(self) -> int:
        """Bytes of the blocks kept for reuse."""
        with self._lock:
            self._sort_returned()
            return self._cached

    def reset_peak(self) -> None:
        """Measure the peak from now on."""
        with self._lock:
            self._sort_returned()
            self._peak = self._in_use

    def take(self, nbytes: int, exact: bool = False) -> tuple[int, int]:
        """The address of a block for `nbytes`, and the size class it has to return to.

        `exact`: a block of `exact_bytes`, and no other.
        """
        size = exact_bytes(nbytes) if exact else block_bytes(nbytes)
        with self._lock:
            if self._returned:
                latest = self._returned.pop()
                if latest[1] == size:  # it counts as in use still
                    return latest
                self._returned.append(latest)
                self._sort_returned()
            found = self._classes.get(size)
            if found is not None and found.free:
                address = found.free.pop()
                self._cached -= size
            else:
                address, size = self._take_near(size, exact)
                found = self._classes[size]
            self._uses = found.last_use = self._uses + 1
            self._in_use += size
            if self._in_use > self._peak:
                self._peak = self._in_use
        return address, size

    def give_back(self, address: int, size: int) -> None:
        """Return a block. Large ones are sorted in at once, so that the cap holds."""
        self._returned.append((address, size))
        if size >= LARGE and self._lock.acquire(blocking=False):
            try:
                self._sort_returned()
            finally:
                self._lock.release()

    def trim(self, keep: int = 0) -> int:
        """Release cached memory until `keep` bytes are left; returns the bytes released."""
        with self._lock:
            self._sort_returned()
            return self._release_to(keep)

    def _take_near(self, size: int, exact: bool) -> tuple[int, int]:
        """A cached block slightly too large, which beats fresh pages, or else a new one."""
        candidate = _next_class(size)
        while not exact and candidate <= size + size // 4:
            larger = self._classes.get(candidate)
            if larger is not None and larger.free:
                self._cached -= candidate
                return larger.free.pop(), candidate
            candidate = _next_class(candidate)
        self._classes.setdefault(size, _SizeClass())
        try:
            return self._map(size), size
        except MemoryError:
            self._release_to(0)
            return self._map(size), size

    def _sort_returned(self) -> None:
        cached = self._cached
        while self._returned:
            address, size = self._returned.popleft()
            self._classes[size].free.append(address)
            cached += size
        self._in_use -= cached - self._cached
        self._cached = cached
        limit = self._limit or config.buffer_cache_bytes or _DEFAULT_LIMIT
        if cached > limit:
            self._release_to(limit)

    def _release_to(self, keep: int) -> int:
        """Release blocks, those of the longest unused size class first; the lock is held."""
        before = self._cached
        for size, blocks in sorted(self._classes.items(), key=lambda item: item[1].last_use):
            while blocks.free and self._cached > keep:
                self._unmap(blocks.free.pop(), size)
                self._cached -= size
        return before - self._cached


@lru_cache(maxsize=4096)
def block_bytes(nbytes: int) -> int:
    """The size class for `nbytes`: eight classes to an octave.

    Large ones are whole huge pages where that wastes little; otherwise their end is small pages.
    """
    if nbytes < 0:
        raise ValueError(f"cannot allocate {nbytes} bytes")
    if nbytes >= LARGE:
        whole = (nbytes + HUGE_PAGE - 1) & -HUGE_PAGE
        if (whole - nbytes) * _LITTLE <= nbytes:
            nbytes = whole
    else:
        nbytes += SLACK
    step = max(ALIGNMENT, 1 << max(nbytes.bit_length() - 4, 0))
    return (nbytes + step - 1) & -step


@lru_cache(maxsize=4096)
def exact_bytes(nbytes: int) -> int:
    """The block for `nbytes` without slack: large ones are whole pages."""
    return (nbytes + _PAGE - 1) & -_PAGE if nbytes >= LARGE else block_bytes(nbytes)


def _next_class(size: int) -> int:
    return block_bytes(size + 1 if size >= LARGE else size + 1 - SLACK)


def _map_block(size: int) -> int:
    """Fresh memory of a size class."""
    if size < LARGE:
        how = (size, ALIGNMENT) if sys.platform == "win32" else (ALIGNMENT, size)
        small: int | None = _aligned_alloc(*how)
        if not small:
            raise OutOfMemoryError(f"cannot allocate {size} bytes")
        return small
    start, mapping = map_pages(size + HUGE_PAGE)  # room to align, and a page of readable slack
    offset = -start % HUGE_PAGE
    if config.huge_pages and hasattr(mmap, "MADV_HUGEPAGE"):
        with suppress(OSError):  # a kernel without them
            mapping.madvise(mmap.MADV_HUGEPAGE, offset, size)
    _mappings[start + offset] = mapping
    return start + offset


def _unmap_block(address: int, size: int) -> None:
    if size < LARGE:
        _free(address)
    else:
        mapping = _mappings.pop(address)
        mapping.close()
        ctypes.pythonapi.Py_DecRef(ctypes.py_object(mapping))


def map_pages(nbytes: int) -> tuple[int, mmap.mmap]:
    """The address of zeroed memory of this process alone, and what it lies in; it stays when the
    interpreter ends: native threads may still use it."""
    private = {} if sys.platform == "win32" else {"flags": mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS}
    try:
        mapping = mmap.mmap(-1, nbytes, **private)
    except (OSError, OverflowError) as error:
        raise OutOfMemoryError(f"cannot map {nbytes} bytes: {error}") from None
    ctypes.pythonapi.Py_IncRef(ctypes.py_object(mapping))
    return ctypes.addressof(ctypes.c_char.from_buffer(mapping)), mapping


def _default_limit() -> int:
    """A quarter of the physical memory."""
    if sys.platform != "win32":
        return os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") // 4
    kilobytes = ctypes.c_ulonglong()
    ctypes.windll.kernel32.GetPhysicallyInstalledSystemMemory(ctypes.byref(kilobytes))
    return kilobytes.value * 1024 // 4


_DEFAULT_LIMIT = _default_limit()
