"""Distributions of one number between bounds, or on the circle."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any, ClassVar

from ridgeline import dtypes
from ridgeline.distributions import constraints
from ridgeline.distributions.continuous import EULER, uniform
from ridgeline.distributions.distribution import Constraints, Distribution, together
from ridgeline.errors import ArgumentError
from ridgeline.nn.functional import binary_cross_entropy_with_logits
from ridgeline.nn.functional.choose import choose
from ridgeline.record.modes import no_grad
from ridgeline.special import i0e, i1e
from ridgeline.tensors.public import full_like
from ridgeline.tensors.tensor import Tensor

_ROUNDS = 40  # of candidates; two of three are taken, so that none is left of 10^18 draws


class Kumaraswamy(Distribution):
    """Between 0 and 1, much as Beta, with a distribution function in closed form."""

    has_rsample = True
    arg_constraints: ClassVar[Constraints] = {
        "concentration1": constraints.positive,
        "concentration0": constraints.positive,
    }
    support: Any = constraints.unit_interval

    def __init__(
        self, concentration1: Any, concentration0: Any, validate_args: bool | None = None
    ) -> None:
        self.concentration1, self.concentration0 = together(concentration1, concentration0)
        super().__init__(self.concentration1.shape, validate_args=validate_args)

    def rsample(self, sample_shape: Sequence[int] = ()) -> Tensor:
        """Draws, through which gradients flow to the parameters."""
        return self.icdf(uniform(self.concentration1, self._extended_shape(sample_shape)))

    def log_prob(self, value: Tensor) -> Tensor:
        """The logarithm of the density."""
        self._validate_sample(value)
        a, b = self.concentration1, self.concentration0
        beyond = (-(value**a)).log1p()
        return a.log() + b.log() + (a - 1) * value.log() + (b - 1) * beyond

    def cdf(self, value: Tensor) -> Tensor:
        """The probability of values up to this one."""
        return -(self.concentration0 * (-(value**self.concentration1)).log1p()).expm1()

    def icdf(self, value: Tensor) -> Tensor:
        """The value up to which the probability is this."""
        inner = -((-value).log1p() / self.concentration0).expm1()
        return inner ** (1 / self.concentration1)

    def _moment(self, order: int) -> Tensor:
        b, shifted = self.concentration0, 1 + order / self.concentration1
        return b * (shifted.lgamma() + b.lgamma() - (shifted + b).lgamma()).exp()

    @property
    def mean(self) -> Tensor:
        """The mean."""
        return self._moment(1)

    @property
    def variance(self) -> Tensor:
        """The variance."""
        return self._moment(2) - self.mean**2

    @property
    def mode(self) -> Tensor:
        """The most likely value; not a number where the density has no peak inside."""
        a, b = self.concentration1, self.concentration0
        peaked = (a >= 1) & (b >= 1) & (a * b > 1)
        inner = (a - 1) / choose(peaked, a * b - 1, 1.0)
        return choose(peaked, inner.clamp(min=0.0) ** (1 / a), math.nan)

    def entropy(self) -> Tensor:
        """The entropy in nats."""
        a, b = self.concentration1, self.concentration0
        return 1 - 1 / b + (1 - 1 / a) * ((b + 1).digamma() + EULER) - a.log() - b.log()


class ContinuousBernoulli(Distribution):
    """Between 0 and 1 with the density of a coin's two sides, for shades between them."""

    has_rsample = True
    arg_constraints: ClassVar[Constraints] = {"probs": constraints.unit_interval}
    support: Any = constraints.unit_interval

    def __init__(
        self,
        probs: Any = None,
        logits: Any = None,
        lims: tuple[float, float] = (0.499, 0.501),
        validate_args: bool | None = None,
    ) -> None:
        if (probs is None) == (logits is None):
            raise ArgumentError("ContinuousBernoulli takes one of probs and logits")
        self._lims = lims
        if logits is None:
            (given,) = together(probs)
            tiny = 2.0**-53 if given.dtype.itemsize == 8 else 2.0**-24
            self.probs = given.clamp(min=tiny, max=1 - tiny)
            self.logits = self.probs.log() - (-self.probs).log1p()
        else:
            (self.logits,) = together(logits)
            self.probs = self.logits.sigmoid()
        super().__init__(self.probs.shape, validate_args=validate_args)

    def expand(self, batch_shape: Sequence[int], _instance: Any = None) -> Any:
        """The same distributions, repeated along new or single axes of the batch."""
        made = super().expand(batch_shape, _instance)
        made.logits = self.logits.expand(tuple(batch_shape))
        return made

    def _even(self) -> Tensor:
        """Where the chances are so even that formulas divide by next to nothing."""
        return (self.probs > self._lims[0]) & (self.probs < self._lims[1])

    def _apart(self) -> Tensor:
        return choose(self._even(), self._lims[0], self.probs)

    def _log_norm(self) -> Tensor:
        p = self._apart()
        outside = ((-p).log1p() - p.log()).abs().log() - (1 - 2 * p).abs().log()
        x = (self.probs - 0.5) ** 2
        return choose(self._even(), math.log(2.0) + (4 / 3 + 104 / 45 * x) * x, outside)

    def log_prob(self, value: Tensor) -> Tensor:
        """The logarithm of the density."""
        self._validate_sample(value)
        logits, target = together(self.logits, value)
        loss: Tensor = binary_cross_entropy_with_logits(logits, target, reduction="none")
        return self._log_norm() - loss

    def cdf(self, value: Tensor) -> Tensor:
        """The probability of values up to this one."""
        p = self._apart()
        inside = (p**value * (1 - p) ** (1 - value) + p - 1) / (2 * p - 1)
        found = choose(self._even(), value, inside)
        return choose(value <= 0, 0.0, choose(value >= 1, 1.0, found))

    def icdf(self, value: Tensor) -> Tensor:
        """The value up to which the probability is this."""
        p = self._apart()
        inside = ((-p + value * (2 * p - 1)).log1p() - (-p).log1p()) / (p.log() - (-p).log1p())
        return choose(self._even(), value, inside)

    def rsample(self, sample_shape: Sequence[int] = ()) -> Tensor:
        """Draws, through which gradients flow to the parameters."""
        return self.icdf(uniform(self.probs, self._extended_shape(sample_shape)))

    @property
    def mean(self) -> Tensor:
        """The mean."""
        p, x = self._apart(), self.probs - 0.5
        outside = p / (2 * p - 1) + 1 / ((-p).log1p() - p.log())
        return choose(self._even(), 0.5 + (1 / 3 + 16 / 45 * x**2) * x, outside)

    @property
    def variance(self) -> Tensor:
        """The variance."""
        p, x = self._apart(), (self.probs - 0.5) ** 2
        outside = p * (p - 1) / (1 - 2 * p) ** 2 + 1 / ((-p).log1p() - p.log()) ** 2
        return choose(self._even(), 1 / 12 - (1 / 15 - 128 / 945 * x) * x, outside)

    def entropy(self) -> Tensor:
        """The entropy in nats."""
        no = (-self.probs).log1p()
        return self.mean * (no - self.probs.log()) - self._log_norm() - no


class GeneralizedPareto(Distribution):
    """What is left of a law above a high mark: heavy, exponential or bounded tails."""

    has_rsample = True
    arg_constraints: ClassVar[Constraints] = {
        "loc": constraints.real,
        "scale": constraints.positive,
        "concentration": constraints.real,
    }

    def __init__(
        self, loc: Any, scale: Any, concentration: Any, validate_args: bool | None = None
    ) -> None:
        self.loc, self.scale, self.concentration = together(loc, scale, concentration)
        high = choose(self.concentration < 0, self.loc - self.scale / self.concentration, math.inf)
        self.support = constraints.interval(self.loc, high)
        super().__init__(self.loc.shape, validate_args=validate_args)

    def _thin(self) -> tuple[Tensor, Tensor]:
        """Where the tail is exponential, and a shape that can be divided by."""
        thin = self.concentration.abs() <= 1e-8
        return thin, choose(thin, 1.0, self.concentration)

    def _log_survival(self, value: Tensor) -> Tensor:
        thin, shape = self._thin()
        z = (value - self.loc) / self.scale
        return choose(thin, -z, -(shape * z).log1p() / shape)

    def log_prob(self, value: Tensor) -> Tensor:
        """The logarithm of the density."""
        self._validate_sample(value)
        thin, shape = self._thin()
        return choose(thin, 1.0, 1 + shape) * self._log_survival(value) - self.scale.log()

    def cdf(self, value: Tensor) -> Tensor:
        """The probability of values up to this one."""
        return -self._log_survival(value).expm1()

    def icdf(self, value: Tensor) -> Tensor:
        """The value up to which the probability is this."""
        thin, shape = self._thin()
        left = (-value).log1p()
        return self.loc + self.scale * choose(thin, -left, (-shape * left).expm1() / shape)

    def rsample(self, sample_shape: Sequence[int] = ()) -> Tensor:
        """Draws, through which gradients flow to the parameters."""
        return self.icdf(uniform(self.loc, self._extended_shape(sample_shape)))

    @property
    def mean(self) -> Tensor:
        """The mean; not a number where there is none."""
        shape = self.concentration
        return choose(
            shape < 1, self.loc + self.scale / choose(shape < 1, 1 - shape, 1.0), math.nan
        )

    @property
    def variance(self) -> Tensor:
        """The variance; not a number where there is none."""
        shape = choose(self.concentration < 0.5, self.concentration, 0.25)
        found = self.scale**2 / ((1 - shape) ** 2 * (1 - 2 * shape))
        return choose(self.concentration < 0.5, found, math.nan)

    @property
    def mode(self) -> Tensor:
        """The most likely value."""
        return self.loc

    def entropy(self) -> Tensor:
        """The entropy in nats."""
        return self.scale.log() + self.concentration + 1


class VonMises(Distribution):
    """Angles: the normal distribution of the circle."""

    arg_constraints: ClassVar[Constraints] = {
        "loc": constraints.real,
        "concentration": constraints.positive,
    }
    support: Any = constraints.real

    def __init__(self, loc: Any, concentration: Any, validate_args: bool | None = None) -> None:
        self.loc, self.concentration = together(loc, concentration)
        super().__init__(self.loc.shape, validate_args=validate_args)

    def log_prob(self, value: Tensor) -> Tensor:
        """The logarithm of the density."""
        self._validate_sample(value)
        k = self.concentration
        # i0e is I0 over its growth, so that this is exact for narrow laws, too
        return k * ((value - self.loc).cos() - 1) - math.log(2 * math.pi) - i0e(k).log()

    def sample(self, sample_shape: Sequence[int] = ()) -> Tensor:
        """Draws by Best and Fisher's rejection, in double precision."""
        with no_grad():
            shape = self._extended_shape(sample_shape)
            k = self.concentration.to(dtypes.float64)
            tau = 1 + (1 + 4 * k**2).sqrt()
            rho = (tau - (2 * tau).sqrt()) / (2 * k)
            r = choose(k < 1e-5, 1 / k + k, (1 + rho**2) / (2 * rho))
            like = r.expand(tuple(shape))
            angle, found = full_like(like, 0.0), full_like(like, 0.0) > 0
            for _ in range(_ROUNDS):
                z = (math.pi * uniform(like, shape)).cos()
                turn = ((1 + r * z) / (r + z)).clamp(min=-1.0, max=1.0)
                c = k * (r - turn)
                drawn = uniform(like, shape)
                taken = (c * (2 - c) - drawn > 0) | ((c / drawn).log() + 1 - c >= 0)
                side = (uniform(like, shape) - 0.5).sign()
                angle = choose(found, angle, side * turn.acos())
                found = found | taken
            whole = angle + self.loc.to(dtypes.float64) + math.pi
            return (whole % (2 * math.pi) - math.pi).to(self.loc.dtype)

    @property
    def mean(self) -> Tensor:
        """The mean direction."""
        return self.loc

    @property
    def mode(self) -> Tensor:
        """The most likely value."""
        return self.loc

    @property
    def variance(self) -> Tensor:
        """The circular variance."""
        return 1 - i1e(self.concentration) / i0e(self.concentration)
