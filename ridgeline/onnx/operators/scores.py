"""What classifiers make of scores: a transform of them, and labels."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

import ridgeline as rl
from ridgeline.onnx.values import OnnxError, Value, as_host
from ridgeline.tensors.tensor import Tensor


def scored(scores: Tensor, transform: str) -> Tensor:
    """Scores by the name of a transform."""
    if transform == "NONE":
        return scores
    if transform == "LOGISTIC":
        return rl.sigmoid(scores)
    if transform == "SOFTMAX":
        return rl.softmax(scores, -1)
    if transform == "SOFTMAX_ZERO":
        powers = rl.softmax(scores, -1).where(scores != 0, 0.0)
        return powers / rl.sum(powers, -1, keepdim=True)
    if transform == "PROBIT":
        return rl.erfinv(2 * scores - 1) * math.sqrt(2)
    raise OnnxError(f"{transform!r} is no transform of scores")


def labels_of(
    scores: Tensor, labels: Any, transform: str, *, binary: bool = False, column: int = 1
) -> tuple[Value, Tensor]:
    """The label of the best score in each row, and the scores; `binary` has one score a row."""
    if binary:
        one = scores[:, column]
        places = (one > (0.5 if transform == "NONE" else 0.0)).to(rl.int64)
        if transform == "LOGISTIC":
            pair = rl.stack([rl.sigmoid(-one), rl.sigmoid(one)], 1)
        elif transform == "NONE":
            pair = rl.stack([1 - one, one], 1)
        else:
            pair = scored(rl.stack([-one, one], 1), transform)
        return named(places, labels), pair
    return named(rl.argmax(scores, dim=1), labels), scored(scores, transform)


def named(places: Tensor, labels: Any) -> Value:
    """The labels at places: tensors of integers, or text."""
    if not labels:
        return places
    if isinstance(labels[0], str):
        return np.array(labels, object)[as_host(places)]
    return rl.tensor(list(labels), dtype=rl.int64)[places]
