"""Attention in 16 bits: products of the operands as they are, sums and softmax in float32."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import ridgeline as rl
from ridgeline.nn.functional import scaled_dot_product_attention

torch = pytest.importorskip("torch")
RNG = np.random.default_rng(0)


@pytest.mark.parametrize("seen", ["full", "causal", "masked"])
@pytest.mark.parametrize("name", ["bfloat16", "float16"])
def test_values_and_gradients_are_as_exact_as_torchs(name: str, seen: str) -> None:
    sizes = [(2, 3, 40, 16)] * 4 + [(1, 3, 40, 40)] * (seen == "masked")
    arrays = [RNG.normal(size=size).astype(np.float32) for size in sizes]

    def run(lib: Any, dtype: Any, attend: Any) -> list[np.ndarray]:
        q, k, v, seed, *mask = (lib.tensor(a).to(dtype) for a in arrays)
        leaves = [x.detach().requires_grad_() for x in (q, k, v, *mask)]
        result = attend(*leaves, is_causal=seen == "causal")
        assert result.dtype == dtype
        found = [result.detach(), *lib.autograd.grad(result, leaves, seed.to(dtype))]
        return [part.double().numpy() for part in found]

    ours = run(rl, getattr(rl, name), scaled_dot_product_attention)
    native = torch.nn.functional.scaled_dot_product_attention
    theirs = run(torch, getattr(torch, name), native)
    arrays = [torch.tensor(a).to(getattr(torch, name)).double().numpy() for a in arrays]
    exact = run(torch, torch.float64, native)
    for mine, other, wanted in zip(ours, theirs, exact):
        size = np.linalg.norm(wanted)
        error, reference = (np.linalg.norm(x - wanted) / size for x in (mine, other))
        assert error <= 2 * reference


def test_heads_of_width_one_that_lie_side_by_side() -> None:
    """Scores are then products without a sum, which no dot-product instruction pads."""
    source = np.random.default_rng(0)
    sizes = [(2, 64, heads, 1) for heads in (6, 2, 2)]
    given = [rl.tensor(source.standard_normal(s).astype(np.float32)) for s in sizes]

    def attend(q: Any, k: Any, v: Any) -> Any:
        turned = [t.transpose(1, 2) for t in (q, k, v)]
        return rl.nn.functional.scaled_dot_product_attention(*turned, enable_gqa=True)

    narrow = [t.to(rl.bfloat16) for t in given]
    wide = attend(*(t.to(rl.float64) for t in narrow)).numpy()
    result = rl.jit(attend)(*narrow).to(rl.float32).numpy()
    np.testing.assert_allclose(result, wide, rtol=2e-2, atol=2e-2)
