"""Laws where torch is no judge: held against SciPy, sums and peaks; and divergences by kinds."""

from __future__ import annotations

import itertools
from typing import Any

import numpy as np
import pytest
import torch
from scipy import integrate, stats

import ridgeline as rl

D = rl.distributions


def _f64(values: Any) -> Any:
    return rl.tensor(values, dtype=rl.float64)


def test_angles() -> None:
    k, loc, x = np.array([1e-3, 0.5, 3.0, 400.0]), 0.4, np.array([-3.0, 0.0, 0.9, 0.41])
    law = D.VonMises(_f64(loc), _f64(k))
    np.testing.assert_allclose(
        law.log_prob(_f64(x)).numpy(), stats.vonmises.logpdf(x, k, loc), 1e-12
    )
    truth = [1 - stats.vonmises(c).expect(np.cos, lb=-np.pi, ub=np.pi) for c in k[:3]]
    np.testing.assert_allclose(law.variance.numpy()[:3], truth, rtol=1e-9)
    rl.manual_seed(0)
    drawn = law.sample((20_000,)).numpy()
    assert (np.abs(drawn) <= np.pi).all()
    for column, concentration in zip(drawn.T, k, strict=True):
        turned = (column - loc + np.pi) % (2 * np.pi) - np.pi
        assert stats.kstest(turned, stats.vonmises(concentration).cdf).pvalue > 1e-4


def test_tails() -> None:
    loc, scale, shape = (
        np.array([-1.0, 0.3, 2.0]),
        np.array([0.5, 1.5, 3.0]),
        np.array([-0.3, 0.0, 0.4]),
    )
    x = np.array([-0.5, 1.3, 9.0])
    law, truth = (
        D.GeneralizedPareto(*map(_f64, (loc, scale, shape))),
        stats.genpareto(shape, loc, scale),
    )
    for ours, theirs in (
        (law.log_prob(_f64(x)), truth.logpdf(x)), (law.cdf(_f64(x)), truth.cdf(x)),
        (law.icdf(_f64([0.1, 0.5, 0.9])), truth.ppf([0.1, 0.5, 0.9])), (law.mean, truth.mean()),
        (law.variance, truth.var()), (law.entropy(), truth.entropy()),
    ):  # fmt: skip
        np.testing.assert_allclose(ours.numpy(), theirs, rtol=1e-9)
    with pytest.raises(rl.RidgelineError, match="the value"):
        D.GeneralizedPareto(0.0, 1.0, -0.5).log_prob(rl.tensor(3.0))


def test_peaks() -> None:
    a, b = np.array([2.0, 3.0, 1.5]), np.array([1.2, 5.0, 2.0])
    law = D.Kumaraswamy(_f64(a), _f64(b))
    grid = np.linspace(1e-4, 1 - 1e-4, 20_001)
    peaks = grid[law.log_prob(_f64(grid).unsqueeze(-1)).numpy().argmax(0)]
    np.testing.assert_allclose(law.mode.numpy(), peaks, atol=1e-4)
    assert np.isnan(D.Kumaraswamy(0.5, 2.0).mode.item())


def test_shades_of_an_even_coin() -> None:
    """Near one half the formulas divide by nothing; the density still sums to one."""
    for chance in (0.4989, 0.4995, 0.5, 0.50001, 0.502):
        law = D.ContinuousBernoulli(_f64(chance))

        def density(x: float, law: Any = law) -> float:
            return float(law.log_prob(_f64(x)).exp().item())

        assert abs(integrate.quad(density, 0, 1)[0] - 1) < 1e-6
        mean = integrate.quad(lambda x, p=density: x * p(x), 0, 1)[0]  # type: ignore[misc]
        assert abs(law.mean.item() - mean) < 1e-6


def test_factors_of_correlations() -> None:
    rl.manual_seed(1)
    drawn = D.LKJCholesky(3, 2.0).sample((20_000,))
    np.testing.assert_allclose((drawn**2).sum(-1).numpy(), 1.0, rtol=1e-5)
    correlation = (drawn @ drawn.mT).numpy()[:, [1, 2, 2], [0, 0, 1]]
    # with concentration c in d dimensions each is 2b - 1, and b is of Beta(c - 1 + d/2, the same)
    for column in correlation.T:
        assert stats.kstest((column + 1) / 2, stats.beta(2.5, 2.5).cdf).pvalue > 1e-4


def test_shares_of_a_stick() -> None:
    rl.manual_seed(2)
    law = D.LogisticNormal(rl.zeros(2), rl.ones(2))
    drawn = law.sample((20_000,))
    np.testing.assert_allclose(drawn.sum(-1).numpy(), 1.0, rtol=1e-5)
    np.testing.assert_allclose(law.rsample((50,)).shape, (50, 3))
    theirs = torch.distributions.LogisticNormal(torch.zeros(2), torch.ones(2)).sample((20_000,))
    np.testing.assert_allclose(drawn.mean(0).numpy(), theirs.mean(0).numpy(), atol=0.02)


FIRST = {
    "Beta": ([0.5, 1.5, 3.0], [2.0, 0.7, 1.2]), "ContinuousBernoulli": ([0.2, 0.5, 0.9],),
    "Exponential": ([0.5, 1.5, 3.0],), "Gamma": ([0.5, 1.5, 3.0], [2.0, 0.7, 1.2]),
    "Gumbel": ([-1.0, 0.3, 2.0], [0.5, 1.5, 3.0]), "Laplace": ([-1.0, 0.3, 2.0], [0.5, 1.5, 3.0]),
    "Normal": ([-1.0, 0.3, 2.0], [0.5, 1.5, 3.0]), "Pareto": ([0.5, 1.5, 3.0], [2.5, 0.9, 4.0]),
    "Uniform": ([-0.5, 0.1, 0.25], [0.3, 0.9, 2.0]), "Bernoulli": ([0.2, 0.5, 0.9],),
    "Poisson": ([0.5, 1.5, 3.0],),
}  # fmt: skip
SECOND = {
    "Beta": ([0.7, 1.2, 2.0], [1.0, 0.9, 3.0]), "ContinuousBernoulli": ([0.3, 0.6, 0.1],),
    "Exponential": ([0.7, 2.0, 1.0],), "Gamma": ([1.5, 0.7, 2.0], [1.0, 0.8, 3.0]),
    "Gumbel": ([0.0, 0.5, 1.0], [1.5, 2.5, 0.8]), "Laplace": ([0.0, 0.5, 1.0], [1.5, 2.5, 0.8]),
    "Normal": ([0.0, 0.5, 1.0], [1.5, 2.5, 0.8]), "Pareto": ([0.2, 0.5, 0.2], [1.5, 2.0, 0.7]),
    "Uniform": ([-1.0, -0.2, 0.2], [1.1, 1.5, 2.5]), "Bernoulli": ([0.3, 0.6, 0.1],),
    "Poisson": ([0.7, 2.0, 1.0],),
}  # fmt: skip


@pytest.mark.parametrize("pair", itertools.product(FIRST, SECOND), ids="-".join)
def test_divergences_between_kinds_are_torchs(pair: tuple[str, str]) -> None:
    def found(lib: Any) -> Any:
        laws = [
            getattr(lib.distributions, name)(
                *(lib.tensor(v, dtype=lib.float64) for v in values[name])
            )
            for name, values in zip(pair, (FIRST, SECOND), strict=True)
        ]
        return lib.distributions.kl_divergence(*laws).numpy()

    try:
        wanted = found(torch)
    except NotImplementedError:
        with pytest.raises(NotImplementedError, match="no KL"):
            found(rl)
        return
    np.testing.assert_allclose(found(rl), wanted, rtol=1e-9, atol=1e-12)


def test_a_law_of_exponentials_is_no_normal_law() -> None:
    with pytest.raises(NotImplementedError, match="LogNormal to Normal"):
        D.kl_divergence(D.LogNormal(0.0, 1.0), D.Normal(0.0, 1.0))


def test_normal_vectors_of_few_directions() -> None:
    def found(lib: Any) -> list[Any]:
        d = lib.distributions
        kind = {"dtype": lib.float64}
        loc, diagonal = lib.tensor([0.1, -0.4, 2.0], **kind), lib.tensor([0.5, 1.0, 2.0], **kind)
        factor = lib.tensor([[1.0, 0.2], [0.5, -1.0], [-2.0, 0.3]], **kind)
        low = d.LowRankMultivariateNormal(loc, factor, diagonal)
        other = d.LowRankMultivariateNormal(loc + 1, factor * 0.5, diagonal * 2)
        full = d.MultivariateNormal(loc * 0.5, lib.eye(3, **kind) * 1.5)
        return [
            low.covariance_matrix, low.precision_matrix, low.scale_tril, low.variance,
            d.kl_divergence(low, other), d.kl_divergence(low, full), d.kl_divergence(full, low),
            low.expand((2,)).log_prob(loc * 0),
        ]  # fmt: skip

    for ours, theirs in zip(found(rl), found(torch), strict=True):
        np.testing.assert_allclose(ours.numpy(), theirs.numpy(), rtol=1e-9, atol=1e-12)


def test_gradients_pass_through_draws() -> None:
    rl.manual_seed(3)
    df, factor = _f64(5.0).requires_grad_(), _f64([[1.0, 0.0], [0.5, 0.8]]).requires_grad_()
    law = D.Wishart(df, scale_tril=factor)
    law.rsample((4000,)).mean(0).sum().backward()
    found = df.grad.item()
    assert abs(found - (factor @ factor.mT).sum().item()) < 0.2
    chance = _f64(0.3).requires_grad_()
    D.ContinuousBernoulli(chance).rsample((4000,)).mean().backward()
    other = _f64(0.3).requires_grad_()
    D.ContinuousBernoulli(other).mean.backward()
    assert abs(chance.grad.item() - other.grad.item()) < 0.02


def test_divergences_of_sums_of_squares_are_means_over_draws() -> None:
    rl.manual_seed(5)
    df, factor = _f64([4.0, 7.5]), _f64([[1.0, 0.0], [0.5, 0.8]])
    first, second = D.Wishart(df, scale_tril=factor), D.Wishart(df * 0.9, scale_tril=factor * 0.9)
    drawn = first.sample((20_000,))
    ratios = (first.log_prob(drawn) - second.log_prob(drawn)).numpy()
    error = np.abs(ratios.mean(0) - D.kl_divergence(first, second).numpy())
    assert (error < 6 * ratios.std(0) / np.sqrt(20_000)).all()


def test_drawing_under_jit() -> None:
    law = D.VonMises(rl.tensor([0.0, 1.0]), rl.tensor([2.0, 0.5]))
    draw = rl.jit(lambda: law.sample((1000,)))
    rl.manual_seed(4)
    first = draw().numpy()
    rl.manual_seed(4)
    np.testing.assert_array_equal(first, law.sample((1000,)).numpy())
    assert abs(first[:, 0].mean()) < 0.2
