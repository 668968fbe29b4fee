"""einops on tensors, with gradients."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import ridgeline as rl

einops: Any = pytest.importorskip("einops")


@pytest.fixture(autouse=True)
def _backend() -> None:
    import ridgeline.interop.einops  # noqa: F401  (registers itself)


def test_patterns_agree_with_numpy() -> None:
    a = np.arange(24.0).reshape(2, 3, 4)
    x = rl.tensor(a)
    for function, arguments in [
        (einops.rearrange, ("a b c -> b (c a)",)),
        (einops.reduce, ("a b c -> c a", "max")),
        (einops.reduce, ("a b c -> b", "mean")),
        (einops.repeat, ("a b c -> a (b r) c",)),
    ]:
        options = {"r": 3} if function is einops.repeat else {}
        found = function(x, *arguments, **options)
        np.testing.assert_allclose(found.numpy(), function(a, *arguments, **options))
    packed, shapes = einops.pack([x, x[:, 0]], "a * c")
    assert packed.shape == (2, 4, 4) and shapes == [(3,), ()]


def test_gradients() -> None:
    x = rl.ones(2, 3, requires_grad=True)
    einops.reduce(x * 2, "a b -> ", "sum").backward()
    assert x.grad is not None and x.grad.tolist() == [[2.0] * 3] * 2
