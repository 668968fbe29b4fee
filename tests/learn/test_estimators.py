"""Estimators against scikit-learn's on the same data."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import ridgeline as rl
from ridgeline import learn
from ridgeline.data.dataset import as_array
from ridgeline.errors import RidgelineError, ShapeError

sklearn = pytest.importorskip("sklearn")
from sklearn import cluster, datasets, decomposition, linear_model, mixture, neighbors  # noqa: E402

RANDOM = np.random.default_rng(0)
BLOBS, KINDS = datasets.make_blobs(300, 3, centers=4, random_state=1)
IRIS, SPECIES = datasets.load_iris(return_X_y=True)
TABLE = RANDOM.standard_normal((80, 6)) @ RANDOM.standard_normal((6, 6))
LINE = TABLE @ RANDOM.standard_normal(6) + 0.3 * RANDOM.standard_normal(80) + 2


def close(ours: Any, theirs: Any, tolerance: float = 1e-8) -> None:
    got = as_array(ours) if isinstance(ours, rl.Tensor) else np.asarray(ours)
    np.testing.assert_allclose(got, theirs, rtol=tolerance, atol=tolerance)


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_kmeans_from_the_same_start(dtype: Any) -> None:
    x, start = BLOBS.astype(dtype), BLOBS[:6].astype(dtype)
    ours = learn.KMeans(6, init=start).fit(rl.tensor(x))
    theirs = cluster.KMeans(6, init=start, n_init=1).fit(x)
    tolerance = 1e-4 if dtype == np.float32 else 1e-9
    close(ours.cluster_centers_, theirs.cluster_centers_, tolerance)
    close(ours.inertia_, theirs.inertia_, tolerance)
    assert as_array(ours.labels_).tolist() == theirs.labels_.tolist()
    assert as_array(ours.predict(x[:50])).tolist() == theirs.predict(x[:50]).tolist()
    close(ours.transform(x), theirs.transform(x), 1e-3 if dtype == np.float32 else 1e-7)
    close(ours.score(x), theirs.score(x), tolerance)
    assert ours.cluster_centers_.dtype.numpy == dtype


def test_kmeans_finds_the_clusters_itself() -> None:
    ours = learn.KMeans(4, n_init=3).fit(BLOBS)
    theirs = cluster.KMeans(4, n_init=10, random_state=0).fit(BLOBS)
    close(ours.inertia_, theirs.inertia_, 1e-6)
    assert ours.inertia_ == learn.KMeans(4, n_init=3).fit(BLOBS).inertia_, "a seed repeats"
    spread = [learn.KMeans(8, random_state=n).fit(BLOBS).inertia_ for n in range(5)]
    random = [learn.KMeans(8, init="random", random_state=n).fit(BLOBS).inertia_ for n in range(5)]
    assert np.mean(spread) < np.mean(random)


def test_kmeans_fills_empty_clusters() -> None:
    start = np.array([[0.0, 0.0, 0.0]] * 3 + [[100.0, 0, 0]])
    ours = learn.KMeans(4, init=start).fit(BLOBS)
    assert sorted(set(as_array(ours.labels_).tolist())) == [0, 1, 2, 3]
    close(ours.inertia_, -ours.score(BLOBS))


@pytest.mark.parametrize("count", [None, 1, 3, 0.9])
@pytest.mark.parametrize("whiten", [False, True])
def test_pca(count: Any, whiten: bool) -> None:
    ours = learn.PCA(count, whiten=whiten).fit(TABLE)
    theirs = decomposition.PCA(count, whiten=whiten, svd_solver="full").fit(TABLE)
    for name in ("components_", "explained_variance_", "explained_variance_ratio_",
                 "singular_values_", "mean_", "noise_variance_", "n_components_"):  # fmt: skip
        close(getattr(ours, name), getattr(theirs, name))
    made = theirs.transform(TABLE)
    close(ours.transform(TABLE), made)
    close(ours.inverse_transform(made), theirs.inverse_transform(made))
    # whitening does not change the model's density; scikit-learn's does change with it
    plain = decomposition.PCA(count, svd_solver="full").fit(TABLE)
    close(ours.score(TABLE), plain.score(TABLE))


@pytest.mark.parametrize("kind", ["full", "diag"])
def test_gaussian_mixture(kind: str) -> None:
    ours = learn.GaussianMixture(4, covariance_type=kind, tol=1e-7).fit(BLOBS)
    theirs = mixture.GaussianMixture(4, covariance_type=kind, tol=1e-7, random_state=0).fit(BLOBS)
    order = np.lexsort(as_array(ours.means_).T), np.lexsort(theirs.means_.T)
    for name in ("weights_", "means_", "covariances_"):
        close(as_array(getattr(ours, name))[order[0]], getattr(theirs, name)[order[1]], 1e-4)
    close(ours.score(BLOBS), theirs.score(BLOBS), 1e-6)
    close(ours.bic(BLOBS), theirs.bic(BLOBS), 1e-6)
    close(ours.aic(BLOBS), theirs.aic(BLOBS), 1e-6)
    close(as_array(ours.predict_proba(BLOBS)).sum(1), 1.0)
    assert ours.converged_
    drawn, kinds = ours.sample(4000)
    close(as_array(drawn).mean(0), as_array(ours.weights_) @ as_array(ours.means_), 0.3)
    assert drawn.shape == (4000, 3) and as_array(kinds).max() == 3


@pytest.mark.parametrize("intercept", [True, False])
@pytest.mark.parametrize("outputs", [1, 2])
def test_least_squares_and_ridge(intercept: bool, outputs: int) -> None:
    y = LINE if outputs == 1 else np.stack([LINE, LINE**2], 1)
    for ours, theirs in (
        (learn.LinearRegression(fit_intercept=intercept),
         linear_model.LinearRegression(fit_intercept=intercept)),
        (learn.Ridge(0.7, fit_intercept=intercept),
         linear_model.Ridge(0.7, fit_intercept=intercept)),
    ):  # fmt: skip
        ours.fit(TABLE, y)
        theirs.fit(TABLE, y)
        close(ours.coef_, theirs.coef_)
        close(ours.intercept_, theirs.intercept_)
        close(ours.predict(TABLE), theirs.predict(TABLE))
        close(ours.score(TABLE, y), theirs.score(TABLE, y))
    wide = TABLE[:4]  # fewer samples than features: the shortest solution
    ours = learn.LinearRegression().fit(wide, LINE[:4])
    close(ours.coef_, linear_model.LinearRegression().fit(wide, LINE[:4]).coef_, 1e-6)


@pytest.mark.parametrize("classes", [2, 3])
@pytest.mark.parametrize("strength", [0.1, 1.0])
def test_logistic_regression(classes: int, strength: float) -> None:
    keep = classes > SPECIES
    x, y = IRIS[keep], SPECIES[keep] * 2 + 1
    ours = learn.LogisticRegression(C=strength, tol=1e-9, max_iter=500).fit(x, y)
    theirs = linear_model.LogisticRegression(C=strength, tol=1e-9, max_iter=2000).fit(x, y)
    close(ours.coef_, theirs.coef_, 1e-4)
    close(ours.predict_proba(x), theirs.predict_proba(x), 1e-4)
    assert as_array(ours.predict(x)).tolist() == theirs.predict(x).tolist()
    close(ours.score(x, y), theirs.score(x, y))
    if classes == 2:
        close(ours.intercept_, theirs.intercept_, 1e-4)


@pytest.mark.parametrize("metric", ["euclidean", "manhattan", "cosine"])
def test_neighbours(metric: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("ridgeline.learn.neighbors.BLOCK", 1000)  # several blocks of queries
    ours = learn.NearestNeighbors(4, metric=metric).fit(TABLE[:60])
    theirs = neighbors.NearestNeighbors(n_neighbors=4, metric=metric).fit(TABLE[:60])
    for queries in (TABLE[60:], None):
        (d, i), (e, j) = ours.kneighbors(queries), theirs.kneighbors(queries)
        close(d, e, 1e-6)
        assert as_array(i).tolist() == j.tolist()


@pytest.mark.parametrize("weights", ["uniform", "distance"])
def test_neighbours_vote(weights: str) -> None:
    odd = np.arange(150) % 2 == 1
    flowers = IRIS + 1e-3 * RANDOM.standard_normal(IRIS.shape)  # no two distances are equal
    for ours, theirs, y in (
        (learn.KNeighborsClassifier(5, weights=weights),
         neighbors.KNeighborsClassifier(5, weights=weights), SPECIES),
        (learn.KNeighborsRegressor(5, weights=weights),
         neighbors.KNeighborsRegressor(5, weights=weights), IRIS[:, :2]),
    ):  # fmt: skip
        ours.fit(flowers[odd], y[odd])
        theirs.fit(flowers[odd], y[odd])
        close(ours.predict(flowers[~odd]), theirs.predict(flowers[~odd]), 1e-6)
        close(ours.score(flowers[~odd], y[~odd]), theirs.score(flowers[~odd], y[~odd]), 1e-6)


def test_parameters_and_mistakes() -> None:
    model = learn.KMeans(3)
    assert model.get_params()["n_clusters"] == 3 and repr(model) == "KMeans(n_clusters=3)"
    assert model.set_params(n_clusters=2).n_clusters == 2
    copied = sklearn.clone(learn.Ridge(0.3))
    assert isinstance(copied, learn.Ridge) and copied.alpha == 0.3
    with pytest.raises(RidgelineError, match="no parameter 'k'"):
        model.set_params(k=1)
    with pytest.raises(learn.NotFittedError, match="not fitted yet"):
        model.predict(BLOBS)
    with pytest.raises(ShapeError, match=r"samples \[n, features\]"):
        model.fit(BLOBS[0])
    with pytest.raises(RidgelineError, match="1000 clusters of 300"):
        learn.KMeans(1000).fit(BLOBS)
    with pytest.raises(RidgelineError, match="NaN"):
        learn.PCA().fit([[1.0, float("nan")], [2.0, 3.0]])
    with pytest.raises(ShapeError, match="fitted with 3"):
        learn.PCA().fit(BLOBS).transform(TABLE)
    with pytest.raises(ShapeError, match="80 samples"):
        learn.Ridge().fit(TABLE, LINE[:3])
    with pytest.raises(RidgelineError, match="two classes"):
        learn.LogisticRegression().fit(TABLE, np.zeros(80))
    with pytest.raises(RidgelineError, match="61 neighbours"):
        learn.NearestNeighbors(61).fit(TABLE[:60]).kneighbors(TABLE)
