"""Arrays in .npy and .npz files; .npy files are mapped, so they may be larger than memory."""

from __future__ import annotations

import zipfile
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ridgeline.data.dataset import TensorDataset
from ridgeline.errors import InputFileError, unreadable


def load_arrays(path: str | Path) -> dict[str, NDArray[Any]]:
    """The arrays of a file by name; that of a .npy file is called by the file's name."""
    path = Path(path)
    try:
        found = np.load(path, mmap_mode="r" if path.suffix == ".npy" else None, allow_pickle=False)
        if isinstance(found, np.ndarray):
            return {path.stem: found}
        with found:
            return {name: found[name] for name in found.files}
    except (OSError, ValueError, EOFError, zipfile.BadZipFile) as error:
        raise unreadable(f"arrays from {path}", error) from error


class NumpyDataset(TensorDataset):
    """Rows of arrays in files: several .npy files, or some (or all) arrays of one .npz file."""

    def __init__(self, *paths: str | Path, names: tuple[str, ...] | None = None) -> None:
        self._opened_with = (paths, names)
        arrays: dict[str, NDArray[Any]] = {}
        for path in paths:
            arrays.update(load_arrays(path))
        missing = [name for name in names or () if name not in arrays]
        if missing or not arrays:
            raise InputFileError(
                f"there is no array {missing[0]!r}" if missing else "no file was given",
                note=f"the files hold {', '.join(arrays)}" if arrays else "",
            )
        super().__init__(*(arrays[name] for name in names or arrays))

    def __reduce__(self) -> tuple[Any, ...]:
        # another process opens the files itself instead of being sent their contents
        return _reopen, self._opened_with


def _reopen(paths: tuple[Any, ...], names: tuple[str, ...] | None) -> NumpyDataset:
    return NumpyDataset(*paths, names=names)
