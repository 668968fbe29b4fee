"""Batch norm of 16-bit images with float32 weights: torch's types, and statistics in float32."""

from __future__ import annotations

import numpy as np
import pytest

import ridgeline as rl
from ridgeline import nn

torch = pytest.importorskip("torch")


@pytest.mark.parametrize("training", [True, False])
@pytest.mark.parametrize("kind", ["bfloat16", "float16"])
def test_a_narrow_image_keeps_its_type(kind: str, training: bool) -> None:
    rng = np.random.default_rng(0)
    image = (rng.standard_normal((16, 4, 9, 9)) * 2 + 30).astype(np.float32)
    ours, theirs = nn.BatchNorm2d(4), torch.nn.BatchNorm2d(4)
    for name, value in (("weight", [0.5, 1, 2, 3]), ("running_mean", [29, 30, 31, 32])):
        getattr(ours, name).data = rl.tensor(value, dtype=rl.float32)
        getattr(theirs, name).data = torch.tensor(value, dtype=torch.float32)
    ours.train(training)
    theirs.train(training)
    got = ours(rl.tensor(image).to(getattr(rl, kind)))
    wanted = theirs(torch.from_numpy(image).to(getattr(torch, kind)))
    assert str(got.dtype).endswith(kind) and str(wanted.dtype).endswith(kind)
    step = 2.0**-7 if kind == "bfloat16" else 2.0**-10
    np.testing.assert_allclose(
        got.detach().float().numpy(), wanted.detach().float().numpy(), rtol=step, atol=step
    )
    for name in ("running_mean", "running_var"):
        mine, other = getattr(ours, name), getattr(theirs, name)
        assert mine.dtype is rl.float32
        np.testing.assert_allclose(mine.numpy(), other.numpy(), rtol=1e-5)
