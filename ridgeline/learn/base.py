"""What estimators share: scikit-learn's parameters and scores, and the checks of inputs."""

from __future__ import annotations

import inspect
from typing import Any, Self, TypeVar

import numpy as np

from ridgeline import dtypes, unique
from ridgeline.errors import BadValueError, DTypeError, RidgelineError, ShapeError
from ridgeline.record.modes import no_grad
from ridgeline.tensors.creation import as_tensor
from ridgeline.tensors.tensor import Tensor

E = TypeVar("E", bound="Estimator")


class NotFittedError(RidgelineError, ValueError, AttributeError):
    """An estimator that was asked for results before it was fitted."""

    code = "RL0621"


class Estimator:
    """Parameters are the arguments of `__init__`; what `fit` finds ends with an underscore."""

    @classmethod
    def _names(cls) -> list[str]:
        return [name for name in inspect.signature(cls).parameters if name != "self"]

    def get_params(self, deep: bool = True) -> dict[str, Any]:
        """The parameters by name."""
        return {name: getattr(self, name) for name in self._names()}

    def set_params(self, **parameters: Any) -> Self:
        """Change parameters."""
        for name, value in parameters.items():
            if name not in self._names():
                raise BadValueError(
                    f"{type(self).__name__} has no parameter {name!r}",
                    help=f"parameters: {', '.join(self._names())}",
                )
            setattr(self, name, value)
        return self

    def _check_fitted(self, name: str) -> None:
        if not hasattr(self, name):
            raise NotFittedError(
                f"this {type(self).__name__} is not fitted yet", help="call fit() first"
            )

    def __repr__(self) -> str:
        defaults = inspect.signature(type(self)).parameters
        changed = [
            f"{name}={value!r}"
            for name, value in self.get_params().items()
            if isinstance(value, Tensor | np.ndarray) or value != defaults[name].default
        ]
        return f"{type(self).__name__}({', '.join(changed)})"


def matrix(x: Any, like: Tensor | None = None) -> Tensor:
    """Samples as a floating tensor [n, features]; NaN and infinite values are refused."""
    value = as_tensor(x).detach()
    if value.ndim != 2:
        raise ShapeError(
            f"estimators take samples [n, features], not {list(value.shape)}",
            help="use reshape(-1, 1) for one feature, reshape(1, -1) for one sample",
        )
    if value.shape[0] == 0:
        raise BadValueError("there are no samples")
    if value.dtype.kind == "complex":
        raise DTypeError("estimators take real numbers, not complex ones")
    if value.dtype not in (dtypes.float32, dtypes.float64):
        value = value.to(dtypes.float32 if value.dtype.itemsize < 4 else dtypes.float64)
    if not bool(value.isfinite().all()):
        raise BadValueError("the samples hold NaN or infinite values")
    if like is not None:
        if value.shape[1] != like.shape[-1]:
            raise ShapeError(
                f"the samples have {value.shape[1]} features, the estimator was fitted with "
                f"{like.shape[-1]}"
            )
        value = value.to(like.dtype)
    return value


def paired(x: Tensor, y: Any) -> Tensor:
    """Targets of as many samples as `x` has."""
    targets = as_tensor(y).detach()
    if targets.ndim == 0 or targets.shape[0] != x.shape[0]:
        raise ShapeError(f"{x.shape[0]} samples, but targets of shape {list(targets.shape)}")
    return targets


def classes_of(y: Tensor) -> tuple[Tensor, Tensor]:
    """The distinct labels in order, and for each sample the place of its label."""
    if y.ndim != 1:
        raise ShapeError(f"labels have one axis, not shape {list(y.shape)}")
    kinds, indices = unique(y, return_inverse=True)
    if kinds.shape[0] < 2:
        raise BadValueError("a classifier needs samples of at least two classes")
    return kinds, indices


class ClassifierMixin:
    """The score of a classifier."""

    def predict(self, X: Any) -> Tensor:
        raise NotImplementedError

    def score(self, X: Any, y: Any) -> float:
        """The share of samples whose label is predicted."""
        predicted = self.predict(X)
        return float((predicted == paired(predicted, y)).to(dtypes.float64).mean())


class RegressorMixin:
    """The score of a regressor."""

    def predict(self, X: Any) -> Tensor:
        raise NotImplementedError

    def score(self, X: Any, y: Any) -> float:
        """The coefficient of determination, R²; 1 is perfect, 0 is a constant's."""
        with no_grad():
            predicted = self.predict(X)
            targets = paired(predicted, y).to(predicted.dtype)
            left = ((targets - predicted) ** 2).sum(0)
            spread = ((targets - targets.mean(0)) ** 2).sum(0)
            return float((1 - left / spread).mean())


def squared_distances(x: Tensor, centers: Tensor) -> Tensor:
    """Squared Euclidean distances [n, k], by one matrix product."""
    products = x @ centers.T
    squares = (x * x).sum(1, keepdim=True) + (centers * centers).sum(1)
    return (squares - 2 * products).clamp(min=0)
