"""Functions of one number: each element is changed by itself."""

from __future__ import annotations

import math

from ridgeline.distributions import constraints
from ridgeline.distributions.transforms.base import Transform, over_last
from ridgeline.nn.functional import softplus
from ridgeline.tensors.public import zeros_like
from ridgeline.tensors.tensor import Tensor


class ExpTransform(Transform):
    """e^x."""

    codomain = constraints.positive

    def __call__(self, x: Tensor) -> Tensor:
        """The value."""
        return x.exp()

    def _inverse(self, y: Tensor) -> Tensor:
        return y.log()

    def log_abs_det_jacobian(self, x: Tensor, y: Tensor) -> Tensor:
        """The logarithm of the stretch."""
        return x


class AffineTransform(Transform):
    """loc + scale * x."""

    def __init__(self, loc: Tensor | float, scale: Tensor | float, event_dim: int = 0) -> None:
        self.loc, self.scale = loc, scale
        self.domain = self.codomain = constraints.independent(constraints.real, event_dim)

    def __call__(self, x: Tensor) -> Tensor:
        """The value."""
        return self.loc + self.scale * x

    def _inverse(self, y: Tensor) -> Tensor:
        return (y - self.loc) / self.scale

    def log_abs_det_jacobian(self, x: Tensor, y: Tensor) -> Tensor:
        """The logarithm of the stretch."""
        if isinstance(self.scale, Tensor):
            spread = (zeros_like(x) + self.scale).abs().log()
        else:
            spread = zeros_like(x) + math.log(abs(self.scale))
        return over_last(spread, self.domain.event_dim)


class SigmoidTransform(Transform):
    """1 / (1 + e^-x)."""

    codomain = constraints.unit_interval

    def __call__(self, x: Tensor) -> Tensor:
        """The value."""
        return x.sigmoid()

    def _inverse(self, y: Tensor) -> Tensor:
        return y.log() - (-y).log1p()

    def log_abs_det_jacobian(self, x: Tensor, y: Tensor) -> Tensor:
        """The logarithm of the stretch."""
        return -softplus(-x) - softplus(x)


class TanhTransform(Transform):
    """The hyperbolic tangent."""

    codomain = constraints.interval(-1.0, 1.0)

    def __call__(self, x: Tensor) -> Tensor:
        """The value."""
        return x.tanh()

    def _inverse(self, y: Tensor) -> Tensor:
        return y.atanh()

    def log_abs_det_jacobian(self, x: Tensor, y: Tensor) -> Tensor:
        """The logarithm of the stretch."""
        return 2.0 * (math.log(2.0) - x - softplus(-2.0 * x))


class SoftplusTransform(Transform):
    """log(1 + e^x)."""

    codomain = constraints.positive

    def __call__(self, x: Tensor) -> Tensor:
        """The value."""
        return softplus(x)

    def _inverse(self, y: Tensor) -> Tensor:
        return (-(-y).expm1()).log() + y

    def log_abs_det_jacobian(self, x: Tensor, y: Tensor) -> Tensor:
        """The logarithm of the stretch."""
        return -softplus(-x)


class PowerTransform(Transform):
    """A power of a positive number."""

    domain = constraints.positive
    codomain = constraints.positive

    def __init__(self, exponent: Tensor | float) -> None:
        self.exponent = exponent

    def __call__(self, x: Tensor) -> Tensor:
        """The value."""
        return x**self.exponent

    def _inverse(self, y: Tensor) -> Tensor:
        return y ** (1 / self.exponent)

    def log_abs_det_jacobian(self, x: Tensor, y: Tensor) -> Tensor:
        """The logarithm of the stretch."""
        return (self.exponent * y / x).abs().log()


class AbsTransform(Transform):
    """|x|, which has no inverse: the positive one stands for it."""

    bijective = False
    codomain = constraints.positive

    def __call__(self, x: Tensor) -> Tensor:
        """The value."""
        return x.abs()

    def _inverse(self, y: Tensor) -> Tensor:
        return y
