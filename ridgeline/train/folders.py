"""The folder of a run: one that holds a run already is gone on with or left alone."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import chain, count
from pathlib import Path

from ridgeline.errors import OutputFileError

_FILES = ("checkpoint.safetensors", "model.safetensors", "log.jsonl")  # what a run leaves


def holds_run(folder: Path) -> bool:
    """True if a run left something there; an empty log is of one that never began."""
    return any((folder / name).exists() and (folder / name).stat().st_size for name in _FILES)


def check_free(folder: Path, resume: str) -> None:
    """Raise where a new run would overwrite another; `resume` is how to go on with that one."""
    if holds_run(folder):
        raise OutputFileError(
            f"{folder} holds a run already, which would be overwritten",
            help=f"go on with it with {resume}, or choose another folder",
        )


def new_folder(first: Path) -> Path:
    """A folder that was not there before: the first one, or one with a number."""
    return next(folder for folder in chain([first], _numbered(first)) if _claimed(folder))


def last_folder(first: Path) -> Path:
    """The folder of the last run that `new_folder` made room for."""
    last = first
    for folder in _numbered(first):
        if not folder.exists():
            break
        last = folder if holds_run(folder) else last
    return last


def _numbered(first: Path) -> Iterator[Path]:
    return (first.with_name(f"{first.name}-{number}") for number in count(2))


def _claimed(folder: Path) -> bool:
    """True if the folder is new: of two that begin at once one gets it."""
    try:
        folder.mkdir(parents=True)
    except FileExistsError:
        return False
    except OSError as error:
        raise OutputFileError(
            f"cannot make the folder {folder}: {error.strerror or error}",
            help="choose another folder with --out",
        ) from error
    return True
