"""torchvision.io: pictures as tensors [c, h, w] of bytes, from files and to files."""

from __future__ import annotations

import io
from enum import Enum
from pathlib import Path
from typing import Any

import numpy as np

from ridgeline.files import write_atomic
from ridgeline.tensors.creation import from_numpy
from ridgeline.tensors.tensor import Tensor
from ridgeline.vision import functional


class ImageReadMode(Enum):
    """In which channels a picture is read; the values are Pillow's names."""

    UNCHANGED = ""
    GRAY = "L"
    GRAY_ALPHA = "LA"
    RGB = "RGB"
    RGB_ALPHA = "RGBA"


def read_file(path: str | Path) -> Tensor:
    """The bytes of a file."""
    return from_numpy(np.frombuffer(bytearray(Path(path).read_bytes()), np.uint8))


def write_file(filename: str | Path, data: Tensor) -> None:
    """Write bytes to a file."""
    write_atomic(Path(filename), data.cpu().numpy().tobytes())


def decode_image(
    input: Tensor | str | Path,
    mode: ImageReadMode | str = ImageReadMode.UNCHANGED,
    apply_exif_orientation: bool = False,
) -> Tensor:
    """A picture from the bytes of its file, or from a path."""
    data = input.cpu().numpy().tobytes() if isinstance(input, Tensor) else Path(input).read_bytes()
    chosen = ImageReadMode[mode] if isinstance(mode, str) else mode
    with functional.image_module().open(io.BytesIO(data)) as picture:
        return functional.pil_to_tensor(picture.convert(chosen.value) if chosen.value else picture)


decode_jpeg = decode_png = read_image = decode_image


def _encoded(picture: Tensor, form: str, **options: Any) -> Tensor:
    into = io.BytesIO()
    functional.to_pil_image(picture).save(into, form, **options)
    return from_numpy(np.frombuffer(bytearray(into.getvalue()), np.uint8))


def encode_png(input: Tensor, compression_level: int = 6) -> Tensor:
    """The bytes of a PNG file."""
    return _encoded(input, "PNG", compress_level=compression_level)


def encode_jpeg(input: Tensor, quality: int = 75) -> Tensor:
    """The bytes of a JPEG file."""
    return _encoded(input, "JPEG", quality=quality)


def write_png(input: Tensor, filename: str, compression_level: int = 6) -> None:
    """Write a PNG file."""
    write_file(filename, encode_png(input, compression_level))


def write_jpeg(input: Tensor, filename: str, quality: int = 75) -> None:
    """Write a JPEG file."""
    write_file(filename, encode_jpeg(input, quality))
