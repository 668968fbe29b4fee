"""Memory budgets on a GPU: the plan is kept by what the device's pools hand out."""

from __future__ import annotations

import numpy as np
import pytest

import ridgeline as rl
from ridgeline.errors import MemoryBudgetError
from ridgeline.runtime.cuda.memory import drop, pools, statistics

from .fake_code import FakeCode


def gradient(x: rl.Tensor) -> rl.Tensor:
    """Each layer keeps its value for the way back."""
    h = x
    for _ in range(6):
        h = h.cumsum(1).tanh().flip(1)
    (found,) = rl.autograd.grad(h.square().sum(), [x])
    return found


def test_a_call_on_a_gpu_keeps_its_budget(fake_code: FakeCode) -> None:
    x = rl.tensor(np.linspace(-1, 1, 8 * 64, dtype=np.float32).reshape(8, 64), device="cuda:0")
    x.requires_grad_(True)
    plain = rl.jit(gradient)
    wanted = plain(x).cpu().numpy()
    with pytest.raises(MemoryBudgetError) as caught:
        rl.jit(gradient, memory=1)(x)
    budget = caught.value.smallest
    assert budget < plain.program.held.total
    budgeted = rl.jit(gradient, memory=budget)
    for _ in range(3):
        drop()
        before = statistics(0)["in_use"]
        for pool in pools(0):
            pool.blocks.reset_peak()
        found = budgeted(x)
        grown = statistics(0)["peak"] - before
        np.testing.assert_array_equal(found.cpu().numpy(), wanted)
        assert grown + budgeted.program.held.arguments <= budget
        del found
