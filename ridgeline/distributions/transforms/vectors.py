"""Functions of vectors and matrices: onto shares that sum to one, and onto Cholesky factors."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np

from ridgeline.distributions import constraints
from ridgeline.distributions.transforms.base import Shape, Transform
from ridgeline.errors import ArgumentError
from ridgeline.functions.creation import finfo
from ridgeline.linalg import cholesky
from ridgeline.nn.functional import logsigmoid, softplus
from ridgeline.tensors.public import cat, diag_embed, eye, ones_like, zeros_like
from ridgeline.tensors.tensor import Tensor, tensor


class SoftmaxTransform(Transform):
    """e^x as shares of their sum along the last axis; x + c has the same value."""

    bijective = False
    domain = constraints.real_vector
    codomain = constraints.simplex

    def __call__(self, x: Tensor) -> Tensor:
        """The value."""
        return x.softmax(-1)

    def _inverse(self, y: Tensor) -> Tensor:
        return y.log()


class StickBreakingTransform(Transform):
    """A vector as shares, one more of them: each number says which part of the rest is taken."""

    domain = constraints.real_vector
    codomain = constraints.simplex

    @staticmethod
    def _offset(x: Tensor) -> Tensor:
        """With this, zeros become equal shares."""
        count = x.shape[-1]
        left = np.log(np.arange(count, 0, -1, dtype=np.float64))
        return tensor(left, dtype=x.dtype, device=x.device)

    def __call__(self, x: Tensor) -> Tensor:
        """The value."""
        limits = finfo(x.dtype)
        taken = (x - self._offset(x)).sigmoid().clamp(min=limits.tiny, max=1.0 - limits.eps)
        one = ones_like(x[..., :1])
        return cat([taken, one], -1) * cat([one, (1 - taken).cumprod(-1)], -1)

    def _inverse(self, y: Tensor) -> Tensor:
        shares = y[..., :-1]
        rest = (1 - shares.cumsum(-1)).clamp(min=finfo(y.dtype).tiny)
        return shares.log() - rest.log() + self._offset(shares)

    def log_abs_det_jacobian(self, x: Tensor, y: Tensor) -> Tensor:
        """The logarithm of the stretch."""
        x = x - self._offset(x)
        return (-x + logsigmoid(x) + y[..., :-1].log()).sum(-1)

    def forward_shape(self, shape: Sequence[int]) -> Shape:
        """The shape of the values for arguments of a shape."""
        return (*shape[:-1], shape[-1] + 1)

    def inverse_shape(self, shape: Sequence[int]) -> Shape:
        """The shape of the arguments for values of a shape."""
        return (*shape[:-1], shape[-1] - 1)


def below_diagonal(matrix: Tensor, diagonal: int = -1) -> Tensor:
    """The elements on and below a diagonal as a vector, row by row."""
    size = matrix.shape[-1]
    rows, columns = np.tril_indices(size, diagonal)
    return matrix.flatten(-2)[..., tensor(rows * size + columns, device=matrix.device)]


def _from_below(vector: Tensor, size: int) -> Tensor:
    """A matrix with a vector's elements below its diagonal, row by row, and zeros elsewhere."""
    places = np.full((size, size), vector.shape[-1])
    places[np.tril_indices(size, -1)] = np.arange(vector.shape[-1])
    with_zero = cat([vector, zeros_like(vector[..., :1])], -1)
    flat = with_zero[..., tensor(places.reshape(-1), device=vector.device)]
    return flat.reshape((*vector.shape[:-1], size, size))


class CorrCholeskyTransform(Transform):
    """A vector as the Cholesky factor of a correlation matrix: its rows have length one."""

    domain = constraints.real_vector
    codomain = constraints.corr_cholesky

    def __call__(self, x: Tensor) -> Tensor:
        """The value."""
        size = self.forward_shape(x.shape)[-1]
        eps = finfo(x.dtype).eps
        parts = _from_below(x.tanh().clamp(min=-1 + eps, max=1 - eps), size)
        left = (1 - parts**2).sqrt().cumprod(-1)
        one = ones_like(left[..., :1])
        whole = parts + eye(size, dtype=x.dtype, device=x.device)
        return whole * cat([one, left[..., :-1]], -1)

    def _inverse(self, y: Tensor) -> Tensor:
        left = 1 - (y * y).cumsum(-1)
        before = cat([ones_like(left[..., :1]), left[..., :-1]], -1)
        return (below_diagonal(y) / below_diagonal(before).sqrt()).atanh()

    def log_abs_det_jacobian(self, x: Tensor, y: Tensor) -> Tensor:
        """The logarithm of the stretch."""
        left = below_diagonal(1 - (y * y).cumsum(-1), -2)
        return 0.5 * left.log().sum(-1) - 2 * (x + softplus(-2 * x) - math.log(2.0)).sum(-1)

    def forward_shape(self, shape: Sequence[int]) -> Shape:
        """The shape of the values for arguments of a shape."""
        count = shape[-1] if shape else 0
        size = round((0.25 + 2 * count) ** 0.5 + 0.5)
        if size * (size - 1) // 2 != count:
            raise ArgumentError(f"{count} numbers do not fill a triangle below a diagonal")
        return (*shape[:-1], size, size)

    def inverse_shape(self, shape: Sequence[int]) -> Shape:
        """The shape of the arguments for values of a shape."""
        size = shape[-1]
        return (*shape[:-2], size * (size - 1) // 2)


class LowerCholeskyTransform(Transform):
    """A matrix as a Cholesky factor: what is below its diagonal, and e to what is on it."""

    domain = constraints.independent(constraints.real, 2)
    codomain = constraints.lower_cholesky

    def __call__(self, x: Tensor) -> Tensor:
        """The value."""
        return x.tril(-1) + diag_embed(x.diagonal(dim1=-2, dim2=-1).exp())

    def _inverse(self, y: Tensor) -> Tensor:
        return y.tril(-1) + diag_embed(y.diagonal(dim1=-2, dim2=-1).log())


class PositiveDefiniteTransform(Transform):
    """A matrix as a positive definite one, through its Cholesky factor."""

    domain = constraints.independent(constraints.real, 2)
    codomain = constraints.positive_definite

    def __call__(self, x: Tensor) -> Tensor:
        """The value."""
        factor = LowerCholeskyTransform()(x)
        return factor @ factor.mT

    def _inverse(self, y: Tensor) -> Tensor:
        return LowerCholeskyTransform()._inverse(cholesky(y))
