"""User kernels on a real GPU, against NumPy and the host."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import ridgeline as rl
from ridgeline import simt
from ridgeline.simt import bf16, blockIdx, f16, f32, i32, inout, out, threadIdx, wmma
from tests.simt import textbook

pytestmark = pytest.mark.gpu
rng = np.random.default_rng(0)


def floats(*shape: int) -> np.ndarray[Any, Any]:
    return rng.standard_normal(shape).astype(np.float32)


def on_gpu(array: np.ndarray[Any, Any]) -> rl.Tensor:
    return rl.tensor(array, device="cuda")


@simt.kernel
def tensor_core_product(a: f16["m k"], b: f16["k n"], c: out[f32["m n"]]):
    left = wmma.fragment("a", 16, 16, 16, f16, "row")
    right = wmma.fragment("b", 16, 16, 16, f16, "row")
    total = wmma.fragment("accumulator", 16, 16, 16, f32)
    wmma.fill_fragment(total, 0.0)
    for k in range(0, a.shape[1], 16):
        wmma.load_matrix_sync(left, a, (blockIdx.y * 16, k), a.shape[1])
        wmma.load_matrix_sync(right, b, (k, blockIdx.x * 16), b.shape[1])
        wmma.mma_sync(total, left, right, total)
    wmma.store_matrix_sync(c, (blockIdx.y * 16, blockIdx.x * 16), total, c.shape[1])


@simt.kernel
def shifted_by_blocks(x: i32["n"], y: out[i32["n"]], t: inout[i32["n"]]):
    i = blockIdx.x * 64 + threadIdx.x
    t[i] = x[i] * 2
    simt.grid_sync()
    y[i] = t[(i + 64) % x.shape[0]]


def test_the_textbook() -> None:
    x, y = floats(1000), floats(1000)
    call = lambda: textbook.axpy[4, 256](2.0, on_gpu(x), on_gpu(y))  # noqa: E731
    with rl.eager():
        np.testing.assert_allclose(call().cpu().numpy(), 2 * x + y, atol=1e-6)
    np.testing.assert_allclose(call().cpu().numpy(), 2 * x + y, atol=1e-6)
    step = rl.jit(lambda a, b, s: textbook.axpy[4, 256](s, a + 1, b) * 2)
    for s in (1.0, 2.0, 3.0):
        found = step(on_gpu(x), on_gpu(y), s).cpu().numpy()
        np.testing.assert_allclose(found, (s * (x + 1) + y) * 2, atol=1e-5)
    at, b = floats(50, 100), floats(50, 70)
    found = textbook.matmul[(2, 2), (16, 16)](on_gpu(at), on_gpu(b)).cpu().numpy()
    np.testing.assert_allclose(found, at.T @ b, atol=1e-4)
    a = floats(100, 77)
    np.testing.assert_array_equal(textbook.transpose[(3, 4), (32, 8)](on_gpu(a)).cpu().numpy(), a.T)
    np.testing.assert_allclose(
        textbook.smooth[2, 160](on_gpu(floats(300) * 0 + 0.5)).cpu().numpy(),
        np.exp(0.5) + np.sin(0.5) * np.tanh(0.5), rtol=1e-6,
    )  # fmt: skip


def test_integers_are_equal_to_the_hosts() -> None:
    v = rng.integers(0, 1000, 5000).astype(np.int32)
    h = rl.zeros(16, dtype=rl.int32, device="cuda")
    textbook.histogram[7, 96](on_gpu(v), h)
    np.testing.assert_array_equal(h.cpu().numpy(), np.bincount(v % 16, minlength=16))
    x = np.arange(1, 500, dtype=np.int32)
    for kernel, grid, block in ((textbook.collatz, 8, 64), (textbook.window_sum, 8, 64)):
        here, there = (kernel[grid, block](t).cpu().numpy() for t in (rl.tensor(x), on_gpu(x)))
        np.testing.assert_array_equal(here, there)


def test_arrays_written_in_place_and_state_of_a_step() -> None:
    state = rl.zeros(8, device="cuda")

    @rl.jit
    def step(v: float) -> rl.Tensor:
        textbook.scale[1, 32](state, 2.0)
        state.add_(v)
        return state.sum()

    assert [step(1.0).item() for _ in range(4)] == [8, 24, 56, 120]


def test_tensor_cores() -> None:
    a, b = floats(64, 48).astype(np.float16), floats(48, 32).astype(np.float16)
    found = tensor_core_product[(2, 4), 32](on_gpu(a), on_gpu(b)).cpu().numpy()
    np.testing.assert_allclose(found, a.astype(np.float32) @ b.astype(np.float32), atol=1e-2)
    here = tensor_core_product[(2, 4), 32](rl.tensor(a), rl.tensor(b)).numpy()
    np.testing.assert_allclose(found, here, atol=1e-3)


def test_a_barrier_of_the_grid() -> None:
    x = rng.integers(0, 99, 64 * 20).astype(np.int32)
    for _ in range(3):
        found = shifted_by_blocks[20, 64](on_gpu(x), on_gpu(x)).cpu().numpy()
        np.testing.assert_array_equal(found, np.roll(x, -64) * 2)


def test_the_language_has_bfloat16() -> None:
    @simt.kernel
    def halved(x: bf16["n"], y: out[bf16["n"]]):
        y[threadIdx.x] = x[threadIdx.x] * bf16(0.5)

    x = rl.randn(32, device="cuda").to(rl.bfloat16)
    np.testing.assert_array_equal(
        halved[1, 32](x).float().cpu().numpy(), (x * 0.5).float().cpu().numpy()
    )
