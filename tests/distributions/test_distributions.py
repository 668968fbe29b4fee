"""Distributions beside torch's: densities, moments, divergences; and their draws by their law."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch

import ridgeline as rl

A, B = [0.5, 1.5, 3.0], [2.0, 0.7, 1.2]
SIGNED = [-1.0, 0.3, 2.0]
CHANCES = [0.2, 0.5, 0.9]
LOGITS = [[0.1, -1.0, 2.0], [1.5, 0.0, -0.5]]
FACTOR = [[1.0, 0.0], [0.5, 0.8]]

CASES: dict[str, tuple[Any, ...]] = {
    "Normal": (SIGNED, A), "LogNormal": (SIGNED, A), "Laplace": (SIGNED, A), "Gumbel": (SIGNED, A),
    "Cauchy": (SIGNED, A), "HalfNormal": (A,), "HalfCauchy": (A,), "Exponential": (A,),
    "Uniform": (SIGNED, [1.0, 4.0, 2.5]), "Weibull": (A, B), "Pareto": (A, [2.5, 3.0, 4.0]),
    "Gamma": (A, B), "Chi2": (A,), "InverseGamma": ([2.5, 3.0, 4.5], B), "Beta": (A, B),
    "StudentT": ([2.5, 3.5, 9.0], SIGNED, A), "FisherSnedecor": (A, [5.0, 6.0, 9.0]),
    "Dirichlet": ([A, B],), "Poisson": (A,), "Bernoulli": (CHANCES,), "Geometric": (CHANCES,),
    "Categorical": (None, LOGITS), "OneHotCategorical": (None, LOGITS),
    "Multinomial": (5, None, LOGITS), "Binomial": (7, CHANCES), "NegativeBinomial": (4, CHANCES),
    "MultivariateNormal": (SIGNED[:2], None, None, FACTOR),
    "Kumaraswamy": (A, B), "ContinuousBernoulli": (CHANCES,), "VonMises": (SIGNED, A),
    "GeneralizedPareto": (SIGNED, A, [-0.3, 0.0, 0.4]), "LogisticNormal": ([SIGNED, A], [A, B]),
    "LowRankMultivariateNormal": (SIGNED, [[1.0], [0.5], [-2.0]], A),
    "LKJCholesky": (3, [0.7, 2.0]), "Wishart": ([4.0, 7.5], None, None, FACTOR),
}  # fmt: skip
VALUES: dict[str, Any] = {
    "Dirichlet": [[0.2, 0.3, 0.5], [0.6, 0.3, 0.1]], "Bernoulli": [0.0, 1.0, 1.0],
    "Geometric": [0.0, 3.0, 1.0], "Poisson": [0.0, 2.0, 5.0], "Categorical": [2, 0],
    "OneHotCategorical": [[0.0, 0.0, 1.0], [0.0, 1.0, 0.0]],
    "Multinomial": [[1.0, 3.0, 1.0], [0.0, 5.0, 0.0]], "Binomial": [0.0, 3.0, 7.0],
    "NegativeBinomial": [0.0, 3.0, 7.0], "MultivariateNormal": [0.3, -0.2],
    "Beta": [0.3, 0.6, 0.9], "Uniform": [0.5, 1.0, 2.2], "Pareto": [0.9, 2.0, 4.0],
    "Kumaraswamy": [0.3, 0.6, 0.9], "ContinuousBernoulli": [0.3, 0.6, 0.9],
    "LogisticNormal": [[0.2, 0.3, 0.4, 0.1], [0.6, 0.2, 0.1, 0.1]], "VonMises": SIGNED,
    "GeneralizedPareto": [-0.5, 1.3, 9.0], "Wishart": [[2.0, 0.3], [0.3, 1.5]],
    "LowRankMultivariateNormal": SIGNED,
    "LKJCholesky": [[1.0, 0.0, 0.0], [0.6, 0.8, 0.0], [0.6, 0.0, 0.8]],
    "Cauchy": SIGNED, "Normal": SIGNED, "Laplace": SIGNED, "Gumbel": SIGNED, "StudentT": SIGNED,
}  # fmt: skip


def made(lib: Any, name: str) -> Any:
    def argument(value: Any) -> Any:
        return lib.tensor(value, dtype=lib.float64) if isinstance(value, list) else value

    return getattr(lib.distributions, name)(*map(argument, CASES[name]))


def value(lib: Any, name: str) -> Any:
    given = VALUES.get(name, [0.4, 1.3, 2.6])
    return lib.tensor(given) if name == "Categorical" else lib.tensor(given, dtype=lib.float64)


def close(ours: Any, theirs: Any) -> None:
    np.testing.assert_allclose(ours.numpy(), theirs.numpy(), rtol=1e-9, atol=1e-12)


# What torch approximates, or computes in another type, is held against SciPy in test_truths.py.
APART = {
    ("VonMises", "log_prob"), ("VonMises", "variance"), ("GeneralizedPareto", "log_prob"),
    ("GeneralizedPareto", "cdf"), ("Kumaraswamy", "mode"), ("Multinomial", "entropy"),
}  # fmt: skip


@pytest.mark.parametrize("name", [n for n in CASES if (n, "log_prob") not in APART])
def test_densities_are_torchs(name: str) -> None:
    close(made(rl, name).log_prob(value(rl, name)), made(torch, name).log_prob(value(torch, name)))


@pytest.mark.parametrize("name", CASES)
@pytest.mark.parametrize("what", ["mean", "variance", "mode", "entropy", "cdf", "icdf"])
def test_what_torch_has_is_torchs(name: str, what: str) -> None:
    def found(lib: Any) -> Any:
        law = made(lib, name)
        if what == "icdf":
            return law.icdf(lib.tensor([0.2, 0.5, 0.9], dtype=lib.float64))
        if what == "cdf":
            return law.cdf(value(lib, name))
        return law.entropy() if what == "entropy" else getattr(law, what)

    if (name, what) in APART:
        return
    try:
        wanted = found(torch)
    except NotImplementedError:
        return
    close(found(rl), wanted)


def test_the_entropy_of_counts_is_that_of_all_outcomes() -> None:
    law = made(rl, "Multinomial")
    total = np.zeros(2)
    for first in range(6):
        for second in range(6 - first):
            counts = [float(first), float(second), float(5 - first - second)]
            logs = law.log_prob(rl.tensor([counts, counts], dtype=rl.float64)).numpy()
            total -= np.exp(logs) * logs
    np.testing.assert_allclose(law.entropy().numpy(), total, rtol=1e-12)


@pytest.mark.parametrize("name", CASES)
def test_shapes_are_torchs(name: str) -> None:
    ours, theirs = made(rl, name), made(torch, name)
    assert tuple(ours.batch_shape) == tuple(theirs.batch_shape)
    assert tuple(ours.event_shape) == tuple(theirs.event_shape)
    assert ours.has_rsample == theirs.has_rsample
    for shape in ((), (4,), (2, 3)):
        assert tuple(ours.sample(shape).shape) == tuple(theirs.sample(shape).shape)


@pytest.mark.parametrize(
    "name",
    [
        n for n in CASES
        if n not in ("Categorical", "Cauchy", "HalfCauchy", "VonMises", "LogisticNormal")
        and n != "LKJCholesky"
    ],
)  # fmt: skip
def test_draws_follow_their_law(name: str) -> None:
    """Means of many draws are within six standard errors of the mean that torch states."""
    rl.manual_seed(1)
    drawn = made(rl, name).sample((20_000,)).numpy()
    law = made(torch, name)
    mean, spread = law.mean.numpy(), law.variance.numpy()
    wide = np.where(np.isfinite(spread), spread, drawn.var(0))
    assert np.all(np.abs(drawn.mean(0) - mean) < 6 * np.sqrt(wide / 20_000) + 1e-9)


def test_classes_come_as_often_as_they_should() -> None:
    rl.manual_seed(2)
    drawn = made(rl, "Categorical").sample((20_000,)).numpy()
    wanted = torch.tensor(LOGITS).softmax(-1).numpy()
    for row in range(2):
        shares = np.bincount(drawn[:, row], minlength=3) / 20_000
        np.testing.assert_allclose(shares, wanted[row], atol=0.02)


@pytest.mark.parametrize("name", ["Normal", "Gamma", "Beta", "Dirichlet", "StudentT", "Gumbel"])
def test_gradients_of_means_of_draws_are_gradients_of_the_mean(name: str) -> None:
    rl.manual_seed(3)
    parameters = [
        rl.tensor(v, dtype=rl.float64).requires_grad_() for v in CASES[name] if isinstance(v, list)
    ]
    law = getattr(rl.distributions, name)(*parameters)
    weights = rl.arange(float(law.mean.numel()), dtype=rl.float64).reshape(law.mean.shape) + 1
    wanted = rl.autograd.grad((law.mean * weights).sum(), parameters, allow_unused=True)
    drawn = (law.rsample((40_000,)).mean(0) * weights).sum()
    found = rl.autograd.grad(drawn, parameters, allow_unused=True)
    for ours, true in zip(found, wanted):
        if true is not None and ours is not None:
            np.testing.assert_allclose(ours.numpy(), true.numpy(), rtol=0.1, atol=0.15)


PAIRS = [n for n in CASES if n in (
    "Normal", "Laplace", "Exponential", "Gamma", "Beta", "Dirichlet", "Bernoulli", "Geometric",
    "Poisson", "Categorical", "OneHotCategorical", "MultivariateNormal", "Uniform", "Cauchy",
    "HalfCauchy", "HalfNormal", "LogNormal", "Gumbel", "Pareto", "Binomial", "ContinuousBernoulli",
    "LowRankMultivariateNormal", "LogisticNormal")]  # fmt: skip


@pytest.mark.parametrize("name", PAIRS)
def test_divergences_are_torchs(name: str) -> None:
    def found(lib: Any) -> Any:
        first = made(lib, name)
        changed = []
        for given in CASES[name]:
            tensor = lib.tensor(given, dtype=lib.float64) if isinstance(given, list) else given
            changed.append(tensor * 0.9 if isinstance(given, list) else tensor)
        second = getattr(lib.distributions, name)(*changed, validate_args=False)
        return lib.distributions.kl_divergence(first, second)

    close(found(rl), found(torch))


def test_laws_made_of_others() -> None:
    def found(lib: Any) -> list[Any]:
        d = lib.distributions
        loc = lib.tensor([SIGNED, A], dtype=lib.float64)
        scale = lib.tensor([B, A], dtype=lib.float64)
        x = lib.tensor([[0.2, 0.4, 0.1], [0.5, 0.6, 0.9]], dtype=lib.float64)
        independent = d.Independent(d.Normal(loc, scale), 1)
        squashed = d.TransformedDistribution(
            d.Normal(loc, scale), [d.TanhTransform(), d.AffineTransform(0.5, 2.0)]
        )
        mixture = d.MixtureSameFamily(
            d.Categorical(logits=lib.tensor(LOGITS, dtype=lib.float64)), d.Normal(loc, scale)
        )
        relaxed = d.RelaxedBernoulli(lib.tensor(0.7, dtype=lib.float64), logits=loc)
        return [
            independent.log_prob(x), independent.entropy(), independent.expand((4, 2)).log_prob(x),
            squashed.log_prob(x), mixture.log_prob(x[:, 0]), mixture.mean, mixture.variance,
            d.kl_divergence(independent, d.Independent(d.Normal(loc + 1, scale), 1)),
            relaxed.log_prob(x), d.Normal(loc, scale).expand((5, 2, 3)).log_prob(x),
        ]  # fmt: skip

    for ours, theirs in zip(found(rl), found(torch)):
        close(ours, theirs)


def test_an_actor_that_learns_by_its_draws() -> None:
    """The standard policy gradient, undecorated and jitted: the better arm is chosen."""
    for jitted in (False, True):
        rl.manual_seed(0)
        preference = rl.zeros(2, requires_grad=True)
        optimizer = rl.optim.SGD([preference], lr=0.3)

        def step(preference: Any = preference, optimizer: Any = optimizer) -> Any:
            law = rl.distributions.Categorical(logits=preference)
            action = law.sample((16,))
            reward = action.to(rl.float32)
            loss = -(law.log_prob(action) * reward).mean()
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            return loss

        run = rl.jit(step) if jitted else step
        for _ in range(40):
            run()
        assert preference.softmax(0)[1].item() > 0.8


def test_wrong_parameters_are_named() -> None:
    with pytest.raises(rl.RidgelineError, match=r"scale must satisfy GreaterThan"):
        rl.distributions.Normal(rl.zeros(2), rl.tensor([1.0, -1.0]))
    with pytest.raises(rl.RidgelineError, match="one of the two"):
        rl.distributions.Bernoulli(probs=rl.tensor(0.5), logits=rl.tensor(0.0))
    with pytest.raises(NotImplementedError, match="sample"):
        rl.distributions.Poisson(rl.ones(2)).rsample()


def test_a_temperature_that_is_a_tensor_is_learned() -> None:
    """The density's derivative by the temperature is torch's; jit takes it too."""

    def slopes(lib: Any) -> list[Any]:
        warm = lib.tensor(0.7, dtype=lib.float64, requires_grad=True)
        logits = lib.tensor(LOGITS, dtype=lib.float64)
        shares = lib.tensor([[0.2, 0.3, 0.5], [0.6, 0.3, 0.1]], dtype=lib.float64)
        laws = lib.distributions
        hot = laws.RelaxedOneHotCategorical(warm, logits=logits).log_prob(shares).sum()
        bits = laws.RelaxedBernoulli(warm, logits=logits).log_prob(shares).sum()
        return [lib.autograd.grad(value, [warm])[0] for value in (hot, bits)]

    for ours, theirs in zip(slopes(rl), slopes(torch)):
        close(ours, theirs)
    law = rl.jit(lambda t, x: rl.distributions.RelaxedBernoulli(t, probs=x).log_prob(x))
    assert np.isfinite(law(rl.tensor(0.5), rl.tensor([0.2, 0.7])).numpy()).all()


def test_what_a_law_does_not_have_is_named() -> None:
    with pytest.raises(NotImplementedError, match="Beta has no cdf"):
        rl.distributions.Beta(rl.ones(1), rl.ones(1)).cdf(rl.tensor([0.5]))


def test_an_expanded_multinomial_draws_for_its_whole_batch() -> None:
    probs = [[0.2, 0.8], [0.5, 0.5]]
    ours = rl.distributions.Multinomial(3, probs=rl.tensor(probs)).expand((4, 2))
    theirs = torch.distributions.Multinomial(3, probs=torch.tensor(probs)).expand((4, 2))
    assert tuple(ours.probs.shape) == tuple(theirs.probs.shape)
    for shape in ((), (5,)):
        drawn = ours.sample(shape)
        assert tuple(drawn.shape) == tuple(theirs.sample(shape).shape)
        assert drawn.sum(-1).eq(3).all()
