"""Interpreted and compiled results differ within the errors that docs/numerics.md states only."""

from __future__ import annotations

import random

import numpy as np
import pytest

import ridgeline as rl
from ridgeline.nn import functional as F

tiers = pytest.importorskip("tests.functions.tiers")  # needs torch

FEW = 16


def test_some_functions_agree_in_both_tiers() -> None:
    drawn = random.Random(0)  # `python -m tests.functions.tiers` tries all functions in all types
    chosen = [(op, drawn.choice(tiers.DTYPES)) for op in drawn.sample(tiers.entries(), FEW)]
    wrong = [line for op, dtype in chosen for line in tiers.differences(op, dtype, most=1)]
    assert not wrong, "\n".join(wrong)


@pytest.mark.slow
@pytest.mark.parametrize("dtype", tiers.DTYPES)
def test_all_functions_agree_in_both_tiers(dtype: str) -> None:
    wrong = [line for op in tiers.entries() for line in tiers.differences(op, dtype)]
    assert not wrong, "\n".join(wrong)


@pytest.mark.parametrize("tier", ["interpreter", "compiled"])
@pytest.mark.parametrize("dtype", [rl.bfloat16, rl.float16], ids=lambda d: d.name)
def test_compositions_of_narrow_types_are_rounded_once(tier: str, dtype: rl.DType) -> None:
    draw = np.random.default_rng(5)
    values = draw.normal(size=(2, 40, 3)) * 4
    given = [rl.tensor(v + np.sign(v), dtype=dtype) for v in values]  # none is close to 0
    sign = rl.tensor(np.sign(draw.normal(size=(40, 3))), dtype=dtype)
    cases = [
        lambda a, b, _: rl.add(a, b, alpha=-3.125),
        lambda a, b, _: rl.sub(a, b, alpha=0.3),
        lambda a, b, _: rl.rsub(a, b, alpha=0.3),
        lambda a, b, _: rl.cross(a, b, dim=1),
        lambda a, b, _: rl.div(a * 8, b, rounding_mode="trunc"),
        lambda a, b, _: rl.diff(a, n=3, dim=0),
        lambda a, b, _: rl.gradient(a, dim=0, spacing=0.7, edge_order=2)[0],
        lambda a, b, _: rl._softmax_backward_data(a, b, 1, a.dtype),
        lambda a, b, _: rl.linalg.vecdot(a, b),
        lambda a, b, _: F.grid_sample(
            a.reshape(1, 3, 5, 8), (b / 8).reshape(1, 30, 2, 2), align_corners=False
        ),
        lambda a, b, s: F.soft_margin_loss(a, s, reduction="none"),
        lambda a, b, s: F.margin_ranking_loss(a, b, s, margin=0.3, reduction="none"),
        lambda a, b, _: F.huber_loss(a, b, reduction="none", delta=1.3),
        lambda a, b, _: F.triplet_margin_loss(a, b, a * 0 + 1, reduction="none"),
    ]
    with rl.config.override(tier=tier):
        for number, case in enumerate(cases):
            got = case(*given, sign)
            wide = case(*(t.to(rl.float32) for t in (*given, sign)))
            assert got.dtype is dtype
            one, all_of_it = got.to(rl.float64).numpy(), wide.to(rl.float64).numpy()
            # half an ulp for the rounding, and what float32 loses where terms cancel
            half = 2.0 ** (-8 if dtype is rl.bfloat16 else -11)
            limit = np.abs(all_of_it) * half + 4e-6 * np.abs(all_of_it).max()
            assert (np.abs(one - all_of_it) <= limit).all(), number


def test_losses_of_two_types_have_the_type_they_promote_to() -> None:
    narrow, wide = rl.ones(3, dtype=rl.bfloat16), rl.ones(3)
    assert F.soft_margin_loss(narrow, wide).dtype is rl.float32
    assert F.huber_loss(input=narrow, target=narrow).dtype is rl.bfloat16
    assert rl.add(narrow, wide, alpha=2).dtype is rl.float32
