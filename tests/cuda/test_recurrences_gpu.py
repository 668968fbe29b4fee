"""On a GPU: scans that are one kernel against NumPy in float64, over long and odd sizes."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import ridgeline as rl

from .recurrences import ALONE, TOGETHER, Run, leaves, selective, selective_inputs

pytestmark = pytest.mark.gpu


def _truth(u: Any, dt: Any, a: Any, b: Any, c: Any) -> Any:
    state, results = np.zeros((*u.shape[1:], a.shape[1])), []
    for u_, dt_, b_, c_ in zip(u, dt, b, c):
        state = np.exp(dt_[..., None] * a) * state + (dt_ * u_)[..., None] * b_[:, None]
        results.append((state * c_[:, None]).sum(-1))
    return state, np.array(results)


@pytest.mark.parametrize(
    "sizes", [(1, 1, 1, 1), (3000, 2, 37, 5), (513, 3, 300, 16), (256, 1, 2048, 16), (64, 7, 9, 64)]
)
def test_selective_scans(sizes: tuple[int, int, int, int]) -> None:
    arrays = selective_inputs(*sizes)
    wanted = _truth(*(a.astype(np.float64) for a in arrays))
    function, given = rl.jit(selective), [rl.tensor(a, device="cuda") for a in arrays]
    for _ in range(3):
        for mine, true in zip(function(*given), wanted, strict=True):
            error = np.linalg.norm(mine.cpu().numpy() - true) / np.linalg.norm(true)
            assert error < 2e-6


@pytest.mark.parametrize("name", [*ALONE, *TOGETHER])
def test_as_on_the_cpu(name: str) -> None:
    run, arrays = {**ALONE, **TOGETHER}[name]
    _compared(run, arrays)


def _compared(run: Run, arrays: list[Any]) -> None:
    wanted = leaves(run(*map(rl.tensor, arrays)))
    function, given = rl.jit(run), [rl.tensor(a, device="cuda") for a in arrays]
    for _ in range(3):
        for mine, truth in zip(leaves(function(*given)), wanted, strict=True):
            close = 1e-2 if mine.dtype == rl.bfloat16 else 1e-5
            pair = [t.cpu().float().numpy() for t in (mine, truth)]
            np.testing.assert_allclose(*pair, rtol=close, atol=close)
