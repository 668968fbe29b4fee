"""LDL factors against LAPACK's, as torch hands them out, and the systems they solve."""

from __future__ import annotations

import numpy as np
import pytest

import ridgeline as rl
from tests.functions.reference import torch


def matrices(shape: tuple[int, ...], dtype: str, hermitian: bool) -> np.ndarray:
    """Indefinite matrices with small diagonals, so that blocks of two are needed."""
    draw = np.random.default_rng(sum(shape))
    a = draw.standard_normal(shape)
    if dtype.startswith("complex"):
        a = a + 1j * draw.standard_normal(shape)
    a = a + np.swapaxes(a.conj() if hermitian else a, -1, -2)
    a *= 1 - 0.99 * np.eye(shape[-1])
    return a.astype(dtype)


@pytest.mark.parametrize("hermitian", [False, True])
@pytest.mark.parametrize("dtype", ["float64", "complex128"])
@pytest.mark.parametrize("shape", [(1, 1), (2, 2), (3, 7, 7), (2, 0, 12, 12), (2, 12, 12), (0, 0)])
def test_factors_and_solutions(shape: tuple[int, ...], dtype: str, hermitian: bool) -> None:
    a = matrices(shape, dtype, hermitian)
    b = np.random.default_rng(1).standard_normal((*shape[:-1], 3)).astype(dtype)
    found = rl.linalg.ldl_factor_ex(rl.tensor(a), hermitian=hermitian)
    wanted = torch.linalg.ldl_factor_ex(torch.tensor(a), hermitian=hermitian)
    assert found.pivots.tolist() == wanted.pivots.tolist()
    assert found.info.tolist() == wanted.info.tolist()
    np.testing.assert_allclose(found.LD.numpy(), wanted.LD.numpy(), rtol=1e-9, atol=1e-9)
    x = rl.linalg.ldl_solve(found.LD, found.pivots, rl.tensor(b), hermitian=hermitian)
    np.testing.assert_allclose(a @ x.numpy(), b, atol=1e-9)
    if a.size and shape[-1] > 2:
        assert (found.pivots < 0).any(), "no block of two was tried"


def test_one_matrix_and_many_right_sides() -> None:
    a = matrices((4, 4), "float64", False)
    b = rl.tensor(np.random.default_rng(2).standard_normal((5, 4, 2)))
    factors = rl.linalg.ldl_factor(rl.tensor(a))
    x = rl.linalg.ldl_solve(*factors, b)
    np.testing.assert_allclose(a @ x.numpy(), b.numpy(), atol=1e-9)
    each = rl.vmap(lambda right: rl.linalg.ldl_solve(*factors, right))(b)
    np.testing.assert_allclose(each.numpy(), x.numpy(), atol=1e-12)


def test_matrices_without_factors() -> None:
    with pytest.raises(rl.RidgelineError, match="zero"):
        rl.linalg.ldl_factor(rl.zeros(2, 2)).LD.tolist()
    assert rl.linalg.ldl_factor_ex(rl.zeros(2, 2)).info.item() == 1
    with pytest.raises(rl.RidgelineError, match="do not fit"):
        rl.linalg.ldl_solve(rl.ones(2, 2), rl.ones(2, dtype=rl.int32), rl.ones(3, 1))
