"""torch.svd_lowrank and pca_lowrank: the largest singular values of a matrix, by random vectors."""

from __future__ import annotations

from ridgeline.errors import BadValueError
from ridgeline.linalg import qr, svd
from ridgeline.tensors.public import matmul, randn
from ridgeline.tensors.tensor import Tensor


def svd_lowrank(
    A: Tensor, q: int | None = 6, niter: int | None = 2, M: Tensor | None = None
) -> tuple[Tensor, Tensor, Tensor]:
    """About the `q` largest singular values of A - M and their vectors: U, S, V.

    >>> u, s, v = rl.svd_lowrank(rl.diag(rl.tensor([3.0, 2.0, 0.0])), q=2)
    >>> s
    tensor([3., 2.])
    """
    given = A if M is None else A - M
    rows, columns = given.shape[-2:]
    size = min(6 if q is None else q, rows, columns)
    if size < 1:
        raise BadValueError(f"svd_lowrank needs q of at least 1, not {q}")
    back = given.transpose(-2, -1).conj()
    drawn = randn((columns, size), dtype=given.dtype, device=given.device)
    base = qr(matmul(given, drawn))[0]
    for _ in range(2 if niter is None else niter):
        base = qr(matmul(given, qr(matmul(back, base))[0]))[0]
    u, s, vh = svd(matmul(base.transpose(-2, -1).conj(), given), full_matrices=False)
    return matmul(base, u), s, vh.transpose(-2, -1).conj()


def pca_lowrank(
    A: Tensor, q: int | None = None, center: bool = True, niter: int = 2
) -> tuple[Tensor, Tensor, Tensor]:
    """About the `q` largest principal components of the rows of a matrix: U, S, V.

    >>> u, s, v = rl.pca_lowrank(rl.tensor([[0.0, 1.0], [0.0, 3.0], [0.0, 5.0]]), q=1)
    >>> v.abs()
    tensor([[0.],
            [1.]])
    """
    size = min(6, *A.shape[-2:]) if q is None else q
    return svd_lowrank(A, size, niter, A.mean(-2, keepdim=True) if center else None)
