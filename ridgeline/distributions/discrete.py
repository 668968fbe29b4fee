"""Distributions over whole numbers and choices."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any, ClassVar

from ridgeline import dtypes
from ridgeline.distributions import constraints
from ridgeline.distributions.constraints import Constraint
from ridgeline.distributions.continuous import uniform
from ridgeline.distributions.distribution import Constraints, Distribution, together
from ridgeline.distributions.gammas import Gamma
from ridgeline.errors import ArgumentError
from ridgeline.functions.creation import finfo
from ridgeline.nn.functional import one_hot, softplus
from ridgeline.nn.functional.choose import choose
from ridgeline.record.modes import modes, no_grad
from ridgeline.record.recorder import taped
from ridgeline.special import xlog1py, xlogy
from ridgeline.tensors.handle import Size
from ridgeline.tensors.public import (
    arange,
    broadcast_tensors,
    full_like,
    multinomial,
    poisson,
    rand,
)
from ridgeline.tensors.tensor import Tensor


def one_of(name: str, probs: Any, logits: Any) -> None:
    """Raise unless a law is given by its probabilities or by their logits, and not by both."""
    if (probs is None) == (logits is None):
        raise ArgumentError(f"{name} takes probs or logits, one of the two")


def _kept(owner: Distribution, name: str, value: Tensor) -> Tensor:
    """The other form of the parameter, computed once; what jit traces stays in the trace."""
    if modes.capture is None:
        owner.__dict__[name] = value
    return value


class _Chances(Distribution):
    """Laws of a probability for each element, given as `probs` or as `logits`."""

    arg_constraints: ClassVar[Constraints] = {
        "probs": constraints.unit_interval, "logits": constraints.real
    }  # fmt: skip
    probs: Tensor
    logits: Tensor

    def __init__(
        self, probs: Any = None, logits: Any = None, validate_args: bool | None = None
    ) -> None:
        one_of(type(self).__name__, probs, logits)
        self._of_logits = probs is None
        (given,) = together(logits if probs is None else probs)
        self.__dict__["logits" if probs is None else "probs"] = given
        super().__init__(given.shape, validate_args=validate_args)

    def __getattr__(self, name: str) -> Tensor:
        if name == "probs" and "logits" in self.__dict__:
            return _kept(self, name, self.logits.sigmoid())
        if name == "logits" and "probs" in self.__dict__:
            return _kept(self, name, _clamped(self.probs).logit())
        raise AttributeError(name)

    @property
    def _given(self) -> Tensor:
        given: Tensor = self.__dict__["logits" if self._of_logits else "probs"]
        return given


def _clamped(probs: Tensor) -> Tensor:
    eps = finfo(probs.dtype).eps
    return probs.clamp(eps, 1 - eps)


class Bernoulli(_Chances):
    """One with a probability, else zero."""

    has_enumerate_support = True
    support: Any = constraints.boolean

    def sample(self, sample_shape: Sequence[int] = ()) -> Tensor:
        """Draws."""
        with no_grad():
            shape = tuple(self._extended_shape(sample_shape))
            drawn = rand(shape, dtype=self.probs.dtype, device=self.probs.device)
            return (drawn < self.probs).to(self.probs.dtype)

    def log_prob(self, value: Tensor) -> Tensor:
        """The logarithm of the probability."""
        self._validate_sample(value)
        return value * self.logits - softplus(self.logits)

    def entropy(self) -> Tensor:
        """The entropy in nats."""
        return softplus(self.logits) - self.probs * self.logits

    def enumerate_support(self, expand: bool = True) -> Tensor:
        """Zero and one, along a new first axis."""
        both = arange(2, dtype=self._given.dtype, device=self._given.device)
        both = both.reshape((-1, *(1 for _ in self.batch_shape)))
        return both.expand((-1, *self.batch_shape)) if expand else both

    @property
    def mean(self) -> Tensor:
        """The mean."""
        return self.probs

    @property
    def mode(self) -> Tensor:
        """The most likely value; NaN where both are alike."""
        likely = (self.probs >= 0.5).to(self.probs.dtype)
        return choose(self.probs == 0.5, math.nan, likely)

    @property
    def variance(self) -> Tensor:
        """The variance."""
        return self.probs * (1 - self.probs)


class Geometric(_Chances):
    """How many failures come before the first success."""

    support: Any = constraints.nonnegative_integer

    def sample(self, sample_shape: Sequence[int] = ()) -> Tensor:
        """Draws."""
        with no_grad():
            drawn = uniform(self.probs, self._extended_shape(sample_shape))
            return (drawn.log() / (-self.probs).log1p()).floor()

    def log_prob(self, value: Tensor) -> Tensor:
        """The logarithm of the probability."""
        self._validate_sample(value)
        return xlog1py(value, -self.probs) + self.probs.log()

    def entropy(self) -> Tensor:
        """The entropy in nats."""
        return (softplus(self.logits) - self.probs * self.logits) / self.probs

    @property
    def mean(self) -> Tensor:
        """The mean."""
        return 1 / self.probs - 1

    @property
    def mode(self) -> Tensor:
        """The most likely value."""
        return self.probs * 0

    @property
    def variance(self) -> Tensor:
        """The variance."""
        return (1 / self.probs - 1) / self.probs


class _Counted(_Chances):
    """Laws of a number of trials and a probability."""

    def __init__(
        self,
        total_count: Any = 1,
        probs: Any = None,
        logits: Any = None,
        validate_args: bool | None = None,
    ) -> None:
        one_of(type(self).__name__, probs, logits)
        given = logits if probs is None else probs
        self.total_count, given = together(total_count, given)
        of_logits = probs is None
        super().__init__(None if of_logits else given, given if of_logits else None, validate_args)

    def expand(self, batch_shape: Sequence[int], _instance: Any = None) -> Any:
        """The same distributions, repeated along new or single axes of the batch."""
        made = super().expand(batch_shape)
        made.total_count = self.total_count.expand(tuple(batch_shape))
        return made


class Binomial(_Counted):
    """How many of some trials succeed."""

    has_enumerate_support = True

    @property
    def support(self) -> Constraint:
        """From none to all."""
        return constraints.integer_interval(0, self.total_count)

    def sample(self, sample_shape: Sequence[int] = ()) -> Tensor:
        """Draws: one uniform number for every trial."""
        with no_grad():
            shape = tuple(self._extended_shape(sample_shape))
            trials = int(self.total_count.max().item()) if self.total_count.numel() else 0
            kind = self.probs
            drawn = rand((trials, *shape), dtype=kind.dtype, device=kind.device)
            number = arange(trials, device=kind.device).reshape((-1, *(1 for _ in shape)))
            return ((drawn < self.probs) & (number < self.total_count)).sum(0).to(kind.dtype)

    def log_prob(self, value: Tensor) -> Tensor:
        """The logarithm of the probability."""
        self._validate_sample(value)
        count = self.total_count
        ways = (count + 1).lgamma() - (value + 1).lgamma() - (count - value + 1).lgamma()
        return ways + value * self.logits - count * softplus(self.logits)

    def _all(self) -> Tensor:
        """All values, along a new first axis, where all have the same number of trials."""
        trials = int(self.total_count.max().item())
        if not bool((self.total_count == trials).all()):
            raise NotImplementedError("Binomial: values of different numbers of trials")
        kind = self._given
        values = arange(trials + 1, dtype=kind.dtype, device=kind.device)
        return values.reshape((-1, *(1 for _ in self.batch_shape)))

    def entropy(self) -> Tensor:
        """The entropy in nats."""
        logs = self.log_prob(self._all())
        return -(logs.exp() * logs).sum(0)

    def enumerate_support(self, expand: bool = True) -> Tensor:
        """All values, along a new first axis."""
        values = self._all()
        return values.expand((-1, *self.batch_shape)) if expand else values

    @property
    def mean(self) -> Tensor:
        """The mean."""
        return self.total_count * self.probs

    @property
    def mode(self) -> Tensor:
        """The most likely value."""
        return ((self.total_count + 1) * self.probs).floor().clamp(max=self.total_count)

    @property
    def variance(self) -> Tensor:
        """The variance."""
        return self.total_count * self.probs * (1 - self.probs)


class NegativeBinomial(_Counted):
    """How many successes come before so many failures."""

    support: Any = constraints.nonnegative_integer

    def sample(self, sample_shape: Sequence[int] = ()) -> Tensor:
        """Draws."""
        with no_grad():
            rate = Gamma(self.total_count, (-self.logits).exp(), validate_args=False)
            return poisson(rate.sample(sample_shape))

    def log_prob(self, value: Tensor) -> Tensor:
        """The logarithm of the probability."""
        self._validate_sample(value)
        count = self.total_count
        ways = (count + value).lgamma() - (value + 1).lgamma() - count.lgamma()
        return ways - count * softplus(self.logits) - value * softplus(-self.logits)

    @property
    def mean(self) -> Tensor:
        """The mean."""
        return self.total_count * self.logits.exp()

    @property
    def mode(self) -> Tensor:
        """The most likely value."""
        return ((self.total_count - 1) * self.logits.exp()).floor().clamp(min=0)

    @property
    def variance(self) -> Tensor:
        """The variance."""
        return self.mean / (-self.logits).sigmoid()


class Poisson(Distribution):
    """How often happens what happens at a rate."""

    arg_constraints: ClassVar[Constraints] = {"rate": constraints.nonnegative}
    support: Any = constraints.nonnegative_integer

    def __init__(self, rate: Any, validate_args: bool | None = None) -> None:
        (self.rate,) = together(rate)
        super().__init__(self.rate.shape, validate_args=validate_args)

    def sample(self, sample_shape: Sequence[int] = ()) -> Tensor:
        """Draws."""
        with no_grad():
            return poisson(self.rate.expand(tuple(self._extended_shape(sample_shape))))

    def log_prob(self, value: Tensor) -> Tensor:
        """The logarithm of the probability."""
        self._validate_sample(value)
        return xlogy(value, self.rate) - self.rate - (value + 1).lgamma()

    @property
    def mean(self) -> Tensor:
        """The mean."""
        return self.rate

    @property
    def mode(self) -> Tensor:
        """The most likely value."""
        return self.rate.floor()

    @property
    def variance(self) -> Tensor:
        """The variance."""
        return self.rate


# Each of these is one call to a tape: an agent makes them for every action.


@taped
def _shares(probs: Tensor) -> Tensor:
    """Weights of classes as probabilities."""
    return probs / probs.sum(-1, keepdim=True)


@taped
def _log_shares(logits: Tensor) -> Tensor:
    """The same for their logarithms."""
    return logits - logits.logsumexp(-1, keepdim=True)


@taped
def _logarithms(probs: Tensor) -> Tensor:
    """The logarithms of probabilities, all of them finite."""
    return _clamped(probs).log()


@taped
def _drawn(probs: Tensor, count: int, shape: tuple[int, ...]) -> Tensor:
    """So many draws of classes for each row of probabilities."""
    drawn: Tensor = multinomial(probs.reshape(-1, probs.shape[-1]), count, True)
    return drawn.t().reshape(shape)


@taped
def _chosen(logits: Tensor, value: Tensor) -> Tensor:
    """Of each row the number of a class."""
    number, rows = broadcast_tensors(value.to(dtypes.int64).unsqueeze(-1), logits)
    return rows.gather(-1, number[..., :1]).squeeze(-1)


class Categorical(Distribution):
    """One of several classes."""

    has_enumerate_support = True
    probs: Tensor
    logits: Tensor
    arg_constraints: ClassVar[Constraints] = {
        "probs": constraints.simplex, "logits": constraints.real_vector
    }  # fmt: skip

    def __init__(
        self,
        probs: Tensor | None = None,
        logits: Tensor | None = None,
        validate_args: bool | None = None,
    ) -> None:
        one_of("Categorical", probs, logits)
        if probs is not None:
            self.__dict__["probs"] = given = _shares(probs)
        else:
            assert logits is not None
            self.__dict__["logits"] = given = _log_shares(logits)
        if not given.dim():
            raise ArgumentError("Categorical needs at least one axis, that of the classes")
        self._num_events = given.shape[-1]
        super().__init__(given.shape[:-1], validate_args=validate_args)

    def __getattr__(self, name: str) -> Tensor:
        if name == "probs" and "logits" in self.__dict__:
            return _kept(self, name, self.logits.softmax(-1))
        if name == "logits" and "probs" in self.__dict__:
            return _kept(self, name, _logarithms(self.probs))
        raise AttributeError(name)

    @property
    def param_shape(self) -> Size:
        """The shape of the probabilities."""
        return self.logits.shape

    @property
    def support(self) -> Constraint:
        """The numbers of the classes."""
        return constraints.integer_interval(0, self._num_events - 1)

    def sample(self, sample_shape: Sequence[int] = ()) -> Tensor:
        """Draws: numbers of classes."""
        with no_grad():
            shape = tuple(self._extended_shape(sample_shape))
            return _drawn(self.probs, math.prod(sample_shape), shape)

    def log_prob(self, value: Tensor) -> Tensor:
        """The logarithm of the probability."""
        self._validate_sample(value)
        return _chosen(self.logits, value)

    def entropy(self) -> Tensor:
        """The entropy in nats."""
        logits = self.logits.clamp(min=finfo(self.logits.dtype).min)
        return -(logits * self.probs).sum(-1)

    def enumerate_support(self, expand: bool = True) -> Tensor:
        """All classes, along a new first axis."""
        numbers = arange(self._num_events, device=self.logits.device)
        numbers = numbers.reshape((-1, *(1 for _ in self.batch_shape)))
        return numbers.expand((-1, *self.batch_shape)) if expand else numbers

    @property
    def mean(self) -> Tensor:
        """Classes have none: NaN."""
        return full_like(self.logits[..., 0], math.nan)

    variance = mean

    @property
    def mode(self) -> Tensor:
        """The most likely class."""
        return self.logits.argmax(-1)


class _OverClasses(Distribution):
    """What is said of vectors over classes, whose probabilities a `Categorical` holds."""

    arg_constraints: ClassVar[Constraints] = {
        "probs": constraints.simplex, "logits": constraints.real_vector
    }  # fmt: skip
    _categorical: Categorical

    @property
    def probs(self) -> Tensor:
        """The probabilities."""
        return self._categorical.probs

    @property
    def logits(self) -> Tensor:
        """Their logarithms."""
        return self._categorical.logits

    def expand(self, batch_shape: Sequence[int], _instance: Any = None) -> Any:
        """The same distributions, repeated along new or single axes of the batch."""
        made = super().expand(batch_shape)
        made._categorical = self._categorical.expand(batch_shape)
        return made


class OneHotCategorical(_OverClasses):
    """One of several classes, as a vector with a one."""

    has_enumerate_support = True
    support: Any = constraints.one_hot

    def __init__(
        self,
        probs: Tensor | None = None,
        logits: Tensor | None = None,
        validate_args: bool | None = None,
    ) -> None:
        self._categorical = Categorical(probs, logits, validate_args)
        shape = self._categorical.param_shape
        super().__init__(shape[:-1], shape[-1:], validate_args)

    def sample(self, sample_shape: Sequence[int] = ()) -> Tensor:
        """Draws."""
        drawn = self._categorical.sample(sample_shape)
        return one_hot(drawn, self._event_shape[-1]).to(self.probs.dtype)

    def log_prob(self, value: Tensor) -> Tensor:
        """The logarithm of the probability."""
        self._validate_sample(value)
        return (value * self.logits).sum(-1)

    def entropy(self) -> Tensor:
        """The entropy in nats."""
        return self._categorical.entropy()

    @property
    def mean(self) -> Tensor:
        """The mean."""
        return self.probs

    @property
    def mode(self) -> Tensor:
        """The most likely vector."""
        return one_hot(self._categorical.mode, self._event_shape[-1]).to(self.probs.dtype)

    @property
    def variance(self) -> Tensor:
        """The variance."""
        return self.probs * (1 - self.probs)


class OneHotCategoricalStraightThrough(OneHotCategorical):
    """The same, whose draws pass gradients on as if they were the probabilities."""

    has_rsample = True

    def rsample(self, sample_shape: Sequence[int] = ()) -> Tensor:
        """Draws, through which gradients flow to the probabilities."""
        return self.sample(sample_shape) + (self.probs - self.probs.detach())


class Multinomial(_OverClasses):
    """How often each class comes in some draws."""

    def __init__(
        self,
        total_count: int = 1,
        probs: Tensor | None = None,
        logits: Tensor | None = None,
        validate_args: bool | None = None,
    ) -> None:
        if not isinstance(total_count, int):
            raise ArgumentError("Multinomial takes one total_count for all, a whole number")
        self.total_count = total_count
        self._categorical = Categorical(probs, logits, validate_args)
        shape = self._categorical.param_shape
        super().__init__(shape[:-1], shape[-1:], validate_args)

    def sample(self, sample_shape: Sequence[int] = ()) -> Tensor:
        """Draws."""
        drawn = self._categorical.sample((self.total_count, *sample_shape))
        return one_hot(drawn, self._event_shape[-1]).sum(0).to(self.probs.dtype)

    def log_prob(self, value: Tensor) -> Tensor:
        """The logarithm of the probability."""
        self._validate_sample(value)
        ways = (value.sum(-1) + 1).lgamma() - (value + 1).lgamma().sum(-1)
        logits = choose((value == 0) & (self.logits == -math.inf), value * 0, self.logits)
        return ways + (logits * value).sum(-1)

    def entropy(self) -> Tensor:
        """The entropy in nats."""
        each = Binomial(self.total_count, self.probs, validate_args=False)
        counts = each._all()[1:]
        shared = (each.log_prob(counts).exp() * (counts + 1).lgamma()).sum((0, -1))
        return (
            self.total_count * self._categorical.entropy()
            - math.lgamma(self.total_count + 1)
            + shared
        )

    @property
    def mean(self) -> Tensor:
        """The mean."""
        return self.probs * self.total_count

    @property
    def variance(self) -> Tensor:
        """The variance."""
        return self.total_count * self.probs * (1 - self.probs)
