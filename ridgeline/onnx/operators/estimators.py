"""ai.onnx.ml: linear models, support vectors, and what prepares features for them."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

import ridgeline as rl
from ridgeline import dtypes
from ridgeline.onnx.operators.encoders import DOMAIN
from ridgeline.onnx.operators.scores import named, scored
from ridgeline.onnx.rows import OperatorRow
from ridgeline.onnx.values import Array, Floats, Ints, OnnxError, Value, as_tensor
from ridgeline.tensors.tensor import Tensor


def floats(values: Floats) -> Tensor:
    """An attribute as a tensor."""
    return rl.tensor(list(values), dtype=rl.float32)


def real(x: Tensor) -> Tensor:
    """Features that scores are computed of."""
    return x if x.dtype.is_floating_point else x.to(rl.float32)


def _scale(x: Tensor, offset: Floats | None = None, scale: Floats | None = None) -> Tensor:
    return (real(x).to(rl.float32) - floats(offset or [0.0])) * floats(scale or [1.0])


def _impute(
    x: Tensor, imputed_value_floats: Floats | None = None, imputed_value_int64s: Ints | None = None,
    replaced_value_float: float = 0.0, replaced_value_int64: int = 0,
) -> Tensor:  # fmt: skip
    if x.dtype.is_floating_point:
        values = floats(imputed_value_floats or []).to(x.dtype)
        is_missing = rl.isnan(x) if math.isnan(replaced_value_float) else x == replaced_value_float
    else:
        values = rl.tensor(list(imputed_value_int64s or []), dtype=x.dtype)
        is_missing = x == replaced_value_int64
    return rl.broadcast_to(values, x.shape).where(is_missing, x)


def _normalize(x: Tensor, norm: str = "MAX") -> Tensor:
    x = real(x)
    if norm == "MAX":
        size = rl.amax(x, -1, True)
    elif norm == "L1":
        size = rl.sum(rl.abs(x), -1, True)
    else:
        size = rl.sqrt(rl.sum(x * x, -1, True))
    return x / size.where(size != 0, 1.0)


def _one_hot(
    x: Value, cats_int64s: Ints | None = None, cats_strings: list[str] | None = None,
    zeros: int = 1,
) -> Tensor:  # fmt: skip
    if cats_strings is not None:
        known = np.asarray(x, object)[..., None] == np.array(cats_strings, object)
        found = as_tensor(known.astype(np.float32))
    else:
        places = as_tensor(x).to(rl.int64).unsqueeze(-1)
        found = (places == rl.tensor(list(cats_int64s or []), dtype=rl.int64)).to(rl.float32)
    if not zeros and not bool(rl.all(rl.sum(found, -1) > 0)):
        raise OnnxError("OneHotEncoder is given a category that it does not know")
    return found


def _join(*xs: Tensor, inputdimensions: Ints | None = None) -> Tensor:
    wide = [real(x).reshape(x.shape[0], -1).to(rl.float32) for x in xs]
    return rl.cat(wide, 1)


def _linear_scores(x: Tensor, coefficients: Floats, intercepts: Floats | None) -> Tensor:
    x = real(x)
    x = x.unsqueeze(0) if x.ndim == 1 else x
    weights = floats(coefficients).reshape(-1, x.shape[1]).to(x.dtype)
    scores = x @ weights.T
    return scores if not intercepts else scores + floats(intercepts).to(x.dtype)


def _linear_regression(
    x: Tensor, coefficients: Floats, intercepts: Floats | None = None, targets: int = 1,
    post_transform: str = "NONE",
) -> Tensor:  # fmt: skip
    return scored(_linear_scores(x, coefficients, intercepts), post_transform).to(rl.float32)


def _linear_classifier(
    x: Tensor, coefficients: Floats, intercepts: Floats | None = None,
    classlabels_ints: Ints | None = None, classlabels_strings: list[str] | None = None,
    multi_class: int = 0, post_transform: str = "NONE",
) -> tuple[Value, Tensor]:  # fmt: skip
    scores = _linear_scores(x, coefficients, intercepts).to(rl.float32)
    labels: Any = classlabels_strings or classlabels_ints or []
    if scores.shape[1] == 1 and len(labels) == 2:
        places = (scores[:, 0] > 0).to(rl.int64)
        return named(places, labels), scored(rl.cat([-scores, scores], 1), post_transform)
    return named(rl.argmax(scores, dim=1), labels), scored(scores, post_transform)


def kernel(x: Tensor, vectors: Tensor, kind: str, params: Floats | None) -> Tensor:
    """How near rows are to support vectors, by the name of a kernel."""
    gamma, offset, degree = params or [0.0, 0.0, 0.0]
    if kind == "RBF":
        apart = x.unsqueeze(1) - vectors
        return rl.exp(-gamma * rl.sum(apart * apart, -1))
    product = x @ vectors.T
    if kind == "POLY":
        return (product * gamma + offset) ** degree
    return rl.tanh(product * gamma + offset) if kind == "SIGMOID" else product


def _support_regression(
    x: Tensor, coefficients: Floats, rho: Floats, kernel_type: str = "LINEAR",
    kernel_params: Floats | None = None, n_supports: int = 0, one_class: int = 0,
    post_transform: str = "NONE", support_vectors: Floats | None = None,
) -> Tensor:  # fmt: skip
    x = real(x)
    weights = floats(coefficients)
    if n_supports:
        vectors = floats(support_vectors or []).reshape(n_supports, -1)
        total = kernel(x, vectors, kernel_type, kernel_params) @ weights.reshape(-1, 1)
    else:
        total = kernel(x, weights.reshape(1, -1), "LINEAR", None)
    total = total + rho[0]
    if one_class:
        total = rl.ones_like(total).where(total > 0, -1.0)
    return scored(total, post_transform).to(rl.float32)


def _zip_map(
    x: Array, classlabels_int64s: Ints | None = None, classlabels_strings: list[str] | None = None
) -> list[Value]:
    labels: Any = classlabels_strings or classlabels_int64s or []
    rows = x if x.ndim == 2 else x[None]
    return [{label: float(number) for label, number in zip(labels, row)} for row in rows]


def _vectorize(
    x: Value, int64_vocabulary: Ints | None = None, string_vocabulary: list[str] | None = None
) -> Tensor:
    words: Any = string_vocabulary or int64_vocabulary or []
    rows = x if isinstance(x, list) else [x]
    kind = np.float32 if any(isinstance(v, float) for row in rows for v in row.values()) else None
    table = [[row.get(word, 0) for word in words] for row in rows]
    return as_tensor(np.array(table, kind))


def _cast_map(
    x: Value, cast_to: str = "TO_FLOAT", map_form: str = "DENSE", max_map: int = 1
) -> Value:
    pairs = sorted(x.items())
    values = [value for _, value in pairs]
    if map_form == "SPARSE":
        values = [x.get(place, 0) for place in range(max_map)]
    if cast_to == "TO_STRING":
        return np.array([[str(value) for value in values]], object)
    kind = dtypes.float32 if cast_to == "TO_FLOAT" else dtypes.int64
    return as_tensor(np.array([[float(value) for value in values]]).astype(kind.numpy))


def _map_categories(
    x: Value, cats_int64s: Ints, cats_strings: list[str], default_int64: int = -1,
    default_string: str = "_Unused",
) -> Value:  # fmt: skip
    if isinstance(x, np.ndarray) and x.dtype == object:
        numbers = dict(zip(cats_strings, cats_int64s))
        found = [numbers.get(text, default_int64) for text in x.flat]
        return as_tensor(np.array(found, np.int64).reshape(x.shape))
    array = as_tensor(x).numpy()
    texts = dict(zip(cats_int64s, cats_strings))
    found_texts = [texts.get(int(number), default_string) for number in array.flat]
    return np.array(found_texts, object).reshape(array.shape)


ROWS: tuple[OperatorRow, ...] = (
    OperatorRow("Scaler", _scale, domain=DOMAIN),
    OperatorRow("Imputer", _impute, domain=DOMAIN),
    OperatorRow("Normalizer", _normalize, domain=DOMAIN),
    OperatorRow("OneHotEncoder", _one_hot, domain=DOMAIN),
    OperatorRow("FeatureVectorizer", _join, domain=DOMAIN),
    OperatorRow("LinearRegressor", _linear_regression, domain=DOMAIN),
    OperatorRow("LinearClassifier", _linear_classifier, domain=DOMAIN),
    OperatorRow("SVMRegressor", _support_regression, domain=DOMAIN),
    OperatorRow("ZipMap", _zip_map, domain=DOMAIN),
    OperatorRow("DictVectorizer", _vectorize, domain=DOMAIN),
    OperatorRow("CastMap", _cast_map, domain=DOMAIN),
    OperatorRow("CategoryMapper", _map_categories, domain=DOMAIN),
)
