"""Opening what a user names on the command line: files, compressed files, directories."""

from __future__ import annotations

import gzip
import io
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import IO, cast

from ridgeline.profile.trace.errors import TraceFileError, TraceFormatError

# How other files that people have at hand begin, and what they are.
_OTHER_FORMATS = (
    (b"PK\x03\x04", "a zip archive", "unpack it and name the .json file inside"),
    (b"SQLite format 3", "an SQLite database (an Nsight Systems export?)", ""),
    *((bytes((0x80, n)), "a Python pickle (a memory snapshot?)", "") for n in range(2, 6)),
    (b"<!DOCTYPE", "an HTML page", ""),
    (b"<html", "an HTML page", ""),
    (b"\x28\xb5\x2f\xfd", "compressed with zstd", "unpack it first: zstd -d FILE"),
    (b"\xfd7zXZ", "compressed with xz", "unpack it first: xz -d FILE"),
    (b"BZh", "compressed with bzip2", "unpack it first: bzip2 -d FILE"),
)
_GZIP = b"\x1f\x8b"
_SUFFIXES = (".json", ".json.gz", ".trace", ".trace.gz")


class _Counting(io.RawIOBase):
    """A file that reports how many bytes were read from it, for a progress bar."""

    def __init__(self, raw: IO[bytes], progress: Callable[[int], None]) -> None:
        self._raw, self._progress = raw, progress

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: object) -> int:
        count = self._raw.readinto(buffer)  # type: ignore[attr-defined]
        self._progress(count or 0)
        return int(count or 0)


@contextmanager
def opened(path: Path, progress: Callable[[int], None] | None = None) -> Iterator[IO[bytes]]:
    """The uncompressed bytes of a trace file; `progress` hears of bytes read from disk."""
    try:
        raw: IO[bytes] = open(path, "rb", buffering=0)  # noqa: SIM115 - closed below
    except OSError as error:
        raise TraceFileError(f"cannot open {path}: {error.strerror}") from None
    with raw:
        source = _Counting(raw, progress) if progress else cast(io.RawIOBase, raw)
        # Peeking, not seeking, so that a pipe can be read too.
        stream = io.BufferedReader(source, 1 << 18)
        try:
            start = stream.peek(16)
        except OSError as error:
            raise TraceFileError(f"cannot read {path}: {error.strerror}") from None
        for magic, what, help_text in _OTHER_FORMATS:
            if start.startswith(magic):
                raise TraceFormatError(f"{path} is {what}, not a trace", help=help_text)
        if start.startswith(_GZIP):
            with gzip.GzipFile(fileobj=stream) as unpacked:
                yield cast(IO[bytes], unpacked)
        else:
            yield stream


def trace_files(paths: Sequence[Path]) -> list[Path]:
    """The files meant, each once: those named, and every trace directly inside a directory."""
    found: list[Path] = []
    for path in paths:
        if path.is_dir():
            inside = sorted(p for p in path.iterdir() if p.name.endswith(_SUFFIXES) and p.is_file())
            if not inside:
                raise TraceFileError(
                    f"{path} holds no trace files",
                    note=f"looked for names ending in {', '.join(_SUFFIXES)}",
                )
            found += inside
        else:
            found.append(path)
    return list(dict.fromkeys(found))
