"""Pictures of what a model makes: grids of images, scatter plots, and a small PNG writer."""

from __future__ import annotations

import math
import struct
import zlib
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ridgeline.data.dataset import as_array
from ridgeline.errors import ShapeError
from ridgeline.files import write_atomic

_COLOURS = {1: 0, 2: 4, 3: 2, 4: 6}  # channels to PNG's colour types: grey, with alpha, RGB, RGBA
# distinct colours for classes: eight that the colour-blind can read (Okabe and Ito), and two more
PALETTE = np.array([
    [230, 159, 0], [86, 180, 233], [0, 158, 115], [240, 228, 66], [0, 114, 178], [213, 94, 0],
    [204, 121, 167], [0, 0, 0], [140, 140, 140], [120, 60, 20],
], np.uint8)  # fmt: skip


@dataclass(frozen=True, slots=True)
class Picture:
    """A PNG file in memory."""

    height: int
    width: int
    channels: int
    data: bytes


def encode_png(image: Any) -> Picture:
    """An image [h, w] or [c, h, w] as PNG; floats lie in 0…1 and are clipped to it."""
    array = as_array(image)
    planes = array[None] if array.ndim == 2 else array
    if planes.ndim != 3 or planes.shape[0] not in _COLOURS or 0 in planes.shape:
        raise ShapeError(f"a picture is [h, w] or [c, h, w] with 1…4 channels, not {array.shape}")
    if planes.dtype != np.uint8:
        scaled = np.nan_to_num(planes.astype(np.float64)) * 255
        planes = np.clip(np.rint(scaled), 0, 255).astype(np.uint8)
    channels, height, width = planes.shape
    rows = planes.transpose(1, 2, 0).reshape(height, width * channels)
    lines = np.concatenate([np.zeros((height, 1), np.uint8), rows], 1)  # filter 0 on every row
    head = struct.pack(">IIBBBBB", width, height, 8, _COLOURS[channels], 0, 0, 0)
    data = b"\x89PNG\r\n\x1a\n" + _chunk(b"IHDR", head)
    data += _chunk(b"IDAT", zlib.compress(lines.tobytes(), 9)) + _chunk(b"IEND", b"")
    return Picture(height, width, channels, data)


def _chunk(kind: bytes, body: bytes) -> bytes:
    return struct.pack(">I", len(body)) + kind + body + struct.pack(">I", zlib.crc32(kind + body))


def save_png(path: str | Path, image: Any) -> None:
    """Write an image [h, w] or [c, h, w] to a PNG file."""
    write_atomic(Path(path), encode_png(image).data)


def grid(images: Any, columns: int | None = None, gap: int = 1) -> NDArray[np.float32]:
    """Images [n, c, h, w] side by side as one [c, H, W]; a grey gap between them."""
    array = as_array(images).astype(np.float32)
    if array.ndim != 4 or not len(array):
        raise ShapeError(f"a grid is made of images [n, c, h, w], not {list(array.shape)}")
    count, channels, height, width = array.shape
    across = columns or math.ceil(math.sqrt(count))
    down = math.ceil(count / across)
    shape = (channels, down * (height + gap) - gap, across * (width + gap) - gap)
    made = np.full(shape, 0.5, np.float32)
    for number, image in enumerate(array):
        top, left = number // across * (height + gap), number % across * (width + gap)
        made[:, top : top + height, left : left + width] = image
    return made


def scatter(points: Any, labels: Any, size: int = 400) -> NDArray[np.uint8]:
    """Points [n, 2] as dots on white, coloured by label, as a picture [3, size, size]."""
    xy, kinds = as_array(points).astype(np.float64), as_array(labels).astype(np.int64)
    low, high = xy.min(0), xy.max(0)
    margin, dot = size // 20, max(1, size // 130)
    span = np.where(high > low, high - low, 1.0)
    pixels = np.rint(margin + (xy - low) / span * (size - 1 - 2 * margin)).astype(np.int64)
    made = np.full((size, size, 3), 255, np.uint8)
    for (x, y), kind in zip(pixels, kinds):
        row = size - 1 - y  # y grows upwards
        made[row - dot : row + dot + 1, x - dot : x + dot + 1] = PALETTE[kind % len(PALETTE)]
    return made.transpose(2, 0, 1)
