"""Narrow floats in CUDA C++: packs are converted as a whole, results of 16 bits need fewer steps.

The text compiles for the oldest GPUs and for those with instructions for pairs; on a GPU every bit
pattern is compared with ml_dtypes.
"""

from __future__ import annotations

import numpy as np
import pytest

import ridgeline as rl
from ridgeline import dtypes
from ridgeline.codegen.cuda import generate
from ridgeline.dtypes import DType
from tests.loops.parser import parse_kernel

NARROW = (dtypes.float16, dtypes.bfloat16, dtypes.float8_e4m3fn, dtypes.float8_e5m2)
PACKS = """kernel p(x: float32[64, 8] @0, y: {0}[64, 8] @1, z: {0}[64, 8] @2, w: float32[64, 8] @3)
for i < 64 thread:
  for j < 8 vector:
    y[i, j] = {0}(x[i, j])
  for j < 8 vector:
    w[i, j] = float32(z[i, j])
"""
EXPONENTIALS = """kernel exponentials(x: float32[64] @0, y: {0}[64] @1, z: {1}[64] @2)
for i < 64 thread:
  y[i] = {0}(exp(x[i]))
  z[i] = {1}(tanh(x[i]))
"""


@pytest.mark.parametrize("arch", ["sm_75", "sm_80", "sm_90a"])
def test_packs_compile(arch: str) -> None:
    pytest.importorskip("cuda.bindings.nvrtc")
    from ridgeline.codegen.cuda import compile_all

    texts = [generate(parse_kernel(PACKS.format(dtype.name))).text for dtype in NARROW]
    for dtype, text in zip(NARROW, texts):
        assert f"rl_pack_{dtype.name}(" in text
    assert all(code.startswith(b"\x7fELF") for code in compile_all(texts, arch))


@pytest.mark.parametrize("first", ["bfloat16", "float32", "bool"])
@pytest.mark.parametrize("second", ["float16", "float32"])
def test_only_results_of_16_bits_are_computed_with_fewer_steps(first: str, second: str) -> None:
    text = generate(parse_kernel(EXPONENTIALS.format(first, second))).text
    body = text[text.index("__global__") :]
    near = first == "bfloat16", second == "float16"
    assert ("rl_exp_near(" in body, "rl_tanh_near(" in body) == near
    assert ("expf(" in body, "tanhf(" in body) == (not near[0], not near[1])


SOFTMAX = """kernel softmax(x: {0}[64, 8] @0, y: float32[64, 8] @1)
for i < 64 thread:
  alloc most: float32[] reg
  most[] = -inf
  for j < 8 reduce:
    most[] max= float32(x[i, j])
  for j < 8:
    y[i, j] = exp(float32(x[i, j]) - {1})
"""
SUMMED = """kernel summed(x: float32[64, 8] @0, y: float32[64] @1, z: float32[64] @2)
for i < 64 thread:
  alloc sum: float32[] reg
  sum[] = 0.0
  for j < 8 reduce:
    sum[] += float32(bfloat16(tanh(x[i, j]) * 2.0))
  y[i] = sum[]
  z[i] = float32({0}(tanh(x[i, 0])))
"""


@pytest.mark.parametrize(
    ("kind", "top", "near"),
    [("bfloat16", "most[]", True), ("float16", "most[]", True), ("bfloat16", "1.0", False)],
)
def test_exponentials_below_the_largest_of_16_bit_values(kind: str, top: str, near: bool) -> None:
    text = generate(parse_kernel(SOFTMAX.format(kind, top))).text
    body = text[text.index("__global__") :]
    assert ("rl_exp_near(" in body) == near and ("expf(" in body) == (not near)


def test_what_decides_something_is_computed_with_all_steps() -> None:
    text = """kernel steps(x: float32[64] @0, y: bfloat16[64] @1)
for i < 64 thread:
  y[i] = bfloat16(select(exp(x[i]) <= 1.0, 0.0, floor(tanh(x[i]))))
"""
    made = generate(parse_kernel(text)).text
    body = made[made.index("__global__") :]
    assert "expf(" in body and "tanhf(" in body and "_near(" not in body


@pytest.mark.parametrize(("kind", "near"), [("float16", 2), ("float32", 1)])
def test_what_is_rounded_before_it_is_summed(kind: str, near: int) -> None:
    text = generate(parse_kernel(SUMMED.format(kind))).text
    body = text[text.index("__global__") :]
    assert body.count("rl_tanh_near(") == near and body.count("tanhf(") == 2 - near


def test_the_exponential_of_few_steps_below_a_maximum() -> None:
    """As the hardware rounds it, but for the last digit of its power of two."""
    rng = np.random.default_rng(0)
    x = rng.normal(0, 6, (200, 5000)).astype(dtypes.bfloat16.numpy).astype(np.float32)
    below = x - x.max(-1, keepdims=True)
    root = np.exp2((below * np.float32(0.72134752)).astype(np.float32))
    few, exact = root * root, np.exp(below.astype(np.float64))
    assert np.max(np.abs(few - exact)) < 2e-7  # of the largest, which is 1
    relative = few.sum(-1, dtype=np.float64) / exact.sum(-1) - 1
    assert np.max(np.abs(relative)) < 2e-7


def _all_patterns(dtype: DType) -> np.ndarray:
    bits = np.arange(1 << (8 * dtype.itemsize), dtype=f"uint{8 * dtype.itemsize}")
    return bits.view(dtype.numpy).astype(np.float32)


@pytest.mark.gpu
@pytest.mark.parametrize("dtype", NARROW, ids=str)
def test_every_number_and_every_tie_is_converted(dtype: DType) -> None:
    numbers = np.sort(_all_patterns(dtype)[np.isfinite(_all_patterns(dtype))])
    ties = (numbers[1:].astype(np.float64) + numbers[:-1]) / 2
    edges = np.array([np.inf, -np.inf, np.nan, 3e38, -3e38, 61439.9, 61440.0, 464.0, 464.1])
    given = np.concatenate([numbers, ties, np.nextafter(ties, 1e9), edges]).astype(np.float32)
    given = given[: len(given) // 8 * 8]
    wide = rl.tensor(given)
    narrow = rl.jit(lambda x: x.to(dtype))(wide.to("cuda"))
    with rl.config.override(tier="interpreter"):
        np.testing.assert_array_equal(narrow.cpu().float().numpy(), wide.to(dtype).float().numpy())
    back = rl.jit(lambda x: x.float() * 1)(narrow)
    np.testing.assert_array_equal(back.cpu().numpy(), narrow.cpu().float().numpy())


@pytest.mark.gpu
@pytest.mark.parametrize("name", ["exp", "tanh", "sigmoid"])
@pytest.mark.parametrize("dtype", NARROW[:2], ids=str)
def test_functions_of_every_16_bit_number(name: str, dtype: DType) -> None:
    x = rl.tensor(_all_patterns(dtype)).to(dtype)
    function = getattr(rl, name)
    found = rl.jit(lambda x: function(x.float()).to(dtype))(x.to("cuda")).cpu().double().numpy()
    wide = x.double().numpy()
    with np.errstate(all="ignore"):
        truth = {
            "exp": np.exp(wide), "tanh": np.tanh(wide), "sigmoid": 1 / (1 + np.exp(-wide)),
        }[name]  # fmt: skip
    least, digits, largest = (-14, 11, 65504) if dtype is dtypes.float16 else (-126, 8, 3.38e38)
    finite = np.isfinite(wide) & (np.abs(truth) < largest)
    _, exponent = np.frexp(np.where(finite, np.abs(truth), 1.0))
    ulp = 2.0 ** (np.maximum(exponent, least + 1) - digits)
    with np.errstate(all="ignore"):
        wrong = np.abs(found - truth) > 0.51 * ulp
    assert not (wrong & finite).any(), wide[wrong & finite][:5]
    np.testing.assert_array_equal(np.isnan(found), np.isnan(truth))
