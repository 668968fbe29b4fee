"""Kernels and tests written for numba-cuda run over ours, and what is wrong in them is reported."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

TESTS = """
import unittest
import numpy as np
from numba import cuda, float32, int32

@cuda.jit(device=True)
def twice(x):
    return x + x

@cuda.jit
def reverse(x, y):
    s = cuda.shared.array(32, dtype=int32)
    i = cuda.threadIdx.x
    s[i] = x[i]
    cuda.syncthreads()
    y[i] = twice(s[31 - i])

@cuda.jit("void(float32[:], float32[:])")
def total(x, y):
    i = cuda.grid(1)
    v = x[i]
    for step in (16, 8, 4, 2, 1):
        v += cuda.shfl_down_sync(0xFFFFFFFF, v, step)
    if cuda.laneid == 0:
        cuda.atomic.add(y, 0, v)

@cuda.jit
def racing(x):
    s = cuda.shared.array(32, dtype=int32)
    i = cuda.threadIdx.x
    s[i] = i
    x[i] = s[31 - i]

class Cases(unittest.TestCase):
    def test_reverse(self):
        x, y = np.arange(32, dtype=np.int32), np.zeros(32, np.int32)
        reverse[1, 32](x, y)
        np.testing.assert_array_equal(y, 2 * x[::-1])

    def test_total(self):
        x, y = np.arange(128, dtype=np.float32), np.zeros(1, np.float32)
        total[2, 64](cuda.to_device(x), y)
        self.assertEqual(y[0], x.sum())

    def test_racing(self):
        racing[1, 32](np.zeros(32, np.int32))

    def test_wrong(self):
        self.assertEqual(1, 2)

    def test_missing(self):
        cuda.stream().synchronize()
"""


def test_tests_of_numba_run(tmp_path: Path) -> None:
    (tmp_path / "test_own.py").write_text(TESTS)
    command = [sys.executable, "-m", "tests.simt.numba_suite", str(tmp_path), "test_own"]
    done = subprocess.run(
        command, capture_output=True, text=True, cwd=Path(__file__).parents[2], check=False
    )
    lines = done.stdout.splitlines()
    assert lines[:1] == [
        "test_own: 5 tests, 1 skipped, 1 failed, of them 0 known; 1 findings of the simulator"
    ], done
    assert "test_wrong" in lines[1]
    assert "shared race" in lines[2]
    assert done.returncode == 1
