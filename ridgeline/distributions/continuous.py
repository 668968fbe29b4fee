"""Distributions over real numbers whose draws are formulas of uniform and normal numbers."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any, ClassVar

from ridgeline.distributions import constraints
from ridgeline.distributions.constraints import Constraint
from ridgeline.distributions.distribution import Constraints, Distribution, together
from ridgeline.nn.functional.choose import choose
from ridgeline.tensors.public import full_like, rand, randn
from ridgeline.tensors.tensor import Tensor

EULER = 0.5772156649015329
_HALF_LOG_2PI = 0.5 * math.log(2 * math.pi)


def uniform(like: Tensor, shape: Sequence[int]) -> Tensor:
    """Uniform numbers strictly between 0 and 1, of the kind of a parameter."""
    drawn: Tensor = rand(tuple(shape), dtype=like.dtype, device=like.device)
    tiny = 2.0**-24 if like.dtype.itemsize < 8 else 2.0**-53
    return drawn.clamp(min=tiny)


class LocationScale(Distribution):
    """Distributions of `loc + scale * z` for a fixed law of z."""

    has_rsample = True
    arg_constraints: ClassVar[Constraints] = {
        "loc": constraints.real,
        "scale": constraints.positive,
    }
    support: Any = constraints.real

    def __init__(self, loc: Any, scale: Any, validate_args: bool | None = None) -> None:
        self.loc, self.scale = together(loc, scale)
        super().__init__(self.loc.shape, validate_args=validate_args)

    def _standard(self, shape: Sequence[int]) -> Tensor:
        raise NotImplementedError

    def rsample(self, sample_shape: Sequence[int] = ()) -> Tensor:
        """Draws, through which gradients flow to the parameters."""
        return self.loc + self.scale * self._standard(self._extended_shape(sample_shape))

    def _z(self, value: Tensor) -> Tensor:
        self._validate_sample(value)
        return (value - self.loc) / self.scale

    @property
    def mode(self) -> Tensor:
        """The most likely value."""
        return self.loc


class Normal(LocationScale):
    """The normal distribution."""

    def _standard(self, shape: Sequence[int]) -> Tensor:
        return randn(tuple(shape), dtype=self.loc.dtype, device=self.loc.device)

    def log_prob(self, value: Tensor) -> Tensor:
        """The logarithm of the density."""
        return -0.5 * self._z(value) ** 2 - self.scale.log() - _HALF_LOG_2PI

    def cdf(self, value: Tensor) -> Tensor:
        """The probability of values up to this one."""
        return 0.5 * (1 + (self._z(value) * math.sqrt(0.5)).erf())

    def icdf(self, value: Tensor) -> Tensor:
        """The value up to which the probability is this."""
        return self.loc + self.scale * (2 * value - 1).erfinv() * math.sqrt(2)

    def entropy(self) -> Tensor:
        """The entropy in nats."""
        return 0.5 + _HALF_LOG_2PI + self.scale.log()

    @property
    def mean(self) -> Tensor:
        """The mean."""
        return self.loc

    @property
    def variance(self) -> Tensor:
        """The variance."""
        return self.scale**2


class Laplace(LocationScale):
    """The double exponential distribution."""

    def _standard(self, shape: Sequence[int]) -> Tensor:
        side = uniform(self.loc, shape) - 0.5
        return -side.sign() * (-2 * side.abs()).clamp(min=-1 + 2.0**-24).log1p()

    def log_prob(self, value: Tensor) -> Tensor:
        """The logarithm of the density."""
        return -self._z(value).abs() - (2 * self.scale).log()

    def cdf(self, value: Tensor) -> Tensor:
        """The probability of values up to this one."""
        z = self._z(value)
        return 0.5 - 0.5 * z.sign() * (-z.abs()).expm1()

    def icdf(self, value: Tensor) -> Tensor:
        """The value up to which the probability is this."""
        side = value - 0.5
        return self.loc - self.scale * side.sign() * (-2 * side.abs()).log1p()

    def entropy(self) -> Tensor:
        """The entropy in nats."""
        return 1 + (2 * self.scale).log()

    @property
    def mean(self) -> Tensor:
        """The mean."""
        return self.loc

    @property
    def variance(self) -> Tensor:
        """The variance."""
        return 2 * self.scale**2


class Cauchy(LocationScale):
    """The Cauchy distribution, which has no moments."""

    def _standard(self, shape: Sequence[int]) -> Tensor:
        return (math.pi * (uniform(self.loc, shape) - 0.5)).tan()

    def log_prob(self, value: Tensor) -> Tensor:
        """The logarithm of the density."""
        return -math.log(math.pi) - self.scale.log() - (self._z(value) ** 2).log1p()

    def cdf(self, value: Tensor) -> Tensor:
        """The probability of values up to this one."""
        return self._z(value).atan() / math.pi + 0.5

    def icdf(self, value: Tensor) -> Tensor:
        """The value up to which the probability is this."""
        return self.loc + self.scale * (math.pi * (value - 0.5)).tan()

    def entropy(self) -> Tensor:
        """The entropy in nats."""
        return math.log(4 * math.pi) + self.scale.log()

    @property
    def mean(self) -> Tensor:
        """There is none: NaN."""
        return full_like(self.loc, math.nan)

    @property
    def variance(self) -> Tensor:
        """There is none: infinity."""
        return full_like(self.loc, math.inf)


class Gumbel(LocationScale):
    """The distribution of the largest of many."""

    def _standard(self, shape: Sequence[int]) -> Tensor:
        return -(-uniform(self.loc, shape).log()).log()

    def log_prob(self, value: Tensor) -> Tensor:
        """The logarithm of the density."""
        z = -self._z(value)
        return z - z.exp() - self.scale.log()

    def cdf(self, value: Tensor) -> Tensor:
        """The probability of values up to this one."""
        return (-(-self._z(value)).exp()).exp()

    def icdf(self, value: Tensor) -> Tensor:
        """The value up to which the probability is this."""
        return self.loc - self.scale * (-value.log()).log()

    def entropy(self) -> Tensor:
        """The entropy in nats."""
        return self.scale.log() + (1 + EULER)

    @property
    def mean(self) -> Tensor:
        """The mean."""
        return self.loc + self.scale * EULER

    @property
    def variance(self) -> Tensor:
        """The variance."""
        return self.scale**2 * (math.pi**2 / 6)


class LogNormal(LocationScale):
    """The exponential of a normal number."""

    support: Any = constraints.positive

    def _standard(self, shape: Sequence[int]) -> Tensor:
        return randn(tuple(shape), dtype=self.loc.dtype, device=self.loc.device)

    def rsample(self, sample_shape: Sequence[int] = ()) -> Tensor:
        """Draws, through which gradients flow to the parameters."""
        return super().rsample(sample_shape).exp()

    def log_prob(self, value: Tensor) -> Tensor:
        """The logarithm of the density."""
        self._validate_sample(value)
        z = (value.log() - self.loc) / self.scale
        return -0.5 * z**2 - self.scale.log() - _HALF_LOG_2PI - value.log()

    def cdf(self, value: Tensor) -> Tensor:
        """The probability of values up to this one."""
        return 0.5 * (1 + ((value.log() - self.loc) / self.scale * math.sqrt(0.5)).erf())

    def icdf(self, value: Tensor) -> Tensor:
        """The value up to which the probability is this."""
        return (self.loc + self.scale * (2 * value - 1).erfinv() * math.sqrt(2)).exp()

    def entropy(self) -> Tensor:
        """The entropy in nats."""
        return 0.5 + _HALF_LOG_2PI + self.scale.log() + self.loc

    @property
    def mean(self) -> Tensor:
        """The mean."""
        return (self.loc + self.scale**2 / 2).exp()

    @property
    def mode(self) -> Tensor:
        """The most likely value."""
        return (self.loc - self.scale**2).exp()

    @property
    def variance(self) -> Tensor:
        """The variance."""
        square = self.scale**2
        return square.expm1() * (2 * self.loc + square).exp()


class _Half(Distribution):
    """The absolute value of a symmetric law around zero."""

    has_rsample = True
    arg_constraints: ClassVar[Constraints] = {"scale": constraints.positive}
    support: Any = constraints.nonnegative
    _whole: type[LocationScale] = Normal

    def __init__(self, scale: Any, validate_args: bool | None = None) -> None:
        (self.scale,) = together(scale)
        super().__init__(self.scale.shape, validate_args=validate_args)

    @property
    def _both(self) -> LocationScale:
        return self._whole(self.scale * 0, self.scale, validate_args=False)

    def rsample(self, sample_shape: Sequence[int] = ()) -> Tensor:
        """Draws, through which gradients flow to the parameters."""
        return self._both.rsample(sample_shape).abs()

    def log_prob(self, value: Tensor) -> Tensor:
        """The logarithm of the density."""
        self._validate_sample(value)
        inside = self._both.log_prob(value) + math.log(2)
        return choose(value >= 0, inside, -math.inf)

    def cdf(self, value: Tensor) -> Tensor:
        """The probability of values up to this one."""
        return 2 * self._both.cdf(value) - 1

    def icdf(self, value: Tensor) -> Tensor:
        """The value up to which the probability is this."""
        return self._both.icdf((value + 1) / 2)

    def entropy(self) -> Tensor:
        """The entropy in nats."""
        return self._both.entropy() - math.log(2)

    @property
    def mode(self) -> Tensor:
        """The most likely value."""
        return self.scale * 0


class HalfNormal(_Half):
    """The absolute value of a normal number."""

    @property
    def mean(self) -> Tensor:
        """The mean."""
        return self.scale * math.sqrt(2 / math.pi)

    @property
    def variance(self) -> Tensor:
        """The variance."""
        return self.scale**2 * (1 - 2 / math.pi)


class HalfCauchy(_Half):
    """The absolute value of a Cauchy number."""

    _whole = Cauchy

    @property
    def mean(self) -> Tensor:
        """There is none: infinity."""
        return full_like(self.scale, math.inf)

    variance = mean


class Uniform(Distribution):
    """All numbers between two are alike."""

    has_rsample = True
    arg_constraints: ClassVar[Constraints] = {"low": constraints.real, "high": constraints.real}

    def __init__(self, low: Any, high: Any, validate_args: bool | None = None) -> None:
        self.low, self.high = together(low, high)
        super().__init__(self.low.shape, validate_args=validate_args)
        if self._validate_args:
            self._require(constraints.greater_than(self.low), self.high, "high")

    @property
    def support(self) -> Constraint:
        """From low to high."""
        return constraints.interval(self.low, self.high)

    def rsample(self, sample_shape: Sequence[int] = ()) -> Tensor:
        """Draws, through which gradients flow to the parameters."""
        shape = tuple(self._extended_shape(sample_shape))
        drawn = rand(shape, dtype=self.low.dtype, device=self.low.device)
        return self.low + drawn * (self.high - self.low)

    def log_prob(self, value: Tensor) -> Tensor:
        """The logarithm of the density."""
        self._validate_sample(value)
        inside = (self.low <= value) & (value < self.high)
        height = -(self.high - self.low).log()
        return choose(inside, height, -math.inf)

    def cdf(self, value: Tensor) -> Tensor:
        """The probability of values up to this one."""
        return ((value - self.low) / (self.high - self.low)).clamp(0, 1)

    def icdf(self, value: Tensor) -> Tensor:
        """The value up to which the probability is this."""
        return self.low + value * (self.high - self.low)

    def entropy(self) -> Tensor:
        """The entropy in nats."""
        return (self.high - self.low).log()

    @property
    def mean(self) -> Tensor:
        """The mean."""
        return (self.high + self.low) / 2

    @property
    def mode(self) -> Tensor:
        """There is none: NaN."""
        return full_like(self.low, math.nan)

    @property
    def variance(self) -> Tensor:
        """The variance."""
        return (self.high - self.low) ** 2 / 12


class Exponential(Distribution):
    """The waiting time for what happens at a rate."""

    has_rsample = True
    arg_constraints: ClassVar[Constraints] = {"rate": constraints.positive}
    support: Any = constraints.nonnegative

    def __init__(self, rate: Any, validate_args: bool | None = None) -> None:
        (self.rate,) = together(rate)
        super().__init__(self.rate.shape, validate_args=validate_args)

    def rsample(self, sample_shape: Sequence[int] = ()) -> Tensor:
        """Draws, through which gradients flow to the parameters."""
        return -uniform(self.rate, self._extended_shape(sample_shape)).log() / self.rate

    def log_prob(self, value: Tensor) -> Tensor:
        """The logarithm of the density."""
        self._validate_sample(value)
        return self.rate.log() - self.rate * value

    def cdf(self, value: Tensor) -> Tensor:
        """The probability of values up to this one."""
        return -(-self.rate * value).expm1()

    def icdf(self, value: Tensor) -> Tensor:
        """The value up to which the probability is this."""
        return -(-value).log1p() / self.rate

    def entropy(self) -> Tensor:
        """The entropy in nats."""
        return 1 - self.rate.log()

    @property
    def mean(self) -> Tensor:
        """The mean."""
        return 1 / self.rate

    @property
    def mode(self) -> Tensor:
        """The most likely value."""
        return self.rate * 0

    @property
    def variance(self) -> Tensor:
        """The variance."""
        return self.rate**-2


class Weibull(Distribution):
    """A power of an exponential number."""

    has_rsample = True
    arg_constraints: ClassVar[Constraints] = {
        "scale": constraints.positive,
        "concentration": constraints.positive,
    }
    support: Any = constraints.positive

    def __init__(self, scale: Any, concentration: Any, validate_args: bool | None = None) -> None:
        self.scale, self.concentration = together(scale, concentration)
        super().__init__(self.scale.shape, validate_args=validate_args)

    def rsample(self, sample_shape: Sequence[int] = ()) -> Tensor:
        """Draws, through which gradients flow to the parameters."""
        drawn = -uniform(self.scale, self._extended_shape(sample_shape)).log()
        return self.scale * drawn ** (1 / self.concentration)

    def log_prob(self, value: Tensor) -> Tensor:
        """The logarithm of the density."""
        self._validate_sample(value)
        z, power = value / self.scale, self.concentration
        return (power / self.scale).log() + (power - 1) * z.log() - z**power

    def cdf(self, value: Tensor) -> Tensor:
        """The probability of values up to this one."""
        return -(-((value / self.scale) ** self.concentration)).expm1()

    def icdf(self, value: Tensor) -> Tensor:
        """The value up to which the probability is this."""
        return self.scale * (-(-value).log1p()) ** (1 / self.concentration)

    def entropy(self) -> Tensor:
        """The entropy in nats."""
        inverse = 1 / self.concentration
        return EULER * (1 - inverse) + (self.scale * inverse).log() + 1

    def _moment(self, order: int) -> Tensor:
        return (1 + order / self.concentration).lgamma().exp()

    @property
    def mean(self) -> Tensor:
        """The mean."""
        return self.scale * self._moment(1)

    @property
    def mode(self) -> Tensor:
        """The most likely value."""
        power = self.concentration
        return self.scale * ((power - 1) / power) ** (1 / power)

    @property
    def variance(self) -> Tensor:
        """The variance."""
        return self.scale**2 * (self._moment(2) - self._moment(1) ** 2)


class Pareto(Distribution):
    """The law of large incomes: a power of the share above a value."""

    has_rsample = True
    arg_constraints: ClassVar[Constraints] = {
        "alpha": constraints.positive,
        "scale": constraints.positive,
    }

    def __init__(self, scale: Any, alpha: Any, validate_args: bool | None = None) -> None:
        self.scale, self.alpha = together(scale, alpha)
        super().__init__(self.scale.shape, validate_args=validate_args)

    @property
    def support(self) -> Constraint:
        """From the scale on."""
        return constraints.Constraint("GreaterThanEq(scale)", lambda x: x >= self.scale)

    def rsample(self, sample_shape: Sequence[int] = ()) -> Tensor:
        """Draws, through which gradients flow to the parameters."""
        drawn = -uniform(self.scale, self._extended_shape(sample_shape)).log()
        return self.scale * (drawn / self.alpha).exp()

    def log_prob(self, value: Tensor) -> Tensor:
        """The logarithm of the density."""
        self._validate_sample(value)
        return self.alpha.log() + self.alpha * self.scale.log() - (self.alpha + 1) * value.log()

    def cdf(self, value: Tensor) -> Tensor:
        """The probability of values up to this one."""
        return 1 - (self.scale / value) ** self.alpha

    def icdf(self, value: Tensor) -> Tensor:
        """The value up to which the probability is this."""
        return self.scale * (-(-value).log1p() / self.alpha).exp()

    def entropy(self) -> Tensor:
        """The entropy in nats."""
        return (self.scale / self.alpha).log() + (1 + 1 / self.alpha)

    @property
    def mean(self) -> Tensor:
        """The mean."""
        power = self.alpha.clamp(min=1)
        return power * self.scale / (power - 1)

    @property
    def mode(self) -> Tensor:
        """The most likely value."""
        return self.scale

    @property
    def variance(self) -> Tensor:
        """The variance."""
        power = self.alpha.clamp(min=2)
        return self.scale**2 * power / ((power - 1) ** 2 * (power - 2))
