"""Ready parametrizations: weight norm, spectral norm, orthogonal matrices."""

from __future__ import annotations

from typing import TypeVar

from ridgeline.errors import BadValueError
from ridgeline.linalg import qr
from ridgeline.nn.functional import normalize
from ridgeline.nn.module import Module
from ridgeline.nn.utils.parametrize import register_parametrization
from ridgeline.nn.utils.reparametrized import length_along
from ridgeline.record.modes import no_grad
from ridgeline.tensors.public import diagonal, matmul, matrix_exp, randn, sign
from ridgeline.tensors.tensor import Tensor

M = TypeVar("M", bound=Module)


class _WeightNorm(Module):
    """A weight as its length, `original0`, and its direction, `original1`."""

    def __init__(self, dim: int | None) -> None:
        super().__init__()
        self.dim = dim

    def forward(self, length: Tensor, direction: Tensor) -> Tensor:
        return direction * (length / length_along(direction, self.dim))

    def right_inverse(self, weight: Tensor) -> tuple[Tensor, Tensor]:
        """The length and the direction of a weight."""
        return length_along(weight, self.dim), weight


class _SpectralNorm(Module):
    """A weight divided by its largest singular value, found by power iteration in training."""

    def __init__(self, weight: Tensor, n_power_iterations: int, dim: int, eps: float) -> None:
        super().__init__()
        if n_power_iterations < 1:
            raise BadValueError(f"n_power_iterations is at least 1, not {n_power_iterations}")
        self.dim, self.eps = dim % max(weight.dim(), 1), eps
        self.n_power_iterations = n_power_iterations
        if weight.dim() > 1:
            rows, columns = (int(n) for n in self._matrix(weight).shape)
            for name, size in (("_u", rows), ("_v", columns)):
                start = normalize(randn((size,), dtype=weight.dtype), dim=0, eps=eps)
                self.register_buffer(name, start)
            with no_grad():
                self._iterate(self._matrix(weight.detach()), 15)

    def _matrix(self, weight: Tensor) -> Tensor:
        return weight.movedim(self.dim, 0).flatten(1)

    def _iterate(self, matrix: Tensor, count: int) -> None:
        for _ in range(count):
            self._u.copy_(normalize(matmul(matrix, self._v), dim=0, eps=self.eps))
            self._v.copy_(normalize(matmul(matrix.transpose(0, 1), self._u), dim=0, eps=self.eps))

    def forward(self, weight: Tensor) -> Tensor:
        if weight.dim() == 1:
            result: Tensor = normalize(weight, dim=0, eps=self.eps)
            return result
        matrix = self._matrix(weight)
        if self.training:
            with no_grad():
                self._iterate(matrix.detach(), self.n_power_iterations)
        u, v = self._u.clone(), self._v.clone()
        largest: Tensor = (u * matmul(matrix, v)).sum()
        return weight / largest

    def right_inverse(self, weight: Tensor) -> Tensor:
        """A weight is taken to be divided already."""
        return weight


class _Orthogonal(Module):
    """base · exp(A), where A is the skew-symmetric part of the original's lower triangle."""

    def __init__(self, weight: Tensor) -> None:
        super().__init__()
        rows, columns = int(weight.shape[-2]), int(weight.shape[-1])
        self.wide = rows < columns
        tall = weight.detach().transpose(-2, -1) if self.wide else weight.detach()
        self.register_buffer("base", _orthonormal(tall))

    def forward(self, original: Tensor) -> Tensor:
        tall = original.transpose(-2, -1) if self.wide else original
        columns = int(tall.shape[-1])
        lower = tall[..., :columns, :].tril(-1)
        turned: Tensor = matmul(self.base, matrix_exp(lower - lower.transpose(-2, -1)))
        return turned.transpose(-2, -1) if self.wide else turned

    def right_inverse(self, weight: Tensor) -> Tensor:
        """Begin at an orthogonal matrix near the weight: no turn away from the base."""
        tall = weight.transpose(-2, -1) if self.wide else weight
        self.base.copy_(_orthonormal(tall))
        return weight * 0


def _orthonormal(tall: Tensor) -> Tensor:
    """Orthonormal columns that span what the given ones span."""
    q, r = qr(tall)
    result: Tensor = q * sign(diagonal(r, 0, -2, -1)).unsqueeze(-2)
    return result


def weight_norm(module: M, name: str = "weight", dim: int | None = 0) -> M:
    """Split a weight into a length and a direction."""
    return register_parametrization(module, name, _WeightNorm(dim), unsafe=True)


def spectral_norm(
    module: M,
    name: str = "weight",
    n_power_iterations: int = 1,
    eps: float = 1e-12,
    dim: int | None = None,
) -> M:
    """Divide a weight by its largest singular value."""
    weight = getattr(module, name, None)
    if not isinstance(weight, Tensor):
        raise BadValueError(f"{type(module).__name__} has no parameter {name!r}")
    axis = dim if dim is not None else int(type(module).__name__.startswith("ConvTranspose"))
    return register_parametrization(
        module, name, _SpectralNorm(weight, n_power_iterations, axis, eps)
    )


def orthogonal(module: M, name: str = "weight") -> M:
    """Keep a matrix's rows or columns, whichever are fewer, orthonormal."""
    weight = getattr(module, name, None)
    if not isinstance(weight, Tensor) or weight.dim() < 2:
        raise BadValueError(f"{type(module).__name__} has no matrix {name!r}")
    return register_parametrization(module, name, _Orthogonal(weight), unsafe=True)
