"""Program files as bytes: what must hold before one is mapped, and what it says of itself.

A file is an ELF shared object with an end of our own:

    … the ELF file …  manifest (JSON)  magic  version  manifest's offset and length  hash of all

The hash covers every byte before it: a damaged file is refused before anything of it is mapped. It
is no signature. Who can write a program file can make it do anything: load those you trust.
"""

from __future__ import annotations

import json
import struct
from collections.abc import Mapping
from hashlib import blake2b
from pathlib import Path
from typing import Any

from ridgeline.errors import InputFileError, path_of, unreadable

MAGIC = b"RLPROG\r\n"
VERSION = 1
_DIGEST = 32
_END = struct.Struct("<8sQQQ")
_MACHINES = {62: "x86-64", 183: "arm64", 3: "x86", 243: "RISC-V"}
_SHARED, _X86_64, _LOAD, _EXECUTE, _WRITE = 3, 62, 1, 1, 2
_MOST_TENSORS, _MOST_AXES, _MOST_BYTES, _MOST_ZEROED = 1 << 20, 64, 1 << 46, 1 << 20


def with_manifest(elf: bytes, manifest: Mapping[str, Any]) -> bytes:
    """The whole file."""
    text = json.dumps(manifest, separators=(",", ":")).encode()
    content = elf + text + _END.pack(MAGIC, VERSION, len(elf), len(text))
    return content + blake2b(content, digest_size=_DIGEST).digest()


def read_program(path: str | Path) -> tuple[bytes, dict[str, Any]]:
    """The bytes of a program file and its manifest; an error for what is none, or is damaged."""
    try:
        content = path_of(path, "load_program").read_bytes()
    except OSError as error:
        raise unreadable(path, error) from None
    return content, checked(content, path)


def digest(content: bytes) -> bytes:
    """The hash of a file that was checked."""
    return content[-_DIGEST:]


def checked(content: bytes, path: object) -> dict[str, Any]:
    """The manifest of a file in which everything is as it was written."""
    end = len(content) - _DIGEST - _END.size
    if end < 64 or content[:4] != b"\x7fELF" or content[end : end + 8] != MAGIC:
        raise InputFileError(
            f"{path} is no program file, or a part of one",
            help="a program file is written by export(), and has to be copied whole",
        )
    _, version, offset, length = _END.unpack_from(content, end)
    if blake2b(content[:-_DIGEST], digest_size=_DIGEST).digest() != content[-_DIGEST:]:
        raise InputFileError(
            f"{path} is damaged: its bytes are not those that were written",
            help="copy it again, or export the program again",
        )
    if version != VERSION:
        raise InputFileError(
            f"{path} has format {version}, and this ridgeline reads {VERSION}",
            help="export the program again with this version",
        )
    if offset + length != end:
        raise InputFileError(f"{path}: its manifest lies outside of it")
    machine = struct.unpack_from("<H", content, 18)[0]
    if machine != _X86_64:
        name = _MACHINES.get(machine, f"machine {machine}")
        raise InputFileError(f"{path} has code for {name}")
    _check_segments(content, offset, path)
    try:
        manifest = json.loads(content[offset : offset + length])
        _check_manifest(manifest)
    except (ValueError, KeyError, TypeError, RecursionError) as error:
        raise InputFileError(f"{path}: its manifest is wrong: {error}") from None
    assert isinstance(manifest, dict)
    return manifest


def _check_segments(content: bytes, end: int, path: object) -> None:
    """Raise where a segment lies outside of the file, or could be both written and executed."""
    kind, _, _, _, table = struct.unpack_from("<HHIQQ", content, 16)
    size, count = struct.unpack_from("<HH", content, 54)
    if kind != _SHARED or size != 56 or not 0 < count <= 16 or table + size * count > end:
        raise InputFileError(f"{path}: its segments are wrong")
    for number in range(count):
        kind, flags, offset, at, _, stored, extent, align = struct.unpack_from(
            "<IIQQQQQQ", content, table + number * size
        )
        fits = offset + stored <= end and stored <= extent <= stored + _MOST_ZEROED
        fits = fits and at <= end + _MOST_ZEROED
        apart = not (flags & _EXECUTE and flags & _WRITE)
        aligned = kind != _LOAD or (align == 4096 and (at - offset) % align == 0)
        if not (fits and apart and aligned):
            raise InputFileError(f"{path}: segment {number} is wrong")


def _check_manifest(manifest: Any) -> None:
    """Raise a ValueError where a manifest is not what `export` writes."""
    if not isinstance(manifest, dict):
        raise ValueError("it is no object")
    for kind in ("inputs", "outputs", "state"):
        rows = manifest[kind]
        if not isinstance(rows, list) or len(rows) > _MOST_TENSORS:
            raise ValueError(f"{kind} is no list")
        for row in rows:
            if not isinstance(row["name"], str) or not isinstance(row["dtype"], str):
                raise ValueError(f"a tensor of {kind} has no name or type")
            if not isinstance(row["shape"], list) or len(row["shape"]) > _MOST_AXES:
                raise ValueError(f"{row['name']} has no shape")
            numbers = [length for length in row["shape"] if isinstance(length, int)]
            if any(not 0 <= length < _MOST_BYTES for length in numbers):
                raise ValueError(f"{row['name']} has a negative or huge length")
    for size in manifest["sizes"]:
        if not all(isinstance(size[key], kind) for key, kind in _SIZE.items()):
            raise ValueError("a size has no name or bounds")
    _check_nested(manifest["arguments"], len(manifest["inputs"]), 0)
    _check_nested(manifest["results"], len(manifest["inputs"]), len(manifest["outputs"]))


_SIZE = {"name": str, "low": int, "high": int}


def _check_nested(tree: Any, inputs: int, outputs: int) -> None:
    ((kind, inner),) = tree.items()
    if kind in ("list", "tuple"):
        for part in inner:
            _check_nested(part, inputs, outputs)
    elif kind == "dict":
        for part in inner.values():
            _check_nested(part, inputs, outputs)
    elif kind in ("input", "output"):
        if type(inner) is not int or not 0 <= inner < (inputs if kind == "input" else outputs):
            raise ValueError(f"there is no {kind} {inner}")
    elif kind != "is":
        raise ValueError(f"{kind} is no kind of value")
