"""Triton-Puzzles: twelve small kernels over tiles, from a sum to a product of four-bit weights."""

import numpy as np

from ridgeline.simt import const, f32, i32, out, tile
from tests.simt.three_ways import Solved


@tile.kernel
def constant_add(x: f32["n"], z: out[f32["n"]], B: const = 32):
    i = tile.span(tile.block(0) * B, B)
    z[i] = x[i] + 10.0


@tile.kernel
def outer_add(x: f32["n"], y: f32["m"], z: out[f32["m n"]], B: const = 32):
    i, j = tile.span(tile.block(0) * B, B), tile.span(tile.block(1) * B, B)
    a, b = x[i], y[j]
    z[j, i] = a[None, :] + b[:, None]


@tile.kernel
def relu_of_products(x: f32["n"], y: f32["m"], z: out[f32["m n"]], B: const = 32):
    i, j = tile.span(tile.block(0) * B, B), tile.span(tile.block(1) * B, B)
    a, b = x[i], y[j]
    z[j, i] = tile.maximum(a[None, :] * b[:, None], 0.0)


@tile.kernel
def relu_backwards(x: f32["m n"], y: f32["m"], dz: f32["m n"], dx: out[f32["m n"]],
                   B: const = 32):  # fmt: skip
    i, j = tile.span(tile.block(0) * B, B), tile.span(tile.block(1) * B, B)
    b = y[j]
    dx[j, i] = tile.where(x[j, i] * b[:, None] > 0.0, b[:, None] * dz[j, i], 0.0)


@tile.kernel
def long_sum(x: f32["r t"], z: out[f32["r"]], B: const = 32):
    total = f32(0)
    for t in tile.range(x.shape[1], B):
        total += x[tile.block(0), t].sum()
    z[tile.block(0)] = total


@tile.kernel
def long_softmax(x: f32["r t"], z: out[f32["r t"]], B: const = 32):
    r, m, s = tile.block(0), f32("-inf"), f32(0)
    for t in tile.range(x.shape[1], B):
        v = x[r, t]
        new = max(m, v.max())
        s = s * tile.exp(m - new) + tile.exp(v - new).sum()
        m = new
    for t in tile.range(x.shape[1], B):
        z[r, t] = tile.exp(x[r, t] - m) / s


@tile.kernel
def flash_attention(q: f32["n"], k: f32["t"], v: f32["t"], z: out[f32["n"]], R: const = 16,
                    B: const = 48):  # fmt: skip
    i = tile.span(tile.block(0) * R, R)
    query, m = q[i], tile.full((R,), -3e38, f32)
    s, acc = tile.zeros((R,), f32), tile.zeros((R,), f32)
    for t in tile.range(k.shape[0], B):
        key, value = k[t], v[t]
        x = query[:, None] * key[None, :]
        new = tile.maximum(m, x.max(axis=1))
        e = tile.exp(x - new[:, None])
        old = tile.exp(m - new)
        s = s * old + e.sum(axis=1)
        weighted = e * value[None, :]
        acc = acc * old + weighted.sum(axis=1)
        m = new
    z[i] = acc / s


@tile.kernel
def convolution(x: f32["b h w"], k: f32["p q"], z: out[f32["b h w"]], H: const = 8, W: const = 8):
    b = tile.block(0)
    i, j = tile.span(0, H), tile.span(0, W)
    acc = tile.zeros((H, W), f32)
    for p in range(k.shape[0]):
        for q in range(k.shape[1]):
            down, right = tile.span(p, H), tile.span(q, W)
            acc += x[b, down, right] * k[p, q]
    z[b, i, j] = acc


@tile.kernel
def product(x: f32["b n k"], y: f32["b k m"], z: out[f32["b n m"]], B: const = 16):
    i, j = tile.span(tile.block(0) * B, B), tile.span(tile.block(1) * B, B)
    b, acc = tile.block(2), tile.zeros((B, B), f32)
    for k in tile.range(x.shape[2], B):
        acc += tile.dot(x[b, i, k], y[b, k, j])
    z[b, i, j] = acc


@tile.kernel
def quantized_product(scale: f32["n g"], offset: i32["n"], weight: i32["n g"], y: f32["k m"],
                      z: out[f32["n m"]], B: const = 16):  # fmt: skip
    i, j = tile.span(tile.block(0) * B, B), tile.span(tile.block(1) * B, B)
    acc = tile.zeros((B, B), f32)
    for g in range(weight.shape[1]):
        for n in range(8):
            whole = (weight[i, g] >> (4 * n)) & 15
            shift = (offset[i] >> (4 * g)) & 15
            left, right = scale[i, g] * f32(whole - shift), y[g * 8 + n, j]
            acc += left[:, None] * right[None, :]
    z[i, j] = acc


draw = np.random.default_rng(0)


def floats(*shape: int) -> np.ndarray:
    return draw.standard_normal(shape).astype(np.float32)


def softmax(x: np.ndarray) -> np.ndarray:
    e = np.exp(x - x.max(1, keepdims=True))
    return e / e.sum(1, keepdims=True)


def nibbles(x: np.ndarray) -> np.ndarray:
    return (x[..., None] >> (np.arange(8) * 4)) & 15


x32, y32, x200, x100, y90 = (floats(n) for n in (32, 32, 200, 100, 90))
x90, dz90, rows = floats(90, 100), floats(90, 100), floats(4, 200)
q, k, v = floats(200), floats(200), floats(200)
image, window = floats(4, 8, 8), floats(4, 4)
a, b = floats(4, 32, 32), floats(4, 32, 32)
scale, y64 = floats(32, 8), floats(64, 32)
offset, weight = (draw.integers(-100000, 100000, n).astype(np.int32) for n in (32, (32, 8)))
grown = np.pad(image, ((0, 0), (0, 4), (0, 4)))
windows = np.lib.stride_tricks.sliding_window_view(grown, (4, 4), (1, 2))[:, :8, :8]
weights = scale.repeat(8, 1) * (nibbles(weight).reshape(32, 64) - nibbles(offset).repeat(8, 1))
outer = x100 * y90[:, None]

SOLVED = [
    Solved("1 constant add", constant_add, 1, 0, (x32,), (x32 + 10,)),
    Solved("2 constant add block", constant_add, 7, 0, (x200,), (x200 + 10,)),
    Solved("3 outer add", outer_add, 1, 0, (x32, y32), (x32 + y32[:, None],)),
    Solved("4 outer add block", outer_add, (4, 3), 0, (x100, y90), (x100 + y90[:, None],)),
    Solved("5 fused outer product", relu_of_products, (4, 3), 0, (x100, y90),
           (np.maximum(outer, 0),)),
    Solved("6 its gradient", relu_backwards, (4, 3), 0, (x90, y90, dz90),
           ((x90 * y90[:, None] > 0) * y90[:, None] * dz90,)),
    Solved("7 long sum", long_sum, 4, 0, (rows,), (rows.sum(1),), far=1e-4),
    Solved("8 long softmax", long_softmax, 4, 0, (rows,), (softmax(rows),), far=1e-6),
    Solved("9 flash attention", flash_attention, 13, 0, (q, k, v),
           (softmax(q[:, None] * k) @ v,), far=1e-4),
    Solved("10 convolution", convolution, 4, 0, (image, window),
           (np.einsum("bhwij,ij->bhw", windows, window),), far=1e-5),
    Solved("11 product", product, (2, 2, 4), 0, (a, b), (a @ b,), far=1e-4),
    Solved("12 quantized product", quantized_product, (2, 2), 0, (scale, offset, weight, y64),
           (weights @ y64,), far=1e-3),
]  # fmt: skip
