"""Twenty of NVIDIA's CUDA samples, written anew: what each shows, as a kernel of ours."""

from math import erf, exp, log, sqrt

import numpy as np

from ridgeline import simt
from ridgeline.simt import (
    atomic_add,
    ballot,
    blockDim,
    blockIdx,
    const,
    cp_async,
    cp_async_commit,
    cp_async_wait,
    f16,
    f32,
    gridDim,
    i32,
    inout,
    lane,
    out,
    popc,
    shared,
    shfl,
    shfl_down,
    shfl_up,
    syncthreads,
    threadfence,
    threadIdx,
    u32,
    warp,
    wmma,
)
from tests.simt import textbook
from tests.simt.three_ways import Solved

TAPS = simt.constant(np.array([1, 4, 6, 4, 1], np.float32) / 16)


@simt.kernel
def vector_add(a: f32["n"], b: f32["n"], c: out[f32["n"]]):
    i = blockIdx.x * blockDim.x + threadIdx.x
    if i < c.shape[0]:
        c[i] = a[i] + b[i]


@simt.kernel
def votes(x: i32["n"], some: out[i32["n"]], every: out[i32["n"]]):
    i = blockIdx.x * blockDim.x + threadIdx.x
    some[i] = i32(simt.any(x[i] != 0))
    every[i] = i32(simt.all(x[i] != 0))


@simt.kernel
def atomics(y: inout[i32["9"]], c: inout[u32["2"]]):
    t = threadIdx.x + blockIdx.x * blockDim.x
    atomic_add(y, 0, 10)
    simt.atomic_sub(y, 1, 10)
    simt.atomic_exch(y, 2, 7)
    simt.atomic_max(y, 3, t)
    simt.atomic_min(y, 4, t)
    simt.atomic_cas(y, 5, -1, 13)
    simt.atomic_and(y, 6, 2 * t + 7)
    simt.atomic_or(y, 7, 1 << t % 16)
    simt.atomic_xor(y, 8, t)
    simt.atomic_inc(c, 0, u32(17))
    simt.atomic_dec(c, 1, u32(137))


@simt.kernel
def merge_sorted(x: i32["n"], y: out[i32["n"]], H: const = 32):
    s, merged = shared(2 * H, i32), shared(2 * H, i32)
    t = threadIdx.x
    base = blockIdx.x * 2 * H
    s[t] = x[base + t]
    syncthreads()
    other = H if t < H else 0
    low, high = 0, H
    while low < high:
        middle = (low + high) // 2
        if s[other + middle] < s[t] or (t >= H and s[other + middle] == s[t]):
            low = middle + 1
        else:
            high = middle
    merged[t % H + low] = s[t]
    syncthreads()
    y[base + t] = merged[t]


@simt.kernel
def half_product(a: f16["n"], b: f16["n"], y: inout[f32["1"]]):
    total = 0.0
    for i in simt.grid_stride(a.shape[0]):
        total += f32(a[i]) * f32(b[i])
    total = simt.warp_sum(total)
    if lane == 0:
        atomic_add(y, 0, total)


@simt.kernel
def reduction(x: f32["n"], y: out[f32["b"]]):
    part = shared(4, f32)
    total = 0.0
    for i in simt.grid_stride(x.shape[0]):
        total += x[i]
    for step in (16, 8, 4, 2, 1):
        total += shfl_down(total, step)
    if lane == 0:
        part[warp] = total
    syncthreads()
    if threadIdx.x == 0:
        y[blockIdx.x] = part[0] + part[1] + part[2] + part[3]


@simt.kernel
def exclusive_scan(x: i32["n"], y: out[i32["n"]]):
    s = shared(128, i32)
    t = threadIdx.x
    s[2 * t], s[2 * t + 1] = x[2 * t], x[2 * t + 1]
    offset = 1
    width = 64
    while width > 0:
        syncthreads()
        if t < width:
            s[offset * (2 * t + 2) - 1] += s[offset * (2 * t + 1) - 1]
        offset *= 2
        width //= 2
    if t == 0:
        s[127] = 0
    width = 1
    while width < 128:
        offset //= 2
        syncthreads()
        if t < width:
            left, right = offset * (2 * t + 1) - 1, offset * (2 * t + 2) - 1
            kept = s[left]
            s[left] = s[right]
            s[right] += kept
        width *= 2
    syncthreads()
    y[2 * t], y[2 * t + 1] = s[2 * t], s[2 * t + 1]


@simt.kernel
def shuffled_scan(x: i32["n"], y: out[i32["n"]]):
    sums = shared(4, i32)
    value = x[threadIdx.x]
    for k in range(5):
        before = shfl_up(value, 1 << k)
        if lane >= 1 << k:
            value += before
    if lane == 31:
        sums[warp] = value
    syncthreads()
    for w in range(3):
        if warp > w:
            value += sums[w]
    y[threadIdx.x] = value


@simt.kernel
def histogram(x: i32["n"], y: inout[i32["64"]]):
    own = shared((2, 64), i32)
    own[warp, lane], own[warp, lane + 32] = 0, 0
    syncthreads()
    for i in simt.grid_stride(x.shape[0]):
        atomic_add(own[warp, x[i]], 1)
    syncthreads()
    atomic_add(y, threadIdx.x, own[0, threadIdx.x] + own[1, threadIdx.x])


@simt.kernel
def scalar_products(a: f32["p n"], b: f32["p n"], y: out[f32["p"]]):
    s = shared(64, f32)
    for p in range(blockIdx.x, a.shape[0], gridDim.x):
        total = 0.0
        for i in range(threadIdx.x, a.shape[1], 64):
            total += a[p, i] * b[p, i]
        s[threadIdx.x] = total
        for half in (32, 16, 8, 4, 2, 1):
            syncthreads()
            if threadIdx.x < half:
                s[threadIdx.x] += s[threadIdx.x + half]
        if threadIdx.x == 0:
            y[p] = s[0]
        syncthreads()


@simt.kernel
def bitonic_sort(x: i32["n"], y: out[i32["n"]]):
    s = shared(128, i32)
    t = threadIdx.x
    s[t], s[t + 64] = x[t], x[t + 64]
    size = 2
    while size <= 128:
        stride = size // 2
        while stride > 0:
            syncthreads()
            at = 2 * t - t % stride
            up = (at & size) == 0
            a, b = s[at], s[at + stride]
            if (a > b) == up:
                s[at], s[at + stride] = b, a
            stride //= 2
        size *= 2
    syncthreads()
    y[t], y[t + 64] = s[t], s[t + 64]


@simt.kernel
def rows_convolved(x: f32["h w"], y: out[f32["h w"]]):
    s = shared((4, 36), f32)
    ty, tx = threadIdx.y, threadIdx.x
    row, column = blockIdx.y * 4 + ty, blockIdx.x * 32 + tx
    s[ty, tx + 2] = x.get(row, column, 0.0)
    if tx < 2:
        s[ty, tx] = x.get(row, column - 2, 0.0)
        s[ty, tx + 34] = x.get(row, column + 32, 0.0)
    syncthreads()
    total = 0.0
    for k in simt.unroll(5):
        total += s[ty, tx + k] * TAPS[k]
    y.put(row, column, total)


@simt.kernel
def fenced_reduction(x: i32["n"], part: inout[i32["b"]], done: inout[i32["1"]],
                     y: inout[i32["1"]]):  # fmt: skip
    last = shared(1, i32)
    total = simt.warp_sum(x[blockIdx.x * 32 + threadIdx.x])
    if threadIdx.x == 0:
        part[blockIdx.x] = total
        threadfence()
        last[0] = i32(atomic_add(done, 0, 1) == gridDim.x - 1)
        threadfence()
    syncthreads()
    if last[0] == 1:
        mine = 0
        for b in range(threadIdx.x, gridDim.x, 32):
            mine += part[b]
        mine = simt.warp_sum(mine)
        if threadIdx.x == 0:
            y[0] = mine


@simt.kernel
def tensor_product(a: f16["m k"], b: f16["k n"], c: out[f32["m n"]]):
    left = wmma.fragment("a", 16, 16, 16, f16, "row")
    right = wmma.fragment("b", 16, 16, 16, f16, "row")
    total = wmma.fragment("accumulator", 16, 16, 16, f32)
    wmma.fill_fragment(total, 0.0)
    y, x = blockIdx.y * 16, blockIdx.x * 16
    for k in range(0, a.shape[1], 16):
        wmma.load_matrix_sync(left, a[y, k], a.shape[1])
        wmma.load_matrix_sync(right, b[k, x], b.shape[1])
        wmma.mma_sync(total, left, right, total)
    wmma.store_matrix_sync(c[y, x], total, c.shape[1])


@simt.kernel
def copied_product(a: f32["m k"], b: f32["k n"], c: out[f32["m n"]]):
    ta, tb = shared((2, 16, 16), f32), shared((2, 16, 16), f32)
    ty, tx = threadIdx.y, threadIdx.x
    y, x = blockIdx.y * 16 + ty, blockIdx.x * 16 + tx
    cp_async(ta[0, ty, tx], a[y, tx])
    cp_async(tb[0, ty, tx], b[ty, x])
    cp_async_commit()
    total = 0.0
    for k in range(0, a.shape[1], 16):
        turn = k // 16 % 2
        if k + 16 < a.shape[1]:
            cp_async(ta[1 - turn, ty, tx], a[y, k + 16 + tx])
            cp_async(tb[1 - turn, ty, tx], b[k + 16 + ty, x])
        cp_async_commit()
        cp_async_wait(1)
        syncthreads()
        for i in range(16):
            total += ta[turn, ty, i] * tb[turn, i, tx]
        syncthreads()
    c[y, x] = total


@simt.kernel
def aggregated_filter(x: i32["n"], y: inout[i32["n"]], count: inout[i32["1"]]):
    value = x[blockIdx.x * blockDim.x + threadIdx.x]
    keeps = value > 0
    kept = ballot(keeps)
    first = 0
    if lane == 0:
        first = atomic_add(count, 0, popc(kept))
    first = shfl(first, 0)
    if keeps:
        y[first + popc(kept & ((u32(1) << u32(lane)) - u32(1)))] = value


@simt.device
def normal(d):
    return 0.5 * (1.0 + simt.erf(d * 0.70710678))


@simt.kernel
def black_scholes(s: f32["n"], x: f32["n"], t: f32["n"], call: out[f32["n"]], put: out[f32["n"]],
                  r: f32, v: f32):  # fmt: skip
    for i in simt.grid_stride(s.shape[0]):
        root = simt.sqrt(t[i])
        d1 = (simt.log(s[i] / x[i]) + (r + 0.5 * v * v) * t[i]) / (v * root)
        first, second = normal(d1), normal(d1 - v * root)
        later = x[i] * simt.exp(-r * t[i])
        call[i] = s[i] * first - later * second
        put[i] = later * (1.0 - second) - s[i] * (1.0 - first)


@simt.kernel
def walsh(x: f32["n"], y: out[f32["n"]]):
    s = shared(256, f32)
    for i in range(threadIdx.x, 256, blockDim.x):
        s[i] = x[i]
    stride = 1
    while stride < 256:
        syncthreads()
        for p in range(threadIdx.x, 128, blockDim.x):
            low = p // stride * stride * 2 + p % stride
            a, b = s[low], s[low + stride]
            s[low], s[low + stride] = a + b, a - b
        stride *= 2
    syncthreads()
    for i in range(threadIdx.x, 256, blockDim.x):
        y[i] = s[i]


draw = np.random.default_rng(0)


def floats(*shape: int) -> np.ndarray:
    return draw.standard_normal(shape).astype(np.float32)


def prices(s: np.ndarray, x: np.ndarray, t: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Call and put by the formula, with r = 0.02 and v = 0.3."""
    calls, puts = [], []
    for spot, strike, years in zip(s, x, t):
        d1 = (log(spot / strike) + (0.02 + 0.045) * years) / (0.3 * sqrt(years))
        first, second = (0.5 * (1 + erf(d / sqrt(2))) for d in (d1, d1 - 0.3 * sqrt(years)))
        later = strike * exp(-0.02 * years)
        calls.append(spot * first - later * second)
        puts.append(later * (1 - second) - spot * (1 - first))
    return np.array(calls), np.array(puts)


def hadamard(n: int) -> np.ndarray:
    signs = [[(-1) ** (i & j).bit_count() for j in range(n)] for i in range(n)]
    return np.array(signs, np.float64)


x1000, y1000, m, n = floats(1000), floats(1000), floats(48, 32), floats(32, 64)
ints = draw.integers(-50, 50, 256).astype(np.int32)
small = draw.integers(0, 64, 500).astype(np.int32)
zeroed = np.where(np.arange(128) // 32 == 1, 0, np.where(np.arange(128) == 70, 0, 3))
zeroed = zeroed.astype(np.int32)
warps = (zeroed.reshape(4, 32) != 0).repeat(32, 0).reshape(4, 32, 32)
halves, other = floats(300).astype(np.float16), floats(300).astype(np.float16)
pairs = np.sort(ints[:128].reshape(4, 32)).reshape(-1)
many, more = floats(5, 100), floats(5, 100)
image = floats(10, 70)
ten = np.pad(image, ((0, 0), (2, 2)))
taps = np.array([1, 4, 6, 4, 1]) / 16
convolved = sum(ten[:, k : k + 70] * taps[k] for k in range(5))
left, right = floats(32, 48).astype(np.float16), floats(48, 32).astype(np.float16)
spot, strike, years = (draw.uniform(low, high, 50).astype(np.float32)
                       for low, high in ((5, 30), (1, 100), (0.25, 10)))  # fmt: skip
xors = np.bitwise_xor.reduce(np.arange(64))
bits = np.bitwise_and.reduce(np.append(0xFF, 2 * np.arange(64) + 7))
after = [640, -640, 7, 63, 0, 13, bits, 0xFFFF, xors]
before = np.array([0, 0, 0, 0, 99, -1, 0xFF, 0, 0], np.int32)


turns = np.arange(1000) // 128 % 2  # the block that adds an element


def zeros(*shape: int) -> np.ndarray:
    return np.zeros(shape, np.int32)


SOLVED = [
    Solved("vectorAdd", vector_add, 4, 256, (x1000, y1000), (x1000 + y1000,)),
    Solved("matrixMul", textbook.tiled, (4, 3), (16, 16), (m, n), (m @ n,), far=1e-4),
    Solved("simpleVoteIntrinsics", votes, 2, 64, (zeroed,),
           (warps.any(2).reshape(-1), warps.all(2).reshape(-1))),
    Solved("simpleAtomicIntrinsics", atomics, 2, 32, (before, np.zeros(2, np.uint32)),
           (after, [64 % 18, 138 - 64])),
    Solved("mergeSort", merge_sorted, 2, 64, (pairs,),
           (np.sort(pairs.reshape(2, 64)).reshape(-1),)),
    Solved("fp16ScalarProduct", half_product, 2, 64, (halves, other, np.zeros(1, np.float32)),
           ([halves.astype(np.float64) @ other],), far=1e-3),
    Solved("reduction", reduction, 2, 128, (x1000,), (np.bincount(turns, x1000),), {"b": 2},
           far=1e-4),
    Solved("scan", exclusive_scan, 1, 64, (ints[:128],), (np.cumsum(ints[:128]) - ints[:128],)),
    Solved("shfl_scan", shuffled_scan, 1, 128, (ints[:128],), (np.cumsum(ints[:128]),)),
    Solved("histogram", histogram, 3, 64, (small, zeros(64)), (np.bincount(small, minlength=64),)),
    Solved("scalarProd", scalar_products, 3, 64, (many, more), ((many * more).sum(1),), far=1e-4),
    Solved("sortingNetworks", bitonic_sort, 1, 64, (ints[:128],), (np.sort(ints[:128]),)),
    Solved("convolutionSeparable", rows_convolved, (3, 3), (32, 4), (image,), (convolved,),
           far=1e-5),
    Solved("threadFenceReduction", fenced_reduction, 8, 32, (ints, zeros(8), zeros(1), zeros(1)),
           (ints.reshape(8, 32).sum(1), [8], [ints.sum()])),
    Solved("cudaTensorCoreGemm", tensor_product, (2, 2), 32, (left, right),
           (left.astype(np.float32) @ right.astype(np.float32),), far=1e-2),
    Solved("globalToShmemAsyncCopy", copied_product, (4, 3), (16, 16), (m, n), (m @ n,), far=1e-4),
    Solved("warpAggregatedAtomics", aggregated_filter, 4, 64, (ints, zeros(256), zeros(1)),
           (None, [(ints > 0).sum()])),
    Solved("transpose", textbook.transpose, (3, 4), (32, 8), (image,), (image.T,)),
    Solved("BlackScholes", black_scholes, 1, 32, (spot, strike, years, 0.02, 0.3),
           prices(spot, strike, years), far=1e-4),
    Solved("fastWalshTransform", walsh, 1, 64, (x1000[:256],), (hadamard(256) @ x1000[:256],),
           far=1e-3),
]  # fmt: skip
