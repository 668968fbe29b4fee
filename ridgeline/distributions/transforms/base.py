"""Transform: an invertible function of samples, with the logarithm of how it stretches."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from ridgeline.distributions import constraints
from ridgeline.distributions.constraints import Constraint
from ridgeline.tensors.public import zeros_like
from ridgeline.tensors.tensor import Tensor

Shape = tuple[int, ...]


def over_last(value: Tensor, axes: int) -> Tensor:
    """The sum over so many last axes."""
    return value.sum(tuple(range(-axes, 0))) if axes > 0 else value


class Transform:
    """A function `t(x)`, its inverse `t.inv(y)`, and log |dy/dx|.

    One value is `domain.event_dim` axes of x and `codomain.event_dim` axes of y.
    """

    _compared_by_jit = True

    bijective = True
    domain: Constraint = constraints.real
    codomain: Constraint = constraints.real

    @property
    def event_dim(self) -> int:
        """How many axes are one value."""
        return max(self.domain.event_dim, self.codomain.event_dim)

    def __call__(self, x: Tensor) -> Tensor:
        """The value."""
        raise NotImplementedError

    def _inverse(self, y: Tensor) -> Tensor:
        raise NotImplementedError

    def log_abs_det_jacobian(self, x: Tensor, y: Tensor) -> Tensor:
        """The logarithm of the stretch at x, where y is the value."""
        raise NotImplementedError(f"{type(self).__name__} has no Jacobian")

    def forward_shape(self, shape: Sequence[int]) -> Shape:
        """The shape of the values for arguments of a shape."""
        return tuple(shape)

    def inverse_shape(self, shape: Sequence[int]) -> Shape:
        """The shape of the arguments for values of a shape."""
        return tuple(shape)

    @property
    def inv(self) -> Transform:
        """The inverse."""
        return _Inverse(self)

    def __repr__(self) -> str:
        return f"{type(self).__name__}()"


class _Inverse(Transform):
    def __init__(self, of: Transform) -> None:
        self._of, self.bijective = of, of.bijective
        self.domain, self.codomain = of.codomain, of.domain

    def __call__(self, x: Tensor) -> Tensor:
        return self._of._inverse(x)

    def _inverse(self, y: Tensor) -> Tensor:
        return self._of(y)

    def log_abs_det_jacobian(self, x: Tensor, y: Tensor) -> Tensor:
        return -self._of.log_abs_det_jacobian(y, x)

    def forward_shape(self, shape: Sequence[int]) -> Shape:
        return self._of.inverse_shape(shape)

    def inverse_shape(self, shape: Sequence[int]) -> Shape:
        return self._of.forward_shape(shape)

    @property
    def inv(self) -> Transform:
        return self._of


class ComposeTransform(Transform):
    """One after the other."""

    def __init__(self, parts: Sequence[Transform], cache_size: int = 0) -> None:
        self.parts = list(parts)
        self.bijective = all(part.bijective for part in self.parts)
        if self.parts:
            first, last = self.parts[0].domain, self.parts[-1].codomain
            self.domain = constraints.independent(first, self._argument_axes() - first.event_dim)
            self.codomain = constraints.independent(last, self._value_axes() - last.event_dim)

    def _argument_axes(self) -> int:
        axes = self.parts[-1].codomain.event_dim
        for part in reversed(self.parts):
            axes += part.domain.event_dim - part.codomain.event_dim
            axes = max(axes, part.domain.event_dim)
        return axes

    def _value_axes(self) -> int:
        axes = self.parts[0].domain.event_dim
        for part in self.parts:
            axes += part.codomain.event_dim - part.domain.event_dim
            axes = max(axes, part.codomain.event_dim)
        return axes

    def __call__(self, x: Tensor) -> Tensor:
        """The value."""
        for part in self.parts:
            x = part(x)
        return x

    def _inverse(self, y: Tensor) -> Tensor:
        for part in reversed(self.parts):
            y = part._inverse(y)
        return y

    def log_abs_det_jacobian(self, x: Tensor, y: Tensor) -> Tensor:
        """The logarithm of the stretch."""
        total: Any = 0
        axes = self.domain.event_dim
        for part in self.parts:
            after = part(x)
            stretch = part.log_abs_det_jacobian(x, after)
            total = total + over_last(stretch, axes - part.domain.event_dim)
            axes += part.codomain.event_dim - part.domain.event_dim
            x = after
        return total if isinstance(total, Tensor) else zeros_like(x)

    def forward_shape(self, shape: Sequence[int]) -> Shape:
        """The shape of the values for arguments of a shape."""
        for part in self.parts:
            shape = part.forward_shape(shape)
        return tuple(shape)

    def inverse_shape(self, shape: Sequence[int]) -> Shape:
        """The shape of the arguments for values of a shape."""
        for part in reversed(self.parts):
            shape = part.inverse_shape(shape)
        return tuple(shape)

    def __repr__(self) -> str:
        return f"ComposeTransform({self.parts})"


identity_transform = ComposeTransform([])
