"""`save` and `load`: torch's own files, read without running any code and written without torch.

A file is a pickle beside the bytes of its storages. `opcodes.py` interprets the pickle with a
handful of names and nothing else, so a hostile file can at worst be refused; `archive.py` has the
zip form and the one before it; `storages.py` turns storages into tensors that stay tied.
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import IO, Any

from ridgeline.errors import ArgumentError
from ridgeline.files import write_atomic
from ridgeline.serialization.allowed import (
    add_safe_globals as add_safe_globals,
    clear_safe_globals as clear_safe_globals,
    get_safe_globals as get_safe_globals,
    safe_globals as safe_globals,
)
from ridgeline.serialization.archive import read_file
from ridgeline.serialization.storages import MapLocation
from ridgeline.serialization.writing import archive_bytes

__all__ = [
    "add_safe_globals", "clear_safe_globals", "get_safe_globals", "load", "safe_globals", "save",
]  # fmt: skip


def save(
    obj: Any,
    f: str | os.PathLike[str] | IO[bytes],
    pickle_module: Any = None,
    pickle_protocol: int = 2,
    _use_new_zipfile_serialization: bool = True,
) -> None:
    """Write tensors and Python values to a file that torch and `load` read.

    Containers, numbers, texts, sizes, element types, devices and NumPy values may stand around the
    tensors. Tensors that share memory share it in the file. Other objects, whole modules too, are
    written by their class's name and their attributes, and `load` wants their classes allowed by
    `safe_globals`: a `state_dict()` needs nothing of the kind. A file is there whole or not at all.
    """
    if not _use_new_zipfile_serialization:
        raise ArgumentError(
            "save writes the zip form only",
            help="torch reads it since version 1.6; leave the argument out",
        )
    if isinstance(f, str | os.PathLike):
        write_atomic(Path(f), archive_bytes(obj, Path(f).stem or "archive"))
        return
    if not hasattr(f, "write"):
        raise ArgumentError(f"save needs a path or an open file, not {type(f).__name__}")
    f.write(archive_bytes(obj, "archive"))


def load(
    f: str | os.PathLike[str] | IO[bytes],
    map_location: MapLocation = None,
    pickle_module: Any = None,
    *,
    weights_only: bool | None = True,
    mmap: bool | None = None,
    **pickle_load_args: Any,
) -> Any:
    """What `save` or torch wrote to a file: the zip form, or the one before it.

    No code of the file runs, whatever `weights_only` says: names of classes and functions other
    than those of tensors and plain values are refused, unless they are among the reader's own that
    `safe_globals` allows. `map_location` says where tensors go: a
    device, a dict from the devices in the file, or a function of a storage and its device. With
    `mmap=True` the file stays where it is, and its pages are read when they are used.
    """
    return read_file(f, map_location, bool(mmap))


def default_restore_location(storage: Any, location: str) -> Any:
    """A tensor on the device that a file names for it."""
    return storage.to(device=location)
