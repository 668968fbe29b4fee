"""Attention kernels on the CPU, thread by thread, against float64: masks of every form."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import ridgeline as rl
from ridgeline.runtime.cuda.attention import Mask, Problem, Strides, backward, few_rows, forward
from tests.cuda import emulated
from tests.cuda.test_attention_gpu import rounded, truth

pytestmark = pytest.mark.skipif(not shutil.which("g++"), reason="no C++ compiler")


def mask_of(shape: str, sizes: dict[str, int], kind: str) -> tuple[Any, Any, Mask]:
    """A mask of which some rows keep nothing and some tiles are kept wholly, or not at all."""
    rng = np.random.default_rng(5)
    lengths = [sizes.get(name, 1) for name in shape]
    kept = rng.random(lengths) < 0.6
    if shape[3] == "c":
        columns = sizes["c"]
        kept[..., : columns // 3] = True
        kept[..., columns // 2 : columns // 2 + 130] = False
    kept[0, 0, 0] = False
    added = np.where(kept, 0, -np.inf)
    given = kept
    if kind != "bool":
        dtype = getattr(rl, kind).numpy
        given = (added + rng.standard_normal(lengths)).astype(dtype)
        added = given.astype(np.float64)
    steps = [stride // given.itemsize for stride in given.strides]
    batch, head, row, column = (0 if n == 1 else s for n, s in zip(lengths, steps))
    return given, added, Mask(kind, batch, head, row, column, 0)


# heads, heads of keys, rows, columns, width, axes of the mask, type
CASES = [
    (4, 2, 70, 330, 64, "b11c", "bool"), (2, 2, 200, 336, 64, "11rc", "bool"),
    (2, 1, 40, 200, 128, "bhrc", "bool"), (2, 2, 33, 77, 80, "b1rc", "bool"),
    (2, 1, 70, 330, 64, "bh1c", "float32"), (2, 2, 40, 130, 96, "1hrc", "float32"),
    (2, 2, 65, 129, 128, "b11c", "bool"), (2, 2, 65, 70, 64, "", ""),
    (2, 2, 70, 96, 64, "b1rc", "bfloat16"), (2, 2, 33, 77, 32, "b11c", "float16"),
]  # fmt: skip


@pytest.mark.parametrize("case", CASES, ids=str)
def test_kernels(case: Any, tmp_path: Path) -> None:
    heads, shared, rows, columns, width, axes, kind = case
    batch, dtype = 2, rl.bfloat16 if width == 64 else rl.float16
    rng = np.random.default_rng(1)
    shapes = [(batch, heads, rows, width), *[(batch, shared, columns, width)] * 2]
    exact = [rounded(rng.standard_normal(shape), dtype) for shape in (*shapes, shapes[0])]
    mask, added, place = None, None, None
    if axes:
        sizes = {"b": batch, "h": heads, "r": rows, "c": columns}
        mask, added, place = mask_of(axes, sizes, kind)
    by_rows, by_columns = Strides.dense(heads, rows, width), Strides.dense(shared, columns, width)
    given = Problem(
        dtype.name, batch, heads, shared, rows, columns, width, width**-0.5, axes == "",
        (by_rows, by_columns, by_columns, by_rows, by_rows, by_columns, by_columns), (True,) * 3,
        mask=place,
    )  # fmt: skip
    q, k, v, ct = (array.astype(dtype.numpy) for array in exact)
    read = [q, k, v] if mask is None else [q, k, v, mask]
    out, dq, dk, dv = (np.full_like(like, np.nan) for like in (q, q, k, v))
    lse = np.full((batch, heads, rows), np.nan, np.float32)
    emulated.run(forward(given), dtype.name, [*read, out, lse], tmp_path)
    delta = (out.astype(np.float64) * exact[3]).sum(-1).astype(np.float32)
    emulated.run(backward(given), dtype.name, [*read, lse, delta, ct, dq, dk, dv], tmp_path)
    for got, wanted in zip((out, dq, dk, dv), truth(exact[:3], exact[3], axes == "", added)):
        gap = np.linalg.norm(got.astype(np.float64) - wanted) / np.linalg.norm(wanted)
        assert gap < (5e-3 if dtype is rl.bfloat16 else 6e-4)
    empty = np.zeros(lse.shape, bool)
    if added is not None:
        empty |= (np.zeros((batch, heads, rows, columns)) + added == -np.inf).all(-1)
    np.testing.assert_array_equal(lse == np.inf, empty)


FEW = [
    (4, 2, 1, 330, 64, "b11c", "bool"), (8, 2, 1, 200, 128, "bh1c", "float32"),
    (2, 2, 3, 77, 80, "b1rc", "bool"), (6, 1, 2, 129, 96, "bhrc", "float32"),
    (2, 1, 8, 300, 32, "", ""), (3, 1, 1, 5, 16, "", ""), (2, 2, 1, 96, 64, "b11c", "bfloat16"),
]  # fmt: skip


@pytest.mark.parametrize("case", FEW, ids=str)
@pytest.mark.parametrize("causal", [False, True])
def test_few_rows(case: Any, causal: bool, tmp_path: Path) -> None:
    """One token, or a few, over many keys: pieces of keys, joined."""
    heads, shared, rows, columns, width, axes, kind = case
    if axes and causal:
        pytest.skip("a mask says what is seen")
    batch, dtype = 2, rl.bfloat16 if width == 64 else rl.float16
    rng = np.random.default_rng(3)
    shapes = [(batch, heads, rows, width), *[(batch, shared, columns, width)] * 2]
    exact = [rounded(rng.standard_normal(shape), dtype) for shape in shapes]
    mask, added, place = None, None, None
    if axes:
        sizes = {"b": batch, "h": heads, "r": rows, "c": columns}
        mask, added, place = mask_of(axes, sizes, kind)
    by_rows, by_columns = Strides.dense(heads, rows, width), Strides.dense(shared, columns, width)
    given = Problem(
        dtype.name, batch, heads, shared, rows, columns, width, width**-0.5, causal,
        (by_rows, by_columns, by_columns, by_rows), (True, True), mask=place,
    )  # fmt: skip
    source = few_rows(given)
    q, k, v = (array.astype(dtype.numpy) for array in exact)
    out = np.full_like(q, np.nan)
    lse = np.full((batch, heads, rows), np.nan, np.float32)
    workspace = np.full(source.workspace_bytes // 4, np.nan, np.float32)
    read = [q, k, v] if mask is None else [q, k, v, mask]
    emulated.run(source, dtype.name, [*read, out, lse, workspace], tmp_path)
    wanted = truth(exact, np.zeros(shapes[0]), causal, added)[0]
    gap = np.linalg.norm(out.astype(np.float64) - wanted) / np.linalg.norm(wanted)
    assert gap < (5e-3 if dtype is rl.bfloat16 else 6e-4)
    empty = np.zeros(lse.shape, bool)
    if added is not None:
        empty |= (np.zeros((batch, heads, rows, columns)) + added == -np.inf).all(-1)
    np.testing.assert_array_equal(lse == np.inf, empty)
    scores = np.einsum("bhrw,bhcw->bhrc", exact[0], np.repeat(exact[1], heads // shared, 1))
    scores = scores * width**-0.5 + (0 if added is None else added)
    if causal:
        scores = np.where(np.tri(rows, columns, dtype=bool), scores, -np.inf)
    sums = np.log(np.exp(scores[~empty]).sum(-1))
    np.testing.assert_allclose(lse[~empty], sums, rtol=1e-3, atol=1e-3)
