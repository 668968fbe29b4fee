"""Activations of 16-bit floats compute in float32 and round once, as torch's do."""

from __future__ import annotations

import numpy as np
import pytest

import ridgeline as rl
from ridgeline.nn import functional as F

torch = pytest.importorskip("torch")
CASES = {
    "gelu": {}, "gelu_tanh": {"approximate": "tanh"}, "silu": {}, "mish": {}, "softplus": {},
    "elu": {"alpha": 1.5}, "celu": {"alpha": 0.7}, "selu": {},
}  # fmt: skip


@pytest.mark.parametrize("dtype", ["bfloat16", "float16"])
@pytest.mark.parametrize("name", CASES)
def test_values_and_gradients_are_rounded_once(name: str, dtype: str) -> None:
    values = np.random.default_rng(0).standard_normal(4096).astype(np.float32) * 4
    ours = rl.tensor(values, dtype=getattr(rl, dtype), requires_grad=True)
    exact = torch.from_numpy(ours.detach().double().numpy()).requires_grad_()
    function, settings = name.removesuffix("_tanh"), CASES[name]
    wanted = getattr(torch.nn.functional, function)(exact, **settings)
    got = getattr(F, function)(ours, **settings)
    wanted.sum().backward()
    got.sum().backward()
    half = 2.0**-8 if dtype == "bfloat16" else 2.0**-11  # half the distance of two neighbours
    for mine, truth in ((got, wanted), (ours.grad, exact.grad)):
        assert mine.dtype is getattr(rl, dtype)
        rounded = mine.detach().double().numpy()
        np.testing.assert_allclose(rounded, truth.detach().numpy(), rtol=1.01 * half, atol=2e-6)
