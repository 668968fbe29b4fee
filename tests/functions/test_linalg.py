"""Linear algebra against torch: values, gradients in both modes, second order, and errors."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given, settings, strategies as st

import ridgeline as rl
from ridgeline.errors import RidgelineError
from tests.functions.reference import agree
from tests.ops.derivatives import check_derivatives

RANDOM = np.random.default_rng(4)
SQUARE = RANDOM.standard_normal((2, 3, 3)) + 2 * np.eye(3)
OTHER = RANDOM.standard_normal((2, 3, 2))
WIDE = RANDOM.standard_normal((3, 5))
TALL = WIDE.T.copy()
COMPLEX = SQUARE + 1j * RANDOM.standard_normal((2, 3, 3))
COMPLEX_WIDE = WIDE + 1j * RANDOM.standard_normal((3, 5))

Program = Callable[..., Any]


def positive(lib: Any, a: Any) -> Any:
    """A positive definite matrix made of any."""
    return a @ a.conj().transpose(-1, -2) + lib.eye(a.shape[-2], dtype=a.dtype)


def without_signs(lib: Any, parts: Any) -> Any:
    """Vectors have a free sign or phase: magnitudes do not."""
    return tuple(lib.abs(part) if part.dim() > 1 else part for part in parts)


PROGRAMS: dict[str, tuple[Program, list[np.ndarray]]] = {
    "inv": (lambda lib, a: lib.linalg.inv(a), [SQUARE]),
    "inv_complex": (lambda lib, a: lib.linalg.inv(a), [COMPLEX]),
    "solve": (lambda lib, a, b: lib.linalg.solve(a, b), [SQUARE, OTHER]),
    "solve_left": (
        lambda lib, a, b: lib.linalg.solve(a, b.transpose(-1, -2), left=False), [SQUARE, OTHER]
    ),
    "solve_triangular": (
        lambda lib, a, b: lib.linalg.solve_triangular(a, b, upper=True), [SQUARE, OTHER]
    ),
    "solve_unit_triangular": (
        lambda lib, a, b: lib.linalg.solve_triangular(a, b, upper=False, unitriangular=True),
        [SQUARE, OTHER],
    ),
    "det": (lambda lib, a: lib.linalg.det(a), [SQUARE]),
    "det_complex": (lambda lib, a: lib.linalg.det(a), [COMPLEX]),
    "slogdet": (lambda lib, a: lib.linalg.slogdet(a)[1], [SQUARE]),
    "slogdet_complex": (lambda lib, a: tuple(lib.linalg.slogdet(a)), [COMPLEX]),
    "logdet": (lambda lib, a: lib.logdet(positive(lib, a)), [SQUARE]),
    "cholesky": (lambda lib, a: lib.linalg.cholesky(positive(lib, a)), [SQUARE]),
    "cholesky_upper": (
        lambda lib, a: lib.linalg.cholesky(positive(lib, a), upper=True), [COMPLEX]
    ),
    "cholesky_solve": (
        lambda lib, a, b: lib.cholesky_solve(b, lib.linalg.cholesky(positive(lib, a))),
        [SQUARE, OTHER],
    ),
    "qr": (lambda lib, a: tuple(lib.linalg.qr(a)), [SQUARE]),
    "qr_tall": (lambda lib, a: tuple(lib.linalg.qr(a)), [TALL]),
    "qr_wide": (lambda lib, a: tuple(lib.linalg.qr(a)), [WIDE]),
    "qr_complex": (lambda lib, a: tuple(lib.linalg.qr(a)), [COMPLEX_WIDE]),
    "eigh": (
        lambda lib, a: without_signs(lib, lib.linalg.eigh(positive(lib, a))), [SQUARE[0]]
    ),
    "eigh_complex": (
        lambda lib, a: without_signs(lib, lib.linalg.eigh(positive(lib, a))), [COMPLEX[0]]
    ),
    "eigvalsh": (lambda lib, a: lib.linalg.eigvalsh(positive(lib, a)), [SQUARE]),
    "eig_complex": (lambda lib, a: without_signs(lib, lib.linalg.eig(a)), [COMPLEX[0]]),
    "svd": (
        lambda lib, a: without_signs(lib, lib.linalg.svd(a, full_matrices=False)), [SQUARE[0]]
    ),
    "svd_wide": (
        lambda lib, a: without_signs(lib, lib.linalg.svd(a, full_matrices=False)), [WIDE]
    ),
    "svd_complex": (
        lambda lib, a: without_signs(lib, lib.linalg.svd(a, full_matrices=False)), [COMPLEX_WIDE]
    ),
    "svdvals": (lambda lib, a: lib.linalg.svdvals(a), [TALL]),
    "lu": (lambda lib, a: tuple(lib.linalg.lu(a))[1:], [SQUARE]),
    "lu_wide": (lambda lib, a: tuple(lib.linalg.lu(a))[1:], [WIDE]),
    "lu_tall": (lambda lib, a: tuple(lib.linalg.lu(a))[1:], [TALL]),
    "lu_solve": (
        lambda lib, a, b: lib.linalg.lu_solve(*lib.linalg.lu_factor(a), b), [SQUARE, OTHER]
    ),
    "pinv": (lambda lib, a: lib.linalg.pinv(a), [WIDE]),
    "pinv_tall": (lambda lib, a: lib.linalg.pinv(a), [TALL]),
    "matrix_exp": (lambda lib, a: lib.linalg.matrix_exp(a), [SQUARE]),
    "matrix_power": (lambda lib, a: lib.linalg.matrix_power(a, 3), [SQUARE]),
    "matrix_power_negative": (lambda lib, a: lib.linalg.matrix_power(a, -2), [SQUARE]),
    "householder_product": (
        lambda lib, a, t: lib.linalg.householder_product(a, t), [TALL, np.array([0.3, 0.7, 0.2])]
    ),
    "lstsq": (lambda lib, a, b: lib.linalg.lstsq(a, b)[0], [TALL, RANDOM.standard_normal((5, 2))]),
    "norm_nuclear": (lambda lib, a: lib.linalg.matrix_norm(a, "nuc"), [SQUARE]),
    "norm_2": (lambda lib, a: lib.linalg.matrix_norm(a, 2), [SQUARE]),
    "norm_inf": (lambda lib, a: lib.linalg.norm(a, float("inf"), dim=(0, 2)), [SQUARE]),
    "norm_3": (lambda lib, a: lib.linalg.vector_norm(a, 3, dim=(0, 1)), [SQUARE]),
    "cond": (lambda lib, a: lib.linalg.cond(a), [SQUARE]),
    "multi_dot": (lambda lib, a, b, c: lib.linalg.multi_dot([a, b, c]), [WIDE, TALL, WIDE]),
    "cross": (lambda lib, a, b: lib.linalg.cross(a, b), [SQUARE, SQUARE[::-1].copy()]),
    "vecdot": (lambda lib, a, b: lib.linalg.vecdot(a, b), [COMPLEX, COMPLEX[::-1].copy()]),
    "tensorinv": (lambda lib, a: lib.linalg.tensorinv(a), [SQUARE[0].reshape(3, 1, 3)]),
    "vander": (lambda lib, a: lib.linalg.vander(a), [WIDE]),
    "cdist": (lambda lib, a, b: lib.cdist(a, b), [WIDE, WIDE[::-1] * 0.5]),
    "kron": (lambda lib, a, b: lib.kron(a, b), [WIDE, TALL]),
    "cov": (lambda lib, a: lib.cov(a), [WIDE]),
    "corrcoef": (lambda lib, a: lib.corrcoef(a), [WIDE]),
}  # fmt: skip


@pytest.mark.parametrize("name", PROGRAMS)
def test_values_and_gradients_are_torchs(name: str) -> None:
    program, arrays = PROGRAMS[name]
    agree(program, arrays, tolerance=1e-7)


@pytest.mark.parametrize("name", PROGRAMS)
def test_both_modes_and_second_order(name: str) -> None:
    program, arrays = PROGRAMS[name]
    check_derivatives(lambda *inputs: program(rl, *inputs), *arrays)


@settings(max_examples=25, deadline=None)
@given(st.integers(0, 4), st.integers(0, 4), st.lists(st.integers(0, 2), max_size=2))
def test_factors_make_the_whole(rows: int, columns: int, batch: list[int]) -> None:
    a = np.random.default_rng(rows).standard_normal((*batch, rows, columns))
    x = rl.tensor(a)
    u, s, vh = rl.linalg.svd(x, full_matrices=False)
    q, r = rl.linalg.qr(x)
    order, low, high = rl.linalg.lu(x)
    for whole in (rl.matmul(u * s.unsqueeze(-2), vh), q @ r, order @ low @ high):
        np.testing.assert_allclose(whole.numpy(), a, atol=1e-12)
    assert rl.linalg.matrix_rank(x).shape == tuple(batch)


def test_gradient_of_a_singular_determinant() -> None:
    a = np.array([[1.0, 2.0, 3.0], [2.0, 4.0, 6.0], [0.0, 1.0, 5.0]])
    check_derivatives(rl.linalg.det, a, second=False)


def test_rank_and_tolerances() -> None:
    a = np.diag([3.0, 1e-3, 1e-12, 0.0])
    for kwargs in ({}, {"atol": 1e-2}, {"rtol": 1e-2}, {"hermitian": True}):
        got = rl.linalg.matrix_rank(rl.tensor(a), **kwargs)
        assert got.item() == torch.linalg.matrix_rank(torch.tensor(a), **kwargs).item()


def test_factorisations_that_tell() -> None:
    bad = np.array([[[1.0, 2.0], [2.0, 1.0]], [[4.0, 1.0], [1.0, 3.0]]])
    factor, info = rl.linalg.cholesky_ex(rl.tensor(bad))
    np.testing.assert_array_equal(info.numpy(), [2, 0])
    np.testing.assert_allclose(factor.numpy()[1], np.linalg.cholesky(bad[1]))
    assert rl.linalg.inv_ex(rl.zeros(2, 2)).info.item() == 1


def test_single_precision_stays() -> None:
    a = rl.tensor(SQUARE.astype(np.float32))
    assert rl.linalg.inv(a).dtype is rl.float32
    assert rl.linalg.eig(a).eigenvalues.dtype is rl.complex64
    assert rl.linalg.eigh(a.cfloat()).eigenvalues.dtype is rl.float32


def test_wrong_input() -> None:
    for wrong in (
        lambda: rl.linalg.inv(rl.ones(2, 3)),
        lambda: rl.linalg.inv(rl.ones(2)),
        lambda: rl.linalg.inv(rl.tensor([[1, 2], [3, 4]])),
        lambda: rl.linalg.inv(rl.zeros(2, 2)).numpy(),
        lambda: rl.linalg.solve(rl.ones(2, 2), rl.ones(3, 1)),
        lambda: rl.linalg.solve(rl.zeros(2, 2), rl.ones(2, 1)).numpy(),
        lambda: rl.linalg.cholesky(-rl.eye(2)).numpy(),
        lambda: rl.linalg.matrix_norm(rl.eye(2), 7),
        lambda: rl.linalg.vector_norm(rl.tensor([1, 2])),
        lambda: rl.linalg.qr(rl.eye(2), mode="sideways"),
        lambda: rl.linalg.eigh(rl.eye(2), UPLO="X"),
        lambda: rl.linalg.cross(rl.ones(2), rl.ones(2)),
        lambda: rl.linalg.multi_dot([rl.eye(2)]),
        lambda: rl.linalg.lu(rl.eye(2), pivot=False),
    ):
        with pytest.raises(RidgelineError):
            wrong()


# what torch gives by every entry of a matrix, also where only a triangle or symmetric ones count
STRUCTURED = {
    "eigh values": lambda lib, a: lib.linalg.eigh(a)[0],
    "eigh vectors": lambda lib, a: abs(lib.linalg.eigh(a)[1]) ** 2,
    "eigh upper": lambda lib, a: abs(lib.linalg.eigh(a, UPLO="U")[1]) ** 2,
    "eigvalsh": lambda lib, a: lib.linalg.eigvalsh(a),
    "cholesky": lambda lib, a: abs(lib.linalg.cholesky(a)) ** 2,
    "cholesky upper": lambda lib, a: abs(lib.linalg.cholesky(a, upper=True)) ** 2,
    "cholesky_inverse": lambda lib, a: abs(lib.cholesky_inverse(a.tril())) ** 2,
    "svd": lambda lib, a: abs(lib.linalg.svd(a)[0]) ** 2,
    "qr": lambda lib, a: abs(lib.linalg.qr(a)[1]) ** 2,
    "solve": lambda lib, a: abs(lib.linalg.solve(a, a[:, :2].detach())) ** 2,
    "solve_triangular": lambda lib, a: (
        abs(lib.linalg.solve_triangular(a, a[:, :2].detach(), upper=True)) ** 2
    ),
    "slogdet": lambda lib, a: lib.linalg.slogdet(a)[1],
    "pinv": lambda lib, a: abs(lib.linalg.pinv(a, hermitian=True)) ** 2,
}


@pytest.mark.parametrize("kind", ["real", "complex"])
@pytest.mark.parametrize("name", STRUCTURED)
def test_gradients_have_the_structure_of_torchs(name: str, kind: str) -> None:
    draw = np.random.default_rng(3)
    a = draw.normal(size=(4, 4)) + (1j * draw.normal(size=(4, 4)) if kind == "complex" else 0)
    a = a @ a.conj().T + 4 * np.eye(4)
    weights = draw.normal(size=(4, 4))
    gradients = []
    for lib in (rl, torch):
        matrix = lib.tensor(a, requires_grad=True)
        result = STRUCTURED[name](lib, matrix)
        part = weights[: result.shape[0], : result.shape[1]] if len(result.shape) == 2 else weights
        part = part[0] if len(result.shape) == 1 else part
        seed = lib.tensor(part) if len(result.shape) else 1.0
        (result * seed).sum().backward()
        gradients.append(matrix.grad.numpy())
    np.testing.assert_allclose(*gradients, rtol=1e-9, atol=1e-10)
    if name.startswith("eig"):
        np.testing.assert_allclose(gradients[0], gradients[0].conj().T, atol=1e-12)


@pytest.mark.parametrize("kind", ["real", "complex"])
@pytest.mark.parametrize("size", [16, 17, 48, 75])
def test_large_triangular_systems_are_torchs(size: int, kind: str) -> None:
    """They are solved by blocks: with both triangles, units, batches, and a batch of one side."""
    draw = np.random.default_rng(size)
    a = draw.normal(size=(2, 1, size, size)) / size + np.eye(size)
    b = draw.normal(size=(3, size, 4))
    if kind == "complex":
        a, b = a + 1j * draw.normal(size=a.shape) / size, b - 2j * b
    for upper in (True, False):
        for unit in (True, False):
            ours, theirs = (
                lib.linalg.solve_triangular(
                    lib.tensor(a), lib.tensor(b), upper=upper, unitriangular=unit
                )
                for lib in (rl, torch)
            )
            np.testing.assert_allclose(ours.numpy(), theirs.numpy(), rtol=1e-10, atol=1e-11)


def test_triangular_systems_with_zeros_and_numbers_far_apart() -> None:
    """Zeros make infinite results from there on; only products that are needed overflow."""
    singular = np.tril(np.full((40, 40), 0.1)) + np.eye(40)
    singular[21, 21] = 0
    ours, theirs = (
        lib.linalg.solve_triangular(
            lib.tensor(singular), lib.ones(40, 2, dtype=lib.float64), upper=False
        )
        for lib in (rl, torch)
    )
    np.testing.assert_allclose(ours[:21].numpy(), theirs[:21].numpy(), rtol=1e-12)
    assert not rl.isfinite(ours[21:]).any()
    far = np.eye(20, dtype=np.float32)
    far[1, 0], far[0, 0], far[1, 1] = 1, 1e-20, 1e-20
    right = np.zeros((20, 1), np.float32)
    right[0], right[1] = 1e-30, 1e-10
    solved = rl.linalg.solve_triangular(rl.tensor(far), rl.tensor(right), upper=False)
    assert rl.isfinite(solved).all()


@pytest.mark.parametrize("size", [24, 40])
def test_ill_conditioned_triangular_systems_leave_small_residuals(size: int) -> None:
    """Blocks solved by their inverses lose no more than substitution does: a few ulps by row."""
    hilbert = 1 / (np.arange(size)[:, None] + np.arange(size) + 1.0) + 1e-13 * np.eye(size)
    factor, right = np.linalg.cholesky(hilbert), np.random.default_rng(0).normal(size=(size, 3))
    solved = rl.linalg.solve_triangular(rl.tensor(factor), rl.tensor(right), upper=False).numpy()
    left = np.abs(factor @ solved - right) / (np.abs(factor) @ np.abs(solved))
    assert left.max() < 1e-15
