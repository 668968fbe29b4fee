"""Functions made of other functions, of a law, or of another shape."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

from ridgeline.distributions import constraints
from ridgeline.distributions.constraints import Constraint
from ridgeline.distributions.transforms.base import Shape, Transform, over_last
from ridgeline.errors import ArgumentError
from ridgeline.tensors.public import cat, stack, zeros
from ridgeline.tensors.tensor import Tensor


class IndependentTransform(Transform):
    """A function with more axes to one value, over which its stretch is summed."""

    def __init__(
        self, base_transform: Transform, reinterpreted_batch_ndims: int, cache_size: int = 0
    ) -> None:
        self.base_transform, self.reinterpreted_batch_ndims = (
            base_transform,
            reinterpreted_batch_ndims,
        )
        self.bijective = base_transform.bijective
        self.domain = constraints.independent(base_transform.domain, reinterpreted_batch_ndims)
        self.codomain = constraints.independent(base_transform.codomain, reinterpreted_batch_ndims)

    def __call__(self, x: Tensor) -> Tensor:
        """The value."""
        return self.base_transform(x)

    def _inverse(self, y: Tensor) -> Tensor:
        return self.base_transform._inverse(y)

    def log_abs_det_jacobian(self, x: Tensor, y: Tensor) -> Tensor:
        """The logarithm of the stretch."""
        inner = self.base_transform.log_abs_det_jacobian(x, y)
        return over_last(inner, self.reinterpreted_batch_ndims)

    def forward_shape(self, shape: Sequence[int]) -> Shape:
        """The shape of the values for arguments of a shape."""
        return self.base_transform.forward_shape(shape)

    def inverse_shape(self, shape: Sequence[int]) -> Shape:
        """The shape of the arguments for values of a shape."""
        return self.base_transform.inverse_shape(shape)


class ReshapeTransform(Transform):
    """The same elements in another shape of the last axes."""

    def __init__(self, in_shape: Sequence[int], out_shape: Sequence[int], cache_size: int = 0):
        self.in_shape, self.out_shape = tuple(in_shape), tuple(out_shape)
        if math.prod(in_shape) != math.prod(out_shape):
            raise ArgumentError(f"{list(in_shape)} and {list(out_shape)} differ in their elements")
        self.domain = constraints.independent(constraints.real, len(self.in_shape))
        self.codomain = constraints.independent(constraints.real, len(self.out_shape))

    def __call__(self, x: Tensor) -> Tensor:
        """The value."""
        return x.reshape(self.forward_shape(x.shape))

    def _inverse(self, y: Tensor) -> Tensor:
        return y.reshape(self.inverse_shape(y.shape))

    def log_abs_det_jacobian(self, x: Tensor, y: Tensor) -> Tensor:
        """The logarithm of the stretch, which is 0."""
        batch = x.shape[: x.dim() - len(self.in_shape)]
        return zeros(tuple(batch), dtype=x.dtype, device=x.device)

    def forward_shape(self, shape: Sequence[int]) -> Shape:
        """The shape of the values for arguments of a shape."""
        return _with_end(shape, self.in_shape, self.out_shape)

    def inverse_shape(self, shape: Sequence[int]) -> Shape:
        """The shape of the arguments for values of a shape."""
        return _with_end(shape, self.out_shape, self.in_shape)


def _with_end(shape: Sequence[int], end: Shape, new_end: Shape) -> Shape:
    cut = len(shape) - len(end)
    if cut < 0 or tuple(shape[cut:]) != end:
        raise ArgumentError(f"the shape {list(shape)} does not end in {list(end)}")
    return (*shape[:cut], *new_end)


class _Parts(Transform):
    """Several functions, each of a part of the argument."""

    transforms: list[Transform]
    dim: int

    def _cut(self, value: Tensor) -> list[Tensor]:
        raise NotImplementedError

    def _join(self, values: list[Tensor]) -> Tensor:
        raise NotImplementedError

    def _each(self, function: Callable[[Transform, Tensor], Tensor], value: Tensor) -> Tensor:
        pairs = zip(self.transforms, self._cut(value), strict=True)
        return self._join([function(part, piece) for part, piece in pairs])

    def __call__(self, x: Tensor) -> Tensor:
        """The value."""
        return self._each(lambda part, piece: part(piece), x)

    def _inverse(self, y: Tensor) -> Tensor:
        return self._each(lambda part, piece: part._inverse(piece), y)


class CatTransform(_Parts):
    """Functions of stretches of an axis, of the given lengths."""

    def __init__(
        self,
        tseq: Sequence[Transform],
        dim: int = 0,
        lengths: Sequence[int] | None = None,
        cache_size: int = 0,
    ) -> None:
        self.transforms, self.dim = list(tseq), dim
        self.lengths = list(lengths) if lengths is not None else [1] * len(self.transforms)
        self.bijective = all(part.bijective for part in self.transforms)
        self.domain = constraints.cat([part.domain for part in tseq], dim, self.lengths)
        self.codomain = constraints.cat([part.codomain for part in tseq], dim, self.lengths)

    @property
    def length(self) -> int:
        """How long the axis is."""
        return sum(self.lengths)

    def _cut(self, value: Tensor) -> list[Tensor]:
        return list(value.split(self.lengths, self.dim))

    def _join(self, values: list[Tensor]) -> Tensor:
        return cat(values, self.dim)

    def log_abs_det_jacobian(self, x: Tensor, y: Tensor) -> Tensor:
        """The logarithm of the stretch."""
        stretches = []
        for part, before, after in zip(self.transforms, self._cut(x), self._cut(y), strict=True):
            inner = part.log_abs_det_jacobian(before, after)
            stretches.append(over_last(inner, self.domain.event_dim - part.domain.event_dim))
        axis = self.dim - x.dim() if self.dim >= 0 else self.dim
        axis += self.domain.event_dim
        if axis < 0:
            return cat(stretches, axis)
        total: Any = sum(stretches)
        return total  # type: ignore[no-any-return]


class StackTransform(_Parts):
    """Functions of the slices along an axis."""

    def __init__(self, tseq: Sequence[Transform], dim: int = 0, cache_size: int = 0) -> None:
        self.transforms, self.dim = list(tseq), dim
        self.bijective = all(part.bijective for part in self.transforms)
        self.domain = constraints.stack([part.domain for part in self.transforms], dim)
        self.codomain = constraints.stack([part.codomain for part in self.transforms], dim)

    def _cut(self, value: Tensor) -> list[Tensor]:
        return list(value.unbind(self.dim))

    def _join(self, values: list[Tensor]) -> Tensor:
        return stack(values, self.dim)

    def log_abs_det_jacobian(self, x: Tensor, y: Tensor) -> Tensor:
        """The logarithm of the stretch."""
        parts = zip(self.transforms, self._cut(x), self._cut(y), strict=True)
        return stack([part.log_abs_det_jacobian(a, b) for part, a, b in parts], self.dim)


class CumulativeDistributionTransform(Transform):
    """The probability of values up to x, under a law."""

    codomain = constraints.unit_interval

    def __init__(self, distribution: Any, cache_size: int = 0) -> None:
        self.distribution = distribution
        if isinstance(distribution.support, Constraint):
            self.domain = distribution.support

    def __call__(self, x: Tensor) -> Tensor:
        """The value."""
        found: Tensor = self.distribution.cdf(x)
        return found

    def _inverse(self, y: Tensor) -> Tensor:
        found: Tensor = self.distribution.icdf(y)
        return found

    def log_abs_det_jacobian(self, x: Tensor, y: Tensor) -> Tensor:
        """The logarithm of the stretch."""
        found: Tensor = self.distribution.log_prob(x)
        return found
