"""Classical estimators on tensors, with scikit-learn's names and results."""

from ridgeline.learn.base import Estimator, NotFittedError
from ridgeline.learn.cluster import KMeans
from ridgeline.learn.decomposition import PCA
from ridgeline.learn.linear import LinearRegression, LogisticRegression, Ridge
from ridgeline.learn.mixture import GaussianMixture
from ridgeline.learn.neighbors import (
    KNeighborsClassifier,
    KNeighborsRegressor,
    NearestNeighbors,
)

__all__ = [
    "PCA", "Estimator", "GaussianMixture", "KMeans", "KNeighborsClassifier", "KNeighborsRegressor",
    "LinearRegression", "LogisticRegression", "NearestNeighbors", "NotFittedError", "Ridge",
]  # fmt: skip
