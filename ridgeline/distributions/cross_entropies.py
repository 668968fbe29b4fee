"""Divergences between laws of one number of different kinds: by moments and by supports.

KL(p || q) is -H(p) - E[log q(x)] for x of p, and log q is a sum of few functions of x: x itself,
its square, its logarithm, an exponential. It is infinite where p has values that q never takes.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any, TypeAlias

from ridgeline.distributions import bounded, continuous, gammas
from ridgeline.nn.functional.choose import choose
from ridgeline.special import xlogy
from ridgeline.tensors.public import broadcast_shapes, full
from ridgeline.tensors.tensor import Tensor

Number: TypeAlias = Tensor | float
_GAMMA = continuous.EULER


def bounds(law: Any) -> tuple[Number, Number]:
    """Between which numbers a law has its values."""
    match law:
        case gammas.Beta() | bounded.ContinuousBernoulli():
            return 0.0, 1.0
        case continuous.Exponential() | gammas.Gamma():
            return 0.0, math.inf
        case continuous.Pareto():
            return law.scale, math.inf
        case continuous.Uniform():
            return law.low, law.high
    return -math.inf, math.inf


def _mean_log(law: Any) -> Tensor | None:
    match law:
        case gammas.Beta():
            a, b = law.concentration1, law.concentration0
            return a.digamma() - (a + b).digamma()
        case continuous.Exponential():
            return -_GAMMA - law.rate.log()
        case gammas.Gamma():
            return law.concentration.digamma() - law.rate.log()
        case continuous.Pareto():
            return law.scale.log() + 1 / law.alpha
        case continuous.Uniform():
            low, high = law.low.clamp(min=0.0), law.high.clamp(min=0.0)
            return (xlogy(high, high) - xlogy(low, low)) / (law.high - law.low) - 1
    return None


def _mean_log_rest(law: Any) -> Tensor | None:
    """The mean of log(1 - x)."""
    match law:
        case gammas.Beta():
            a, b = law.concentration1, law.concentration0
            return b.digamma() - (a + b).digamma()
        case continuous.Uniform():
            return _mean_log(continuous.Uniform(1 - law.high, 1 - law.low, False))
    return None


def _mean_decay(law: Any, rate: Tensor) -> Tensor | None:
    """The mean of e^(-rate x)."""
    match law:
        case continuous.Exponential():
            return law.rate / (law.rate + rate)
        case gammas.Gamma():
            return (law.rate / (law.rate + rate)) ** law.concentration
        case continuous.Normal():
            return (0.5 * (rate * law.scale) ** 2 - rate * law.loc).exp()
        case continuous.Gumbel():
            return ((1 + law.scale * rate).lgamma() - rate * law.loc).exp()
        case continuous.Uniform():
            width = rate * (law.high - law.low)
            return -(-rate * law.low).exp() * (-width).expm1() / width
    return None


def _mean_distance(law: Any, place: Tensor) -> Tensor | None:
    """The mean of |x - place|."""
    match law:
        case continuous.Normal():
            away = law.loc - place
            z = away / (law.scale * math.sqrt(2.0))
            return law.scale * math.sqrt(2 / math.pi) * (-(z**2)).exp() + away * z.erf()
    return None


def mean_log_density(p: Any, q: Any) -> Any:
    """The mean of log q(x) for x of p; None where no formula is here."""
    match q:
        case gammas.Beta():
            logs, rests = _mean_log(p), _mean_log_rest(p)
            if logs is None or rests is None:
                return None
            a, b = q.concentration1, q.concentration0
            norm = (a + b).lgamma() - a.lgamma() - b.lgamma()
            return (a - 1) * logs + (b - 1) * rests + norm
        case bounded.ContinuousBernoulli():
            return p.mean * q.logits + (-q.probs).log1p() + q._log_norm()
        case continuous.Exponential():
            return q.rate.log() - q.rate * p.mean
        case gammas.Gamma():
            logs, c = _mean_log(p), q.concentration
            if logs is None:
                return None
            return c * q.rate.log() - c.lgamma() + (c - 1) * logs - q.rate * p.mean
        case continuous.Pareto():
            logs = _mean_log(p)
            if logs is None:
                return None
            return q.alpha.log() + q.alpha * q.scale.log() - (q.alpha + 1) * logs
        case continuous.Uniform():
            return -(q.high - q.low).log() + 0 * p.mean
        case continuous.Normal():
            square = p.variance + (p.mean - q.loc) ** 2
            return -0.5 * square / q.scale**2 - q.scale.log() - 0.5 * math.log(2 * math.pi)
        case continuous.Gumbel():
            decay = _mean_decay(p, 1 / q.scale)
            if decay is None:
                return None
            return -(p.mean - q.loc) / q.scale - decay * (q.loc / q.scale).exp() - q.scale.log()
        case continuous.Laplace():
            distance = _mean_distance(p, q.loc)
            return None if distance is None else -distance / q.scale - (2 * q.scale).log()
    return None


KINDS: tuple[type, ...] = (
    gammas.Beta, bounded.ContinuousBernoulli, continuous.Exponential, gammas.Gamma,
    continuous.Gumbel, continuous.Laplace, continuous.Normal, continuous.Pareto,
    continuous.Uniform,
)  # fmt: skip


def _exceeds(p: Any, q: Any) -> Tensor | bool:
    """Whether p has values that q never takes, as far as kinds tell, or element by element."""
    (low, high), (lower, upper) = bounds(p), bounds(q)
    known = [side for side in (low < lower, high > upper) if isinstance(side, bool)]
    all_positive = isinstance(q, continuous.Pareto) and isinstance(low, float)
    if any(known) or all_positive:
        return True
    return (low < lower) | (high > upper)


def divergence(first: type, second: type) -> Callable[[Any, Any], Tensor]:
    """KL(p || q) for two of the kinds."""

    def compute(p: Any, q: Any) -> Tensor:
        outside = _exceeds(p, q)
        if outside is True:
            return _infinite(p, q)
        log_density = mean_log_density(p, q)
        if log_density is None:
            names = f"{first.__name__} to {second.__name__}"
            raise NotImplementedError(f"no KL divergence is known from {names}")
        found: Tensor = -p.entropy() - log_density
        return choose(outside, math.inf, found) if isinstance(outside, Tensor) else found

    return compute


def _infinite(p: Any, q: Any) -> Tensor:
    shape = broadcast_shapes(tuple(p.batch_shape), tuple(q.batch_shape))
    like = p.entropy()
    return full(shape, math.inf, dtype=like.dtype, device=like.device)
