"""scikit-learn's own estimators on our tensors, by the Array API, against its NumPy results."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable
from typing import Any

import pytest

pytest.importorskip("sklearn", minversion="1.6")


def cases() -> dict[str, Callable[[Any, Any, Any], Any]]:
    """Results by name, each a function of samples, labels and targets."""
    from sklearn import (
        decomposition,
        discriminant_analysis,
        linear_model,
        metrics,
        model_selection,
        preprocessing,
    )

    lda = discriminant_analysis.LinearDiscriminantAnalysis
    pca = decomposition.PCA
    return {
        "standard": lambda x, y, t: preprocessing.StandardScaler().fit_transform(x),
        "minmax": lambda x, y, t: preprocessing.MinMaxScaler().fit_transform(x),
        "maxabs": lambda x, y, t: preprocessing.MaxAbsScaler().fit_transform(x),
        "normalizer": lambda x, y, t: preprocessing.Normalizer().fit_transform(x),
        "polynomial": lambda x, y, t: preprocessing.PolynomialFeatures(2).fit_transform(x),
        "encoder": lambda x, y, t: preprocessing.LabelEncoder().fit_transform(y),
        "pca": lambda x, y, t: pca(2, svd_solver="full").fit_transform(x),
        "eigen": lambda x, y, t: pca(2, svd_solver="covariance_eigh").fit_transform(x),
        "ridge": lambda x, y, t: linear_model.Ridge(solver="svd").fit(x, t).predict(x),
        "ridgecv": lambda x, y, t: linear_model.RidgeCV().fit(x, t).predict(x),
        "lda": lambda x, y, t: lda().fit(x, y).predict(x),
        "proba": lambda x, y, t: lda().fit(x, y).predict_proba(x),
        "cross": lambda x, y, t: model_selection.cross_val_predict(lda(), x, y),
        "split": lambda x, y, t: model_selection.train_test_split(x, y, random_state=0)[0],
        "accuracy": lambda x, y, t: metrics.accuracy_score(y, lda().fit(x, y).predict(x)),
        "f1": lambda x, y, t: metrics.f1_score(y, lda().fit(x, y).predict(x), average="macro"),
        "confusion": lambda x, y, t: metrics.confusion_matrix(y, lda().fit(x, y).predict(x)),
        "r2": lambda x, y, t: metrics.r2_score(t, x[:, 1]),
        "mse": lambda x, y, t: metrics.mean_squared_error(t, x[:, 1]),
        "mae": lambda x, y, t: metrics.mean_absolute_error(t, x[:, 1]),
        "cosine": lambda x, y, t: metrics.pairwise.cosine_similarity(x),
        "rbf": lambda x, y, t: metrics.pairwise.rbf_kernel(x),
        "euclidean": lambda x, y, t: metrics.pairwise.euclidean_distances(x),
    }


def main() -> None:
    """Compare all cases; runs in a process of its own, see below."""
    import numpy as np
    import sklearn
    from sklearn.datasets import load_iris

    import ridgeline as rl

    x, y = load_iris(return_X_y=True)
    target = x[:, 0] * 2 + x[:, 2]
    tensors = rl.tensor(x), rl.tensor(y), rl.tensor(target)
    for name, result in cases().items():
        wanted = result(x, y, target)
        with sklearn.config_context(array_api_dispatch=True):
            got = result(*tensors)
        if not isinstance(got, float):
            assert type(got).__module__.startswith("ridgeline"), (name, type(got))
        np.testing.assert_allclose(np.asarray(got), wanted, atol=1e-7, err_msg=name)
        print(name)


def test_estimators_and_metrics_take_tensors() -> None:
    # SciPy reads the variable when it is first imported, which may have happened in this process
    environment = {**os.environ, "SCIPY_ARRAY_API": "1"}
    done = subprocess.run(
        [sys.executable, "-m", "tests.learn.test_sklearn"],
        capture_output=True, text=True, timeout=180, env=environment,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    assert done.stdout.split() == list(cases())


if __name__ == "__main__":
    main()
