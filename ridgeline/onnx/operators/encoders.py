"""ai.onnx.ml: labels, categories and features."""

from __future__ import annotations

from typing import Any

import numpy as np

import ridgeline as rl
from ridgeline.onnx.rows import OperatorRow
from ridgeline.onnx.values import Array, Floats, Ints, OnnxError, Value, as_tensor
from ridgeline.tensors.tensor import Tensor

DOMAIN = "ai.onnx.ml"


def _extract(x: Tensor, y: Tensor) -> Tensor:
    found = rl.index_select(x, -1, y.reshape(-1).to(rl.int64))
    return found.unsqueeze(0) if x.ndim == 1 else found


def _binarize(x: Tensor, threshold: float = 0.0) -> Tensor:
    return (x > threshold).to(x.dtype)


def _one_of(**kinds: Any) -> Any:
    """The one of several lists that is given, as an array."""
    for name, value in kinds.items():
        if value is not None:
            kind = {"floats": np.float32, "int64s": np.int64, "strings": object}.get(name)
            return np.asarray(value, kind) if kind is not None else np.asarray(value)
    return None


def _encode_labels(
    x: Array, keys_floats: Floats | None = None, keys_int64s: Ints | None = None,
    keys_strings: list[str] | None = None, keys_tensor: Array | None = None,
    values_floats: Floats | None = None, values_int64s: Ints | None = None,
    values_strings: list[str] | None = None, values_tensor: Array | None = None,
    default_float: float = -0.0, default_int64: int = -1, default_string: str = "_Unused",
    default_tensor: Array | None = None,
) -> Value:  # fmt: skip
    """Each label as the value that stands at its place."""
    keys = _one_of(floats=keys_floats, int64s=keys_int64s, strings=keys_strings, tensor=keys_tensor)
    made = _one_of(
        floats=values_floats, int64s=values_int64s, strings=values_strings, tensor=values_tensor
    )
    if keys is None or made is None or len(keys) != len(made):
        raise OnnxError("LabelEncoder has no keys, or other values than keys")
    if values_floats is not None:
        default: Any = default_float
    elif values_int64s is not None:
        default = default_int64
    elif values_strings is not None:
        default = default_string
    else:
        default = default_tensor.ravel()[0] if default_tensor is not None else made.dtype.type()
        if default_tensor is None and made.dtype == object:
            default = default_string
        elif default_tensor is None and made.dtype.kind in "iu":
            default = default_int64
    known = {_key(key): value for key, value in zip(keys, made)}
    result = np.empty(x.shape, made.dtype)
    for place in np.ndindex(x.shape):
        result[place] = known.get(_key(x[place]), default)
    return result if result.dtype == object else as_tensor(result)


def _key(label: Any) -> Any:
    """A label to look up: a NaN is equal to another."""
    if isinstance(label, str):
        return label
    return "nan" if label != label else float(label)


ROWS: tuple[OperatorRow, ...] = (
    OperatorRow("ArrayFeatureExtractor", _extract, domain=DOMAIN),
    OperatorRow("Binarizer", _binarize, domain=DOMAIN),
    OperatorRow("LabelEncoder", _encode_labels, domain=DOMAIN),
)
