"""Checkpoints: everything a run needs to go on as if it had never stopped, in one file.

A checkpoint is a safetensors file. Nested state (a model's, an optimizer's, a schedule's) is split
into its tensors, stored under their paths, and JSON with the rest, stored as metadata.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from ridgeline.data.dataset import as_array
from ridgeline.errors import InputFileError
from ridgeline.interop.safetensors import Arrays, read_tensors, write_tensors
from ridgeline.tensors.tensor import Tensor, tensor

FORMAT = "ridgeline-checkpoint-1"
_TENSOR = "$tensor"  # marks the place of a tensor in the JSON part


def split(tree: Any, path: str, arrays: Arrays) -> Any:
    """The JSON part of nested state; its tensors go into `arrays` under their paths."""
    if isinstance(tree, Tensor):
        arrays[path] = as_array(tree)
        return {_TENSOR: path}
    if isinstance(tree, Mapping):
        pairs = [[key, split(value, f"{path}.{key}", arrays)] for key, value in tree.items()]
        if all(isinstance(key, str) for key, _ in pairs):
            return dict(pairs)
        return {"$pairs": pairs}  # JSON would turn the keys into text
    if isinstance(tree, list | tuple):
        return [split(value, f"{path}.{number}", arrays) for number, value in enumerate(tree)]
    if tree is None or isinstance(tree, str | int | float | bool):
        return tree
    raise TypeError(f"{path}: a checkpoint cannot hold {type(tree).__name__}")


def join(tree: Any, arrays: Mapping[str, Any]) -> Any:
    """Put tensors back into the JSON part."""
    if isinstance(tree, dict):
        if set(tree) == {_TENSOR}:
            return tensor(arrays[tree[_TENSOR]])
        if set(tree) == {"$pairs"}:
            return {key: join(value, arrays) for key, value in tree["$pairs"]}
        return {key: join(value, arrays) for key, value in tree.items()}
    if isinstance(tree, list):
        return [join(value, arrays) for value in tree]
    return tree


def save_checkpoint(path: str | Path, state: Mapping[str, Any]) -> None:
    """Write nested state to one file, replacing the previous one only when all is written."""
    arrays: Arrays = {}
    plain = {key: split(value, key, arrays) for key, value in state.items()}
    write_tensors(Path(path), arrays, {"format": FORMAT, "state": json.dumps(plain)})


def load_checkpoint(path: str | Path) -> dict[str, Any]:
    """The nested state in a checkpoint."""
    arrays, metadata = read_tensors(Path(path))
    if metadata.get("format") != FORMAT:
        raise InputFileError(
            f"{path} is not a checkpoint of a training run",
            note=f"its format is {metadata.get('format', 'not given')!r}, expected {FORMAT!r}",
        )
    try:
        state = json.loads(metadata["state"])
        return {key: join(value, arrays) for key, value in state.items()}
    except (KeyError, ValueError, AttributeError) as error:
        raise InputFileError(f"{path} is a damaged checkpoint: {error!r}") from error


def save_weights(path: str | Path, state: Mapping[str, Tensor]) -> None:
    """Write a state_dict as a plain safetensors file that other programs can read."""
    write_tensors(Path(path), {name: as_array(t) for name, t in state.items()}, {"format": "pt"})


def load_weights(path: str | Path) -> dict[str, Tensor]:
    """The tensors of a safetensors file by name."""
    return {name: tensor(array) for name, array in read_tensors(Path(path))[0].items()}
