"""What programs leave on a GPU, for tests with and without one: code and memory of first runs."""

from __future__ import annotations

import numpy as np
import pytest

import ridgeline as rl
from ridgeline.compiler import program
from ridgeline.execution import tiers
from ridgeline.runtime.cuda import module
from ridgeline.weak import Recent

FEW = 4


def small_tables(monkeypatch: pytest.MonkeyPatch) -> None:
    """Tables of a few programs; of backends made from now on, no code stays for its own sake."""
    monkeypatch.setattr(program, "_programs", Recent(FEW, 1 << 14))
    monkeypatch.setattr(program, "_shown", Recent(FEW, 1 << 14))
    monkeypatch.setattr(tiers, "_compiled_pieces", Recent(FEW, 1 << 14))
    monkeypatch.setattr(tiers, "_pieces", Recent(4 * FEW))
    monkeypatch.setattr(module, "MOST_CODE", 1)
    monkeypatch.setattr(module, "MOST_DISCARDED", FEW)


def ever_new_lengths(first: int, last: int) -> None:
    """Programs of which no two share a kernel, let go as they come, checked with NumPy."""
    for length in range(first, last):
        x = (np.arange(length) % 3).astype(np.float32)  # all sums are exact
        y = (rl.tensor(x, device="cuda:0") * 2 + 1).cumsum(0)
        assert y.sum().item() == (x * 2 + 1).cumsum().sum()


def first_step(size: int) -> rl.Tensor:
    """State after the first call of a jitted step that replaces it, of so many elements."""
    state, other = (rl.tensor(np.full(size, n, np.float32), device="cuda:0") for n in (3, 2))
    rl.cuda.empty_cache()
    rl.cuda.reset_peak_memory_stats()

    @rl.jit
    def step() -> None:
        state.mul_(other).add_(1.0)
        other.add_(1.0)

    step()
    return state
