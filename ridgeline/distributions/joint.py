"""Distributions over vectors, and distributions made of other distributions."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any, ClassVar

from ridgeline.distributions import constraints
from ridgeline.distributions.continuous import uniform
from ridgeline.distributions.discrete import Bernoulli, Categorical, OneHotCategorical
from ridgeline.distributions.distribution import Constraints, Distribution
from ridgeline.distributions.transforms import ComposeTransform, Transform
from ridgeline.distributions.transforms.base import over_last
from ridgeline.errors import ArgumentError
from ridgeline.linalg import cholesky, inv, solve_triangular
from ridgeline.nn.functional import softplus
from ridgeline.tensors.public import broadcast_tensors, randn
from ridgeline.tensors.tensor import Tensor


class Independent(Distribution):
    """Some axes of the batch as axes of one event."""

    def __init__(
        self,
        base_distribution: Distribution,
        reinterpreted_batch_ndims: int,
        validate_args: bool | None = None,
    ) -> None:
        shape = base_distribution.batch_shape
        if reinterpreted_batch_ndims > len(shape):
            raise ArgumentError(
                f"Independent: {reinterpreted_batch_ndims} axes of a batch of {len(shape)}"
            )
        self.base_dist, self.reinterpreted_batch_ndims = (
            base_distribution,
            reinterpreted_batch_ndims,
        )
        cut = len(shape) - reinterpreted_batch_ndims
        event = (*shape[cut:], *base_distribution.event_shape)
        self.has_rsample = base_distribution.has_rsample
        super().__init__(shape[:cut], event, validate_args=False)

    def _joined(self, value: Tensor) -> Tensor:
        axes = tuple(range(-self.reinterpreted_batch_ndims, 0))
        return value.sum(axes) if axes else value

    def sample(self, sample_shape: Sequence[int] = ()) -> Tensor:
        """Draws."""
        return self.base_dist.sample(sample_shape)

    def rsample(self, sample_shape: Sequence[int] = ()) -> Tensor:
        """Draws, through which gradients flow to the parameters."""
        return self.base_dist.rsample(sample_shape)

    def log_prob(self, value: Tensor) -> Tensor:
        """The logarithm of the density."""
        return self._joined(self.base_dist.log_prob(value))

    def entropy(self) -> Tensor:
        """The entropy in nats."""
        return self._joined(self.base_dist.entropy())

    def expand(self, batch_shape: Sequence[int], _instance: Any = None) -> Any:
        """The same distributions, repeated along new or single axes of the batch."""
        inner = self.event_shape[: self.reinterpreted_batch_ndims]
        wide = self.base_dist.expand((*batch_shape, *inner))
        return Independent(wide, self.reinterpreted_batch_ndims)

    @property
    def mean(self) -> Tensor:
        """The mean."""
        return self.base_dist.mean

    @property
    def mode(self) -> Tensor:
        """The most likely value."""
        return self.base_dist.mode

    @property
    def variance(self) -> Tensor:
        """The variance."""
        return self.base_dist.variance

    def __repr__(self) -> str:
        return f"Independent({self.base_dist}, {self.reinterpreted_batch_ndims})"


def scale_factor(
    of: Distribution,
    covariance: Tensor | None,
    precision: Tensor | None,
    scale_tril: Tensor | None,
) -> Tensor:
    """The Cholesky factor of a covariance that is given in one of three ways."""
    given = [m for m in (covariance, precision, scale_tril) if m is not None]
    if len(given) != 1:
        raise ArgumentError(
            f"{type(of).__name__} takes one of covariance_matrix, precision_matrix and scale_tril"
        )
    if scale_tril is not None:
        return scale_tril
    return cholesky(given[0] if precision is None else inv(precision))


class MultivariateNormal(Distribution):
    """Normal vectors, by their covariance, its inverse, or its Cholesky factor."""

    has_rsample = True
    arg_constraints: ClassVar[Constraints] = {"loc": constraints.real_vector}
    support: Any = constraints.real_vector

    def __init__(
        self,
        loc: Tensor,
        covariance_matrix: Tensor | None = None,
        precision_matrix: Tensor | None = None,
        scale_tril: Tensor | None = None,
        validate_args: bool | None = None,
    ) -> None:
        if not loc.dim():
            raise ArgumentError("MultivariateNormal needs a loc with at least one axis")
        factor = scale_factor(self, covariance_matrix, precision_matrix, scale_tril)
        wide = loc.unsqueeze(-1)
        _, spread = broadcast_tensors(wide, factor)
        self.scale_tril = spread
        self.loc = loc.expand(tuple(spread.shape[:-1]))
        super().__init__(self.loc.shape[:-1], self.loc.shape[-1:], validate_args)

    @property
    def covariance_matrix(self) -> Tensor:
        """The covariance."""
        return self.scale_tril @ self.scale_tril.mT

    @property
    def precision_matrix(self) -> Tensor:
        """The inverse of the covariance."""
        return inv(self.covariance_matrix)

    def expand(self, batch_shape: Sequence[int], _instance: Any = None) -> Any:
        """The same distributions, repeated along new or single axes of the batch."""
        size = tuple(self.event_shape)
        return MultivariateNormal(
            self.loc.expand((*batch_shape, *size)),
            scale_tril=self.scale_tril.expand((*batch_shape, *size, *size)),
            validate_args=False,
        )

    def rsample(self, sample_shape: Sequence[int] = ()) -> Tensor:
        """Draws, through which gradients flow to the parameters."""
        shape = tuple(self._extended_shape(sample_shape))
        drawn = randn(shape, dtype=self.loc.dtype, device=self.loc.device)
        return self.loc + (self.scale_tril @ drawn.unsqueeze(-1)).squeeze(-1)

    def log_prob(self, value: Tensor) -> Tensor:
        """The logarithm of the density."""
        self._validate_sample(value)
        away = (value - self.loc).unsqueeze(-1)
        z = solve_triangular(self.scale_tril, away, upper=False).squeeze(-1)
        size = self.event_shape[0]
        return -0.5 * ((z**2).sum(-1) + size * math.log(2 * math.pi)) - self._half_log_det()

    def _half_log_det(self) -> Tensor:
        return self.scale_tril.diagonal(dim1=-2, dim2=-1).log().sum(-1)

    def entropy(self) -> Tensor:
        """The entropy in nats."""
        return 0.5 * self.event_shape[0] * (1 + math.log(2 * math.pi)) + self._half_log_det()

    @property
    def mean(self) -> Tensor:
        """The mean."""
        return self.loc

    @property
    def mode(self) -> Tensor:
        """The most likely value."""
        return self.loc

    @property
    def variance(self) -> Tensor:
        """The variance of every component."""
        return (self.scale_tril**2).sum(-1)


class TransformedDistribution(Distribution):
    """What a function makes of another distribution's samples."""

    def __init__(
        self,
        base_distribution: Distribution,
        transforms: Transform | Sequence[Transform],
        validate_args: bool | None = None,
    ) -> None:
        parts = [transforms] if isinstance(transforms, Transform) else list(transforms)
        self.transforms, self._whole = parts, ComposeTransform(parts)
        before, after = self._whole.domain.event_dim, self._whole.codomain.event_dim
        inner = len(base_distribution.event_shape)
        given = (*base_distribution.batch_shape, *base_distribution.event_shape)
        if len(given) < before:
            raise ArgumentError(
                f"TransformedDistribution: {list(given)} has fewer than the {before} axes needed"
            )
        shape = self._whole.forward_shape(given)
        wide = self._whole.inverse_shape(shape)
        if wide != given:
            base_distribution = base_distribution.expand(wide[: len(wide) - inner])
        if before > inner:
            base_distribution = Independent(base_distribution, before - inner)
        self.base_dist, self.has_rsample = base_distribution, base_distribution.has_rsample
        cut = len(shape) - after - max(inner - before, 0)
        super().__init__(shape[:cut], shape[cut:], validate_args=False)

    def sample(self, sample_shape: Sequence[int] = ()) -> Tensor:
        """Draws."""
        return self._whole(self.base_dist.sample(sample_shape))

    def rsample(self, sample_shape: Sequence[int] = ()) -> Tensor:
        """Draws, through which gradients flow to the parameters."""
        return self._whole(self.base_dist.rsample(sample_shape))

    def log_prob(self, value: Tensor) -> Tensor:
        """The logarithm of the density."""
        total: Tensor | float = 0.0
        axes = len(self.event_shape)
        for part in reversed(self.transforms):
            before = part._inverse(value)
            axes += part.domain.event_dim - part.codomain.event_dim
            stretch = part.log_abs_det_jacobian(before, value)
            total = total - over_last(stretch, axes - part.domain.event_dim)
            value = before
        inner = self.base_dist.log_prob(value)
        return total + over_last(inner, axes - len(self.base_dist.event_shape))

    def cdf(self, value: Tensor) -> Tensor:
        """The probability of values up to this one, for a rising function."""
        return self.base_dist.cdf(self._whole._inverse(value))


class MixtureSameFamily(Distribution):
    """One of several distributions of a kind, chosen by a categorical one."""

    def __init__(
        self,
        mixture_distribution: Categorical,
        component_distribution: Distribution,
        validate_args: bool | None = None,
    ) -> None:
        self.mixture_distribution = mixture_distribution
        self.component_distribution = component_distribution
        super().__init__(
            component_distribution.batch_shape[:-1], component_distribution.event_shape, False
        )

    def _weights(self) -> Tensor:
        weights: Tensor = self.mixture_distribution.probs
        return weights.reshape((*weights.shape, *(1 for _ in self.event_shape)))

    def log_prob(self, value: Tensor) -> Tensor:
        """The logarithm of the density."""
        axis = value.dim() - len(self.event_shape)
        inside = self.component_distribution.log_prob(value.unsqueeze(axis))
        return (inside + self.mixture_distribution.logits.log_softmax(-1)).logsumexp(-1)

    def sample(self, sample_shape: Sequence[int] = ()) -> Tensor:
        """Draws."""
        chosen = self.mixture_distribution.sample(sample_shape)
        drawn = self.component_distribution.sample(sample_shape)
        axis = len(sample_shape) + len(self.batch_shape)
        ones = (1 for _ in self.event_shape)
        indices = chosen.reshape((*chosen.shape, 1, *ones))
        indices = indices.expand((*chosen.shape, 1, *self.event_shape))
        return drawn.gather(axis, indices).squeeze(axis)

    @property
    def _axis(self) -> int:
        return -1 - len(self.event_shape)

    @property
    def mean(self) -> Tensor:
        """The mean."""
        return (self._weights() * self.component_distribution.mean).sum(self._axis)

    @property
    def variance(self) -> Tensor:
        """The variance."""
        inside, means = self.component_distribution.variance, self.component_distribution.mean
        within = (self._weights() * inside).sum(self._axis)
        away = means - self.mean.unsqueeze(self._axis)
        return within + (self._weights() * away**2).sum(self._axis)


class _Relaxed(Distribution):
    """Draws that come near to those of a discrete law as their temperature falls."""

    has_rsample = True

    def __init__(self, temperature: Tensor | float, hard: Bernoulli | OneHotCategorical) -> None:
        self.temperature, self._hard = temperature, hard
        super().__init__(hard.batch_shape, hard.event_shape, validate_args=False)

    @property
    def logits(self) -> Tensor:
        """The logits of the discrete law."""
        return self._hard.logits

    @property
    def probs(self) -> Tensor:
        """The probabilities of the discrete law."""
        return self._hard.probs

    def _log_temperature(self) -> Tensor | float:
        given = self.temperature
        return given.log() if isinstance(given, Tensor) else math.log(given)


class RelaxedBernoulli(_Relaxed):
    """Numbers between 0 and 1 that come near to draws of ones and zeros as they cool."""

    support: Any = constraints.unit_interval

    def __init__(
        self,
        temperature: Tensor | float,
        probs: Any = None,
        logits: Any = None,
        validate_args: bool | None = None,
    ) -> None:
        super().__init__(temperature, Bernoulli(probs, logits, validate_args))

    def rsample(self, sample_shape: Sequence[int] = ()) -> Tensor:
        """Draws, through which gradients flow to the parameters."""
        drawn = uniform(self.logits, self._extended_shape(sample_shape))
        noise = drawn.log() - (-drawn).log1p()
        return ((noise + self.logits) / self.temperature).sigmoid()

    def log_prob(self, value: Tensor) -> Tensor:
        """The logarithm of the density."""
        level = value.log() - (-value).log1p()
        away = self.logits - level * self.temperature
        inner = away + self._log_temperature() - 2 * softplus(away)
        return inner - value.log() - (-value).log1p()


class RelaxedOneHotCategorical(_Relaxed):
    """Shares that come near to one-hot draws as they cool."""

    support: Any = constraints.simplex

    def __init__(
        self,
        temperature: Tensor | float,
        probs: Tensor | None = None,
        logits: Tensor | None = None,
        validate_args: bool | None = None,
    ) -> None:
        super().__init__(temperature, OneHotCategorical(probs, logits, validate_args))

    def rsample(self, sample_shape: Sequence[int] = ()) -> Tensor:
        """Draws, through which gradients flow to the parameters."""
        drawn = uniform(self.logits, self._extended_shape(sample_shape))
        return ((self.logits - (-drawn.log()).log()) / self.temperature).softmax(-1)

    def log_prob(self, value: Tensor) -> Tensor:
        """The logarithm of the density."""
        count = self.event_shape[0]
        scores = self.logits - self.temperature * value.log()
        norm = math.lgamma(count) + (count - 1) * self._log_temperature()
        return norm + (scores - scores.logsumexp(-1, keepdim=True)).sum(-1) - value.log().sum(-1)
