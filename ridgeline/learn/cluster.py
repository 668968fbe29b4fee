"""k-means: Lloyd's iteration from k-means++ starts."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from ridgeline import dtypes
from ridgeline.data.dataset import as_array
from ridgeline.data.randomness import RandomStream
from ridgeline.errors import BadValueError, ShapeError
from ridgeline.learn.base import Estimator, matrix, squared_distances
from ridgeline.nn.functional import one_hot
from ridgeline.record.modes import no_grad
from ridgeline.tensors.tensor import Tensor, tensor
from ridgeline.tracing.jit import jit


@jit
def _assign(x: Tensor, centers: Tensor) -> tuple[Tensor, Tensor]:
    """For each sample its nearest center, and the squared distance to it."""
    distances = squared_distances(x, centers)
    return distances.argmin(1), distances.amin(1)


@jit
def _move(x: Tensor, labels: Tensor, centers: Tensor) -> tuple[Tensor, Tensor]:
    """The mean of each cluster (an empty one keeps its place), and the clusters' sizes."""
    members = one_hot(labels, centers.shape[0]).to(x.dtype)
    counts = members.sum(0)
    means = (members.T @ x) / counts.clamp(min=1)[:, None]
    return (counts > 0)[:, None].to(x.dtype) * means + (counts == 0)[:, None] * centers, counts


class KMeans(Estimator):
    """Clusters around means; the best of `n_init` starts by the sum of squared distances."""

    def __init__(
        self,
        n_clusters: int = 8,
        *,
        init: Any = "k-means++",
        n_init: int = 1,
        max_iter: int = 300,
        tol: float = 1e-4,
        random_state: int = 0,
    ) -> None:
        self.n_clusters, self.init, self.n_init = n_clusters, init, n_init
        self.max_iter, self.tol, self.random_state = max_iter, tol, random_state

    def fit(self, X: Any, y: Any = None) -> KMeans:
        """Find the centers."""
        x = matrix(X)
        if not 1 <= self.n_clusters <= x.shape[0]:
            raise BadValueError(f"cannot make {self.n_clusters} clusters of {x.shape[0]} samples")
        with no_grad():
            middle = x.mean(0)
            x = x - middle  # products of small numbers lose less
            limit = self.tol * float(x.var(0, correction=0).mean())
            starts = self.n_init if isinstance(self.init, str) else 1
            found = [self._lloyd(x, self._start(x, middle, n), limit) for n in range(starts)]
            self.inertia_, centers, self.labels_, self.n_iter_ = min(found, key=lambda f: f[0])
            self.cluster_centers_ = centers + middle
        return self

    def _start(self, x: Tensor, middle: Tensor, number: int) -> Tensor:
        if not isinstance(self.init, str):
            given = matrix(self.init, like=x)
            if given.shape[0] != self.n_clusters:
                raise ShapeError(f"init has {given.shape[0]} rows for {self.n_clusters} clusters")
            return given - middle
        stream = RandomStream(self.random_state, number)
        if self.init == "random":
            return x[tensor(stream.permutation(x.shape[0])[: self.n_clusters])]
        if self.init == "k-means++":
            return _plus_plus(x, self.n_clusters, stream)
        raise BadValueError(f"init is 'k-means++', 'random' or an array, not {self.init!r}")

    def _lloyd(self, x: Tensor, centers: Tensor, limit: float) -> tuple[float, Tensor, Tensor, int]:
        before: Any = None
        iteration = 0
        while iteration < self.max_iter:
            iteration += 1
            labels, distances = _assign(x, centers)
            moved, counts = _move(x, labels, centers)
            moved = _refill(x, moved, counts, distances)
            shift = float(((moved - centers) ** 2).sum())
            centers, now = moved, as_array(labels)
            if (before is not None and np.array_equal(before, now)) or shift <= limit:
                break
            before = now
        labels, distances = _assign(x, centers)
        return float(distances.sum()), centers, labels, iteration

    def predict(self, X: Any) -> Tensor:
        """The nearest center of each sample."""
        self._check_fitted("cluster_centers_")
        with no_grad():
            labels: Tensor = _assign(matrix(X, like=self.cluster_centers_), self.cluster_centers_)[
                0
            ]
            return labels

    def fit_predict(self, X: Any, y: Any = None) -> Tensor:
        """Fit, and give the cluster of each sample."""
        return self.fit(X).labels_

    def transform(self, X: Any) -> Tensor:
        """The distance of each sample to each center."""
        self._check_fitted("cluster_centers_")
        with no_grad():
            centers = self.cluster_centers_
            return squared_distances(matrix(X, like=centers), centers).sqrt()

    def fit_transform(self, X: Any, y: Any = None) -> Tensor:
        """Fit, and give the distances."""
        return self.fit(X).transform(X)

    def score(self, X: Any, y: Any = None) -> float:
        """Minus the sum of squared distances to the nearest centers."""
        self._check_fitted("cluster_centers_")
        with no_grad():
            centers = self.cluster_centers_
            return -float(_assign(matrix(X, like=centers), centers)[1].sum())


def _plus_plus(x: Tensor, count: int, stream: RandomStream) -> Tensor:
    """Arthur and Vassilvitskii's start: each next center drawn by its squared distance to those
    before, the best of a few draws."""
    tries = 2 + int(math.log(count))
    chosen = [int(stream.integers(x.shape[0], 1)[0])]
    nearest = squared_distances(x, x[chosen[0]][None])[:, 0]
    while len(chosen) < count:
        ends = np.cumsum(as_array(nearest.to(dtypes.float64)))
        drawn = np.searchsorted(ends, stream.uniform(0.0, float(ends[-1]), tries), side="right")
        indices = np.minimum(drawn, x.shape[0] - 1)
        candidates = squared_distances(x, x[tensor(indices)]).minimum(nearest[:, None])
        best = int(candidates.sum(0).argmin())
        nearest = candidates[:, best]
        chosen.append(int(indices[best]))
    return x[tensor(np.array(chosen))]


def _refill(x: Tensor, centers: Tensor, counts: Tensor, distances: Tensor) -> Tensor:
    """Centers of empty clusters moved to the samples that are farthest from theirs."""
    empty = np.flatnonzero(as_array(counts) == 0)
    if not len(empty):
        return centers
    far = np.argsort(-as_array(distances), kind="stable")[: len(empty)]
    made = centers.clone()
    made[tensor(empty)] = x[tensor(far)]
    return made
