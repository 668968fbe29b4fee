"""Tensors in safetensors files: written whole with a checksum, read through mapped memory.

A file is written whole (`ridgeline/files.py`): at any moment the old one or the new one is there.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from safetensors import SafetensorError, safe_open
from safetensors.numpy import save

from ridgeline import dtypes
from ridgeline.errors import InputFileError, RidgelineError, unreadable
from ridgeline.files import write_atomic

Arrays = dict[str, NDArray[Any]]
CHECKSUM = "sha256"

_STORED = {
    "BOOL": "bool", "U8": "uint8", "I8": "int8", "U16": "uint16", "I16": "int16", "U32": "uint32",
    "I32": "int32", "U64": "uint64", "I64": "int64", "F16": "float16", "BF16": "bfloat16",
    "F32": "float32", "F64": "float64", "F8_E4M3": "float8_e4m3fn", "F8_E5M2": "float8_e5m2",
    "C64": "complex64",
}  # fmt: skip


def pack_tensors(arrays: Mapping[str, NDArray[Any]], metadata: Mapping[str, str]) -> bytes:
    """A safetensors file as bytes, its metadata completed with a checksum of the content."""
    for name, array in arrays.items():
        row = dtypes.from_numpy(array.dtype)
        if row is None or row.name not in _STORED.values():
            raise RidgelineError(f"{name}: safetensors cannot hold {array.dtype}")
    # `ascontiguousarray` would turn a scalar into a row; `require` keeps the shape.
    plain = {name: np.require(array, requirements="C") for name, array in arrays.items()}
    return bytes(save(plain, {**metadata, CHECKSUM: _checksum(plain, metadata)}))


def write_tensors(
    path: Path, arrays: Mapping[str, NDArray[Any]], metadata: Mapping[str, str]
) -> None:
    """Write arrays and text metadata to one safetensors file."""
    write_atomic(path, pack_tensors(arrays, metadata))


def read_tensors(path: Path) -> tuple[Arrays, dict[str, str]]:
    """Arrays and metadata of a safetensors file; a damaged file is an error, not wrong numbers."""
    views, metadata = map_tensors(path)
    stored = metadata.pop(CHECKSUM, None)
    if stored is not None and stored != _checksum(views, metadata):
        raise InputFileError(
            f"{path} is damaged: its content does not match its checksum",
            help="use another checkpoint",
        )
    return {name: view.copy() for name, view in views.items()}, metadata


def map_tensors(path: Path) -> tuple[Arrays, dict[str, str]]:
    """Arrays that read the file's memory as they are used, and its metadata."""
    try:
        with safe_open(str(path), framework="np"):  # checks the header against the file
            pass
        memory = np.memmap(path, np.uint8, mode="r")
        length = int.from_bytes(memory[:8].tobytes(), "little")
        header = json.loads(memory[8 : 8 + length].tobytes())
        metadata = dict(header.pop("__metadata__", {}))
        body = memory[8 + length :]
        return {name: _view(body, entry) for name, entry in header.items()}, metadata
    except OSError as error:
        raise unreadable(path, error) from error
    except (SafetensorError, ValueError, KeyError, TypeError) as error:
        raise InputFileError(
            f"{path} is not a whole safetensors file: {error}", help="use another copy of it"
        ) from error


def _view(body: NDArray[Any], entry: Mapping[str, Any]) -> NDArray[Any]:
    row = dtypes.named(_STORED[entry["dtype"]])
    start, end = entry["data_offsets"]
    return np.asarray(body[start:end]).view(row.numpy).reshape(entry["shape"])


def _checksum(arrays: Mapping[str, NDArray[Any]], metadata: Mapping[str, str]) -> str:
    digest = hashlib.sha256()
    for name in sorted(arrays):
        digest.update(f"{name}\0{arrays[name].dtype}\0{arrays[name].shape}\0".encode())
        digest.update(arrays[name].tobytes())
    for key in sorted(metadata):
        digest.update(f"{key}\0{metadata[key]}\0".encode())
    return digest.hexdigest()
