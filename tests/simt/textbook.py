"""The textbook's kernels, right ones, for every way to run."""

from __future__ import annotations

from ridgeline import simt
from ridgeline.simt import (
    blockDim,
    blockIdx,
    const,
    f32,
    i32,
    inout,
    lane,
    out,
    threadIdx,
)

shared, syncthreads = simt.shared, simt.syncthreads  # names that kernels use without a module


@simt.kernel
def axpy(a: f32, x: f32["n"], y: f32["n"], z: out[f32["n"]]):
    i = blockIdx.x * blockDim.x + threadIdx.x
    if i < z.shape[0]:
        z[i] = a * x[i] + y[i]


@simt.kernel
def scale(x: inout[f32["n"]], s: f32):
    i = blockIdx.x * blockDim.x + threadIdx.x
    if i < x.shape[0]:
        x[i] = x[i] * s


@simt.kernel
def reverse(d: inout[i32["n"]]):
    buf = shared(64, i32)
    i = threadIdx.x
    buf[i] = d[i]
    syncthreads()
    d[i] = buf[d.shape[0] - 1 - i]


@simt.kernel
def window_sum(x: i32["n"], y: out[i32["n"]], R: const = 3, B: const = 64):
    near = shared(B + 2 * R, i32)
    i = blockIdx.x * B + threadIdx.x
    t = threadIdx.x
    near[t + R] = x.get(i, 0)
    if t < R:
        near[t] = x.get(i - R, 0)
        near[t + R + B] = x.get(i + B, 0)
    syncthreads()
    total = 0
    for o in range(2 * R + 1):
        total += near[t + o]
    y.put(i, total)


@simt.kernel
def matmul(
    at: f32["k m"], b: f32["k n"], c: out[f32["m n"]], L: const = 64, S: const = 8, V: const = 4
):
    sa, sb, acc = shared((S, L), f32), shared((S, L), f32), simt.local((V, V), f32, fill=0)
    W = L // V
    t, y0, x0 = threadIdx.y * W + threadIdx.x, blockIdx.y * L, blockIdx.x * L
    for ko in range(0, b.shape[0], S):
        syncthreads()
        for e in range(t, S * L, W * W):
            sa[e // L, e % L] = at.get(ko + e // L, y0 + e % L, 0)
            sb[e // L, e % L] = b.get(ko + e // L, x0 + e % L, 0)
        syncthreads()
        for ki, y, x in simt.unroll(S, V, V):
            acc[y, x] += sa[ki, threadIdx.y * V + y] * sb[ki, threadIdx.x * V + x]
    for y, x in simt.unroll(V, V):
        c.put(y0 + threadIdx.y * V + y, x0 + threadIdx.x * V + x, acc[y, x])


@simt.kernel
def tiled(a: f32["m k"], b: f32["k n"], c: out[f32["m n"]], L: const = 16):
    ta, tb = shared((L, L), f32), shared((L, L), f32)
    ty, tx = threadIdx.y, threadIdx.x
    y, x = blockIdx.y * L + ty, blockIdx.x * L + tx
    total = 0.0
    for k in range(0, a.shape[1], L):
        ta[ty, tx] = a[y, k + tx]
        tb[ty, tx] = b[k + ty, x]
        syncthreads()
        for i in range(L):
            total += ta[ty, i] * tb[i, tx]
        syncthreads()
    c[y, x] = total


@simt.kernel
def block_sum(x: f32["n"], y: out[f32["b"]]):
    s = shared(256, f32)
    t = threadIdx.x
    s[t] = x.get(blockIdx.x * blockDim.x + t, 0.0)
    syncthreads()
    w = blockDim.x // 2
    while w > 0:
        if t < w:
            s[t] = s[t] + s[t + w]
        syncthreads()
        w = w // 2
    if t == 0:
        y[blockIdx.x] = s[0]


@simt.kernel
def warp_totals(x: f32["n"], y: inout[f32["1"]]):
    i = blockIdx.x * blockDim.x + threadIdx.x
    v = x.get(i, 0.0)
    for o in range(5):
        v = v + simt.shfl_xor(v, 1 << o)
    if lane == 0:
        simt.atomic_add(y, 0, v)


@simt.kernel
def histogram(x: i32["n"], h: inout[i32["16"]]):
    s = shared(16, i32)
    t = threadIdx.x
    if t < 16:
        s[t] = 0
    syncthreads()
    for i in simt.grid_stride(x.shape[0]):
        simt.atomic_add(s, x[i] % 16, 1)
    syncthreads()
    if t < 16:
        simt.atomic_add(h, t, s[t])


@simt.kernel
def collatz(x: i32["n"], y: out[i32["n"]]):
    i = blockIdx.x * blockDim.x + threadIdx.x
    if i >= x.shape[0]:
        return
    v = x[i]
    c = 0
    while v != 1:
        if v % 2 == 0:
            v = v // 2
        else:
            v = 3 * v + 1
        c += 1
        if c > 100:
            break
        if v == 4:
            continue
    y[i] = c


@simt.kernel
def transpose(a: f32["m n"], b: out[f32["n m"]]):
    tile = shared((32, 33), f32)
    x, y = blockIdx.x * 32 + threadIdx.x, blockIdx.y * 32 + threadIdx.y
    for j in range(0, 32, 8):
        if x < a.shape[1] and y + j < a.shape[0]:
            tile[threadIdx.y + j, threadIdx.x] = a[y + j, x]
    syncthreads()
    p, q = blockIdx.y * 32 + threadIdx.x, blockIdx.x * 32 + threadIdx.y
    for j in range(0, 32, 8):
        if p < a.shape[0] and q + j < a.shape[1]:
            b[q + j, p] = tile[threadIdx.x, threadIdx.y + j]


@simt.kernel
def smooth(x: f32["n"], y: out[f32["n"]]):
    i = blockIdx.x * blockDim.x + threadIdx.x
    if i < x.shape[0]:
        v = x[i]
        y[i] = simt.exp(v) + simt.sin(v) * simt.tanh(v) if v > 0.0 else simt.sqrt(-v)


ALL = {
    axpy: (256, 1, 1), scale: (100, 1, 1), reverse: (64, 1, 1), window_sum: (64, 1, 1),
    matmul: (16, 16, 1), tiled: (16, 16, 1), block_sum: (256, 1, 1), warp_totals: (128, 1, 1),
    histogram: (96, 1, 1), collatz: (64, 1, 1), transpose: (32, 8, 1), smooth: (160, 1, 1),
}  # fmt: skip
