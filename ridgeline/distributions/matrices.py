"""Distributions of matrices, and of normal vectors whose covariance has few directions."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any, ClassVar

from ridgeline.distributions import constraints
from ridgeline.distributions.continuous import Normal
from ridgeline.distributions.distribution import Constraints, Distribution, together
from ridgeline.distributions.gammas import Beta, Chi2
from ridgeline.distributions.joint import TransformedDistribution, scale_factor
from ridgeline.distributions.transforms import StickBreakingTransform
from ridgeline.errors import ArgumentError
from ridgeline.functions.creation import finfo
from ridgeline.linalg import cholesky, inv, slogdet, solve_triangular
from ridgeline.nn.functional.choose import choose
from ridgeline.record.modes import no_grad
from ridgeline.tensors.public import (
    arange,
    broadcast_tensors,
    cat,
    diag_embed,
    eye,
    mvlgamma,
    randn,
    zeros_like,
)
from ridgeline.tensors.tensor import Tensor

LOG_2PI = math.log(2 * math.pi)


def _normal_like(like: Tensor, shape: Sequence[int]) -> Tensor:
    return randn(tuple(shape), dtype=like.dtype, device=like.device)


def _count_like(like: Tensor, start: int, stop: int) -> Tensor:
    return arange(start, stop, dtype=like.dtype, device=like.device)


class LowRankMultivariateNormal(Distribution):
    """Normal vectors with the covariance `cov_factor @ cov_factor.mT + diag(cov_diag)`."""

    has_rsample = True
    arg_constraints: ClassVar[Constraints] = {
        "loc": constraints.real_vector,
        "cov_factor": constraints.independent(constraints.real, 2),
        "cov_diag": constraints.independent(constraints.positive, 1),
    }
    support: Any = constraints.real_vector

    def __init__(
        self,
        loc: Tensor,
        cov_factor: Tensor,
        cov_diag: Tensor,
        validate_args: bool | None = None,
    ) -> None:
        if loc.dim() < 1 or cov_factor.dim() < 2:
            raise ArgumentError("LowRankMultivariateNormal takes a vector loc and a matrix factor")
        if cov_factor.shape[-2] != loc.shape[-1] or cov_diag.shape[-1] != loc.shape[-1]:
            raise ArgumentError(
                f"LowRankMultivariateNormal: {list(cov_factor.shape)} and {list(cov_diag.shape)} "
                f"do not fit a loc of shape {list(loc.shape)}"
            )
        wide, diagonal = broadcast_tensors(loc, cov_diag)
        wide, _ = broadcast_tensors(wide, cov_factor[..., 0])
        self.loc, self.cov_diag = wide, diagonal.expand(wide.shape)
        self.cov_factor = cov_factor.expand((*wide.shape, cov_factor.shape[-1]))
        super().__init__(wide.shape[:-1], wide.shape[-1:], validate_args)

    def _weighted(self) -> Tensor:
        """The factor's columns by the inverse of the diagonal."""
        return self.cov_factor / self.cov_diag.unsqueeze(-1)

    def _inner_factor(self) -> Tensor:
        """The Cholesky factor of 1 + Fᵀ D⁻¹ F, which is small."""
        small = self.cov_factor.mT @ self._weighted()
        return cholesky(small + eye(small.shape[-1], dtype=small.dtype, device=small.device))

    def half_log_det(self) -> Tensor:
        """Half the logarithm of the covariance's determinant."""
        inner = self._inner_factor().diagonal(dim1=-2, dim2=-1).log().sum(-1)
        return inner + 0.5 * self.cov_diag.log().sum(-1)

    def distances(self, away: Tensor) -> Tensor:
        """Squares of Mahalanobis lengths of vectors."""
        inner = (self._weighted().mT @ away.unsqueeze(-1)).squeeze(-1)
        part = solve_triangular(self._inner_factor(), inner.unsqueeze(-1), upper=False)
        return (away**2 / self.cov_diag).sum(-1) - (part.squeeze(-1) ** 2).sum(-1)

    @property
    def covariance_matrix(self) -> Tensor:
        """The covariance."""
        return self.cov_factor @ self.cov_factor.mT + diag_embed(self.cov_diag)

    @property
    def precision_matrix(self) -> Tensor:
        """The inverse of the covariance."""
        part = solve_triangular(self._inner_factor(), self._weighted().mT, upper=False)
        return diag_embed(1 / self.cov_diag) - part.mT @ part

    @property
    def scale_tril(self) -> Tensor:
        """The Cholesky factor of the covariance."""
        return cholesky(self.covariance_matrix)

    def rsample(self, sample_shape: Sequence[int] = ()) -> Tensor:
        """Draws, through which gradients flow to the parameters."""
        shape = tuple(self._extended_shape(sample_shape))
        inner = _normal_like(self.loc, (*shape[:-1], self.cov_factor.shape[-1]))
        along = (self.cov_factor @ inner.unsqueeze(-1)).squeeze(-1)
        return self.loc + along + self.cov_diag.sqrt() * _normal_like(self.loc, shape)

    def log_prob(self, value: Tensor) -> Tensor:
        """The logarithm of the density."""
        self._validate_sample(value)
        size = self.event_shape[0]
        return -0.5 * (self.distances(value - self.loc) + size * LOG_2PI) - self.half_log_det()

    def entropy(self) -> Tensor:
        """The entropy in nats."""
        return 0.5 * self.event_shape[0] * (1 + LOG_2PI) + self.half_log_det()

    @property
    def mean(self) -> Tensor:
        """The mean."""
        return self.loc

    @property
    def mode(self) -> Tensor:
        """The most likely value."""
        return self.loc

    @property
    def variance(self) -> Tensor:
        """The variance of every component."""
        return (self.cov_factor**2).sum(-1) + self.cov_diag


class LogisticNormal(TransformedDistribution):
    """Shares that sum to one, broken off a stick by normal numbers."""

    arg_constraints: ClassVar[Constraints] = {
        "loc": constraints.real,
        "scale": constraints.positive,
    }
    support: Any = constraints.simplex

    def __init__(self, loc: Any, scale: Any, validate_args: bool | None = None) -> None:
        base = Normal(loc, scale, validate_args)
        base = base if base.batch_shape else base.expand((1,))
        super().__init__(base, StickBreakingTransform(), validate_args)

    @property
    def loc(self) -> Tensor:
        """Means of the normal numbers."""
        found: Tensor = self._normal.loc
        return found

    @property
    def scale(self) -> Tensor:
        """Standard deviations of the normal numbers."""
        found: Tensor = self._normal.scale
        return found

    @property
    def _normal(self) -> Any:
        base: Any = self.base_dist
        return base.base_dist


class LKJCholesky(Distribution):
    """Cholesky factors of correlation matrices; with a concentration of 1, all are as likely."""

    arg_constraints: ClassVar[Constraints] = {"concentration": constraints.positive}
    support: Any = constraints.corr_cholesky

    def __init__(
        self, dim: int, concentration: Any = 1.0, validate_args: bool | None = None
    ) -> None:
        if dim < 2:
            raise ArgumentError(f"LKJCholesky needs at least two dimensions, not {dim}")
        self.dim = dim
        (self.concentration,) = together(concentration)
        super().__init__(self.concentration.shape, (dim, dim), validate_args)

    def _rows(self) -> Beta:
        """Squares of lengths of rows left of the diagonal."""
        offset = _count_like(self.concentration, 0, self.dim - 1)
        offset = cat([zeros_like(offset[:1]), offset])
        wide = (self.concentration + 0.5 * (self.dim - 2)).unsqueeze(-1)
        return Beta(0.5 * (offset + 1) + 0 * wide, wide - 0.5 * offset)

    def sample(self, sample_shape: Sequence[int] = ()) -> Tensor:
        """Draws, row by row: a direction on a sphere, and how long it is."""
        with no_grad():
            lengths = self._rows().sample(sample_shape).unsqueeze(-1)
            shape = tuple(self._extended_shape(sample_shape))
            like = self.concentration
            directions = _normal_like(like, shape).tril(-1)
            norms = (directions**2).sum(-1, keepdim=True).sqrt()
            rows = lengths.sqrt() * directions / choose(norms == 0, 1.0, norms)
            left = (1 - (rows**2).sum(-1)).clamp(min=float(finfo(like.dtype).tiny))
            return rows + diag_embed(left.sqrt())

    def log_prob(self, value: Tensor) -> Tensor:
        """The logarithm of the density."""
        self._validate_sample(value)
        diagonal = value.diagonal(dim1=-2, dim2=-1)[..., 1:]
        order = _count_like(self.concentration, 2, self.dim + 1)
        powers = 2 * (self.concentration - 1).unsqueeze(-1) + self.dim - order
        count = self.dim - 1
        alpha = self.concentration + 0.5 * count
        norm = 0.5 * count * math.log(math.pi) + mvlgamma(alpha - 0.5, count)
        return (powers * diagonal.log()).sum(-1) - norm + alpha.lgamma() * count


class Wishart(Distribution):
    """Sums of squares of normal vectors: positive definite matrices."""

    has_rsample = True
    arg_constraints: ClassVar[Constraints] = {
        "df": constraints.positive,
        "scale_tril": constraints.lower_cholesky,
    }
    support: Any = constraints.positive_definite

    def __init__(
        self,
        df: Any,
        covariance_matrix: Tensor | None = None,
        precision_matrix: Tensor | None = None,
        scale_tril: Tensor | None = None,
        validate_args: bool | None = None,
    ) -> None:
        factor = scale_factor(self, covariance_matrix, precision_matrix, scale_tril)
        wide, _ = together(df, factor[..., 0, 0])
        size = tuple(factor.shape[-2:])
        self.df, self.scale_tril = wide, factor.expand((*wide.shape, *size))
        super().__init__(wide.shape, size, validate_args)
        if self._validate_args:
            self._require(constraints.greater_than(size[0] - 1), self.df, "the parameter df")

    @property
    def covariance_matrix(self) -> Tensor:
        """The covariance of the normal vectors."""
        return self.scale_tril @ self.scale_tril.mT

    @property
    def precision_matrix(self) -> Tensor:
        """The inverse of that covariance."""
        return inv(self.covariance_matrix)

    def rsample(self, sample_shape: Sequence[int] = (), max_try_correction: Any = None) -> Tensor:
        """Draws by Bartlett's decomposition, through which gradients flow to the parameters."""
        shape = tuple(self._extended_shape(sample_shape))
        left = self.df.unsqueeze(-1) - _count_like(self.df, 0, shape[-1])
        squares = Chi2(left).rsample(sample_shape)
        factor = _normal_like(self.df, shape).tril(-1) + diag_embed(squares.sqrt())
        whole = self.scale_tril @ factor
        return whole @ whole.mT

    def _log_scale(self) -> Tensor:
        size = self.event_shape[-1]
        diagonal = self.scale_tril.diagonal(dim1=-2, dim2=-1)
        return 0.5 * size * math.log(2.0) + diagonal.log().sum(-1)

    def log_prob(self, value: Tensor) -> Tensor:
        """The logarithm of the density."""
        self._validate_sample(value)
        size = self.event_shape[-1]
        half = solve_triangular(self.scale_tril, value, upper=False)
        whole = solve_triangular(self.scale_tril, half.mT, upper=False)
        trace = whole.diagonal(dim1=-2, dim2=-1).sum(-1)
        log_det: Tensor = slogdet(value)[1]
        scale = self.df * self._log_scale() + mvlgamma(self.df / 2, size)
        return 0.5 * (self.df - size - 1) * log_det - 0.5 * trace - scale

    def mean_log_det(self) -> Tensor:
        """The mean of the logarithm of determinants."""
        left = self.df.unsqueeze(-1) - _count_like(self.df, 0, self.event_shape[-1])
        spread = (0.5 * left).digamma().sum(-1)
        return spread + 2 * self._log_scale()

    def entropy(self) -> Tensor:
        """The entropy in nats."""
        size = self.event_shape[-1]
        scale = self.df * self._log_scale() + mvlgamma(self.df / 2, size)
        return scale - 0.5 * (self.df - size - 1) * self.mean_log_det() + 0.5 * self.df * size

    @property
    def mean(self) -> Tensor:
        """The mean."""
        return self.df[..., None, None] * self.covariance_matrix

    @property
    def mode(self) -> Tensor:
        """The most likely value; not a number where the density grows without bound."""
        excess = self.df - self.event_shape[-1] - 1
        return choose(excess > 0, excess, math.nan)[..., None, None] * self.covariance_matrix

    @property
    def variance(self) -> Tensor:
        """The variance of every element."""
        covariance = self.covariance_matrix
        diagonal = covariance.diagonal(dim1=-2, dim2=-1)
        products = diagonal.unsqueeze(-1) * diagonal.unsqueeze(-2)
        return self.df[..., None, None] * (covariance**2 + products)
