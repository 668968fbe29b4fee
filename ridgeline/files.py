"""Atomic file writes: under a temporary name first, then renamed.

At any moment the old file or the new one is there, never a part of one. A writer holds a lock on
its unfinished file while it lives, so that what a killed one left behind can be told from a write
that is under way, by another process or thread, and be removed later. Through a link the file that
it leads to is written, and what is no file, such as `/dev/stdout`, is written to as it is.
"""

from __future__ import annotations

import os
import re
import secrets
import stat
import sys
import time
from contextlib import suppress
from io import FileIO
from pathlib import Path
from typing import IO

from ridgeline.errors import OutputFileError, unwritable

_UNFINISHED = re.compile(r"\.(?P<name>.+)\.(?P<process>\d+)-[0-9a-f]{8}\.tmp")
_SETTLED = 60.0  # seconds after which a file that nobody holds is surely nobody's

# Windows neither renames nor removes a file that somebody has open: there is nothing to lock.
if sys.platform == "win32":
    _RENAMES_OPEN_FILES = False

    def _lock(file: IO[bytes]) -> None:
        """Nothing: the open file holds itself."""

    def _lives(process: int) -> bool:
        """Not known: what is young is left alone."""
        return True
else:
    import fcntl

    _RENAMES_OPEN_FILES = True

    def _lock(file: IO[bytes]) -> None:
        """Hold a file until it is closed; OSError where another process does."""
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)

    def _lives(process: int) -> bool:
        """False for a process that is surely gone."""
        try:
            os.kill(process, 0)
        except ProcessLookupError:
            return False
        except (OSError, OverflowError):  # another user's, or no number of a process
            return True
        return True


def write_atomic(path: Path, data: bytes) -> None:
    """Replace a user's file, in a folder that is made where there is none.

    What writers that were killed left in the folder is removed. An error says that the previous
    file is unchanged.
    """
    if not path.name:
        raise OutputFileError(f"cannot write {path}: it is a folder", help="give a file's name")
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        sweep(Path(os.path.realpath(path)).parent)
        write_whole(path, data)
    except OSError as error:
        note = "the previous file, if there was one, is unchanged"
        raise unwritable(path, error, note, "free space or choose another folder") from error


def write_whole(path: Path, data: bytes, durable: bool = True) -> None:
    """Replace `path` by `data`; on failure the old file is untouched and nothing is left over.

    What is `durable` has reached the disk before it takes the old file's place.
    """
    path = Path(os.path.realpath(path))
    before = os.stat(path).st_mode if path.exists() else None
    if before is not None and not stat.S_ISREG(before):
        with open(path, "wb") as device:
            device.write(data)
        return
    unfinished = path.with_name(f".{path.name}.{os.getpid()}-{secrets.token_hex(4)}.tmp")
    try:
        with open(unfinished, "xb") as file:
            with suppress(OSError):  # a file system without locks
                _lock(file)
            if before is not None:  # who may read it stays as it was
                os.chmod(unfinished, stat.S_IMODE(before))
            file.write(data)
            file.flush()
            if durable:
                os.fsync(file.fileno())
            if _RENAMES_OPEN_FILES:  # while it is held
                os.replace(unfinished, path)
        if not _RENAMES_OPEN_FILES:
            os.replace(unfinished, path)
    except BaseException:
        with suppress(OSError):  # the folder itself may be what is wrong
            unfinished.unlink(missing_ok=True)
        raise


def file_in_memory(name: str) -> FileIO:
    """A file that lies in memory and in no folder; it is closed with its object.

    One call of C code makes both, so that no interrupt comes between a descriptor and its owner.
    """
    made = map(os.memfd_create, (name,), (os.MFD_CLOEXEC,))
    (file,) = map(FileIO, made, ("r+b",))
    return file


def sweep(folder: Path) -> None:
    """Remove the unfinished files in a folder whose writers are gone."""
    with suppress(OSError):
        for entry in os.scandir(folder):
            found = _UNFINISHED.fullmatch(entry.name)
            if found is not None and entry.is_file(follow_symlinks=False):
                with suppress(OSError):  # another process may be sweeping too
                    _remove_if_abandoned(Path(entry.path), int(found["process"]))


def _remove_if_abandoned(path: Path, process: int) -> None:
    """Remove a file that nobody holds; one that its writer has just made may not be held yet."""
    with open(path, "rb") as file:
        _lock(file)
        status = os.fstat(file.fileno())
        old = time.time() - status.st_mtime > _SETTLED
        abandoned = stat.S_ISREG(status.st_mode) and (old or not _lives(process))
        if abandoned and _RENAMES_OPEN_FILES:
            path.unlink()
    if abandoned and not _RENAMES_OPEN_FILES:
        path.unlink()
