"""A softmax over many classes of which few are frequent: rare ones share smaller projections."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise
from typing import Any, NamedTuple

from ridgeline import dtypes
from ridgeline.errors import ArgumentError, ShapeError
from ridgeline.nn.containers import ModuleList, Sequential
from ridgeline.nn.functional import log_softmax
from ridgeline.nn.functional.choose import choose
from ridgeline.nn.linear import Linear
from ridgeline.nn.module import Module
from ridgeline.tensors.public import cat, clamp
from ridgeline.tensors.tensor import Tensor


class Scored(NamedTuple):
    """The log-probability of each target, and the mean loss."""

    output: Tensor
    loss: Tensor


class AdaptiveLogSoftmaxWithLoss(Module):
    """Classes below `cutoffs[0]` have scores of their own; later ones are split into clusters.

    Class numbers are in the order of frequency, the most frequent first.
    """

    def __init__(
        self,
        in_features: int,
        n_classes: int,
        cutoffs: Sequence[int],
        div_value: float = 4.0,
        head_bias: bool = False,
        device: Any = None,
        dtype: dtypes.DType | None = None,
    ) -> None:
        super().__init__()
        ends = list(cutoffs)
        if not ends or any(a >= b for a, b in pairwise([0, *ends, n_classes])):
            raise ArgumentError(
                f"cutoffs grow between 1 and n_classes - 1, got {ends} for {n_classes} classes"
            )
        self.in_features, self.n_classes = in_features, n_classes
        self.cutoffs, self.div_value, self.head_bias = [*ends, n_classes], div_value, head_bias
        self.shortlist_size, self.n_clusters = ends[0], len(ends)
        self.head_size = self.shortlist_size + self.n_clusters
        self.head = Linear(in_features, self.head_size, head_bias, device, dtype)
        self.tail = ModuleList()
        for number, (first, last) in enumerate(pairwise(self.cutoffs), 1):
            width = int(in_features // div_value**number)
            self.tail.append(
                Sequential(
                    Linear(in_features, width, False, device, dtype),
                    Linear(width, last - first, False, device, dtype),
                )
            )

    def reset_parameters(self) -> None:
        """All layers anew."""
        self.head.reset_parameters()
        for layer in self.tail.modules():
            if isinstance(layer, Linear):
                layer.reset_parameters()

    def forward(self, input: Tensor, target: Tensor) -> Scored:
        """The log-probability of each target class, and its negative mean."""
        if tuple(input.shape[:-1]) != tuple(target.shape) or input.dim() not in (1, 2):
            raise ShapeError(
                f"input [n, {self.in_features}] goes with targets [n], got {list(input.shape)} "
                f"and {list(target.shape)}"
            )
        rows = input.reshape((-1, self.in_features))
        classes = target.reshape((-1,))
        head = log_softmax(self.head(rows), 1)
        output = _at(head, classes, self.shortlist_size)
        for number, (first, last) in enumerate(pairwise(self.cutoffs)):
            inside = log_softmax(self.tail[number](rows), 1)
            among = head[:, self.shortlist_size + number]
            found = _at(inside, classes - first, last - first) + among
            output = choose(classes >= first, found, output)
        output = output.reshape(tuple(target.shape))
        return Scored(output, -output.mean())

    def log_prob(self, input: Tensor) -> Tensor:
        """The log-probabilities of all classes."""
        head = log_softmax(self.head(input), 1)
        parts = [head[:, : self.shortlist_size]]
        for number, projection in enumerate(self.tail):
            among = head[:, self.shortlist_size + number].unsqueeze(1)
            parts.append(log_softmax(projection(input), 1) + among)
        return cat(parts, 1)

    def predict(self, input: Tensor) -> Tensor:
        """The likeliest class of each row."""
        return self.log_prob(input).argmax(1)

    def extra_repr(self) -> str:
        return f"{self.in_features}, {self.n_classes}, cutoffs={self.cutoffs[:-1]}"


def _at(scores: Tensor, classes: Tensor, count: int) -> Tensor:
    """The score of a class in each row; any number where the class is not among them."""
    inside = clamp(classes, 0, count - 1).unsqueeze(1)
    return scores.gather(1, inside).squeeze(1)
