"""Public pointwise functions are within 2 ulp of mpmath in every type and tier.

The whole table is printed by `python -m tests.functions.accuracy`.
"""

from __future__ import annotations

import math

import numpy as np
import pytest

import ridgeline as rl
from ridgeline import dtypes
from tests.functions.accuracy import CASES, DTYPES, TIERS, Case, ours, sample

SHORT = 24  # random arguments of a kind; ends and whole numbers are always among them
NARROW = (dtypes.float16, dtypes.bfloat16)
# what was seen to go wrong, and one of each way in which a function is made
COMPILED = ("exp2", "log2", "log10", "sinc", "tan", "logaddexp2", "sigmoid", "logit", "ldexp")


@pytest.mark.parametrize("case", CASES, ids=[case.label for case in CASES])
def test_interpreted_values_are_within_the_limit(case: Case) -> None:
    for dtype in DTYPES:
        points = sample(case, dtype, SHORT)
        error, place = points.worst(ours(case, points.operands, "interpreter"))
        assert error <= case.allowed(dtype), f"{case.label}({place}) in {dtype.name}: {error} ulp"


@pytest.mark.parametrize("dtype", DTYPES, ids=[dtype.name for dtype in DTYPES])
def test_compiled_values_are_within_the_limit(dtype: dtypes.DType) -> None:
    for case in CASES:
        if case.name in COMPILED or (dtype is dtypes.bfloat16 and case.arity == 1):
            points = sample(case, dtype, SHORT)
            error, place = points.worst(ours(case, points.operands, "compiled"))
            assert error <= case.allowed(dtype), f"{case.label}({place}): {error} ulp"


@pytest.mark.slow
@pytest.mark.parametrize("case", CASES, ids=[case.label for case in CASES])
@pytest.mark.parametrize("seed", [1, 2])
def test_values_are_within_the_limit(case: Case, seed: int) -> None:
    for dtype in DTYPES:
        points = sample(case, dtype, 900, seed)
        for tier in TIERS:
            error, place = points.worst(ours(case, points.operands, tier))
            assert error <= case.allowed(dtype), f"{case.label}({place}) in {dtype.name}: {error}"


@pytest.mark.parametrize("tier", TIERS)
@pytest.mark.parametrize("dtype", [*DTYPES, dtypes.float8_e5m2, dtypes.float8_e4m3fn])
def test_whole_powers_and_their_logarithms_are_exact(dtype: dtypes.DType, tier: str) -> None:
    top = {dtypes.float64: 1023, dtypes.float16: 15, dtypes.float8_e5m2: 15}.get(dtype, 127)
    top = 8 if dtype is dtypes.float8_e4m3fn else top
    whole = np.unique(np.linspace(-top, top, 41).round()).astype(dtype.numpy)
    powers = np.exp2(whole.astype(np.float64)).astype(dtype.numpy)
    with rl.config.override(tier=tier):
        assert rl.exp2(rl.tensor(whole)).tolist() == powers.tolist()
        seen = (powers != 0) & (powers < np.inf)
        assert rl.log2(rl.tensor(powers[seen])).tolist() == whole[seen].tolist()
        a = rl.tensor(whole)
        more = (whole.astype(np.float64) + 1).astype(dtype.numpy)
        assert rl.logaddexp2(a, a).tolist() == more.tolist()
        zeros = np.arange(1, 9).astype(dtype.numpy)
        assert rl.sinc(rl.tensor(zeros)).tolist() == [0.0] * 8
        assert rl.sinc(rl.tensor(zeros * 0)).tolist() == [1.0] * 8
        tens = [10.0**k for k in range(5 if dtype in NARROW else 11)]
        tens = [t for t in tens if float(np.array(t).astype(dtype.numpy)) == t]
        logs = rl.log10(rl.tensor(tens, dtype=dtype)).tolist()
        assert logs == [math.log10(t) for t in tens]


@pytest.mark.parametrize("tier", TIERS)
@pytest.mark.parametrize("dtype", DTYPES)
def test_infinities_and_nan(dtype: dtypes.DType, tier: str) -> None:
    inf, nan = math.inf, math.nan
    x = rl.tensor([inf, -inf, nan, 0.0, -0.0], dtype=dtype)
    expected = {
        "exp2": [inf, 0, nan, 1, 1],
        "log2": [inf, nan, nan, -inf, -inf],
        "log10": [inf, nan, nan, -inf, -inf],
        "tan": [nan, nan, nan, 0, -0.0],
        "sinc": [nan, nan, nan, 1, 1],
    }
    other = rl.tensor([inf, inf, 1.0, -inf, 3.0], dtype=dtype)
    with rl.config.override(tier=tier):
        for name, values in expected.items():
            np.testing.assert_array_equal(getattr(rl, name)(x).float().numpy(), values, name)
        both = rl.logaddexp2(x, other).float().numpy()
        np.testing.assert_allclose(both, [inf, inf, nan, 0, math.log2(9)], rtol=1e-2)


@pytest.mark.parametrize("tier", TIERS)
def test_subnormal_bfloat16_is_not_lost(tier: str) -> None:
    tiny = float(2.0**-133)
    values = [tiny * k for k in (-127, -3, -1, 0, 1, 2, 63, 127, 128, 255)]
    ties = [tiny * 0.5, tiny * 1.5, tiny * 2.5, tiny * 127.5, -tiny * 1.5, tiny * 0.75]
    with rl.config.override(tier=tier):
        x = rl.tensor(values, dtype=rl.bfloat16)
        assert (x * 1.0 + 0.0).tolist() == values
        y = rl.tensor(ties).to(rl.bfloat16)
        assert y.tolist() == [0.0, 2 * tiny, 2 * tiny, 128 * tiny, -2 * tiny, tiny]


def test_derivatives_of_the_new_rows() -> None:
    x = rl.tensor([-2.3, -0.7, -0.1, 0.0, 1e-4, 0.3, 1.0, 5.5], dtype=rl.float64)
    for function in (rl.exp2, rl.sinc, rl.tan):
        assert rl.autograd.gradcheck(function, [x.clone().requires_grad_()])
        assert rl.autograd.gradgradcheck(function, [x.clone().requires_grad_()])
    positive = rl.tensor([0.1, 1.0, 7.5], dtype=rl.float64)
    for function in (rl.log2, rl.log10, lambda v: rl.logaddexp2(v, v.flip(0))):
        assert rl.autograd.gradcheck(function, [positive.clone().requires_grad_()])
    tie = rl.tensor([2.0, -1.0], requires_grad=True)
    rl.logaddexp2(tie, rl.tensor([2.0, -1.0])).sum().backward()
    assert tie.grad is not None and tie.grad.tolist() == [0.5, 0.5]


@pytest.mark.parametrize("dtype", NARROW)
def test_histograms_of_narrow_types_are_the_same_in_both_tiers(dtype: dtypes.DType) -> None:
    values = np.random.default_rng(0).normal(size=400).astype(dtype.numpy)
    counts = []
    for tier in TIERS:
        with rl.config.override(tier=tier):
            counts.append(rl.histc(rl.tensor(values), 17, -2.3, 2.9).tolist())
    low, high = np.float32(-2.3), np.float32(2.9)
    wide = values.astype(np.float32)
    inside = wide[(wide >= low) & (wide <= high)]
    places = np.minimum((inside - low) / (high - low) * 17, 16).astype(int)
    truth = np.bincount(places, minlength=17).astype(dtype.numpy).tolist()
    assert counts[0] == counts[1] == truth
