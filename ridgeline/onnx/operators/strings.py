"""Text, which stays on the host."""

from __future__ import annotations

import re
from itertools import pairwise
from typing import Any

import numpy as np

from ridgeline.onnx.rows import OperatorRow
from ridgeline.onnx.values import Array, Ints, OnnxError, as_tensor
from ridgeline.tensors.tensor import Tensor


def _each(function: Any, *arrays: Array) -> Array:
    """A function of strings on the elements of arrays, broadcast."""
    spread = np.broadcast_arrays(*arrays)
    made = np.empty(spread[0].shape, object)
    for place in np.ndindex(made.shape):
        made[place] = function(*(array[place] for array in spread))
    return made


def _concat(x: Array, y: Array) -> Array:
    return _each(lambda a, b: str(a) + str(b), x, y)


def _split(
    x: Array, delimiter: str | None = None, maxsplit: int | None = None
) -> tuple[Array, Tensor]:
    most = -1 if maxsplit is None else maxsplit
    parts = [str(text).split(delimiter or None, most) for text in x.flat]
    width = max(map(len, parts), default=0)
    rows = np.full((len(parts), width), "", object)
    for number, part in enumerate(parts):
        rows[number, : len(part)] = part
    counts = np.array([len(part) for part in parts], np.int64).reshape(x.shape)
    return rows.reshape((*x.shape, width)), as_tensor(counts)


def _matches(x: Array, pattern: str) -> Tensor:
    try:
        compiled = re.compile(pattern)
    except re.error as error:
        raise OnnxError(f"{pattern!r} is no regular expression: {error}") from None
    found = _each(lambda text: compiled.fullmatch(str(text)) is not None, x)
    return as_tensor(found.astype(bool))


def _normalize(
    x: Array, case_change_action: str = "NONE", is_case_sensitive: int = 0, locale: str = "en_US",
    stopwords: list[str] | None = None,
) -> Array:  # fmt: skip
    change: Any = {"LOWER": str.lower, "UPPER": str.upper, "NONE": str}[case_change_action]
    stops = set(stopwords or []) if is_case_sensitive else {s.lower() for s in stopwords or []}
    rows = []
    for row in x if x.ndim == 2 else [x]:
        kept = [
            change(text) for text in row
            if (text if is_case_sensitive else text.lower()) not in stops
        ]  # fmt: skip
        rows.append(kept or [""])
    made = np.array(rows, object)
    return made if x.ndim == 2 else made[0]


def _tfidf(
    x: Array, max_gram_length: int, max_skip_count: int, min_gram_length: int, mode: str,
    ngram_counts: Ints, ngram_indexes: Ints, pool_int64s: Ints | None = None,
    pool_strings: list[str] | None = None, weights: list[float] | None = None,
) -> Tensor:  # fmt: skip
    """Counts of the n-grams of a pool, in rows of tokens."""
    pool = list(pool_strings if pool_strings is not None else pool_int64s or [])
    grams: dict[tuple[Any, ...], int] = {}
    bounds = [*ngram_counts, len(pool)]
    for length, (first, last) in enumerate(pairwise(bounds), 1):
        for start in range(first, last, length):
            grams[tuple(pool[start : start + length])] = len(grams)
    rows = x if x.ndim == 2 else x[None]
    counts = np.zeros((len(rows), max(ngram_indexes) + 1), np.float32)
    for number, row in enumerate(rows):
        tokens = list(row) if pool_strings is not None else [int(token) for token in row]
        for gram in _grams(tokens, min_gram_length, max_gram_length, max_skip_count):
            if gram in grams:
                counts[number, ngram_indexes[grams[gram]]] += 1
    scale = np.ones(counts.shape[1], np.float32)
    for gram_number, at in enumerate(ngram_indexes):
        scale[at] = 1 if weights is None else weights[gram_number]
    if mode == "IDF":
        counts = np.where(counts > 0, scale, 0)
    elif mode == "TFIDF":
        counts = counts * scale
    return as_tensor((counts if x.ndim == 2 else counts[0]).astype(np.float32))


def _grams(tokens: list[Any], shortest: int, longest: int, skips: int) -> Any:
    """All n-grams of tokens that are up to `skips` apart; single tokens once."""
    for length in range(shortest, longest + 1):
        for gap in range(1, skips + 2 if length > 1 else 2):
            for start in range(len(tokens) - (length - 1) * gap):
                yield tuple(tokens[start + number * gap] for number in range(length))


ROWS: tuple[OperatorRow, ...] = (
    OperatorRow("StringConcat", _concat),
    OperatorRow("StringSplit", _split),
    OperatorRow("RegexFullMatch", _matches),
    OperatorRow("StringNormalizer", _normalize),
    OperatorRow("TfIdfVectorizer", _tfidf),
)
