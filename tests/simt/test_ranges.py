"""Loops count as `range` does, upwards and downwards, also by steps that only a run knows."""

from __future__ import annotations

import numpy as np
import pytest

from ridgeline import simt
from ridgeline.simt import blockDim, gridDim, i32, inout, syncthreads, threadIdx
from ridgeline.simt.kernel import SimtKernel

BOUNDS = [(0, 9, 2), (9, 0, -2), (5, 5, 1), (3, -3, -1), (0, 5, -1)]
NOTHING = -99


@simt.kernel
def by_argument(y: inout[i32["n m"]], a: i32, b: i32, step: i32):
    t = threadIdx.x
    k = 0
    for i in range(a + t, b, step):
        y[t, k] = i
        k = k + 1


@simt.kernel
def with_barriers(y: inout[i32["n m"]], a: i32, b: i32, step: i32):
    t = threadIdx.x
    k = 0
    for i in range(a, b, step):
        syncthreads()
        y[t, k] = i
        k = k + 1


@simt.kernel
def by_lane(y: inout[i32["n m"]], a: i32, b: i32, step: i32):
    t = threadIdx.x
    k = 0
    for i in range(a, b if t % 2 else -b, step if t % 2 else -step):
        y[t, k] = i
        k = k + 1


@simt.kernel
def by_block(y: inout[i32["n m"]], a: i32, b: i32, step: i32):
    t = threadIdx.x
    k = 0
    every = blockDim.x * gridDim.x
    for i in range(a + t, b, -every):
        y[t, k] = i
        k += step * 0 + 1


def wanted(kernel: SimtKernel, a: int, b: int, step: int, t: int) -> list[int]:
    if kernel is by_argument:
        return list(range(a + t, b, step))
    if kernel is by_lane:
        return list(range(a, b if t % 2 else -b, step if t % 2 else -step))
    return list(range(a + t, b, -64)) if kernel is by_block else list(range(a, b, step))


@pytest.mark.parametrize("kernel", [by_argument, with_barriers, by_lane, by_block],
                         ids=lambda kernel: kernel.__name__)  # fmt: skip
def test_ranges_of_every_direction(kernel: SimtKernel) -> None:
    for bounds in BOUNDS:
        empty = np.full((64, 72), NOTHING, np.int32)
        simulated = kernel.simulate(1, 64, empty, *bounds)
        assert not simulated.findings
        compiled = empty.copy()
        kernel[1, 64](compiled, *bounds)
        for t in range(64):
            counts = wanted(kernel, *bounds, t)
            expected = np.array(counts + [NOTHING] * (72 - len(counts)), np.int32)
            np.testing.assert_array_equal(simulated.outputs["y"][t], expected)
            np.testing.assert_array_equal(compiled[t], expected)
