"""Principal component analysis by a singular value decomposition."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from ridgeline import eye, linalg, sign
from ridgeline.data.dataset import as_array
from ridgeline.errors import BadValueError
from ridgeline.learn.base import Estimator, matrix
from ridgeline.record.modes import no_grad
from ridgeline.tensors.tensor import Tensor


class PCA(Estimator):
    """Orthogonal directions of largest variance.

    `n_components` is a number of directions, a share of the variance to keep (between 0 and 1),
    or None for all. Each direction's largest entry is positive, as in scikit-learn.
    """

    def __init__(self, n_components: int | float | None = None, *, whiten: bool = False) -> None:
        self.n_components, self.whiten = n_components, whiten

    def fit(self, X: Any, y: Any = None) -> PCA:
        """Find the directions."""
        x = matrix(X)
        if x.shape[0] < 2:
            raise BadValueError("PCA needs at least two samples")
        with no_grad():
            self.mean_ = x.mean(0)
            _, lengths, directions = linalg.svd(x - self.mean_, full_matrices=False)
            largest = directions.abs().argmax(1, keepdim=True)
            directions = directions * sign(directions.gather(1, largest))
            variance = lengths**2 / (x.shape[0] - 1)
            ratio = variance / variance.sum()
            count = self._count(as_array(ratio))
            self.n_components_, self.n_samples_ = count, x.shape[0]
            self.components_ = directions[:count].clone()
            self.explained_variance_ = variance[:count].clone()
            self.explained_variance_ratio_ = ratio[:count].clone()
            self.singular_values_ = lengths[:count].clone()
            self.noise_variance_ = float(variance[count:].mean()) if count < len(variance) else 0.0
        return self

    def _count(self, ratio: Any) -> int:
        wanted, most = self.n_components, len(ratio)
        if wanted is None:
            return most
        if isinstance(wanted, float) and 0 < wanted < 1:
            return int(np.searchsorted(np.cumsum(ratio), wanted, side="right")) + 1
        if not isinstance(wanted, int) or not 1 <= wanted <= most:
            raise BadValueError(
                f"n_components is {wanted!r}; it must be a whole number in 1…{most}, a share "
                "between 0 and 1, or None"
            )
        return wanted

    def transform(self, X: Any) -> Tensor:
        """Coordinates along the directions."""
        self._check_fitted("components_")
        with no_grad():
            made: Tensor = (matrix(X, like=self.mean_) - self.mean_) @ self.components_.T
            return made / self.explained_variance_.sqrt() if self.whiten else made

    def fit_transform(self, X: Any, y: Any = None) -> Tensor:
        """Fit, and give the coordinates."""
        return self.fit(X).transform(X)

    def inverse_transform(self, X: Any) -> Tensor:
        """The samples that have these coordinates."""
        self._check_fitted("components_")
        with no_grad():
            x = matrix(X, like=self.components_[:, 0])
            scaled = x * self.explained_variance_.sqrt() if self.whiten else x
            made: Tensor = scaled @ self.components_ + self.mean_
            return made

    def get_covariance(self) -> Tensor:
        """The covariance of the model: the directions, and equal noise in all others."""
        self._check_fitted("components_")
        with no_grad():
            extra = (self.explained_variance_ - self.noise_variance_).clamp(min=0)
            size = self.mean_.shape[0]
            noise = self.noise_variance_ * eye(size, dtype=self.mean_.dtype)
            made: Tensor = (self.components_.T * extra) @ self.components_ + noise
            return made

    def score(self, X: Any, y: Any = None) -> float:
        """The mean log-likelihood of the samples under the model."""
        x = matrix(X, like=self.mean_) if hasattr(self, "mean_") else matrix(X)
        covariance = self.get_covariance()
        with no_grad():
            centered = x - self.mean_
            squares = (centered * linalg.solve(covariance, centered.T).T).sum(1)
            logs = linalg.slogdet(covariance)[1] + x.shape[1] * math.log(2 * math.pi)
            return float((-0.5 * (squares + logs)).mean())
