"""`grouped_mm`: matrices in groups, each with a matrix of its own."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import ridgeline as rl
from ridgeline.config import config
from ridgeline.errors import RidgelineError

F = rl.nn.functional
ENDS = [2, 2, 5, 6]  # a group without rows, and rows behind the last one
GROUPS = [slice(0, 2), slice(2, 2), slice(2, 5), slice(5, 6)]
RNG = np.random.default_rng(3)


def drawn(*shape: int) -> Any:
    return RNG.standard_normal(shape).astype(np.float32)


def rows() -> tuple[Any, Any, Any]:
    a, b = drawn(8, 3), drawn(4, 3, 5)
    wanted = np.zeros((8, 5), np.float32)
    for number, part in enumerate(GROUPS):
        wanted[part] = a[part] @ b[number]
    return a, b, wanted


def columns() -> tuple[Any, Any, Any]:
    a, b = drawn(4, 5, 3), drawn(3, 8)
    wanted = np.zeros((5, 8), np.float32)
    for number, part in enumerate(GROUPS):
        wanted[:, part] = a[number] @ b[:, part]
    return a, b, wanted


def inner() -> tuple[Any, Any, Any]:
    a, b = drawn(3, 8), drawn(8, 5)
    return a, b, np.stack([a[:, part] @ b[part] for part in GROUPS])


@pytest.mark.parametrize("made", [rows, columns, inner])
@pytest.mark.parametrize("kind", [rl.int32, rl.int64])
@pytest.mark.parametrize("tier", ["interpreter", "compiled"])
def test_each_group_has_a_matrix(made: Any, kind: Any, tier: str) -> None:
    a, b, wanted = made()
    given = [rl.tensor(a), rl.tensor(b)]
    with config.override(tier=tier):
        ends = rl.tensor(ENDS, dtype=kind)
        for call in (F.grouped_mm, rl.jit(F.grouped_mm)):
            np.testing.assert_allclose(call(*given, offs=ends).numpy(), wanted, atol=1e-5)


def test_two_batches_and_what_is_added() -> None:
    a, b, bias = drawn(2, 3, 4), drawn(2, 4, 5), drawn(5)
    found = F.grouped_mm(rl.tensor(a), rl.tensor(b), bias=rl.tensor(bias), out_dtype=rl.float64)
    assert found.dtype == rl.float64
    np.testing.assert_allclose(found.numpy(), a @ b + bias, atol=1e-5)


def test_it_is_torchs() -> None:
    torch = pytest.importorskip("torch")
    a, b = torch.randn(12, 8).bfloat16(), torch.randn(3, 16, 8).bfloat16().transpose(1, 2)
    ends = torch.tensor([4, 4, 12], dtype=torch.int32)
    wanted = torch.nn.functional.grouped_mm(a, b, offs=ends).float().numpy()
    given = [rl.tensor(t.float().numpy()).bfloat16() for t in (a, b)]
    found = F.grouped_mm(*given, offs=rl.tensor(ends.numpy())).float().numpy()
    np.testing.assert_allclose(found, wanted, rtol=2e-2, atol=1e-2)


@pytest.mark.parametrize(
    ("shapes", "ends", "said"),
    [
        (((3,), (2, 3, 4)), [1, 2], "matrices"),
        (((3, 3), (2, 3, 4)), None, "offs"),
        (((2, 3, 3), (2, 3, 4)), [1, 2], "offs"),
        (((3, 3), (2, 5, 4)), [1, 2], "fit"),
        (((3, 3), (4, 3, 4)), [1, 2], "fit"),
        (((3, 3), (2, 3, 4)), [1.0, 2.0], "integers"),
    ],
)
def test_what_does_not_fit(shapes: Any, ends: Any, said: str) -> None:
    offs = None if ends is None else rl.tensor(ends)
    with pytest.raises(RidgelineError, match=said):
        F.grouped_mm(*map(rl.zeros, shapes), offs=offs)
