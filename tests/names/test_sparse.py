"""Sparse tensors: products, sums of equal places and gradients are torch's; all else is refused."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

torch = pytest.importorskip("torch")
import ridgeline as rl  # noqa: E402

PLACES, VALUES = [[0, 1, 1, 0], [2, 0, 2, 2]], [3.0, 4.0, 5.0, 1.0]


@pytest.mark.filterwarnings("ignore")
def test_products_and_gradients_agree_with_torch() -> None:
    def run(lib: Any) -> list[Any]:
        values = lib.tensor(VALUES, requires_grad=True)
        dense = lib.tensor(np.arange(6, dtype=np.float32).reshape(3, 2), requires_grad=True)
        s = lib.sparse_coo_tensor(lib.tensor(PLACES), values, (2, 3))
        once = s.coalesce()
        made = [
            lib.sparse.mm(s, dense), lib.mm(s, dense), s @ dense, lib.spmm(s, dense),
            lib.addmm(lib.ones(2, 2), s, dense), once.values(), once.indices(), s.to_dense(),
            s.t().to_dense(), (s * 2).to_dense(), once.to_sparse_csr().crow_indices(),
            lib.sparse_csr_tensor([0, 1, 3], [2, 0, 2], [1.0, 2.0, 3.0], (2, 3)).to_dense(),
        ]  # fmt: skip
        (lib.sparse.mm(s, dense) ** 2).sum().backward()
        return [part.detach().numpy() for part in (*made, values.grad, dense.grad)]

    for ours, theirs in zip(run(rl), run(torch), strict=True):
        np.testing.assert_allclose(ours, theirs, rtol=1e-6)


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("eager", [False, True])
def test_sums_and_products_by_elements_agree_with_torch(eager: bool) -> None:
    def run(lib: Any) -> list[Any]:
        values = lib.tensor(VALUES, requires_grad=True)
        dense = lib.tensor(np.arange(6, dtype=np.float32).reshape(2, 3), requires_grad=True)
        s = lib.sparse_coo_tensor(lib.tensor(PLACES), values, (2, 3))
        other = lib.sparse_coo_tensor(lib.tensor([[0, 1], [2, 1]]), lib.tensor([1.0, 2.0]), (2, 3))
        made = [
            dense + s, lib.add(dense, s, alpha=2), dense - s, (s + other).to_dense(),
            (s - other).to_dense(), lib.add(s, other, alpha=3).to_dense(), (s * dense).to_dense(),
            lib.mul(dense, s).to_dense(), lib.sparse.sum(s), lib.sparse.sum(s, 0).to_dense(),
            lib.sparse.sum(s, [1]).to_dense(), s.sum(),
        ]  # fmt: skip
        sum((part**2).sum() * n for n, part in enumerate(made, 1)).backward()
        return [part.detach().numpy() for part in (*made, values.grad, dense.grad)]

    with rl.eager() if eager else rl.enable_grad():
        found = run(rl)
    for ours, theirs in zip(found, run(torch), strict=True):
        np.testing.assert_allclose(ours, theirs, rtol=1e-6)


@pytest.mark.parametrize("dtype", ["int64", "float64"])
def test_sums_of_unlike_types_are_of_the_wider(dtype: str) -> None:
    def run(lib: Any) -> Any:
        values = lib.tensor(VALUES).to(getattr(lib, dtype))
        return lib.ones(2, 3) + lib.sparse_coo_tensor(lib.tensor(PLACES), values, (2, 3))

    ours, theirs = run(rl), run(torch)
    assert ours.dtype.name == str(theirs.dtype).removeprefix("torch.")
    np.testing.assert_array_equal(ours.numpy(), theirs.numpy())


def test_sums_of_unlike_shapes_and_orders_are_refused() -> None:
    sparse = rl.sparse_coo_tensor(PLACES, VALUES, (2, 3))
    with pytest.raises(rl.RidgelineError, match="dense \\+ sparse"):
        sparse + rl.ones(2, 3)
    for wrong in (lambda: rl.ones(3) + sparse, lambda: sparse * rl.ones(3, 2)):
        with pytest.raises(rl.RidgelineError):
            wrong()


def test_a_jitted_function_takes_them() -> None:
    sparse = rl.sparse_coo_tensor(PLACES, VALUES, (2, 3))
    product = rl.jit(lambda s, d: s @ d)
    for scale in (1.0, 2.0):
        dense = rl.ones(3, 2) * scale
        np.testing.assert_allclose(product(sparse, dense).numpy(), (sparse @ dense).numpy())


def test_all_else_is_refused_by_name() -> None:
    sparse = rl.sparse_coo_tensor(PLACES, VALUES, (2, 3))
    for call in (rl.exp, lambda s: s.softmax(0), lambda s: rl.ones(2, 3).div(s)):
        with pytest.raises(rl.RidgelineError, match="not there for sparse tensors"):
            call(sparse)
    with pytest.raises(rl.RidgelineError, match="coalesce"):
        sparse.indices()
    with pytest.raises(rl.RidgelineError, match="outside"):
        rl.sparse_coo_tensor([[0], [7]], [1.0], (2, 3))
