"""Files as torch writes them: a zip archive of a pickle and storages, or the stream before it."""

from __future__ import annotations

import io
import os
import struct
import sys
import zipfile
from collections.abc import Callable
from contextlib import ExitStack
from pathlib import Path
from typing import IO, Any

import numpy as np

from ridgeline.dtypes import DType
from ridgeline.errors import ArgumentError, InputFileError, RidgelineError, unreadable
from ridgeline.scalars import Array
from ridgeline.serialization.names import StorageKind
from ridgeline.serialization.opcodes import run
from ridgeline.serialization.storages import FileStorage, MapLocation, placed

_ZIP = b"PK\x03\x04"
_LOCAL_HEADER = 30  # bytes of a zip entry before its name
_MAGIC = 0x1950A86A20F9469CFC6C  # the first number of the older form
_VERSION = 1001
# What reading a file raises that is cut short, changed, or of another kind.
_DAMAGED = (
    zipfile.BadZipFile, EOFError, OSError, struct.error, RuntimeError, ValueError, TypeError,
    KeyError,
)  # fmt: skip


def read_file(f: Any, where: MapLocation, mapped: bool) -> Any:
    """The object that a file holds."""
    with ExitStack() as stack:
        if isinstance(f, str | os.PathLike):
            path = Path(f)
            try:
                file: IO[bytes] = stack.enter_context(open(path, "rb"))
            except OSError as error:
                raise unreadable(path, error) from error
            name = str(path)
        else:
            if not hasattr(f, "read") or not hasattr(f, "seek"):
                raise ArgumentError(f"load needs a path or an open file, not {type(f).__name__}")
            if mapped:
                raise ArgumentError("load: mmap=True needs a path", help="give the file's name")
            file, name = f, "the file"
        start = file.tell()
        head = file.read(4)
        file.seek(start)
        try:
            if head == _ZIP:
                return _Zip(file, name, where, mapped).object()
            if mapped:
                raise InputFileError(f"{name} is of the older form, which cannot be mapped")
            return _Stream(file, name, where).object()
        except RidgelineError as error:
            error.note = error.note or f"read from {name}"
            raise
        except _DAMAGED as error:
            raise InputFileError(
                f"{name} is no whole file of tensors: {error!s:.80}", help="use another copy of it"
            ) from error


class _Zip:
    """A zip archive with one folder: `data.pkl`, and `data/0`, `data/1`… for the storages."""

    def __init__(self, file: IO[bytes], name: str, where: MapLocation, mapped: bool) -> None:
        self._zip, self._name, self._where = zipfile.ZipFile(file), name, where
        self._memory = np.memmap(name, np.uint8, mode="c") if mapped else None
        found = [entry for entry in self._zip.namelist() if entry.endswith("/data.pkl")]
        if len(found) != 1 or found[0].count("/") != 1:
            raise InputFileError(
                f"{name} holds no tensors: it is a zip file without one data.pkl",
                help="programs that torch.jit.save or torch.export wrote are not read by load",
            )
        self._root = found[0].removesuffix("data.pkl")
        order = self._bytes("byteorder") if self._has("byteorder") else b"little"
        if self._has("constants.pkl"):
            raise InputFileError(
                f"{name} is a program of torch.jit, not tensors",
                help="save model.state_dict() where it was written",
            )
        self._swap = order.strip() == b"big"

    def _bytes(self, entry: str) -> bytes:
        """An entry, which lies in the file as it is: what is packed may be as large as it likes."""
        info = self._zip.NameToInfo[f"{self._root}{entry}"]
        if info.compress_type != zipfile.ZIP_STORED:
            raise InputFileError(f"{self._name} is refused: its entries are compressed")
        return self._zip.read(info)

    def _has(self, entry: str) -> bool:
        return f"{self._root}{entry}" in self._zip.NameToInfo

    def object(self) -> Any:
        """The object."""
        kept: dict[str, FileStorage] = {}

        def storage(identity: Any) -> FileStorage:
            kind, key, device, count = _identity(identity)
            if key not in kept:
                kept[key] = placed(self._storage(kind, key, count, device), device, self._where)
            return kept[key]

        return run(io.BytesIO(self._bytes("data.pkl")), storage)

    def _storage(self, kind: StorageKind, key: str, count: int, device: str) -> FileStorage:
        entry = f"data/{key}"
        info = self._zip.NameToInfo.get(f"{self._root}{entry}")
        if info is None:
            raise InputFileError(f"{self._name} is damaged: the storage {key!r:.20} is missing")
        size = 1 if kind.dtype is None else kind.dtype.itemsize
        if count * size > info.file_size:
            raise InputFileError(
                f"{self._name} is damaged: the storage {key!r:.20} has {info.file_size} bytes in "
                f"place of {count * size}"
            )
        if self._memory is not None:
            return FileStorage(
                kind.dtype, count * size, device, self._mapped(info, count * size), False
            )
        read = self._reader(entry, kind, count * size)
        return FileStorage(kind.dtype, count * size, device, read, True)

    def _reader(self, entry: str, kind: StorageKind, nbytes: int) -> Callable[[], Array]:
        def read() -> Array:
            found = np.frombuffer(bytearray(self._bytes(entry)), np.uint8)[:nbytes]
            return _native(found, kind.dtype, self._swap)

        return read

    def _mapped(self, info: zipfile.ZipInfo, nbytes: int) -> Callable[[], Array]:
        memory = self._memory
        assert memory is not None
        if self._swap:
            raise InputFileError("a file of another byte order cannot be mapped")

        def read() -> Array:
            at = info.header_offset
            name, extra = struct.unpack("<HH", memory[at + 26 : at + _LOCAL_HEADER].tobytes())
            begin = at + _LOCAL_HEADER + name + extra
            found = memory[begin : begin + nbytes]
            if len(found) != nbytes:
                raise InputFileError("the file is damaged: a storage lies beyond its end")
            return np.asarray(found)

        return read


class _Stream:
    """The older form: pickles of a magic number, a version, the machine, the object and keys."""

    def __init__(self, file: IO[bytes], name: str, where: MapLocation) -> None:
        self._file, self._name, self._where = file, name, where

    def object(self) -> Any:
        """The object; the storages' bytes come last, so it is interpreted a second time."""
        if self._header() != _MAGIC or self._header() != _VERSION:
            raise InputFileError(
                f"{self._name} is no file that torch.save wrote",
                help="safetensors files are read by ridgeline.interop.safetensors",
            )
        machine = self._header()
        begin = self._file.tell()
        known: dict[str, FileStorage] = {}

        def expected(identity: Any) -> FileStorage:
            kind, key, device, _ = _identity(identity)
            return known.setdefault(key, FileStorage(kind.dtype, 0, device, None, True))

        run(self._file, expected)
        little = not isinstance(machine, dict) or machine.get("little_endian", True) is True
        for key in self._header():
            self._fill(known[str(key)], not little)
        self._file.seek(begin)
        return run(self._file, lambda identity: known[_identity(identity)[1]])

    def _header(self) -> Any:
        def refuse(_: Any) -> Any:
            raise ValueError("a storage where there is none")

        return run(self._file, refuse)

    def _fill(self, storage: FileStorage, swap: bool) -> None:
        """Read the bytes of the next storage."""
        size = 1 if storage.dtype is None else storage.dtype.itemsize
        (count,) = struct.unpack("<q", self._file.read(8))
        if not 0 <= count * size <= sys.maxsize:
            raise ValueError("a storage of a negative size, or one that no memory holds")
        data = bytearray(self._file.read(count * size))
        if len(data) != count * size:
            raise EOFError("it ends inside a storage")
        found = _native(np.frombuffer(data, np.uint8), storage.dtype, swap)
        storage.nbytes, storage.read = len(data), lambda: found
        placed(storage, storage.location, self._where)


def _native(data: Array, dtype: DType | None, swap: bool) -> Array:
    """Bytes in this machine's order."""
    if not swap or dtype is None or dtype.itemsize == 1:
        return data
    part = dtype.itemsize // (2 if dtype.is_complex else 1)
    return data.reshape(-1, part)[:, ::-1].reshape(-1).copy()


def _identity(identity: Any) -> tuple[StorageKind, str, str, int]:
    """Kind, key, place and number of elements of a storage, as a file names it."""
    if type(identity) is not tuple or len(identity) < 5 or identity[0] != "storage":
        raise ValueError("an object that is no storage")
    _, kind, key, device, count = identity[:5]
    if not isinstance(kind, StorageKind) or type(count) is not int or count < 0:
        raise ValueError("a storage of an unknown kind")
    if len(identity) > 5 and identity[5] is not None:
        raise ValueError("a storage that is a view of another")
    return kind, str(key), str(device), count
