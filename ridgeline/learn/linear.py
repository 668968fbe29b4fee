"""Linear models: least squares, ridge and logistic regression."""

from __future__ import annotations

from typing import Any

from ridgeline import cat, eye, int64, linalg, zeros
from ridgeline.errors import BadValueError
from ridgeline.learn.base import (
    ClassifierMixin,
    Estimator,
    RegressorMixin,
    classes_of,
    matrix,
    paired,
)
from ridgeline.nn.functional import binary_cross_entropy_with_logits, cross_entropy
from ridgeline.optim import LBFGS
from ridgeline.record.modes import enable_grad, no_grad
from ridgeline.tensors.tensor import Tensor
from ridgeline.tracing.jit import jit


class _Linear(Estimator, RegressorMixin):
    """Targets as a linear function of the features; subclasses solve for the coefficients."""

    fit_intercept: bool

    def _solve(self, x: Tensor, y: Tensor) -> Tensor:
        raise NotImplementedError

    def _fit(self, X: Any, y: Any) -> None:
        x = matrix(X)
        targets = paired(x, y).to(x.dtype)
        with no_grad():
            columns = targets[:, None] if targets.ndim == 1 else targets
            middle_x, middle_y = x.mean(0), columns.mean(0)
            if not self.fit_intercept:
                middle_x, middle_y = zeros(x.shape[1], dtype=x.dtype), middle_y * 0
            found = self._solve(x - middle_x, columns - middle_y).T
            offset = middle_y - found @ middle_x
            self.coef_ = found[0] if targets.ndim == 1 else found
            self.intercept_ = offset[0] if targets.ndim == 1 else offset

    def predict(self, X: Any) -> Tensor:
        """The targets of samples."""
        self._check_fitted("coef_")
        with no_grad():
            return matrix(X, like=self.coef_) @ self.coef_.T + self.intercept_


class LinearRegression(_Linear):
    """Least squares."""

    def __init__(self, *, fit_intercept: bool = True) -> None:
        self.fit_intercept = fit_intercept

    def fit(self, X: Any, y: Any) -> LinearRegression:
        """Find the coefficients."""
        self._fit(X, y)
        return self

    def _solve(self, x: Tensor, y: Tensor) -> Tensor:
        return linalg.pinv(x) @ y  # the shortest solution where there are several


class Ridge(_Linear):
    """Least squares with `alpha` times the squared length of the coefficients added."""

    def __init__(self, alpha: float = 1.0, *, fit_intercept: bool = True) -> None:
        self.alpha, self.fit_intercept = alpha, fit_intercept

    def fit(self, X: Any, y: Any) -> Ridge:
        """Find the coefficients."""
        if not self.alpha >= 0:
            raise BadValueError(f"alpha must be at least 0, not {self.alpha}")
        self._fit(X, y)
        return self

    def _solve(self, x: Tensor, y: Tensor) -> Tensor:
        squares = x.T @ x + self.alpha * eye(x.shape[1], dtype=x.dtype)
        return linalg.solve(squares, x.T @ y)


class LogisticRegression(Estimator, ClassifierMixin):
    """Class probabilities by a softmax (two classes: a sigmoid) of linear scores.

    Minimises the mean cross entropy plus the squared length of the coefficients over 2·C·n, with
    L-BFGS, as scikit-learn does.
    """

    def __init__(
        self, *, C: float = 1.0, fit_intercept: bool = True, max_iter: int = 100, tol: float = 1e-4
    ) -> None:
        self.C, self.fit_intercept, self.max_iter, self.tol = C, fit_intercept, max_iter, tol

    def fit(self, X: Any, y: Any) -> LogisticRegression:
        """Find the coefficients."""
        if not self.C > 0:
            raise BadValueError(f"C must be above 0, not {self.C}")
        x = matrix(X)
        self.classes_, indices = classes_of(paired(x, y))
        rows = 1 if len(self.classes_) == 2 else len(self.classes_)
        targets = indices.to(x.dtype) if rows == 1 else indices
        weights = zeros(rows, x.shape[1] + 1, dtype=x.dtype).requires_grad_()
        penalty = 1 / (2 * self.C * x.shape[0])
        intercept = float(self.fit_intercept)
        ones = zeros(x.shape[0], 1, dtype=x.dtype) + intercept
        inputs = cat([x, ones], 1)

        @jit
        def objective(table: Tensor) -> tuple[Tensor, Tensor]:
            table = table.detach().requires_grad_()
            scores = inputs @ table.T
            if rows == 1:
                loss = binary_cross_entropy_with_logits(scores[:, 0], targets)
            else:
                loss = cross_entropy(scores, targets)
            total = loss + penalty * (table[:, :-1] ** 2).sum()
            total.backward()
            assert table.grad is not None
            return total.detach(), table.grad

        optimizer = LBFGS(
            [weights], max_iter=self.max_iter, tolerance_grad=self.tol, tolerance_change=0.0,
            line_search_fn="strong_wolfe",
        )  # fmt: skip

        def closure() -> Tensor:
            value: Tensor
            value, weights.grad = objective(weights)
            return value

        with enable_grad():
            optimizer.step(closure)
        self.coef_ = weights.detach()[:, :-1].clone()
        self.intercept_ = weights.detach()[:, -1].clone() * intercept
        return self

    def decision_function(self, X: Any) -> Tensor:
        """Scores: one a class, or one for the second of two classes."""
        self._check_fitted("coef_")
        with no_grad():
            scores = matrix(X, like=self.coef_) @ self.coef_.T + self.intercept_
            return scores[:, 0] if len(self.classes_) == 2 else scores

    def predict_proba(self, X: Any) -> Tensor:
        """How probable each class is for each sample."""
        scores = self.decision_function(X)
        with no_grad():
            if scores.ndim == 2:
                return scores.softmax(1)
            second = scores.sigmoid()[:, None]
            return cat([1 - second, second], 1)

    def predict(self, X: Any) -> Tensor:
        """The most probable class of each sample."""
        scores = self.decision_function(X)
        with no_grad():
            indices = scores.argmax(1) if scores.ndim == 2 else (scores > 0).to(int64)
            return self.classes_[indices]
