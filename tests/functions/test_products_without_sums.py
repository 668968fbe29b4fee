"""`einsum` that sums nothing is a product and shows diagonals: signs of zeros, and views."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import ridgeline as rl

torch = pytest.importorskip("torch")

PRODUCTS = {
    "i,j->ij": ((2,), (3,)), "i,j->ji": ((2,), (3,)), "bi,bj->jbi": ((2, 3), (2, 4)),
    "ij,ij->ij": ((1, 3), (2, 3)), "...i,i->...i": ((2, 4, 3), (3,)), "i,->i": ((3,), ()),
    ",->": ((), ()), "i,j,k->kji": ((2,), (3,), (4,)), "ab,cd->acbd": ((2, 3), (4, 5)),
    "ii->i": ((3, 3),), "iij->ij": ((3, 3, 2),), "ijij->ji": ((2, 3, 2, 3),),
    "iii->i": ((2, 2, 2),),
    "ii,jj->ij": ((2, 2), (3, 3)), "ii,ij->ij": ((3, 3), (3, 2)),
}  # fmt: skip


@pytest.mark.parametrize("tier", ["interpreter", "compiled"])
@pytest.mark.parametrize("equation", PRODUCTS)
def test_values_signs_and_gradients(equation: str, tier: str) -> None:
    rng = np.random.default_rng(7)
    arrays = [rng.integers(-1, 2, shape) * -1.0 for shape in PRODUCTS[equation]]
    found: list[list[Any]] = []
    for lib in (rl, torch):
        with rl.config.override(tier=tier):
            given = [lib.tensor(a, dtype=lib.float64).requires_grad_() for a in arrays]
            made = lib.einsum(equation, *given)
            (made * made).sum().backward()
            parts = [made.detach(), *[g.grad for g in given]]
            found.append([np.array(part.tolist()) for part in parts])
    for a, b in zip(*found):
        np.testing.assert_allclose(a, b, rtol=1e-12)
    np.testing.assert_array_equal(np.signbit(found[0][0]), np.signbit(found[1][0]))


def test_what_sums_and_multiplies_nothing_is_a_view() -> None:
    for lib in (rl, torch):
        x = lib.zeros(3, 3)
        lib.einsum("ii->i", x)[0] = 5
        lib.einsum("ij->ji", x)[0, 1] = 7
        assert x.tolist() == [[5, 0, 0], [7, 0, 0], [0, 0, 0]]
