"""`SummaryWriter`: event files that TensorBoard reads, written without it.

A file is a row of records: a length, the event as a protocol buffer, and checksums of both.
"""

from __future__ import annotations

import os
import socket
import struct
import time
import zlib
from collections.abc import Iterable, Mapping
from datetime import datetime
from itertools import count
from pathlib import Path
from threading import Lock
from typing import Any, Self

import numpy as np

from ridgeline.errors import unwritable

_POLYNOMIAL = 0x82F63B78  # of CRC-32C, bits reversed


def _crc_table() -> list[int]:
    table = []
    for value in range(256):
        for _ in range(8):
            value = value >> 1 ^ (_POLYNOMIAL if value & 1 else 0)
        table.append(value)
    return table


_CRC = _crc_table()


def checksum(data: bytes) -> int:
    """CRC-32C, rotated and shifted as the format asks."""
    crc = 0xFFFFFFFF
    for byte in data:
        crc = _CRC[(crc ^ byte) & 0xFF] ^ crc >> 8
    crc ^= 0xFFFFFFFF
    return ((crc >> 15 | crc << 17) + 0xA282EAD8) & 0xFFFFFFFF


def _varint(value: int) -> bytes:
    value &= (1 << 64) - 1
    out = bytearray()
    while value > 127:
        out.append(value & 127 | 128)
        value >>= 7
    return bytes((*out, value))


def _field(number: int, value: Any) -> bytes:
    """One field of a protocol buffer: floats as doubles, ints, texts, and messages as bytes."""
    if isinstance(value, float):
        return _varint(number << 3 | 1) + struct.pack("<d", value)
    if isinstance(value, int):
        return _varint(number << 3) + _varint(value)
    data = value.encode() if isinstance(value, str) else bytes(value)
    return _varint(number << 3 | 2) + _varint(len(data)) + data


def _record(event: bytes) -> bytes:
    length = struct.pack("<Q", len(event))
    sums = [struct.pack("<I", checksum(part)) for part in (length, event)]
    return length + sums[0] + event + sums[1]


def _array(values: Any) -> np.ndarray[Any, Any]:
    return np.asarray(values.detach().cpu() if hasattr(values, "detach") else values)


def png(pixels: np.ndarray[Any, Any]) -> bytes:
    """Bytes [height, width, channels] as a PNG file: grey, grey and alpha, RGB or RGBA."""
    height, width, channels = pixels.shape
    kind = {1: 0, 2: 4, 3: 2, 4: 6}[channels]
    rows = b"".join(b"\0" + row.tobytes() for row in np.ascontiguousarray(pixels, np.uint8))

    def chunk(name: bytes, data: bytes) -> bytes:
        summed = struct.pack(">I", zlib.crc32(name + data))
        return struct.pack(">I", len(data)) + name + data + summed

    head = struct.pack(">IIBBBBB", width, height, 8, kind, 0, 0, 0)
    body = chunk(b"IHDR", head) + chunk(b"IDAT", zlib.compress(rows)) + chunk(b"IEND", b"")
    return b"\x89PNG\r\n\x1a\n" + body


_numbers = count()  # so that no two files of a process have one name


class SummaryWriter:
    """Writes scalars, histograms, images and texts of a training run into a folder."""

    def __init__(
        self,
        log_dir: str | os.PathLike[str] | None = None,
        comment: str = "",
        purge_step: int | None = None,
        max_queue: int = 10,
        flush_secs: float = 120,
        filename_suffix: str = "",
    ) -> None:
        started = datetime.now().strftime("%b%d_%H-%M-%S")
        self.log_dir = str(log_dir or f"runs/{started}_{socket.gethostname()}{comment}")
        self._suffix, self._lock = filename_suffix, Lock()
        self._files: dict[str, Any] = {}
        self._open("")

    def _open(self, below: str) -> Any:
        if below not in self._files:
            name = f"events.out.tfevents.{time.time():.0f}.{socket.gethostname()}.{os.getpid()}"
            path = Path(self.log_dir, below, f"{name}.{next(_numbers)}{self._suffix}")
            try:
                path.parent.mkdir(parents=True, exist_ok=True)
                self._files[below] = path.open("xb")
            except OSError as error:
                raise unwritable(path, error) from error
            _put(self._files[below], _field(1, time.time()) + _field(3, "brain.Event:2"))
        return self._files[below]

    def _add(
        self, tag: str, value: bytes, step: Any, walltime: float | None, below: str = ""
    ) -> None:
        summary = _field(1, _field(1, tag) + value)
        event = _field(1, float(walltime or time.time())) + _field(5, summary)
        with self._lock:
            _put(self._open(below), event + _field(2, int(step or 0)))

    def add_scalar(
        self,
        tag: str,
        scalar_value: Any,
        global_step: int | None = None,
        walltime: float | None = None,
        new_style: bool = False,
        double_precision: bool = False,
    ) -> None:
        """One number of a curve."""
        number = struct.pack("<f", float(_array(scalar_value)))
        self._add(tag, _varint(2 << 3 | 5) + number, global_step, walltime)

    def add_scalars(
        self,
        main_tag: str,
        tag_scalar_dict: Mapping[str, Any],
        global_step: int | None = None,
        walltime: float | None = None,
    ) -> None:
        """A number of each of several curves of one plot; each has a folder of its own."""
        for name, value in tag_scalar_dict.items():
            number = _varint(2 << 3 | 5) + struct.pack("<f", float(_array(value)))
            below = f"{main_tag.replace('/', '_')}_{name}"
            self._add(main_tag, number, global_step, walltime, below)

    def add_histogram(
        self,
        tag: str,
        values: Any,
        global_step: int | None = None,
        bins: Any = "tensorflow",
        walltime: float | None = None,
        max_bins: int | None = None,
    ) -> None:
        """How values are spread."""
        flat = _array(values).astype(np.float64).reshape(-1)
        counts, edges = np.histogram(flat, bins=max_bins or (30 if isinstance(bins, str) else bins))
        totals = (flat.min(), flat.max(), float(flat.size), flat.sum(), np.square(flat).sum())
        head = b"".join(_field(n, float(total)) for n, total in enumerate(totals, 1))
        limits, found = edges[1:].astype("<f8"), counts.astype("<f8")
        packed = _field(6, limits.tobytes()) + _field(7, found.tobytes())
        self._add(tag, _field(5, head + packed), global_step, walltime)

    def add_image(
        self,
        tag: str,
        img_tensor: Any,
        global_step: int | None = None,
        walltime: float | None = None,
        dataformats: str = "CHW",
    ) -> None:
        """A picture: bytes, or floats from 0 to 1."""
        image = _array(img_tensor)
        shown = image if "C" in dataformats else image[None]
        order = dataformats if "C" in dataformats else f"C{dataformats}"
        pixels = np.transpose(shown, [order.index(axis) for axis in "HWC"])
        if pixels.dtype != np.uint8:
            pixels = (np.clip(pixels.astype(np.float64), 0, 1) * 255 + 0.5).astype(np.uint8)
        height, width, channels = pixels.shape
        sizes = _field(1, height) + _field(2, width) + _field(3, channels)
        self._add(tag, _field(4, sizes + _field(4, png(pixels))), global_step, walltime)

    def add_images(
        self,
        tag: str,
        img_tensor: Any,
        global_step: int | None = None,
        walltime: float | None = None,
        dataformats: str = "NCHW",
    ) -> None:
        """Several pictures, side by side."""
        images = np.moveaxis(_array(img_tensor), dataformats.index("N"), 0)
        rest = dataformats.replace("N", "")
        joined = np.concatenate(list(images), axis=rest.index("W"))
        self.add_image(tag, joined, global_step, walltime, rest)

    def add_figure(
        self,
        tag: str,
        figure: Any,
        global_step: int | None = None,
        close: bool = True,
        walltime: float | None = None,
    ) -> None:
        """A figure of matplotlib as a picture."""
        figure.canvas.draw()
        pixels = np.asarray(figure.canvas.buffer_rgba())
        self.add_image(tag, pixels, global_step, walltime, "HWC")

    def add_text(
        self,
        tag: str,
        text_string: str,
        global_step: int | None = None,
        walltime: float | None = None,
    ) -> None:
        """A text, in Markdown."""
        plugin = _field(1, _field(1, "text"))
        text = _field(1, 7) + _field(2, _field(2, _field(1, 1))) + _field(8, text_string)
        self._add(f"{tag}/text_summary", _field(9, plugin) + _field(8, text), global_step, walltime)

    def add_hparams(
        self, hparam_dict: Mapping[str, Any], metric_dict: Mapping[str, Any], **options: Any
    ) -> None:
        """The settings of a run as a table, and what came of them as scalars."""
        rows = "\n".join(f"|{name}|{value}|" for name, value in hparam_dict.items())
        self.add_text("hparams", f"|name|value|\n|-|-|\n{rows}")
        for name, value in metric_dict.items():
            self.add_scalar(name, value, options.get("global_step"))

    def add_graph(self, model: Any, input_to_model: Any = None, **options: Any) -> None:
        """The model as it prints."""
        self.add_text("graph", f"```\n{model}\n```")

    def flush(self) -> None:
        """Write what waits to disk."""
        for file in self._files.values():
            try:
                file.flush()
            except OSError as error:
                raise unwritable(file.name, error) from error

    def close(self) -> None:
        """Close the files; adding more afterwards begins new ones."""
        files, self._files = self._files, {}
        _close(files.values())

    def get_logdir(self) -> str:
        """The folder of the run."""
        return self.log_dir

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *raised: object) -> None:
        self.close()


def _put(file: Any, event: bytes) -> None:
    try:
        file.write(_record(event))
    except OSError as error:
        raise unwritable(file.name, error) from error


def _close(files: Iterable[Any]) -> None:
    for file in files:
        try:
            file.close()
        except OSError as error:
            raise unwritable(file.name, error) from error
