"""Code caches: bytes on disk under a key, and loaded code by the names of its functions.

The one on disk is safe against crashes, damage and other processes. An entry is a file whose name
is the hash of its key and whose head is a checksum of its contents. Machine code is loaded from
here, so the folder is private to the user, and one that others could have written to is not used.
The cache has a folder of its own, which a tag marks: nothing outside it is touched, and nothing
inside that does not look like an entry. A cache that cannot be used only costs time: that is a
warning, never an error.

Of what is loaded, in this process or on a device, that which nothing uses is unloaded. Plans hold
the code that their steps call. Besides that, what was asked for last is kept, up to so many bytes:
a program that comes again soon finds its code, and one over ever new shapes does not fill memory.
"""

from __future__ import annotations

import contextlib
import os
import re
import stat
import threading
import warnings
from collections.abc import Callable, Iterable, Iterator, Sequence
from hashlib import blake2b
from pathlib import Path
from typing import Generic, Protocol, TypeVar

from ridgeline.config import config
from ridgeline.files import sweep, write_whole
from ridgeline.weak import Recent, WeakTable, fingerprint

OWN = "ridgeline-cache"  # the folder's name inside a `cache_dir` that a user chose
TAG = "CACHEDIR.TAG"  # programs that make backups know this name and its first line
_TAG_TEXT = (
    b"Signature: 8a477f597d28d172789f06886806bc55\n"
    b"# Compiled code that ridgeline makes again where it is missing.\n"
)
_MAGIC = b"RLcache1"
_SHELF, _NAME = re.compile(r"[0-9a-f]{2}"), re.compile(r"[0-9a-f]{40}")
_DIGEST = 16
_SCAN_EVERY = 32 << 20  # bytes this process writes between two looks at the folder's size
_MANY = 1 << 16


class ObjectCache:
    """One namespace of the cache. The size cap holds for all namespaces together."""

    _written = _SCAN_EVERY  # so that the first put of a process looks

    def __init__(self, namespace: str = "objects") -> None:
        if not namespace.isidentifier():
            raise ValueError(f"a cache namespace must be a plain word, not {namespace!r}")
        self.namespace = namespace

    def get(self, key: str) -> bytes | None:
        """The bytes stored under `key`, or None; a damaged entry is removed and is None."""
        root = _usable_root()
        if root is None:
            return None
        path = self._path(root, key)
        try:
            content = path.read_bytes()
        except OSError:
            return None
        head, data = content[: len(_MAGIC) + _DIGEST], content[len(_MAGIC) + _DIGEST :]
        if head != _MAGIC + _checksum(path.name, data):
            with contextlib.suppress(OSError):
                path.unlink()
            return None
        with contextlib.suppress(OSError):  # the time of last use, which eviction goes by
            os.utime(path)
        return data

    def put(self, key: str, data: bytes) -> None:
        """Store bytes under a key, atomically: another process sees all of them or none."""
        root = _usable_root()
        if root is None:
            return
        path = self._path(root, key)
        try:
            path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
            write_whole(path, _MAGIC + _checksum(path.name, data) + data, durable=False)
        except OSError as error:
            _warn(f"cannot write to the cache: {error}")
            return
        ObjectCache._written += len(data)
        step = min(_SCAN_EVERY, config.cache_max_bytes // 16)
        if ObjectCache._written >= step:
            ObjectCache._written = 0
            evict(root, config.cache_max_bytes - step)  # what is written until the next look fits

    def _path(self, root: Path, key: str) -> Path:
        name = fingerprint(key, 20)
        return root / self.namespace / name[:2] / name


def cache_root() -> Path:
    """The folder the cache lives in, whether or not it exists yet."""
    if config.cache_dir:
        return Path(config.cache_dir).expanduser() / OWN
    base = os.environ.get("XDG_CACHE_HOME", "")
    # The XDG specification: a relative path there is invalid and ignored.
    return (Path(base) if os.path.isabs(base) else Path.home() / ".cache") / "ridgeline"


def evict(root: Path, limit: int) -> None:
    """Remove the least recently used entries, until a little less than `limit` bytes are left."""
    entries: list[tuple[float, int, Path]] = []
    sweep(root)  # where a tag may be unfinished
    for shelf in _shelves(root):
        sweep(shelf)
        for entry in _inside(shelf):
            if _NAME.fullmatch(entry.name) and entry.is_file(follow_symlinks=False):
                with contextlib.suppress(OSError):  # another process may have removed it
                    status = entry.stat(follow_symlinks=False)
                    entries.append((status.st_mtime, status.st_size, Path(entry.path)))
    total = sum(size for _, size, _ in entries)
    if total <= limit:
        return
    for _, size, path in sorted(entries):
        if total <= limit - limit // 8:
            break
        with contextlib.suppress(OSError):
            if _is_entry(path):
                path.unlink()
        total -= size


def _shelves(root: Path) -> Iterator[Path]:
    """The folders that hold entries; a link to a folder is not followed."""
    for namespace in _inside(root):
        if namespace.name.isidentifier() and namespace.is_dir(follow_symlinks=False):
            for shelf in _inside(Path(namespace.path)):
                if _SHELF.fullmatch(shelf.name) and shelf.is_dir(follow_symlinks=False):
                    yield Path(shelf.path)


def _inside(folder: Path) -> list[os.DirEntry[str]]:
    with contextlib.suppress(OSError), os.scandir(folder) as found:
        return list(found)
    return []


def _is_entry(path: Path) -> bool:
    """True if the cache wrote the file, even if its contents were damaged since."""
    with open(path, "rb") as file:
        return file.read(len(_MAGIC)) == _MAGIC


def _checksum(name: str, data: bytes) -> bytes:
    """Covers the name too, so that an entry renamed to another key is not taken for it."""
    return blake2b(data, digest_size=_DIGEST, key=name.encode()).digest()


_checked: dict[str, bool] = {}


def _usable_root() -> Path | None:
    """The cache folder, made if missing; None if it cannot be used."""
    if config.cache_max_bytes == 0:
        return None
    try:
        root = cache_root()
    except RuntimeError:  # no home folder
        return None
    known = _checked.get(str(root))
    if known is None:
        known = _checked[str(root)] = _prepare(root)
    return root if known else None


def _prepare(root: Path) -> bool:
    try:
        root.mkdir(mode=0o700, parents=True, exist_ok=True)
        status = root.stat()
    except OSError as error:
        _warn(f"no disk cache: {error}")
        return False
    if status.st_uid != os.geteuid():
        _warn(f"no disk cache: {root} belongs to another user")
        return False
    around = root.parent.stat().st_mode
    if status.st_mode & 0o022 or (around & 0o022 and not around & stat.S_ISVTX):
        _warn(f"no disk cache: users other than its owner can write to {root}, or replace it")
        return False
    return _tagged(root)


def _tagged(root: Path) -> bool:
    """True if the folder has the tag, which a new one is given."""
    tag = root / TAG
    try:
        if not tag.exists():
            others = [e.name for e in os.scandir(root) if not _may_be_ours(e)]
            if others:
                _warn(f"no disk cache: {root} holds other files, such as {others[0]}")
                return False
            write_whole(tag, _TAG_TEXT, durable=False)
    except OSError as error:
        _warn(f"no disk cache: {error}")
        return False
    return True


def _may_be_ours(entry: os.DirEntry[str]) -> bool:
    """True for what may be at the top of a cache; another process may just be tagging it."""
    if entry.is_dir(follow_symlinks=False):
        return entry.name.isidentifier()
    return TAG in entry.name


def _warn(message: str) -> None:
    warnings.warn(message, RuntimeWarning, stacklevel=4)


class Code(Protocol):
    """Loaded code, which is unloaded some time after nobody refers to it."""

    nbytes: int


C = TypeVar("C", bound=Code)
Image = tuple[Sequence[str], Callable[[], C]]  # what it defines, and how it is loaded


class LoadedCode(Generic[C]):
    """Loaded code by the names of its functions."""

    def __init__(self, most_bytes: int) -> None:
        self._by_symbol: WeakTable[C] = WeakTable()
        self._last_used: Recent[int, C] = Recent(_MANY, most_bytes)  # by identity
        # a program that takes its functions from here finds all of them, however large they are
        self._loaded_last: tuple[C, ...] = ()
        self._lock = threading.RLock()

    def __len__(self) -> int:
        return len(self._by_symbol)

    def load(self, images: Iterable[Image[C]]) -> None:
        """Load those images of which some function is not loaded yet."""
        with self._lock:
            self._loaded_last = tuple([code for image in images for code in self._load(*image)])

    def _load(self, symbols: Sequence[str], load: Callable[[], C]) -> list[C]:
        found = self.held(symbols)
        missing = [symbol for symbol in symbols if symbol not in found]
        there = list(found.values())
        if missing:
            code = load()
            self._use(code)
            for symbol in missing:
                self._by_symbol.keep(symbol, code)
            there.append(code)
        return there

    def held(self, symbols: Iterable[str]) -> dict[str, C]:
        """The code of those functions that are loaded, marked as used just now."""
        with self._lock:
            found = {s: self._by_symbol.get(s) for s in symbols}
            known = {s: code for s, code in found.items() if code is not None}
            for code in known.values():
                self._use(code)
            return known

    def code(self, symbol: str) -> C:
        """The code that defines a function."""
        with self._lock:
            found = self._by_symbol.get(symbol)
        if found is None:
            raise KeyError(symbol)
        return found

    def clear(self) -> None:
        """Forget everything; plans keep what they call."""
        with self._lock:
            self._by_symbol = WeakTable()
            self._last_used.clear()
            self._loaded_last = ()

    def _use(self, code: C) -> None:
        self._last_used.keep(id(code), code, code.nbytes)
