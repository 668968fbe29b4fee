"""IDX files, the format of MNIST and its relatives, compressed or not.

A file is two zero bytes, a type code, the number of axes, each length as a big-endian 32-bit
number, and the elements.
"""

from __future__ import annotations

import gzip
import math
import zlib
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ridgeline.data.digits import LabelledImages
from ridgeline.errors import BadValueError, InputFileError, MissingFileError, unreadable

_TYPES = {8: ">u1", 9: ">i1", 11: ">i2", 12: ">i4", 13: ">f4", 14: ">f8"}
_PARTS = {"train": "train", "test": "t10k"}


def read_idx(path: str | Path) -> NDArray[Any]:
    """The array in an IDX file; `.gz` is unpacked on the way."""
    path = Path(path)
    try:
        data = path.read_bytes()
        if path.suffix == ".gz":
            data = gzip.decompress(data)
    except (OSError, EOFError, zlib.error) as error:
        raise unreadable(path, error) from error
    if len(data) < 4 or data[:2] != b"\0\0" or data[2] not in _TYPES:
        raise InputFileError(
            f"{path} is not an IDX file", note=f"it begins with the bytes {data[:4].hex(' ')}"
        )
    kind, axes = np.dtype(_TYPES[data[2]]), data[3]
    start = 4 + 4 * axes
    shape = tuple(int(n) for n in np.frombuffer(data[4:start], ">u4", len(data[4:start]) // 4))
    whole = start + math.prod(shape) * kind.itemsize
    if len(shape) < axes or len(data) < whole:
        raise InputFileError(
            f"{path} is cut short: {len(data)} bytes where its header promises {whole}",
            help="fetch the file again",
        )
    if len(data) > whole:
        raise InputFileError(f"{path} has {len(data) - whole} bytes after its end")
    return np.frombuffer(data, kind, offset=start).reshape(shape).astype(kind.newbyteorder("="))


def mnist(folder: str | Path, part: str = "train") -> LabelledImages:
    """MNIST, Fashion-MNIST or KMNIST from its four files, gzipped or not, in a folder.

    Parts are "train" and "test"; images are float32 [n, 1, 28, 28] in 0…1.
    """
    if part not in _PARTS:
        raise BadValueError(f"MNIST has no part {part!r}", help="parts: train, test")
    images = read_idx(_find(Path(folder), f"{_PARTS[part]}-images", "idx3-ubyte"))
    labels = read_idx(_find(Path(folder), f"{_PARTS[part]}-labels", "idx1-ubyte"))
    if images.ndim != 3 or labels.ndim != 1 or len(images) != len(labels):
        raise InputFileError(
            f"the files in {folder} do not belong together",
            note=f"images {list(images.shape)}, labels {list(labels.shape)}",
        )
    pixels = images.astype(np.float32)[:, None] / np.float32(255)
    return LabelledImages(pixels, labels.astype(np.int64))


def _find(folder: Path, stem: str, kind: str) -> Path:
    """The file of one kind under any of the names in use."""
    for where in (folder, folder / "raw", folder / "MNIST" / "raw"):
        for joint in ("-", "."):
            for end in ("", ".gz"):
                path = where / f"{stem}{joint}{kind}{end}"
                if path.is_file():
                    return path
    raise MissingFileError(
        f"there is no {stem}-{kind} (or .gz) in {folder}",
        help="put the four files of the data set into that folder",
    )
