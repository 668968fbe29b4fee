"""Weights in a folder: safetensors or PyTorch's files, one of them or several with an index."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

from numpy.typing import NDArray

from ridgeline.errors import InputFileError, unreadable
from ridgeline.files import write_atomic
from ridgeline.interop.safetensors import Arrays, map_tensors, write_tensors
from ridgeline.serialization import load
from ridgeline.tensors.tensor import Tensor

WEIGHTS, PICKLED = "model.safetensors", "pytorch_model.bin"
INDEX = f"{WEIGHTS}.index.json"
SHARD_BYTES = 5_000_000_000


def read_json(path: Path) -> dict[str, Any]:
    """The object in a JSON file."""
    try:
        values = json.loads(path.read_bytes())
    except OSError as error:
        raise unreadable(path, error) from error
    except (ValueError, RecursionError) as error:
        raise InputFileError(f"{path} is not JSON: {error}") from error
    if not isinstance(values, dict):
        raise InputFileError(f"{path} holds no settings: it is a {type(values).__name__}")
    return values


def read_weights(folder: Path) -> Arrays:
    """All tensors in a folder's files, as views of the files where these are safetensors."""
    for name, read in ((WEIGHTS, _mapped), (PICKLED, _unpickled)):
        if (folder / name).exists():
            return read(folder / name)
        if (folder / f"{name}.index.json").exists():
            return _sharded(folder / f"{name}.index.json", read)
    return _mapped(folder / WEIGHTS)


def _mapped(path: Path) -> Arrays:
    return map_tensors(path)[0]


def _unpickled(path: Path) -> Arrays:
    """The tensors of a file that torch wrote; no code in it runs."""
    found = load(path)
    if not isinstance(found, dict):
        raise InputFileError(f"{path} holds no weights: it is a {type(found).__name__}")
    return {str(name): value.numpy() for name, value in found.items() if isinstance(value, Tensor)}


def _sharded(index: Path, read: Callable[[Path], Arrays]) -> Arrays:
    file_of = read_json(index).get("weight_map")
    if not isinstance(file_of, dict):
        raise InputFileError(f"{index} has no weight_map")
    names = set(map(str, file_of.values()))
    for name in names:
        if Path(name).name != name or not name.isprintable():
            raise InputFileError(f"{index} names {name!r:.60}, which is no file beside it")
    files = {name: read(index.parent / name) for name in sorted(names)}
    absent = [f"{name} in {file}" for name, file in file_of.items() if name not in files[file]]
    if absent:
        raise InputFileError(f"{index} names tensors that are not there: {absent[:3]}")
    return {name: files[file][name] for name, file in file_of.items()}


def write_weights(
    folder: Path, named: Iterable[tuple[str, NDArray[Any]]], shard_bytes: int
) -> None:
    """One file, or several with an index; what an older model left behind goes."""
    shards: list[Arrays] = [{}]
    room = shard_bytes
    for key, array in named:
        if shards[-1] and array.nbytes > room:
            shards.append({})
            room = shard_bytes
        room -= array.nbytes
        shards[-1][key] = array
    count, metadata = len(shards), {"format": "pt"}
    names = [WEIGHTS] if count == 1 else [
        f"model-{number:05}-of-{count:05}.safetensors" for number in range(1, count + 1)
    ]  # fmt: skip
    for name, arrays in zip(names, shards):
        write_tensors(folder / name, arrays, metadata)
    if count == 1:
        (folder / INDEX).unlink(missing_ok=True)
        return
    total = sum(array.nbytes for arrays in shards for array in arrays.values())
    file_of = {key: name for name, arrays in zip(names, shards) for key in arrays}
    index = {"metadata": {"total_size": total}, "weight_map": file_of}
    write_atomic(folder / INDEX, json.dumps(index, indent=2).encode())
    (folder / WEIGHTS).unlink(missing_ok=True)
