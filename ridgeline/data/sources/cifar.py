"""CIFAR-10 from the files of its authors: the binary form, or the Python form read safely.

The Python form is a pickle, which can run any code when it is loaded. Here only the few names
that an array needs are let through.
"""

from __future__ import annotations

import io
import pickle
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ridgeline.data.digits import LabelledImages
from ridgeline.errors import BadValueError, InputFileError, MissingFileError, unreadable

SIDE, CHANNELS = 32, 3
_PIXELS = CHANNELS * SIDE * SIDE
_PARTS = {"train": [f"data_batch_{n}" for n in range(1, 6)], "test": ["test_batch"]}
_FOLDERS = ("", "cifar-10-batches-bin", "cifar-10-batches-py")
_ALLOWED = {
    ("numpy.core.multiarray", "_reconstruct"),
    ("numpy._core.multiarray", "_reconstruct"),
    ("numpy", "ndarray"),
    ("numpy", "dtype"),
    ("_codecs", "encode"),
}


class _ArrayUnpickler(pickle.Unpickler):
    """Loads dicts, lists, numbers, text and arrays, and refuses everything else."""

    def find_class(self, module: str, name: str) -> Any:
        if (module, name) not in _ALLOWED:
            raise pickle.UnpicklingError(f"it refers to {module}.{name}")
        return super().find_class(module.replace("numpy.core", "numpy._core"), name)


def cifar10(folder: str | Path, part: str = "train") -> LabelledImages:
    """CIFAR-10 as float32 [n, 3, 32, 32] in 0…1; parts are "train" and "test"."""
    if part not in _PARTS:
        raise BadValueError(f"CIFAR-10 has no part {part!r}", help="parts: train, test")
    pieces = [_read(_find(Path(folder), name)) for name in _PARTS[part]]
    pixels = np.concatenate([piece[0] for piece in pieces])
    labels = np.concatenate([piece[1] for piece in pieces])
    shape = (-1, CHANNELS, SIDE, SIDE)
    return LabelledImages(pixels.reshape(shape).astype(np.float32) / np.float32(255), labels)


def _find(folder: Path, name: str) -> Path:
    for inside in _FOLDERS:
        for end in (".bin", ""):
            path = folder / inside / (name + end)
            if path.is_file():
                return path
    raise MissingFileError(
        f"there is no {name}.bin and no {name} in {folder}",
        help="unpack cifar-10-binary.tar.gz or cifar-10-python.tar.gz there",
    )


def _read(path: Path) -> tuple[NDArray[np.uint8], NDArray[np.int64]]:
    """Pixels [n, 3072] and labels of one file."""
    try:
        data = path.read_bytes()
    except OSError as error:
        raise unreadable(path, error) from error
    pixels, labels = _binary(path, data) if path.suffix == ".bin" else _python(path, data)
    if pixels.ndim != 2 or pixels.shape != (len(labels), _PIXELS) or pixels.dtype != np.uint8:
        raise InputFileError(
            f"{path} does not hold CIFAR-10 images",
            note=f"pixels {pixels.dtype} {list(pixels.shape)}, {len(labels)} labels",
        )
    if not np.all((labels >= 0) & (labels < 10)):
        raise InputFileError(f"{path} has a label outside 0…9")
    return pixels, labels


def _binary(path: Path, data: bytes) -> tuple[NDArray[np.uint8], NDArray[np.int64]]:
    if not data or len(data) % (1 + _PIXELS):
        raise InputFileError(
            f"{path} is cut short: {len(data)} bytes are no whole number of images",
            help="fetch the file again",
        )
    rows = np.frombuffer(data, np.uint8).reshape(-1, 1 + _PIXELS)
    return rows[:, 1:], rows[:, 0].astype(np.int64)


def _python(path: Path, data: bytes) -> tuple[NDArray[np.uint8], NDArray[np.int64]]:
    stored = unpickled(path, data, "labels")
    return np.asarray(stored["data"]), np.asarray(stored["labels"], np.int64)


def unpickled(path: Path, data: bytes, labels: str) -> dict[str, Any]:
    """What a file of the Python form holds: `data`, and labels under their name."""
    try:
        stored = _ArrayUnpickler(io.BytesIO(data), encoding="bytes").load()
        return {name: stored[name.encode()] for name in ("data", labels)}
    except Exception as error:  # a damaged pickle can fail in any way
        raise InputFileError(
            f"{path} is not a CIFAR-10 file: {error}", help="fetch the file again"
        ) from error
