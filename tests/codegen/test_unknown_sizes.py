"""Kernels over sizes that are known at run time: what the lanes of an address share."""

from __future__ import annotations

import numpy as np
import pytest

import ridgeline as rl
from ridgeline import Tensor


@pytest.mark.parametrize(("heads", "width"), [(2, 100), (2, 24), (3, 20), (4, 6)])
@pytest.mark.parametrize("order", [(1, 0, 2), (1, 2, 0)])
def test_heads_are_joined_over_any_length(
    heads: int, width: int, order: tuple[int, int, int]
) -> None:
    """A vector of lanes may lie in one head, or in two: the head of each is a quotient."""
    weight = rl.randn(40, heads * width)

    def joined(x: Tensor) -> Tensor:
        return x.permute(order).reshape(x.shape[1], heads * width) @ weight.T

    with rl.config.override(tier="compiled"):
        program = rl.jit(joined, dynamic=True)
        for length in (3, 5, 17):
            x = np.random.default_rng(length).normal(size=(heads, length, width))
            expected = x.transpose(order).reshape(length, -1) @ weight.numpy().T.astype(float)
            found = program(rl.tensor(x.astype(np.float32))).numpy()
            np.testing.assert_allclose(found, expected, rtol=1e-4, atol=1e-4)
