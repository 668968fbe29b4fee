"""Invertible functions of samples, with the logarithm of how they stretch."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

from ridgeline.nn.functional import softplus
from ridgeline.tensors.public import zeros_like
from ridgeline.tensors.tensor import Tensor


class Transform:
    """A function `t(x)`, its inverse `t.inv(y)`, and log |dy/dx|."""

    _compared_by_jit = True

    bijective = True
    event_dim = 0

    def __call__(self, x: Tensor) -> Tensor:
        """The value."""
        raise NotImplementedError

    def _inverse(self, y: Tensor) -> Tensor:
        raise NotImplementedError

    def log_abs_det_jacobian(self, x: Tensor, y: Tensor) -> Tensor:
        """The logarithm of the stretch at x, where y is the value."""
        raise NotImplementedError

    @property
    def inv(self) -> Transform:
        """The inverse."""
        return _Inverse(self)


class _Inverse(Transform):
    def __init__(self, of: Transform) -> None:
        self._of, self.event_dim = of, of.event_dim

    def __call__(self, x: Tensor) -> Tensor:
        return self._of._inverse(x)

    def _inverse(self, y: Tensor) -> Tensor:
        return self._of(y)

    def log_abs_det_jacobian(self, x: Tensor, y: Tensor) -> Tensor:
        return -self._of.log_abs_det_jacobian(y, x)

    @property
    def inv(self) -> Transform:
        return self._of


class ExpTransform(Transform):
    """e^x."""

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
        self.loc, self.scale, self.event_dim = loc, scale, event_dim

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
        return spread.sum(tuple(range(-self.event_dim, 0))) if self.event_dim else spread


class SigmoidTransform(Transform):
    """1 / (1 + e^-x)."""

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

    def __call__(self, x: Tensor) -> Tensor:
        """The value."""
        return x.abs()

    def _inverse(self, y: Tensor) -> Tensor:
        return y


class ComposeTransform(Transform):
    """One after the other."""

    def __init__(self, parts: Sequence[Transform]) -> None:
        self.parts = list(parts)
        self.event_dim = max((part.event_dim for part in self.parts), default=0)

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
        for part in self.parts:
            after = part(x)
            stretch = part.log_abs_det_jacobian(x, after)
            rest = self.event_dim - part.event_dim
            total = total + (stretch.sum(tuple(range(-rest, 0))) if rest else stretch)
            x = after
        return total if isinstance(total, Tensor) else zeros_like(x)


identity_transform = ComposeTransform([])
