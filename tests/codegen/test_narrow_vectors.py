"""Code for CPUs without 512-bit vectors and what came with them, run on whatever CPU this is."""

from __future__ import annotations

import os
import platform
import subprocess
import sys

import pytest

PROGRAM = """
import ml_dtypes, numpy as np
import ridgeline as rl
from ridgeline.codegen.llvm.machine_code import target

assert target().vector_bits == 256, target()
bits = np.arange(1 << 16, dtype=np.uint32) << 16
near = np.concatenate([bits, bits | 0x7FFF, bits | 0x8000, bits | 0x8001, bits | 0xFFFF])
with np.errstate(over="ignore", invalid="ignore"):
    for dtype in (rl.bfloat16, rl.float16):
        numbers = near.view(np.float32)
        wanted = numbers.astype(dtype.numpy)
        got = rl.jit(lambda x: x.to(dtype))(rl.tensor(numbers)).numpy()
        same = (got.view(np.uint16) == wanted.view(np.uint16)) | (got != got) & (wanted != wanted)
        assert same.all(), (dtype, numbers[~same][:4], got[~same][:4], wanted[~same][:4])
        doubled = rl.jit(lambda x: x.to(dtype).float() * 2)(rl.tensor(numbers)).numpy()
        np.testing.assert_array_equal(doubled, wanted.astype(np.float32) * 2)

source = np.random.default_rng(0)
for dtype in (rl.bfloat16, rl.float16, rl.float32, rl.float64):
    a, b = (source.standard_normal(s).astype(dtype.numpy) for s in ((37, 83), (83, 51)))
    got = (rl.tensor(a) @ rl.tensor(b)).numpy().astype(np.float64)
    exact = a.astype(np.float64) @ b.astype(np.float64)
    unit = float(ml_dtypes.finfo(dtype.numpy).eps)
    bound = unit * np.abs(exact) + 83 * min(unit, 2.0**-23) * (np.abs(a) @ np.abs(b)).astype(float)
    assert (np.abs(got - exact) <= bound).all(), dtype
"""


@pytest.mark.skipif(platform.machine() != "x86_64", reason="the names are those of x86")
def test_conversions_and_products_without_wide_vectors() -> None:
    environment = {**os.environ, "RIDGELINE_ISA": "avx2"}
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM], env=environment, capture_output=True, text=True
    )
    assert done.returncode == 0, done.stderr
