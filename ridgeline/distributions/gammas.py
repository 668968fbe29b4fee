"""Distributions made of gamma-distributed numbers, whose draws have gradients all the same.

A draw x of Gamma(a, 1) follows from a by F(x; a) = u for a fixed u, so dx/da = -F_a / f, where f is
the density. F_a is a difference quotient of the incomplete gamma function in float64.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any, ClassVar

from ridgeline import dtypes
from ridgeline.distributions import constraints
from ridgeline.distributions.continuous import Normal
from ridgeline.distributions.distribution import Constraints, Distribution, together
from ridgeline.nn.functional import one_hot
from ridgeline.nn.functional.choose import choose
from ridgeline.record.modes import no_grad
from ridgeline.special import gammainc, gammaincc, xlogy
from ridgeline.tensors.public import _standard_gamma, full_like, stack
from ridgeline.tensors.tensor import Tensor

_STEP = 1e-4  # of the difference quotient, relative to the concentration


def standard_gamma(concentration: Tensor, shape: Sequence[int]) -> Tensor:
    """Draws of Gamma(concentration, 1) of a shape, with gradients by the concentration."""
    spread = concentration.expand(tuple(shape))
    with no_grad():
        smallest = 1e-30 if spread.dtype.itemsize >= 4 else 1e-4
        drawn: Tensor = _standard_gamma(spread.detach()).clamp(min=smallest)
    if not concentration.requires_grad:
        return drawn
    with no_grad():
        slope = _slope(spread.detach().to(dtypes.float64), drawn.to(dtypes.float64))
    return drawn + slope.to(drawn.dtype) * (spread - spread.detach())


def _slope(a: Tensor, x: Tensor) -> Tensor:
    """How a draw moves with the concentration."""
    h = _STEP * a
    by_a = (gammainc(a + h, x) - gammainc(a - h, x)) / (2 * h)
    density = ((a - 1) * x.log() - x - a.lgamma()).exp()
    return -by_a / density


class Gamma(Distribution):
    """The sum of waiting times."""

    has_rsample = True
    arg_constraints: ClassVar[Constraints] = {
        "concentration": constraints.positive,
        "rate": constraints.positive,
    }
    support: Any = constraints.nonnegative

    def __init__(self, concentration: Any, rate: Any, validate_args: bool | None = None) -> None:
        self.concentration, self.rate = together(concentration, rate)
        super().__init__(self.concentration.shape, validate_args=validate_args)

    def rsample(self, sample_shape: Sequence[int] = ()) -> Tensor:
        """Draws, through which gradients flow to the parameters."""
        return standard_gamma(self.concentration, self._extended_shape(sample_shape)) / self.rate

    def log_prob(self, value: Tensor) -> Tensor:
        """The logarithm of the density."""
        self._validate_sample(value)
        a, rate = self.concentration, self.rate
        return xlogy(a, rate) + xlogy(a - 1, value) - rate * value - a.lgamma()

    def cdf(self, value: Tensor) -> Tensor:
        """The probability of values up to this one."""
        return gammainc(self.concentration, self.rate * value)

    def entropy(self) -> Tensor:
        """The entropy in nats."""
        a = self.concentration
        return a - self.rate.log() + a.lgamma() + (1 - a) * a.digamma()

    @property
    def mean(self) -> Tensor:
        """The mean."""
        return self.concentration / self.rate

    @property
    def mode(self) -> Tensor:
        """The most likely value."""
        return ((self.concentration - 1) / self.rate).clamp(min=0)

    @property
    def variance(self) -> Tensor:
        """The variance."""
        return self.concentration / self.rate**2


class Chi2(Gamma):
    """The sum of squares of normal numbers."""

    def __init__(self, df: Any, validate_args: bool | None = None) -> None:
        (self.df,) = together(df)
        super().__init__(0.5 * self.df, 0.5 + 0 * self.df, validate_args=validate_args)


class InverseGamma(Distribution):
    """One over a gamma-distributed number."""

    has_rsample = True
    arg_constraints: ClassVar[Constraints] = {
        "concentration": constraints.positive,
        "rate": constraints.positive,
    }
    support: Any = constraints.positive

    def __init__(self, concentration: Any, rate: Any, validate_args: bool | None = None) -> None:
        self.concentration, self.rate = together(concentration, rate)
        super().__init__(self.concentration.shape, validate_args=validate_args)

    def rsample(self, sample_shape: Sequence[int] = ()) -> Tensor:
        """Draws, through which gradients flow to the parameters."""
        return self.rate / standard_gamma(self.concentration, self._extended_shape(sample_shape))

    def log_prob(self, value: Tensor) -> Tensor:
        """The logarithm of the density."""
        self._validate_sample(value)
        a, rate = self.concentration, self.rate
        return a * rate.log() - (a + 1) * value.log() - rate / value - a.lgamma()

    def cdf(self, value: Tensor) -> Tensor:
        """The probability of values up to this one."""
        return gammaincc(self.concentration, self.rate / value)

    def entropy(self) -> Tensor:
        """The entropy in nats."""
        a = self.concentration
        return a + self.rate.log() + a.lgamma() - (1 + a) * a.digamma()

    @property
    def mean(self) -> Tensor:
        """The mean."""
        a = self.concentration
        return choose(a > 1, self.rate / (a - 1), math.inf)

    @property
    def mode(self) -> Tensor:
        """The most likely value."""
        return self.rate / (self.concentration + 1)

    @property
    def variance(self) -> Tensor:
        """The variance."""
        a = self.concentration
        finite = self.rate**2 / ((a - 1) ** 2 * (a - 2))
        return choose(a > 2, finite, math.inf)


class Dirichlet(Distribution):
    """Shares that add up to one."""

    has_rsample = True
    arg_constraints: ClassVar[Constraints] = {"concentration": constraints.positive}
    support: Any = constraints.simplex

    def __init__(self, concentration: Tensor, validate_args: bool | None = None) -> None:
        self.concentration = concentration
        shape = concentration.shape
        super().__init__(shape[:-1], shape[-1:], validate_args)

    def rsample(self, sample_shape: Sequence[int] = ()) -> Tensor:
        """Draws, through which gradients flow to the parameters."""
        drawn = standard_gamma(self.concentration, self._extended_shape(sample_shape))
        return drawn / drawn.sum(-1, keepdim=True)

    def log_prob(self, value: Tensor) -> Tensor:
        """The logarithm of the density."""
        self._validate_sample(value)
        a = self.concentration
        return xlogy(a - 1, value).sum(-1) + a.sum(-1).lgamma() - a.lgamma().sum(-1)

    def entropy(self) -> Tensor:
        """The entropy in nats."""
        a, count = self.concentration, self.concentration.shape[-1]
        total = a.sum(-1)
        return (
            a.lgamma().sum(-1) - total.lgamma() - (count - total) * total.digamma()
            - ((a - 1) * a.digamma()).sum(-1)
        )  # fmt: skip

    @property
    def mean(self) -> Tensor:
        """The mean."""
        return self.concentration / self.concentration.sum(-1, keepdim=True)

    @property
    def mode(self) -> Tensor:
        """The most likely shares; where all concentrations are below 1, all for the largest."""
        a = self.concentration
        above = (a - 1).clamp(min=0)
        inside = above / above.sum(-1, keepdim=True)
        largest = one_hot(a.argmax(-1), a.shape[-1]).to(a.dtype)
        return choose((a < 1).all(-1, keepdim=True), largest, inside)

    @property
    def variance(self) -> Tensor:
        """The variance."""
        total, mean = self.concentration.sum(-1, keepdim=True), self.mean
        return mean * (1 - mean) / (total + 1)


class Beta(Distribution):
    """A share between 0 and 1."""

    has_rsample = True
    arg_constraints: ClassVar[Constraints] = {
        "concentration1": constraints.positive, "concentration0": constraints.positive
    }  # fmt: skip
    support: Any = constraints.unit_interval

    def __init__(
        self, concentration1: Any, concentration0: Any, validate_args: bool | None = None
    ) -> None:
        self.concentration1, self.concentration0 = together(concentration1, concentration0)
        super().__init__(self.concentration1.shape, validate_args=validate_args)

    @property
    def _shares(self) -> Dirichlet:
        both = stack([self.concentration1, self.concentration0], -1)
        return Dirichlet(both, validate_args=False)

    def rsample(self, sample_shape: Sequence[int] = ()) -> Tensor:
        """Draws, through which gradients flow to the parameters."""
        return self._shares.rsample(sample_shape)[..., 0]

    def log_prob(self, value: Tensor) -> Tensor:
        """The logarithm of the density."""
        self._validate_sample(value)
        return self._shares.log_prob(stack([value, 1.0 - value], -1))

    def entropy(self) -> Tensor:
        """The entropy in nats."""
        return self._shares.entropy()

    @property
    def mean(self) -> Tensor:
        """The mean."""
        return self.concentration1 / (self.concentration1 + self.concentration0)

    @property
    def mode(self) -> Tensor:
        """The most likely value."""
        return self._shares.mode[..., 0]

    @property
    def variance(self) -> Tensor:
        """The variance."""
        total = self.concentration1 + self.concentration0
        return self.concentration1 * self.concentration0 / (total**2 * (total + 1))


class StudentT(Distribution):
    """A normal number over the root of a mean of squares of others."""

    has_rsample = True
    arg_constraints: ClassVar[Constraints] = {
        "df": constraints.positive, "loc": constraints.real, "scale": constraints.positive
    }  # fmt: skip
    support: Any = constraints.real

    def __init__(
        self, df: Any, loc: Any = 0.0, scale: Any = 1.0, validate_args: bool | None = None
    ) -> None:
        self.df, self.loc, self.scale = together(df, loc, scale)
        super().__init__(self.df.shape, validate_args=validate_args)

    def rsample(self, sample_shape: Sequence[int] = ()) -> Tensor:
        """Draws, through which gradients flow to the parameters."""
        shape = self._extended_shape(sample_shape)
        normal = Normal(self.loc * 0, self.scale * 0 + 1, validate_args=False).rsample(sample_shape)
        squares = 2 * standard_gamma(0.5 * self.df, shape)
        return self.loc + self.scale * normal * (squares / self.df).rsqrt()

    def log_prob(self, value: Tensor) -> Tensor:
        """The logarithm of the density."""
        self._validate_sample(value)
        z, df = (value - self.loc) / self.scale, self.df
        norm = self.scale.log() + 0.5 * df.log() + 0.5 * math.log(math.pi)
        norm = norm + (0.5 * df).lgamma() - (0.5 * (df + 1)).lgamma()
        return -0.5 * (df + 1) * (z**2 / df).log1p() - norm

    def entropy(self) -> Tensor:
        """The entropy in nats."""
        half, more = 0.5 * self.df, 0.5 * (self.df + 1)
        beta = math.lgamma(0.5) + half.lgamma() - more.lgamma()
        spread = more * (more.digamma() - half.digamma())
        return self.scale.log() + spread + 0.5 * self.df.log() + beta

    @property
    def mean(self) -> Tensor:
        """The mean; NaN where there is none."""
        return choose(self.df > 1, self.loc, full_like(self.loc, math.nan))

    @property
    def mode(self) -> Tensor:
        """The most likely value."""
        return self.loc

    @property
    def variance(self) -> Tensor:
        """The variance; infinite or NaN where there is none."""
        finite = self.scale**2 * self.df / (self.df - 2)
        some = choose(self.df > 1, math.inf, math.nan)
        return choose(self.df > 2, finite, some)


class FisherSnedecor(Distribution):
    """The ratio of two means of squares."""

    has_rsample = True
    arg_constraints: ClassVar[Constraints] = {
        "df1": constraints.positive,
        "df2": constraints.positive,
    }
    support: Any = constraints.positive

    def __init__(self, df1: Any, df2: Any, validate_args: bool | None = None) -> None:
        self.df1, self.df2 = together(df1, df2)
        super().__init__(self.df1.shape, validate_args=validate_args)

    def rsample(self, sample_shape: Sequence[int] = ()) -> Tensor:
        """Draws, through which gradients flow to the parameters."""
        shape = self._extended_shape(sample_shape)
        above = standard_gamma(0.5 * self.df1, shape) / self.df1
        return above / (standard_gamma(0.5 * self.df2, shape) / self.df2)

    def log_prob(self, value: Tensor) -> Tensor:
        """The logarithm of the density."""
        self._validate_sample(value)
        a, b = 0.5 * self.df1, 0.5 * self.df2
        ratio = self.df1 / self.df2
        scale = (a + b).lgamma() - a.lgamma() - b.lgamma()
        power = a * ratio.log() + (a - 1) * value.log()
        return scale + power - (a + b) * (ratio * value).log1p()

    @property
    def mean(self) -> Tensor:
        """The mean; NaN where there is none."""
        finite = self.df2 / (self.df2 - 2)
        return choose(self.df2 > 2, finite, math.nan)

    @property
    def mode(self) -> Tensor:
        """The most likely value; NaN where there is none."""
        inside = (self.df1 - 2) / self.df1 * self.df2 / (self.df2 + 2)
        return choose(self.df1 > 2, inside, math.nan)

    @property
    def variance(self) -> Tensor:
        """The variance; NaN where there is none."""
        d1, d2 = self.df1, self.df2
        finite = 2 * d2**2 * (d1 + d2 - 2) / (d1 * (d2 - 2) ** 2 * (d2 - 4))
        return choose(d2 > 4, finite, math.nan)
