"""Kullback-Leibler divergences, by the kinds of the two distributions."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

from ridgeline.distributions import continuous, cross_entropies, discrete, gammas, joint, matrices
from ridgeline.distributions.distribution import Distribution
from ridgeline.distributions.transforms import Transform
from ridgeline.distributions.transforms.base import over_last
from ridgeline.linalg import solve_triangular
from ridgeline.nn.functional.choose import choose
from ridgeline.special import xlogy
from ridgeline.tensors.public import mvlgamma
from ridgeline.tensors.tensor import Tensor

Divergence = Callable[[Any, Any], Tensor]
_known: dict[tuple[type, type], Divergence] = {}


def register_kl(type_p: type, type_q: type) -> Callable[[Divergence], Divergence]:
    """Decorates a function that computes KL(p || q) for two kinds of distributions."""

    def decorate(function: Divergence) -> Divergence:
        _known[type_p, type_q] = function
        return function

    return decorate


def kl_divergence(p: Distribution, q: Distribution) -> Tensor:
    """KL(p || q): what it costs to take q for p, in nats."""
    for first in type(p).__mro__:
        for second in type(q).__mro__:
            if (first, second) in _known:
                return _known[first, second](p, q)
    raise NotImplementedError(
        f"no KL divergence is known from {type(p).__name__} to {type(q).__name__}"
    )


for _first in cross_entropies.KINDS:
    for _second in cross_entropies.KINDS:
        register_kl(_first, _second)(cross_entropies.divergence(_first, _second))


@register_kl(continuous.Normal, continuous.Normal)
@register_kl(continuous.LogNormal, continuous.LogNormal)
def _normals(p: continuous.LocationScale, q: continuous.LocationScale) -> Tensor:
    ratio = (p.scale / q.scale) ** 2
    away = ((p.loc - q.loc) / q.scale) ** 2
    return 0.5 * (ratio + away - 1 - ratio.log())


@register_kl(continuous.Laplace, continuous.Laplace)
def _laplaces(p: continuous.Laplace, q: continuous.Laplace) -> Tensor:
    ratio, away = p.scale / q.scale, (p.loc - q.loc).abs()
    return -ratio.log() + away / q.scale + ratio * (-away / p.scale).exp() - 1


@register_kl(continuous.Uniform, continuous.Uniform)
def _uniforms(p: continuous.Uniform, q: continuous.Uniform) -> Tensor:
    found = ((q.high - q.low) / (p.high - p.low)).log()
    return choose((q.low > p.low) | (q.high < p.high), math.inf, found)


@register_kl(continuous.Exponential, continuous.Exponential)
def _exponentials(p: continuous.Exponential, q: continuous.Exponential) -> Tensor:
    ratio = q.rate / p.rate
    return ratio - 1 - ratio.log()


@register_kl(gammas.Gamma, gammas.Gamma)
def _gammas(p: gammas.Gamma, q: gammas.Gamma) -> Tensor:
    a, b = p.concentration, q.concentration
    return (
        b * (p.rate / q.rate).log() + b.lgamma() - a.lgamma() + (a - b) * a.digamma()
        + (q.rate - p.rate) * (a / p.rate)
    )  # fmt: skip


@register_kl(gammas.Beta, gammas.Beta)
def _betas(p: gammas.Beta, q: gammas.Beta) -> Tensor:
    return _dirichlets(p._shares, q._shares)


@register_kl(gammas.Dirichlet, gammas.Dirichlet)
def _dirichlets(p: gammas.Dirichlet, q: gammas.Dirichlet) -> Tensor:
    a, b = p.concentration, q.concentration
    total = a.sum(-1)
    scale = total.lgamma() - b.sum(-1).lgamma() - (a.lgamma() - b.lgamma()).sum(-1)
    return scale + ((a - b) * (a.digamma() - total.digamma().unsqueeze(-1))).sum(-1)


@register_kl(discrete.Bernoulli, discrete.Bernoulli)
def _bernoullis(p: discrete.Bernoulli, q: discrete.Bernoulli) -> Tensor:
    inside = xlogy(p.probs, p.probs / q.probs)
    return inside + xlogy(1 - p.probs, (1 - p.probs) / (1 - q.probs))


@register_kl(discrete.Geometric, discrete.Geometric)
def _geometrics(p: discrete.Geometric, q: discrete.Geometric) -> Tensor:
    return -p.entropy() - (-q.probs).log1p() / p.probs - q.logits


@register_kl(discrete.Poisson, discrete.Poisson)
def _poissons(p: discrete.Poisson, q: discrete.Poisson) -> Tensor:
    return xlogy(p.rate, p.rate / q.rate) - (p.rate - q.rate)


@register_kl(discrete.Categorical, discrete.Categorical)
@register_kl(discrete.OneHotCategorical, discrete.OneHotCategorical)
def _categoricals(p: discrete.OneHotCategorical, q: discrete.OneHotCategorical) -> Tensor:
    terms = p.probs * (p.logits - q.logits)
    terms = choose(q.probs == 0, math.inf, terms)
    return choose(p.probs == 0, 0.0, terms).sum(-1)


@register_kl(joint.MultivariateNormal, joint.MultivariateNormal)
def _multivariate(p: joint.MultivariateNormal, q: joint.MultivariateNormal) -> Tensor:
    size = p.event_shape[0]
    ratio = q._half_log_det() - p._half_log_det()
    spread = solve_triangular(q.scale_tril, p.scale_tril, upper=False)
    away = solve_triangular(q.scale_tril, (q.loc - p.loc).unsqueeze(-1), upper=False)
    return ratio + 0.5 * ((spread**2).sum((-2, -1)) + (away**2).sum((-2, -1)) - size)


@register_kl(joint.Independent, joint.Independent)
def _independents(p: joint.Independent, q: joint.Independent) -> Tensor:
    if p.reinterpreted_batch_ndims != q.reinterpreted_batch_ndims:
        raise NotImplementedError("KL of Independent distributions with different events")
    found = kl_divergence(p.base_dist, q.base_dist)
    return over_last(found, p.reinterpreted_batch_ndims)


@register_kl(continuous.Cauchy, continuous.Cauchy)
@register_kl(continuous.HalfCauchy, continuous.HalfCauchy)
def _cauchys(p: Any, q: Any) -> Tensor:
    away = p.loc - q.loc if isinstance(p, continuous.Cauchy) else 0.0
    ratio: Tensor = ((p.scale + q.scale) ** 2 + away**2) / (4 * p.scale * q.scale)
    return ratio.log()


@register_kl(continuous.HalfNormal, continuous.HalfNormal)
def _half_normals(p: continuous.HalfNormal, q: continuous.HalfNormal) -> Tensor:
    ratio = (p.scale / q.scale) ** 2
    return 0.5 * (ratio - 1 - ratio.log())


@register_kl(discrete.Binomial, discrete.Binomial)
def _binomials(p: discrete.Binomial, q: discrete.Binomial) -> Tensor:
    """More tries than q has are impossible under q; of fewer no formula is known."""
    if bool((p.total_count < q.total_count).any()):
        raise NotImplementedError("KL of binomial laws where the second has more tries")
    yes = p.probs * (p.logits - q.logits) + (-p.probs).log1p() - (-q.probs).log1p()
    return choose(p.total_count > q.total_count, math.inf, p.total_count * yes)


@register_kl(discrete.Bernoulli, discrete.Poisson)
def _bernoulli_to_poisson(p: discrete.Bernoulli, q: discrete.Poisson) -> Tensor:
    return -p.entropy() - (p.probs * q.rate.log() - q.rate)


@register_kl(discrete.Poisson, discrete.Bernoulli)
@register_kl(discrete.Poisson, discrete.Binomial)
def _poisson_to_few(p: discrete.Poisson, q: Any) -> Tensor:
    both = p.rate + q.probs
    return choose(both == both, math.inf, math.inf)


LowRank = matrices.LowRankMultivariateNormal


@register_kl(LowRank, LowRank)
@register_kl(joint.MultivariateNormal, LowRank)
def _to_low_rank(p: Any, q: matrices.LowRankMultivariateNormal) -> Tensor:
    ratio = q.half_log_det() - _half_log_det(p)
    columns = p.scale_tril.mT  # each row is a column of the factor
    spread = over_last(q.distances(columns.movedim(-2, 0)).movedim(0, -1), 1)
    found: Tensor = ratio + 0.5 * (spread + q.distances(q.loc - p.loc) - p.event_shape[0])
    return found


@register_kl(LowRank, joint.MultivariateNormal)
def _from_low_rank(p: matrices.LowRankMultivariateNormal, q: joint.MultivariateNormal) -> Tensor:
    factor = p.scale_tril
    return _multivariate(joint.MultivariateNormal(p.loc, scale_tril=factor), q)


def _half_log_det(law: Any) -> Tensor:
    found: Tensor = law.half_log_det() if isinstance(law, LowRank) else law._half_log_det()
    return found


@register_kl(matrices.Wishart, matrices.Wishart)
def _wisharts(p: matrices.Wishart, q: matrices.Wishart) -> Tensor:
    size = p.event_shape[-1]
    spread = solve_triangular(q.scale_tril, p.scale_tril, upper=False)
    norm = q.df * q._log_scale() + mvlgamma(q.df / 2, size)
    density = 0.5 * (q.df - size - 1) * p.mean_log_det() - 0.5 * p.df * (spread**2).sum((-2, -1))
    return norm - density - p.entropy()


@register_kl(joint.TransformedDistribution, joint.TransformedDistribution)
def _transformed(p: joint.TransformedDistribution, q: joint.TransformedDistribution) -> Tensor:
    if len(p.transforms) != len(q.transforms) or not all(map(_alike, p.transforms, q.transforms)):
        raise NotImplementedError("KL of laws that different functions transform")
    found = kl_divergence(p.base_dist, q.base_dist)
    return over_last(found, found.dim() - len(p.batch_shape))


def _alike(left: Any, right: Any) -> bool:
    """Whether two transforms, or what they are made of, do the same."""
    if isinstance(left, Tensor) or isinstance(right, Tensor):
        return bool((left == right).all() if isinstance(left, Tensor) else (right == left).all())
    if isinstance(left, Transform):
        return type(left) is type(right) and _alike(vars(left), vars(right))
    if isinstance(left, dict) and isinstance(right, dict):
        return left.keys() == right.keys() and all(_alike(left[k], right[k]) for k in left)
    if isinstance(left, list) and isinstance(right, list):
        return len(left) == len(right) and all(map(_alike, left, right))
    return left is right or left == right
