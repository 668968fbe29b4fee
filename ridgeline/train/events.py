"""TensorBoard event files, written by their own definition.

A file is a sequence of TFRecords: the length, a masked CRC-32C of the length, the record, a masked
CRC-32C of the record. A record is an `Event` message of tensorboard/compat/proto/event.proto,
encoded here by hand: a wall time, a step, and a version text or a summary of named values.
"""

from __future__ import annotations

import os
import socket
import struct
import time
from collections.abc import Mapping
from functools import cache
from pathlib import Path
from typing import Any, BinaryIO

import numpy as np

from ridgeline.errors import unwritable
from ridgeline.train.pictures import Picture, encode_png

_MASK_DELTA = 0xA282EAD8
_POLYNOMIAL = 0x82F63B78  # Castagnoli's, bits reversed


@cache
def _table() -> tuple[int, ...]:
    rows = list(range(256))
    for _ in range(8):
        rows = [(row >> 1) ^ (_POLYNOMIAL if row & 1 else 0) for row in rows]
    return tuple(rows)


def crc32c(data: bytes) -> int:
    """The CRC-32C checksum of RFC 3720."""
    table, crc = _table(), 0xFFFFFFFF
    for byte in data:
        crc = table[(crc ^ byte) & 0xFF] ^ (crc >> 8)
    return crc ^ 0xFFFFFFFF


def masked_crc(data: bytes) -> int:
    """The checksum as TFRecords store it, rotated and shifted."""
    crc = crc32c(data)
    return (((crc >> 15) | (crc << 17)) + _MASK_DELTA) & 0xFFFFFFFF


def frame(record: bytes) -> bytes:
    """One TFRecord."""
    length = struct.pack("<Q", len(record))
    head = length + struct.pack("<I", masked_crc(length))
    return head + record + struct.pack("<I", masked_crc(record))


# ---- protocol buffers: a field is its number and kind, then its value ---------------------------


def _varint(value: int) -> bytes:
    value &= (1 << 64) - 1  # negative numbers are stored as their two's complement
    parts = bytearray()
    while value > 0x7F:
        parts.append(value & 0x7F | 0x80)
        value >>= 7
    parts.append(value)
    return bytes(parts)


def _whole(field: int, value: int) -> bytes:
    return _varint(field << 3) + _varint(value)


def _double(field: int, value: float) -> bytes:
    return _varint(field << 3 | 1) + struct.pack("<d", value)


def _float(field: int, value: float) -> bytes:
    return _varint(field << 3 | 5) + np.float32(value).tobytes()


def _bytes(field: int, value: bytes) -> bytes:
    return _varint(field << 3 | 2) + _varint(len(value)) + value


def scalar_value(tag: str, value: float) -> bytes:
    """A Summary.Value with a number."""
    return _bytes(1, tag.encode()) + _float(2, value)


def image_value(tag: str, height: int, width: int, channels: int, png: bytes) -> bytes:
    """A Summary.Value with an encoded picture."""
    picture = _whole(1, height) + _whole(2, width) + _whole(3, channels) + _bytes(4, png)
    return _bytes(1, tag.encode()) + _bytes(4, picture)


def event(wall_time: float, step: int, values: list[bytes]) -> bytes:
    """An Event with a summary."""
    summary = b"".join(_bytes(1, value) for value in values)
    return _double(1, wall_time) + _whole(2, step) + _bytes(5, summary)


class SummaryWriter:
    """Writes one event file into a folder that `tensorboard --logdir` can show."""

    _made = 0

    def __init__(self, log_dir: str | Path) -> None:
        self.log_dir = Path(log_dir)
        now = time.time()
        SummaryWriter._made += 1
        unique = f"{int(now)}.{socket.gethostname()}.{os.getpid()}.{SummaryWriter._made}"
        self.path = self.log_dir / f"events.out.tfevents.{unique}"
        try:
            self.log_dir.mkdir(parents=True, exist_ok=True)
            self._file: BinaryIO = open(self.path, "wb")  # noqa: SIM115
        except OSError as error:
            raise unwritable(self.path, error) from error
        self._write(_double(1, now) + _bytes(3, b"brain.Event:2"))

    def add_scalars(self, values: Mapping[str, float], step: int) -> None:
        """Numbers under their tags, at a step."""
        parts = [scalar_value(tag, value) for tag, value in values.items()]
        self._write(event(time.time(), step, parts))

    def add_scalar(self, tag: str, value: float, step: int) -> None:
        """One number under a tag, at a step."""
        self.add_scalars({tag: value}, step)

    def add_image(self, tag: str, image: Any, step: int) -> None:
        """A picture [h, w] or [c, h, w] in 0…1 under a tag, at a step."""
        pixels: Picture = encode_png(image)
        value = image_value(tag, pixels.height, pixels.width, pixels.channels, pixels.data)
        self._write(event(time.time(), step, [value]))

    def _write(self, record: bytes) -> None:
        try:
            self._file.write(frame(record))
            self._file.flush()
        except OSError as error:
            raise unwritable(self.path, error) from error

    def close(self) -> None:
        """Finish the file."""
        self._file.close()

    def __enter__(self) -> SummaryWriter:
        return self

    def __exit__(self, *raised: object) -> None:
        self.close()
