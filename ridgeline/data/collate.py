"""From samples to a batch: stack arrays and numbers, keep the structure around them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from ridgeline.data.dataset import as_array
from ridgeline.errors import BadTypeError, ShapeError
from ridgeline.tensors.tensor import Tensor, tensor


def collate_arrays(samples: Sequence[Any]) -> Any:
    """Stack equal structures of samples leaf by leaf; text and bytes stay lists."""
    first = samples[0]
    if isinstance(first, Mapping):
        return {key: collate_arrays([s[key] for s in samples]) for key in first}
    if isinstance(first, tuple | list):
        if len({len(s) for s in samples}) > 1:
            raise ShapeError("cannot batch tuples of different lengths")
        return tuple(collate_arrays(column) for column in zip(*samples))
    if isinstance(first, str | bytes):
        return list(samples)
    if isinstance(first, np.ndarray | np.generic | bool | int | float | complex | Tensor):
        arrays = [as_array(s) for s in samples]
        shapes = {a.shape for a in arrays}
        if len(shapes) > 1:
            shown = ", ".join(sorted(str(list(shape)) for shape in shapes))
            raise ShapeError(
                f"cannot batch samples of different shapes: {shown}",
                help="pad or crop them in the dataset, or pass collate_fn",
            )
        return np.stack(arrays)
    raise BadTypeError(
        f"cannot batch samples of type {type(first).__name__}",
        help="return arrays, numbers, text, tuples or dicts, or pass collate_fn",
    )


def to_tensors(batch: Any) -> Any:
    """The same structure with every array as a tensor."""
    if isinstance(batch, Mapping):
        return {key: to_tensors(value) for key, value in batch.items()}
    if isinstance(batch, tuple):
        return tuple(to_tensors(value) for value in batch)
    return tensor(batch) if isinstance(batch, np.ndarray) else batch


def default_collate(samples: Sequence[Any]) -> Any:
    """A list of samples as one batch of tensors, as torch's loader makes it."""
    return to_tensors(collate_arrays(samples))
