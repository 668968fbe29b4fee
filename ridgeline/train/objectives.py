"""Objectives: from a model and a batch to the mean loss and sums of metrics over the samples.

An objective is any function `(model, *batch) -> (loss, {name: sum})`; these are the usual ones.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from ridgeline.nn import functional
from ridgeline.tensors.tensor import Tensor

Objective = Callable[..., tuple[Tensor, dict[str, Tensor]]]


def classification(model: Any, inputs: Tensor, labels: Tensor) -> tuple[Tensor, dict[str, Tensor]]:
    """Cross entropy of class scores, and the share of inputs recognised."""
    scores = model(inputs)
    right = (scores.argmax(1) == labels).sum()
    return functional.cross_entropy(scores, labels), {"accuracy": right}


def regression(model: Any, inputs: Tensor, targets: Tensor) -> tuple[Tensor, dict[str, Tensor]]:
    """Mean squared error."""
    return functional.mse_loss(model(inputs), targets), {}


def next_token(model: Any, tokens: Tensor, following: Tensor) -> tuple[Tensor, dict[str, Tensor]]:
    """Cross entropy of the scores [n, length, vocabulary] for the tokens that follow."""
    scores = model(tokens)
    loss = functional.cross_entropy(scores.reshape(-1, scores.shape[-1]), following.reshape(-1))
    return loss, {}
