"""GPU-Puzzles: fourteen small kernels, from a map to a product."""

import numpy as np

from ridgeline import simt
from ridgeline.simt import blockDim, blockIdx, f32, out, shared, syncthreads, threadIdx
from tests.simt.three_ways import Solved


@simt.kernel
def add_ten(a: f32["n"], y: out[f32["n"]]):
    y[threadIdx.x] = a[threadIdx.x] + 10


@simt.kernel
def zipped(a: f32["n"], b: f32["n"], y: out[f32["n"]]):
    y[threadIdx.x] = a[threadIdx.x] + b[threadIdx.x]


@simt.kernel
def guarded(a: f32["n"], y: out[f32["n"]]):
    i = threadIdx.x
    if i < y.shape[0]:
        y[i] = a[i] + 10


@simt.kernel
def squares(a: f32["n n"], y: out[f32["n n"]]):
    i, j = threadIdx.x, threadIdx.y
    if i < y.shape[0] and j < y.shape[1]:
        y[i, j] = a[i, j] + 10


@simt.kernel
def broadcast(a: f32["n 1"], b: f32["1 n"], y: out[f32["n n"]]):
    i, j = threadIdx.x, threadIdx.y
    if i < y.shape[0] and j < y.shape[1]:
        y[i, j] = a[i, 0] + b[0, j]


@simt.kernel
def blocks(a: f32["n"], y: out[f32["n"]]):
    i = blockIdx.x * blockDim.x + threadIdx.x
    if i < y.shape[0]:
        y[i] = a[i] + 10


@simt.kernel
def blocks_of_squares(a: f32["n n"], y: out[f32["n n"]]):
    i, j = simt.grid(2)
    if i < y.shape[0] and j < y.shape[1]:
        y[i, j] = a[i, j] + 10


@simt.kernel
def through_shared(a: f32["n"], y: out[f32["n"]]):
    s = shared(4, f32)
    i = blockIdx.x * blockDim.x + threadIdx.x
    if i < a.shape[0]:
        s[threadIdx.x] = a[i]
    syncthreads()
    if i < a.shape[0]:
        y[i] = s[threadIdx.x] + 10


@simt.kernel
def pooling(a: f32["n"], y: out[f32["n"]]):
    s = shared(8, f32)
    t = threadIdx.x
    s[t] = a[t]
    syncthreads()
    total = s[t]
    for back in range(1, 3):
        if t >= back:
            total += s[t - back]
    y[t] = total


@simt.kernel
def dot(a: f32["n"], b: f32["n"], y: out[f32["1"]]):
    s = shared(8, f32)
    t = threadIdx.x
    s[t] = a[t] * b[t]
    syncthreads()
    if t == 0:
        total = 0.0
        for i in range(8):
            total += s[i]
        y[0] = total


@simt.kernel
def convolution(a: f32["n"], b: f32["k"], y: out[f32["n"]]):
    s, w = shared(12, f32), shared(4, f32)
    t = threadIdx.x
    i = blockIdx.x * 8 + t
    s[t] = a.get(i, 0)
    if t < 4:
        s[t + 8] = a.get(i + 8, 0)
        w[t] = b.get(t, 0)
    syncthreads()
    total = 0.0
    for k in range(4):
        total += s[t + k] * w[k]
    y.put(i, total)


@simt.kernel
def block_sums(a: f32["n"], y: out[f32["m"]]):
    s = shared(8, f32)
    t = threadIdx.x
    s[t] = a.get(blockIdx.x * 8 + t, 0)
    for half in (4, 2, 1):
        syncthreads()
        if t < half:
            s[t] += s[t + half]
    if t == 0:
        y[blockIdx.x] = s[0]


@simt.kernel
def axis_sum(a: f32["b n"], y: out[f32["b 1"]]):
    s = shared(8, f32)
    t = threadIdx.x
    s[t] = a.get(blockIdx.y, t, 0)
    for half in (4, 2, 1):
        syncthreads()
        if t < half:
            s[t] += s[t + half]
    if t == 0:
        y[blockIdx.y, 0] = s[0]


@simt.kernel
def product(a: f32["n n"], b: f32["n n"], y: out[f32["n n"]]):
    sa, sb = shared((3, 3), f32), shared((3, 3), f32)
    ty, tx = threadIdx.y, threadIdx.x
    i, j = blockIdx.y * 3 + ty, blockIdx.x * 3 + tx
    total = 0.0
    for k in range(0, a.shape[0], 3):
        sa[ty, tx] = a.get(i, k + tx, 0)
        sb[ty, tx] = b.get(k + ty, j, 0)
        syncthreads()
        for m in range(3):
            total += sa[ty, m] * sb[m, tx]
        syncthreads()
    y.put(i, j, total)


line, short, square = (
    np.random.default_rng(0).integers(0, 9, shape).astype(np.float32) for shape in (8, 3, (8, 8))
)
kernel_of_four = np.array([1, 2, 0, 3], np.float32)
padded = np.append(line, np.zeros(4, np.float32))
twelve = np.arange(12, dtype=np.float32)
windows = np.array([padded[i : i + 4] @ kernel_of_four for i in range(8)])
SOLVED = [
    Solved("1 map", add_ten, 1, 8, (line,), (line + 10,)),
    Solved("2 zip", zipped, 1, 8, (line, line[::-1].copy()), (line + line[::-1],)),
    Solved("3 guards", guarded, 1, 32, (line,), (line + 10,)),
    Solved("4 map 2D", squares, 1, (9, 9), (square,), (square + 10,)),
    Solved("5 broadcast", broadcast, 1, (9, 9), (line[:, None], line[None]),
           (line[:, None] + line,)),
    Solved("6 blocks", blocks, 3, 4, (line,), (line + 10,)),
    Solved("7 blocks 2D", blocks_of_squares, (3, 3), (3, 3), (square,), (square + 10,)),
    Solved("8 shared", through_shared, 2, 4, (line,), (line + 10,)),
    Solved("9 pooling", pooling, 1, 8, (line,), (np.convolve(line, np.ones(3))[:8],)),
    Solved("10 dot product", dot, 1, 8, (line, line), ([line @ line],)),
    Solved("11 convolution", convolution, 1, 8, (line, kernel_of_four), (windows,)),
    Solved("12 prefix sum", block_sums, 2, 8, (twelve,), ([28, 38],), {"m": 2}),
    Solved("13 axis sum", axis_sum, (1, 8), 8, (square,), (square.sum(1, keepdims=True),)),
    Solved("14 product", product, (3, 3), (3, 3), (square, square), (square @ square,)),
]  # fmt: skip
