"""Distribution: the base of all, with torch's shapes: samples, then the batch, then an event."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, ClassVar, Self, TypeAlias

from ridgeline.distributions.constraints import Constraint
from ridgeline.errors import ArgumentError
from ridgeline.functions.operands import defaults
from ridgeline.record.modes import modes, no_grad
from ridgeline.tensors.handle import Size
from ridgeline.tensors.public import broadcast_tensors
from ridgeline.tensors.tensor import Tensor, tensor

Constraints: TypeAlias = Mapping[str, Constraint]


class Distribution:
    """A batch of distributions. A subclass has `log_prob`, and `rsample` or `sample`."""

    _compared_by_jit = True
    has_rsample = False
    has_enumerate_support = False
    arg_constraints: ClassVar[Constraints] = {}
    support: Any = None
    _checks = True

    def __init__(
        self,
        batch_shape: Sequence[int] = (),
        event_shape: Sequence[int] = (),
        validate_args: bool | None = None,
    ) -> None:
        self._batch_shape, self._event_shape = Size(batch_shape), Size(event_shape)
        self._validate_args = self._checks if validate_args is None else validate_args
        if self._validate_args:
            for name, constraint in self.arg_constraints.items():
                value = self.__dict__.get(name)
                if isinstance(value, Tensor):
                    self._require(constraint, value, f"the parameter {name}")

    @staticmethod
    def set_default_validate_args(value: bool) -> None:
        """Whether distributions check their parameters and values from now on."""
        Distribution._checks = bool(value)

    def _require(self, constraint: Constraint, value: Tensor, what: str) -> None:
        """Raise for values outside of a set. What is not computed yet is not computed for this."""
        if modes.capture is not None or not value._cell.computed:
            return
        if not bool(constraint.check(value.detach()).all()):
            raise ArgumentError(
                f"{type(self).__name__}: {what} must satisfy {constraint!r}",
                note=f"it is a tensor of shape {list(value.shape)}",
                help="validate_args=False leaves the check out",
            )

    def _validate_sample(self, value: Tensor) -> None:
        if self._validate_args and isinstance(self.support, Constraint):
            self._require(self.support, value, "the value")

    @property
    def batch_shape(self) -> Size:
        """The shape of the batch of distributions."""
        return self._batch_shape

    @property
    def event_shape(self) -> Size:
        """The shape of one sample."""
        return self._event_shape

    def _extended_shape(self, sample_shape: Sequence[int] = ()) -> Size:
        return Size((*sample_shape, *self._batch_shape, *self._event_shape))

    def expand(self, batch_shape: Sequence[int], _instance: Any = None) -> Self:
        """The same distributions, repeated along new or single axes of the batch."""
        made = object.__new__(type(self))
        made.__dict__.update(self.__dict__)
        made._batch_shape = Size(batch_shape)
        for name in self.arg_constraints:
            value = self.__dict__.get(name)
            if isinstance(value, Tensor):
                event = value.shape[len(self._batch_shape) :]
                made.__dict__[name] = value.expand((*batch_shape, *event))
        return made

    def sample(self, sample_shape: Sequence[int] = ()) -> Tensor:
        """Draws, through which no gradient flows."""
        with no_grad():
            return self.rsample(sample_shape)

    def sample_n(self, n: int) -> Tensor:
        """So many draws."""
        return self.sample((n,))

    def rsample(self, sample_shape: Sequence[int] = ()) -> Tensor:
        """Draws, through which gradients flow to the parameters."""
        raise NotImplementedError(
            f"{type(self).__name__} has no draws with gradients: use sample()"
        )

    def log_prob(self, value: Tensor) -> Tensor:
        """The logarithm of the density, or of the probability, at a value."""
        raise self._without("log_prob")

    def cdf(self, value: Tensor) -> Tensor:
        """The probability of values up to this one."""
        raise self._without("cdf")

    def icdf(self, value: Tensor) -> Tensor:
        """The value up to which the probability is this."""
        raise self._without("icdf")

    def entropy(self) -> Tensor:
        """The entropy in nats."""
        raise self._without("entropy")

    def enumerate_support(self, expand: bool = True) -> Tensor:
        """All values, along a new first axis."""
        raise self._without("enumerate_support")

    @property
    def mean(self) -> Tensor:
        """The mean."""
        raise self._without("mean")

    @property
    def mode(self) -> Tensor:
        """The most likely value."""
        raise self._without("mode")

    @property
    def variance(self) -> Tensor:
        """The variance."""
        raise self._without("variance")

    @property
    def stddev(self) -> Tensor:
        """The root of the variance."""
        return self.variance.sqrt()

    def _without(self, what: str) -> NotImplementedError:
        return NotImplementedError(f"{type(self).__name__} has no {what} in closed form here")

    def perplexity(self) -> Tensor:
        """The exponential of the entropy."""
        return self.entropy().exp()

    def __repr__(self) -> str:
        parts = []
        for name in self.arg_constraints:
            value = self.__dict__.get(name)
            if isinstance(value, Tensor):
                shown = value if value.numel() == 1 else value.shape
                parts.append(f"{name}: {shown}")
        return f"{type(self).__name__}({', '.join(parts)})"


def together(*values: Any) -> list[Tensor]:
    """Parameters as tensors of one shape."""
    given = [v for v in values if isinstance(v, Tensor)]
    dtype, device = (given[0].dtype, given[0].device) if given else (defaults.dtype, None)
    made = [
        v if isinstance(v, Tensor) else tensor(float(v), dtype=dtype, device=device) for v in values
    ]
    return list(broadcast_tensors(*made))
