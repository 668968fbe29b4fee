"""Nearest neighbours by brute force: one matrix product for each block of queries."""

from __future__ import annotations

from typing import Any

from ridgeline import arange, cat, int64, zeros
from ridgeline.errors import BadValueError
from ridgeline.learn.base import (
    ClassifierMixin,
    Estimator,
    RegressorMixin,
    classes_of,
    matrix,
    paired,
    squared_distances,
)
from ridgeline.nn.functional import one_hot
from ridgeline.record.modes import no_grad
from ridgeline.tensors.tensor import Tensor

BLOCK = 1 << 22  # distances computed at a time


class NearestNeighbors(Estimator):
    """The nearest of the fitted samples; metrics are "euclidean", "manhattan" and "cosine"."""

    def __init__(self, n_neighbors: int = 5, *, metric: str = "euclidean") -> None:
        self.n_neighbors, self.metric = n_neighbors, metric

    def fit(self, X: Any, y: Any = None) -> NearestNeighbors:
        """Keep the samples."""
        self._keep(X)
        return self

    def _keep(self, X: Any) -> Tensor:
        if self.metric not in ("euclidean", "manhattan", "cosine"):
            raise BadValueError(
                f"there is no metric {self.metric!r}", help="metrics: euclidean, manhattan, cosine"
            )
        self._samples = matrix(X)
        return self._samples

    def kneighbors(
        self, X: Any = None, n_neighbors: int | None = None, return_distance: bool = True
    ) -> Any:
        """Distances to the nearest samples and their places, nearest first.

        Without `X` the neighbours of the fitted samples themselves, each without itself.
        """
        self._check_fitted("_samples")
        count = self.n_neighbors if n_neighbors is None else n_neighbors
        own = X is None
        queries = self._samples if own else matrix(X, like=self._samples)
        if not 1 <= count <= self._samples.shape[0] - own:
            raise BadValueError(
                f"cannot find {count} neighbours among {self._samples.shape[0] - own} samples"
            )
        rows = max(1, BLOCK // self._samples.shape[0])
        found = [
            self._nearest(queries[start : start + rows], start if own else None, count)
            for start in range(0, queries.shape[0], rows)
        ]
        distances, indices = (cat(list(parts), 0) for parts in zip(*found))
        return (distances, indices) if return_distance else indices

    def _nearest(self, queries: Tensor, start: int | None, count: int) -> tuple[Tensor, Tensor]:
        with no_grad():
            distances = self._distances(queries)
            if start is not None:  # a sample is not its own neighbour
                own = arange(queries.shape[0])[:, None] + start
                itself = own == arange(self._samples.shape[0])
                distances = distances.masked_fill(itself, float("inf"))
            near, indices = distances.topk(count, 1, largest=False)
            return near, indices

    def _distances(self, queries: Tensor) -> Tensor:
        if self.metric == "euclidean":
            return squared_distances(queries, self._samples).sqrt()
        if self.metric == "manhattan":
            return (queries[:, None] - self._samples).abs().sum(2)
        lengths = [t.norm(dim=1, keepdim=True).clamp(min=1e-30) for t in (queries, self._samples)]
        return (1 - (queries / lengths[0]) @ (self._samples / lengths[1]).T).clamp(0, 2)


class _Voting(NearestNeighbors):
    """Neighbours that count equally ("uniform") or by the inverse of their distance."""

    def __init__(
        self, n_neighbors: int = 5, *, weights: str = "uniform", metric: str = "euclidean"
    ) -> None:
        super().__init__(n_neighbors, metric=metric)
        self.weights = weights

    def _votes(self, X: Any) -> tuple[Tensor, Tensor]:
        """The weight of each neighbour, and the neighbours' places."""
        if self.weights not in ("uniform", "distance"):
            raise BadValueError(f"weights is 'uniform' or 'distance', not {self.weights!r}")
        distances, indices = self.kneighbors(X)
        with no_grad():
            if self.weights == "uniform":
                return zeros(*distances.shape, dtype=distances.dtype) + 1, indices
            same = (distances == 0).to(distances.dtype)
            exact = same.sum(1, keepdim=True) > 0  # such neighbours decide alone
            inverse = 1 / (distances + same)
            return same * exact + inverse * (~exact), indices


class KNeighborsClassifier(ClassifierMixin, _Voting):
    """The class with the most votes among the nearest samples."""

    def fit(self, X: Any, y: Any = None) -> KNeighborsClassifier:
        """Keep the samples and their classes."""
        x = self._keep(X)
        self.classes_, self._kinds = classes_of(paired(x, y))
        return self

    def predict_proba(self, X: Any) -> Tensor:
        """The share of votes of each class."""
        votes, indices = self._votes(X)
        with no_grad():
            ballots = one_hot(self._kinds[indices], len(self.classes_)).to(votes.dtype)
            totals = (votes[:, :, None] * ballots).sum(1)
            return totals / totals.sum(1, keepdim=True)

    def predict(self, X: Any) -> Tensor:
        """The class with the most votes; the first of equals."""
        return self.classes_[self.predict_proba(X).argmax(1).to(int64)]


class KNeighborsRegressor(RegressorMixin, _Voting):
    """The mean of the nearest samples' targets."""

    def fit(self, X: Any, y: Any = None) -> KNeighborsRegressor:
        """Keep the samples and their targets."""
        x = self._keep(X)
        self._targets = paired(x, y).to(x.dtype)
        return self

    def predict(self, X: Any) -> Tensor:
        """The weighted mean of the neighbours' targets."""
        votes, indices = self._votes(X)
        with no_grad():
            near = self._targets[indices]
            weights = votes.reshape(*votes.shape, *[1] * (near.ndim - 2))
            return (near * weights).sum(1) / weights.sum(1)
