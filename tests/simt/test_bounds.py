"""What bounds kernels that can be worked out by hand, and what compilers make of their lines."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from ridgeline import simt
from ridgeline.simt import (
    blockDim,
    blockIdx,
    const,
    f16,
    f32,
    f64,
    i32,
    lane,
    out,
    shared,
    shfl_xor,
    syncthreads,
    threadIdx,
    wmma,
)
from ridgeline.simt.model.ptx import CompiledCounts
from ridgeline.simt.simulator.simulate import SimulationOptions
from tests.simt import textbook

FEW = SimulationOptions(races=False, blocks=8)


@simt.kernel
def copied(x: f32["n"], y: out[f32["n"]]):
    i = blockIdx.x * blockDim.x + threadIdx.x
    y[i] = x[i]


@simt.kernel
def four_at_once(x: f32["n"], y: out[f32["n"]]):
    i = (blockIdx.x * blockDim.x + threadIdx.x) * 4
    a, b, c, d = simt.load4(x, i)
    simt.store4(y, i, a, b, c, d)


@simt.kernel
def far_apart(x: f32["n"], y: out[f32["m"]]):
    i = blockIdx.x * blockDim.x + threadIdx.x
    y[i] = x[i * 16]


@simt.kernel
def small_table(x: f32["n"], y: out[f32["m"]]):
    i = blockIdx.x * blockDim.x + threadIdx.x
    total = 0.0
    for k in range(16):
        total += x[(i * 8 + k * 4096) % 32768]
    y[i] = total


@simt.kernel
def conflicts(y: out[f32["n"]], S: const = 32):
    s = shared(2048, f32)
    for k in range(threadIdx.x, 2048, 256):
        s[k] = f32(k)
    syncthreads()
    total = 0.0
    for k in simt.unroll(64):
        total += s[lane * S + k]
    y[blockIdx.x * 256 + threadIdx.x] = total


@simt.kernel
def multiply_adds(x: f32["n"], y: out[f32["n"]]):
    i = blockIdx.x * blockDim.x + threadIdx.x
    a, b = x[i], 0.5
    for _ in simt.unroll(256):
        b = b * a + 0.25
    y[i] = b


@simt.kernel
def wide_multiply_adds(x: f64["n"], y: out[f64["n"]]):
    i = blockIdx.x * blockDim.x + threadIdx.x
    a, b = x[i], f64(0.5)
    for _ in simt.unroll(128):
        b = b * a + f64(0.25)
    y[i] = b


@simt.kernel
def butterflies(x: f32["n"], y: out[f32["n"]]):
    i = blockIdx.x * blockDim.x + threadIdx.x
    v = x[i]
    for k in simt.unroll(64):
        v += shfl_xor(v, 1 << k % 5)
    y[i] = v


@simt.kernel
def chased(following: i32["n"], y: out[i32["m"]]):
    i = blockIdx.x * blockDim.x + threadIdx.x
    for _ in range(32):
        i = following[i]
    y[blockIdx.x * blockDim.x + threadIdx.x] = i


@simt.kernel
def fragments_multiplied(a: f16["r k"], y: out[f32["m n"]]):
    left = wmma.fragment("a", 16, 16, 16, f16, "row")
    right = wmma.fragment("b", 16, 16, 16, f16, "row")
    total = wmma.fragment("accumulator", 16, 16, 16, f32)
    wmma.fill_fragment(total, 0.0)
    wmma.load_matrix_sync(left, a[0, 0], a.shape[1])
    wmma.load_matrix_sync(right, a[0, 0], a.shape[1])
    for _ in range(128):
        wmma.mma_sync(total, left, right, total)
    wmma.store_matrix_sync(y[blockIdx.x * 16, 0], total, y.shape[1])


large, wide = np.zeros(1 << 22, np.float32), np.zeros(1 << 18)
turned = np.roll(np.arange(1 << 12, dtype=np.int32), 97)
KNOWN: list[tuple[str, Any, int, int, tuple[Any, ...], dict[str, Any]]] = [
    ("dram", copied, 1 << 14, 256, (large,), {}),
    ("dram", four_at_once, 1 << 12, 256, (large,), {}),
    ("dram", far_apart, 1 << 10, 256, (large,), {"m": 1 << 18}),
    ("l2", small_table, 1 << 12, 256, (large[:32768],), {"m": 1 << 20}),
    ("shared", conflicts, 1 << 12, 256, (), {"n": 1 << 20, "S": 32}),
    ("shared", conflicts, 1 << 12, 256, (), {"n": 1 << 20, "S": 8}),
    ("issue", multiply_adds, 1 << 12, 256, (large[: 1 << 20],), {}),
    ("issue", wide_multiply_adds, 1 << 10, 256, (wide,), {}),
    ("issue", butterflies, 1 << 12, 256, (large[: 1 << 20],), {}),
    ("latency", chased, 4, 32, (turned,), {"m": 128}),
    ("latency", multiply_adds, 16, 32, (large[:512],), {}),
    ("tensor", fragments_multiplied, 2112, 32, (np.zeros((16, 16), np.float16),),
     {"m": 2112 * 16, "n": 16}),
]  # fmt: skip


@pytest.mark.parametrize("bound, kernel, grid, block, arguments, keywords", KNOWN,
                         ids=lambda value: getattr(value, "__name__", None))  # fmt: skip
def test_bounds(
    bound: str, kernel: Any, grid: int, block: int, arguments: Any, keywords: Any
) -> None:
    found = kernel.explain(grid, block, *arguments, gpu="h200", options=FEW, **keywords)
    assert found.prediction.bound == bound, found.prediction.units


def compiled(
    kernel: Any, grid: Any, block: Any, *arguments: Any, **keywords: Any
) -> CompiledCounts:
    pytest.importorskip("cuda.bindings.nvrtc")
    found = kernel.explain(grid, block, *arguments, gpu="h200", registers="compiled", **keywords)
    assert found.compiled is not None
    return found.compiled


def test_instructions_are_those_of_the_compiled_code() -> None:
    square = np.ones((64, 64), np.float32)
    counts = compiled(textbook.tiled, (2, 2), (32, 32), square, square, L=32)
    warps, steps = 4 * 32, 64
    assert counts.units["fma"] == warps * steps
    # of each tile's elements: two loads and two stores by each thread, of shared memory one load
    # for each element of a column and at best one for four of a row; the result is stored once
    fixed = 4 * 2 + steps + 1
    assert warps * (fixed + steps // 4) <= counts.units["lsu"] <= warps * (fixed + steps)
    once = compiled(multiply_adds, 2, 64, large[:128])
    assert once.units["fma"] == 4 * 256 and once.units["lsu"] == 4 * 2


@simt.kernel
def loaded_twice(x: f32["n"], y: out[f32["n"]]):
    y[threadIdx.x] = x[threadIdx.x] * 2.0 + x[threadIdx.x]


def test_loads_that_the_compiler_joins_are_named() -> None:
    line = loaded_twice.captured.source.first + 2
    (change,) = compiled(loaded_twice, 1, 32, large[:32]).changes
    assert change.startswith(f"line {line}: 67% of its accesses are left in the compiled code")
