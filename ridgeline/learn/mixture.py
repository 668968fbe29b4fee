"""A mixture of Gaussians, fitted by expectation and maximisation."""

from __future__ import annotations

import math
from typing import Any

from ridgeline import eye, linalg
from ridgeline.data.randomness import RandomStream
from ridgeline.errors import BadValueError
from ridgeline.learn.base import Estimator, matrix
from ridgeline.learn.cluster import KMeans
from ridgeline.nn.functional import one_hot
from ridgeline.record.modes import no_grad
from ridgeline.tensors.tensor import Tensor, tensor
from ridgeline.tracing.jit import jit

LOG_2PI = math.log(2 * math.pi)


class GaussianMixture(Estimator):
    """`n_components` Gaussians with "full" or "diag" covariances; starts from k-means."""

    def __init__(
        self,
        n_components: int = 1,
        *,
        covariance_type: str = "full",
        tol: float = 1e-3,
        reg_covar: float = 1e-6,
        max_iter: int = 100,
        random_state: int = 0,
    ) -> None:
        self.n_components, self.covariance_type, self.tol = n_components, covariance_type, tol
        self.reg_covar, self.max_iter, self.random_state = reg_covar, max_iter, random_state

    def fit(self, X: Any, y: Any = None) -> GaussianMixture:
        """Find weights, means and covariances."""
        if self.covariance_type not in ("full", "diag"):
            raise BadValueError(
                f"covariance_type is 'full' or 'diag', not {self.covariance_type!r}"
            )
        x = matrix(X)
        with no_grad():
            start = KMeans(self.n_components, random_state=self.random_state).fit_predict(x)
            shares = one_hot(start, self.n_components).to(x.dtype)
            expect, maximise = jit(self._log_joint), jit(self._maximise)
            bound, self.converged_ = -math.inf, False
            self.n_iter_ = 0
            while self.n_iter_ < self.max_iter and not self.converged_:
                self.n_iter_ += 1
                parameters = maximise(x, shares)
                joint = expect(x, *parameters)
                logs = joint.logsumexp(1)
                shares = (joint - logs[:, None]).exp()
                before, bound = bound, float(logs.mean())
                self.converged_ = abs(bound - before) < self.tol
            self.weights_, self.means_, self.covariances_ = maximise(x, shares)
            self.lower_bound_ = bound
        return self

    def _maximise(self, x: Tensor, shares: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """Weights, means and covariances of samples that belong to components by shares."""
        counts = shares.sum(0) + 10 * 2.0**-52
        means = (shares.T @ x) / counts[:, None]
        away = x[:, None] - means  # [n, k, d]
        if self.covariance_type == "diag":
            spread = (shares[:, :, None] * away * away).sum(0) / counts[:, None]
            return counts / x.shape[0], means, spread + self.reg_covar
        weighted = (shares[:, :, None] * away).permute(1, 2, 0)  # [k, d, n]
        spread = (weighted @ away.permute(1, 0, 2)) / counts[:, None, None]
        return counts / x.shape[0], means, spread + self.reg_covar * eye(x.shape[1], dtype=x.dtype)

    def _log_joint(self, x: Tensor, weights: Tensor, means: Tensor, spread: Tensor) -> Tensor:
        """For each sample and component, the logarithm of weight times density."""
        away = x[:, None] - means
        if self.covariance_type == "diag":
            squares = (away * away / spread).sum(2)
            logs = spread.log().sum(1)
        else:
            factor = linalg.cholesky(spread)  # [k, d, d]
            solved = linalg.solve_triangular(factor, away.permute(1, 2, 0), upper=False)
            squares = (solved * solved).sum(1).T
            logs = 2 * factor.diagonal(dim1=-2, dim2=-1).log().sum(1)
        return weights.log() - 0.5 * (squares + logs + x.shape[1] * LOG_2PI)

    def _joint(self, X: Any) -> Tensor:
        self._check_fitted("means_")
        x = matrix(X, like=self.means_)
        return self._log_joint(x, self.weights_, self.means_, self.covariances_)

    def predict(self, X: Any) -> Tensor:
        """The most probable component of each sample."""
        with no_grad():
            return self._joint(X).argmax(1)

    def fit_predict(self, X: Any, y: Any = None) -> Tensor:
        """Fit, and give the component of each sample."""
        return self.fit(X).predict(X)

    def predict_proba(self, X: Any) -> Tensor:
        """How probable each component is for each sample."""
        with no_grad():
            return self._joint(X).softmax(1)

    def score_samples(self, X: Any) -> Tensor:
        """The logarithm of the density at each sample."""
        with no_grad():
            return self._joint(X).logsumexp(1)

    def score(self, X: Any, y: Any = None) -> float:
        """The mean logarithm of the density."""
        return float(self.score_samples(X).mean())

    def _parameters(self) -> int:
        features = int(self.means_.shape[1])
        each = features if self.covariance_type == "diag" else features * (features + 1) // 2
        return self.n_components * (each + features + 1) - 1

    def bic(self, X: Any) -> float:
        """The Bayesian information criterion; lower is better."""
        count = matrix(X).shape[0]
        return -2 * self.score(X) * count + self._parameters() * math.log(count)

    def aic(self, X: Any) -> float:
        """Akaike's information criterion; lower is better."""
        return -2 * self.score(X) * matrix(X).shape[0] + 2 * self._parameters()

    def sample(self, n_samples: int = 1) -> tuple[Tensor, Tensor]:
        """Draws from the mixture, and the components they come from."""
        self._check_fitted("means_")
        stream = RandomStream(self.random_state, n_samples)
        with no_grad():
            ends = self.weights_.cumsum(0)
            drawn = tensor(stream.uniform(0.0, float(ends[-1]), n_samples), dtype=ends.dtype)
            kinds = (drawn[:, None] >= ends).sum(1)
            normal = stream.normal(n_samples * self.means_.shape[1])
            noise = tensor(normal.reshape(n_samples, -1), dtype=ends.dtype)
            if self.covariance_type == "diag":
                return self.means_[kinds] + noise * self.covariances_.sqrt()[kinds], kinds
            factors = linalg.cholesky(self.covariances_)[kinds]
            return self.means_[kinds] + (factors @ noise[:, :, None])[:, :, 0], kinds
