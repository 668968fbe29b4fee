"""Kernels over tiles against NumPy, on the host and in the simulator."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import ridgeline as rl
from ridgeline.errors import BadValueError
from ridgeline.simt import const, f32, out, tile
from ridgeline.simt.frontend.problems import KernelLanguageError

rng = np.random.default_rng(0)


@tile.kernel
def softmax(x: f32["r c"], y: out[f32["r c"]], B: const = 256):
    r, m, s = tile.block(0), f32("-inf"), f32(0)
    for t in tile.range(x.shape[1], B):
        v = x[r, t]
        new = max(m, v.max())
        s = s * tile.exp(m - new) + tile.exp(v - new).sum()
        m = new
    for t in tile.range(x.shape[1], B):
        y[r, t] = tile.exp(x[r, t] - m) / s


@tile.kernel(threads=64)
def relu_product(
    a: f32["m k"], b: f32["k n"], c: out[f32["m n"]], M: const = 32, N: const = 32, K: const = 16
):
    i, j = tile.span(tile.block(1) * M, M), tile.span(tile.block(0) * N, N)
    acc = tile.zeros((M, N), f32)
    for k in tile.range(a.shape[1], K):
        acc += tile.dot(a[i, k], b[k, j])
    c[i, j] = tile.maximum(acc, 0.0)


@tile.kernel
def centred(x: f32["m n"], y: out[f32["m n"]], M: const = 16, N: const = 48):
    i, j = tile.span(tile.block(0) * M, M), tile.span(0, N)
    v = x[i, j]
    mean = v.sum(axis=1) / f32(x.shape[1])
    y[i, j] = v - mean[:, None]


@tile.kernel
def chosen(x: f32["n"], y: out[f32["n"]], B: const = 100):
    t = tile.span(tile.block(0) * B, B)
    v = x[t]
    y[t] = tile.where(v > 0.0, v * 2.0 + 1.0, -v)


def floats(*shape: int) -> np.ndarray[Any, Any]:
    return rng.standard_normal(shape).astype(np.float32)


@pytest.mark.parametrize("columns", [1, 255, 256, 1000])
def test_softmax_of_any_length(columns: int) -> None:
    x = floats(5, columns) - 3  # all below zero: what is past the end must not count
    e = np.exp(x - x.max(1, keepdims=True))
    wanted = e / e.sum(1, keepdims=True)
    for found in (softmax[5](rl.tensor(x)), rl.jit(lambda v: softmax[5](v))(rl.tensor(x))):
        np.testing.assert_allclose(found.numpy(), wanted, atol=1e-6)


def test_products_whose_sizes_fit_no_tile() -> None:
    a, b = floats(50, 40), floats(40, 70)
    found = relu_product[3, 2](rl.tensor(a), rl.tensor(b)).numpy()
    np.testing.assert_allclose(found, np.maximum(a @ b, 0), atol=1e-4)


def test_lines_of_tiles_and_choices() -> None:
    x = floats(40, 40)
    found = centred[3](rl.tensor(x)).numpy()
    np.testing.assert_allclose(found, x - x.mean(1, keepdims=True), atol=1e-6)
    v = floats(333)
    np.testing.assert_array_equal(
        chosen[4](rl.tensor(v)).numpy(), np.where(v > 0, v * np.float32(2) + 1, -v)
    )


def test_the_threads_of_a_tile_kernel_do_not_race() -> None:
    assert softmax.simulate(2, floats(2, 300)).errors == ()
    assert relu_product.simulate((2, 1), floats(20, 20), floats(20, 40)).errors == ()
    assert centred.simulate(1, floats(16, 40)).errors == ()
    assert "simt.warp_max" in softmax.threads()


def test_what_is_not_in_the_language_is_refused_with_its_line() -> None:
    with pytest.raises(KernelLanguageError, match="no While") as caught:

        @tile.kernel
        def endless(x: f32["n"], y: out[f32["n"]]):
            while True:
                pass

    assert "test_tile.py" in str(caught.value)
    with pytest.raises(BadValueError, match="whole warps"):
        tile.kernel(threads=100)(lambda: None)
    with pytest.raises(TypeError, match=r"softmax is a kernel"):
        softmax(rl.zeros(3, 3))
