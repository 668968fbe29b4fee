"""ai.onnx.ml: classifiers by support vectors, their votes and probabilities."""

from __future__ import annotations

from itertools import combinations, pairwise
from typing import Any

import numpy as np

import ridgeline as rl
from ridgeline.onnx.operators.encoders import DOMAIN
from ridgeline.onnx.operators.estimators import floats, kernel, real
from ridgeline.onnx.operators.scores import named, scored
from ridgeline.onnx.rows import OperatorRow
from ridgeline.onnx.values import Floats, Ints, Value
from ridgeline.tensors.tensor import Tensor

_LEAST, _ROUNDS, _NEAR = 1e-7, 100, 0.005  # of probabilities of pairs, as libsvm joins them


def _pair_scores(
    kernels: Tensor, coefficients: Floats, rho: Floats, counts: Ints
) -> tuple[Tensor, list[tuple[int, int]]]:
    """For two classes each, on which side of their border a row is."""
    weights = np.asarray(coefficients, np.float32).reshape(-1, kernels.shape[1])
    ends = np.cumsum([0, *counts])
    parts = [slice(first, last) for first, last in pairwise(ends.tolist())]
    pairs = list(combinations(range(len(counts)), 2))
    columns = np.zeros((kernels.shape[1], len(pairs)), np.float32)
    for number, (one, other) in enumerate(pairs):
        columns[parts[one], number] = weights[other - 1, parts[one]]
        columns[parts[other], number] = weights[one, parts[other]]
    return kernels @ rl.tensor(columns) + floats(rho), pairs


def _votes(scores: Tensor, pairs: list[tuple[int, int]], classes: int) -> Tensor:
    """How many of its borders each class wins."""
    wins = np.zeros((2, len(pairs), classes), np.float32)
    for number, (one, other) in enumerate(pairs):
        wins[0, number, one] = wins[1, number, other] = 1
    first = (scores > 0).to(rl.float32)
    return first @ rl.tensor(wins[0]) + (1 - first) @ rl.tensor(wins[1])


def _probabilities(
    scores: Tensor, pairs: list[tuple[int, int]], slopes: Floats, offsets: Floats, classes: int
) -> Tensor:
    """The probability of each class, from those of one against another."""
    won = rl.sigmoid(-(scores * floats(slopes) + floats(offsets))).clamp(_LEAST, 1 - _LEAST)
    against: list[list[Any]] = [[None] * classes for _ in range(classes)]
    for number, (one, other) in enumerate(pairs):
        against[one][other], against[other][one] = won[:, number], 1 - won[:, number]
    rows = []
    for one in range(classes):
        others = [o for o in range(classes) if o != one]
        own = sum(against[o][one] ** 2 for o in others)
        row = [own if o == one else -against[o][one] * against[one][o] for o in range(classes)]
        rows.append(rl.stack(row, 1))
    return _joined(rl.stack(rows, 1), classes)


def _joined(quadratic: Tensor, classes: int) -> Tensor:
    """The probabilities that fit those of pairs best, by rounds over the classes as in libsvm."""
    near = _NEAR / classes
    start = rl.full((quadratic.shape[0], classes), 1 / classes)

    def turn(chances: Tensor, _: None) -> tuple[Tensor, None]:
        products = (quadratic @ chances.unsqueeze(2)).squeeze(2)
        total = (chances * products).sum(1, keepdim=True)
        done = rl.amax(rl.abs(products - total), 1, keepdim=True) < near
        now = chances
        for one in range(classes):
            own = quadratic[:, one, one].unsqueeze(1)
            step = (total - products[:, one : one + 1]) / own
            mark = rl.tensor(np.eye(classes, dtype=np.float32)[one])
            now = (now + step * mark) / (1 + step)
            grown = total + step * (step * own + 2 * products[:, one : one + 1])
            total = grown / (1 + step) ** 2
            products = (products + step * quadratic[:, one]) / (1 + step)
        return chances.where(done, now), None

    found: Tensor = rl.scan(turn, start, None, length=max(_ROUNDS, classes))[0]
    return found


def _support_classifier(
    x: Tensor, coefficients: Floats, rho: Floats, kernel_type: str = "LINEAR",
    kernel_params: Floats | None = None, classlabels_ints: Ints | None = None,
    classlabels_strings: list[str] | None = None, post_transform: str = "NONE",
    prob_a: Floats | None = None, prob_b: Floats | None = None,
    support_vectors: Floats | None = None, vectors_per_class: Ints | None = None,
) -> tuple[Value, Tensor]:  # fmt: skip
    labels: Any = classlabels_strings or classlabels_ints or []
    x = real(x).to(rl.float32)
    x = x.unsqueeze(0) if x.ndim == 1 else x
    if not vectors_per_class:
        weights = floats(coefficients).reshape(max(len(labels), 1), -1)
        scores = kernel(x, weights, kernel_type, kernel_params) + rho[0]
        return named(rl.argmax(scores, dim=1), labels), scored(scores, post_transform)
    vectors = floats(support_vectors or []).reshape(sum(vectors_per_class), -1)
    classes = len(vectors_per_class)
    kernels = kernel(x, vectors, kernel_type, kernel_params)
    scores, pairs = _pair_scores(kernels, coefficients, rho, vectors_per_class)
    best = named(rl.argmax(_votes(scores, pairs, classes), dim=1), labels)
    if prob_a:
        scores = _probabilities(scores, pairs, prob_a, prob_b or [], classes)
    elif classes == 2:
        if post_transform.startswith("SOFTMAX"):  # the runtime transforms no single score so
            return best, rl.cat([1 - scores, scores], 1)
        scores = rl.cat([-scores, scores], 1)
    return best, scored(scores, post_transform)


ROWS = (OperatorRow("SVMClassifier", _support_classifier, domain=DOMAIN),)
