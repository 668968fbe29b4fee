"""Small rules in which torch differs from NumPy, tried in both tiers."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest

import ridgeline as rl
from tests.functions.reference import torch

CASES = {
    "the sign of NaN": lambda lib: lib.sign(lib.tensor([math.nan, -1.5, 0.0, -0.0, 2.0])),
    "sgn of NaN": lambda lib: lib.sgn(lib.tensor([math.nan, -2.0])),
    "the number of elements that are not 0": lambda lib: lib.linalg.vector_norm(
        lib.tensor([math.nan, 0.0, 3.0]), 0
    ),
    "what is too large for float8_e4m3fn": lambda lib: (
        lib.tensor([448.0, 464.0, 500.0, 1e9, -1e9, math.inf, -math.inf, math.nan, 0.1])
        .to(lib.float8_e4m3fn)
        .float()
    ),
    "what is too large for float8_e5m2": lambda lib: (
        lib.tensor([57344.0, 61440.0, 1e9, -math.inf, math.nan, 0.1], dtype=lib.float64)
        .to(lib.float8_e5m2)
        .float()
    ),
    "integers too large for float8_e4m3fn": lambda lib: (
        lib.tensor([1000, -1000, 7]).to(lib.float8_e4m3fn).float()
    ),
    "a limit of NaN": lambda lib: lib.clamp(lib.tensor([1.0, math.nan]), min=math.nan, max=3.0),
    "an upper limit of NaN": lambda lib: lib.tensor([1.0, 5.0]).clip(max=math.nan),
    "limits with NaN among them": lambda lib: lib.clamp(
        lib.tensor([1.0, 2.0, math.nan, 4.0]),
        lib.tensor([math.nan, 3.0, 0.0, 0.0]),
        lib.tensor([9.0, 9.0, 9.0, math.nan]),
    ),
    "a limit of NaN for ints": lambda lib: lib.tensor([1, 2]).clamp_min(math.nan),
    "a sum as bool": lambda lib: lib.tensor([[0.5, -0.5], [0.0, 0.0]]).sum(1, dtype=lib.bool),
    "a sum of NaN as bool": lambda lib: lib.tensor([0.0, math.nan]).nansum(dtype=lib.bool),
    "a range up to a tensor": lambda lib: lib.arange(lib.tensor(3)),
    "a range between tensors": lambda lib: lib.arange(lib.tensor(0.5), lib.tensor(2.0), 0.5),
    "labels one after the other": lambda lib: lib.nn.functional.ctc_loss(
        lib.zeros(4, 2, 3).log_softmax(-1),
        lib.tensor([1, 2, 1]),
        lib.tensor([4, 4]),
        lib.tensor([2, 1]),
    ),
    "bool minus int": lambda lib: lib.tensor([True]) - 1,
    "int minus bool": lambda lib: 1 - lib.tensor([True]),
    "float minus bools": lambda lib: lib.tensor([1.5]) - lib.tensor([True]),
    "float minus True": lambda lib: lib.tensor([1.5]) - True,
    "bools shifted by bools": lambda lib: lib.tensor([True]) << lib.tensor([True]),
    "bools shifted right by bools": lambda lib: lib.tensor([True]) >> lib.tensor([True]),
    "bools shifted by an int": lambda lib: lib.tensor([True, False]) << 2,
    "an int shifted by bools": lambda lib: 4 >> lib.tensor([True, False]),
    "batch_norm of no elements": lambda lib: lib.nn.functional.batch_norm(
        lib.zeros(0), None, None, training=True
    ),
    "cov in bfloat16 with float32 weights": lambda lib: lib.cov(
        lib.tensor([[1.0, 2.0, 4.0], [3.0, 1.0, 0.0]], dtype=lib.bfloat16),
        aweights=lib.tensor([1.0, 2.0, 1.0]),
    ),
    "cov with counts": lambda lib: lib.cov(
        lib.tensor([[1.0, 2.0, 4.0], [3.0, 1.0, 0.0]]), fweights=lib.tensor([1, 2, 1])
    ),
    "a running sum of complex numbers": lambda lib: lib.tensor([1 + 2j, 3 - 1j, 2j]).cumsum(0),
    "complex numbers added at indices": lambda lib: lib.zeros(2, dtype=lib.complex64).index_add(
        0, lib.tensor([1, 0, 1]), lib.tensor([1 + 2j, 3 - 1j, 2j])
    ),
    "a softmax of rows that are all -inf": lambda lib: lib._safe_softmax(
        lib.tensor([[-math.inf, 1.0, 2.0], [-math.inf] * 3]), 1
    ),
    "allclose": lambda lib: lib.allclose(lib.ones(2), lib.ones(2) + 1e-7),
    "not allclose": lambda lib: lib.tensor([1.0]).allclose(lib.tensor([2.0])),
}


def described(lib: Any, case: str) -> Any:
    found = CASES[case](lib)
    if isinstance(found, bool):
        return found
    values = [f"{v:.6g}" for v in found.flatten().tolist()]
    return str(found.dtype).rpartition(".")[2], list(found.shape), values


@pytest.mark.parametrize("tier", ["interpreter", "compiled"])
@pytest.mark.parametrize("case", CASES)
def test_as_in_torch(case: str, tier: str) -> None:
    with rl.config.override(tier=tier):
        try:
            want = described(torch, case)
        except (RuntimeError, NotImplementedError):
            with pytest.raises(rl.RidgelineError):
                described(rl, case)
        else:
            assert described(rl, case) == want


_DIVIDENDS = [-10.0, 10.0, -0.0, 0.0, -10.0, 7.5, -7.5, -3.0, 3.0, math.nan]
_DIVISORS = [5.0, -5.0, 5.0, -5.0, -2.5, 2.5, 2.5, math.inf, -math.inf, 2.0]


@pytest.mark.parametrize("tier", ["interpreter", "compiled"])
@pytest.mark.parametrize("dtype", ["float64", "float32", "float16", "bfloat16"])
@pytest.mark.parametrize("name", ["remainder", "fmod", "floor_divide"])
def test_divisions_keep_the_signs_of_torch(name: str, dtype: str, tier: str) -> None:
    def signed(lib: Any) -> list[tuple[str, bool]]:
        a, b = (lib.tensor(v * 4, dtype=getattr(lib, dtype)) for v in (_DIVIDENDS, _DIVISORS))
        found = getattr(lib, name)(a, b)
        return [(str(v), s) for v, s in zip(found.tolist(), lib.signbit(found).tolist()) if v == v]

    with rl.config.override(tier=tier):
        assert signed(rl) == signed(torch)


def test_allclose_has_no_bool_inside_jit() -> None:
    with pytest.raises(rl.RidgelineError, match=r"isclose\(...\).all\(\)"):
        rl.jit(lambda x: rl.allclose(x, x))(rl.ones(2))


@pytest.mark.parametrize("precise", [np.float64(1 / 3), np.complex128(1 / 3)])
def test_lists_keep_double_precision(precise: np.float64 | np.complex128) -> None:
    held = rl.tensor(precise)
    for data in ([precise], (1.0, precise), [[1, 2.0], [precise, 3]], [held], [[held], [1.0]]):
        made = rl.tensor(data)
        assert made.dtype is held.dtype
        assert precise.item() in made.reshape(-1).tolist()
    assert rl.tensor([1 / 3, 2]).dtype is rl.float32  # Python's numbers have the default type
    assert rl.tensor([np.float32(1), 2.0]).dtype is rl.float32


@pytest.mark.parametrize("name", ["int8", "int32", "int64", "uint8"])
def test_lists_of_integer_tensors_keep_their_type(name: str) -> None:
    held = rl.tensor([1, 2], dtype=getattr(rl, name))
    for data, expected in (([held[0], held[1]], [1, 2]), ([held, held], [[1, 2], [1, 2]])):
        made = rl.tensor(data)
        assert made.dtype is held.dtype and made.tolist() == expected
    assert rl.tensor([held[0], 300]).dtype is rl.int64


MIXED = {
    "mse_loss": lambda lib, a, b: lib.nn.functional.mse_loss(a, b),
    "smooth_l1_loss": lambda lib, a, b: lib.nn.functional.smooth_l1_loss(a, b),
    "cosine_similarity": lambda lib, a, b: lib.nn.functional.cosine_similarity(a, b),
    "cross_entropy": lambda lib, a, b: lib.nn.functional.cross_entropy(a, b),
    "dist": lambda lib, a, b: lib.dist(a, b),
    "xlogy": lambda lib, a, b: lib.xlogy(a, b),
    "ldexp": lambda lib, a, b: lib.ldexp(a, b),
    "addcmul": lambda lib, a, b: lib.addcmul(a, b, a),
    "addcdiv": lambda lib, a, b: lib.addcdiv(a, b, a),
    "layer_norm": lambda lib, a, b: lib.nn.functional.layer_norm(a, (3,), b[0].abs(), b[1]),
    "rms_norm": lambda lib, a, b: lib.nn.functional.rms_norm(a, (3,), b[0]),
    "xlogy with a number of another type": lambda lib, a, b: lib.xlogy(a, b[0, 0]),
}


@pytest.mark.parametrize("types", [("float16", "float32"), ("bfloat16", "float32"),
                                   ("float32", "bfloat16"), ("float16", "bfloat16"),
                                   ("bfloat16", "float64"), ("float16", "float16")])  # fmt: skip
@pytest.mark.parametrize("name", MIXED)
def test_operands_of_two_types_give_the_type_that_they_promote_to(
    name: str, types: tuple[str, str]
) -> None:
    values = [[1.5, 2.25, 0.5], [0.25, 3.0, 1.0]]

    def outcome(lib: Any, *wider: Any) -> Any:
        a, b = (lib.tensor(values).to(getattr(lib, kind)).to(*wider) for kind in types)
        return MIXED[name](lib, a, b)

    try:
        theirs = outcome(torch)
    except (RuntimeError, NotImplementedError):
        pytest.skip("torch refuses")
    ours = outcome(rl)
    assert ours.dtype.name == str(theirs.dtype).removeprefix("torch.")
    tolerance = {"float16": 2**-10, "bfloat16": 2**-7, "float64": 1e-12}.get(ours.dtype.name, 1e-5)
    exact = outcome(torch, torch.float64)
    np.testing.assert_allclose(ours.tolist(), exact.tolist(), rtol=tolerance, atol=tolerance)


def test_a_loss_in_half_precision_with_targets_in_single_does_not_overflow() -> None:
    predictions, targets = rl.full((4,), 300.0, dtype=rl.float16), rl.zeros(4)
    assert rl.nn.functional.mse_loss(predictions, targets).item() == 90000.0
