"""Labelled kernels that are whole programs: sorts, stencils, scans over blocks, locks, tasks."""

import numpy as np

from ridgeline import simt
from ridgeline.simt import (
    atomic_add,
    atomic_cas,
    atomic_exch,
    blockDim,
    blockIdx,
    grid_sync,
    i32,
    inout,
    shared,
    syncthreads,
    syncwarp,
    threadfence,
    threadIdx,
    volatile_load,
    warp_sum,
)
from tests.simt.labelled import case, numbers, zeros


@simt.device
def rev(s, x, y):
    t = threadIdx.x
    s[t] = x[t]
    syncthreads()
    y[t] = s[63 - t]


@case(None, 1, 64, np.random.default_rng(0).permutation(128).astype(np.int32))
def odd_even(d: inout[i32["n"]]):
    s = shared(128, i32)
    t = threadIdx.x
    s[t] = d[t]
    s[t + 64] = d[t + 64]
    for k in range(128):
        syncthreads()
        j = 2 * t + (k % 2)
        if j + 1 < 128:
            a = s[j]
            b = s[j + 1]
            if a > b:
                s[j] = b
                s[j + 1] = a
    syncthreads()
    d[t] = s[t]
    d[t + 64] = s[t + 64]


@case(None, 1, 64, np.random.default_rng(0).permutation(64).astype(np.int32))
def bitonic(d: inout[i32["n"]]):
    s = shared(64, i32)
    t = threadIdx.x
    s[t] = d[t]
    syncthreads()
    k = 2
    while k <= 64:
        j = k // 2
        while j > 0:
            p = t ^ j
            if p > t:
                up = (t & k) == 0
                if (s[t] > s[p]) == up:
                    tmp = s[t]
                    s[t] = s[p]
                    s[p] = tmp
            syncthreads()
            j //= 2
        k *= 2
    d[t] = s[t]


@case("shared race", 1, 64, np.random.default_rng(0).permutation(64).astype(np.int32))
def bitonic_nobar(d: inout[i32["n"]]):
    s = shared(64, i32)
    t = threadIdx.x
    s[t] = d[t]
    syncthreads()
    k = 2
    while k <= 64:
        j = k // 2
        while j > 0:
            p = t ^ j
            if p > t:
                up = (t & k) == 0
                if (s[t] > s[p]) == up:
                    tmp = s[t]
                    s[t] = s[p]
                    s[p] = tmp
            j //= 2
        syncthreads()
        k *= 2
    d[t] = s[t]


@case("global race", 2, 64, numbers(128))
def jacobi_inplace_grid(x: inout[i32["n"]]):
    i = blockIdx.x * 64 + threadIdx.x
    for _ in range(3):
        v = x.get(i - 1, 0) + x.get(i + 1, 0)
        syncthreads()
        x[i] = v
        syncthreads()


@case(None, 1, 64, numbers(64))
def jacobi_one_block(x: inout[i32["n"]]):
    i = threadIdx.x
    for _ in range(3):
        v = x.get(i - 1, 0) + x.get(i + 1, 0)
        syncthreads()
        x[i] = v
        syncthreads()


@case(None, 4, 64, zeros(256), zeros(256))
def grid_iter(x: inout[i32["n"]], y: inout[i32["n"]]):
    i = blockIdx.x * 64 + threadIdx.x
    for _ in range(4):
        y[i] = x.get(i - 1, 0) + x.get(i + 1, 1)
        grid_sync()
        x[i] = y[i]
        grid_sync()


@case("global race", 4, 64, zeros(256), zeros(256))
def grid_iter_one(x: inout[i32["n"]], y: inout[i32["n"]]):
    i = blockIdx.x * 64 + threadIdx.x
    for _ in range(4):
        y[i] = x.get(i - 1, 0) + x.get(i + 1, 1)
        grid_sync()
        x[i] = y[i]


# decoupled look-back scan chain over blocks
@case(None, 8, 32, numbers(256), zeros(256), zeros(8), zeros(8))
def chained_scan(x: i32["n"], y: inout[i32["n"]], total: inout[i32["b"]], ready: inout[i32["b"]]):
    s = shared(33, i32)
    t = threadIdx.x
    i = blockIdx.x * 32 + t
    v = x[i]
    for d in (1, 2, 4, 8, 16):
        u = simt.shfl_up(v, d)
        if t >= d:
            v += u
    if t == 31:
        before = 0
        if blockIdx.x > 0:
            while atomic_add(ready, blockIdx.x - 1, 0) == 0:
                pass
            threadfence()
            before = total[blockIdx.x - 1]
        total[blockIdx.x] = before + v
        threadfence()
        atomic_exch(ready, blockIdx.x, 1)
        s[32] = before
    syncthreads()
    y[i] = v + s[32]


@case("global race", 8, 32, numbers(256), zeros(256), zeros(8), zeros(8))
def chained_scan_nofence(
    x: i32["n"], y: inout[i32["n"]], total: inout[i32["b"]], ready: inout[i32["b"]]
):
    s = shared(33, i32)
    t = threadIdx.x
    i = blockIdx.x * 32 + t
    v = x[i]
    if t == 31:
        before = 0
        if blockIdx.x > 0:
            while atomic_add(ready, blockIdx.x - 1, 0) == 0:
                pass
            before = total[blockIdx.x - 1]
        total[blockIdx.x] = before + v
        atomic_exch(ready, blockIdx.x, 1)
        s[32] = before
    syncthreads()
    y[i] = v + s[32]


# work stealing / dynamic tasks by atomic counter in shared
@case(None, 4, 64, zeros(1), zeros(300))
def dyn_tasks(c: inout[i32["k"]], y: inout[i32["n"]]):
    job = shared(1, i32)
    while True:
        if threadIdx.x == 0:
            job[0] = atomic_add(c, 0, 64)
        syncthreads()
        base = job[0]
        syncthreads()
        if base >= 300:
            break
        if base + threadIdx.x < 300:
            y[base + threadIdx.x] = base


@case("shared race", 4, 64, zeros(1), zeros(300))
def dyn_tasks_bad(c: inout[i32["k"]], y: inout[i32["n"]]):
    job = shared(1, i32)
    while True:
        if threadIdx.x == 0:
            job[0] = atomic_add(c, 0, 64)
        syncthreads()
        base = job[0]
        if base >= 300:
            break
        if base + threadIdx.x < 300:
            y[base + threadIdx.x] = base


# per-warp private slice in shared, warp-synchronised
@case(None, 1, 128, numbers(128), zeros(4))
def warp_private(x: i32["n"], y: inout[i32["w"]]):
    s = shared((4, 32), i32)
    t = threadIdx.x
    w = t // 32
    own = t % 32
    s[w, own] = x[t]
    syncwarp()
    d = 16
    while d > 0:
        v = 0
        if own < d:
            v = s[w, own + d]
        syncwarp()
        if own < d:
            s[w, own] += v
        syncwarp()
        d //= 2
    if own == 0:
        y[w] = s[w, 0]


@case("shared race", 1, 128, numbers(128), zeros(1))
def warp_private_final(x: i32["n"], y: inout[i32["w"]]):
    s = shared(4, i32)
    t = threadIdx.x
    v = warp_sum(x[t])
    if t % 32 == 0:
        s[t // 32] = v
    if t == 0:
        y[0] = s[0] + s[1] + s[2] + s[3]


@case(None, 1, 128, numbers(128), zeros(1))
def warp_private_final_ok(x: i32["n"], y: inout[i32["w"]]):
    s = shared(4, i32)
    t = threadIdx.x
    v = warp_sum(x[t])
    if t % 32 == 0:
        s[t // 32] = v
    syncthreads()
    if t == 0:
        y[0] = s[0] + s[1] + s[2] + s[3]


@case("shared race", 1, 128, numbers(128), zeros(1))
def syncwarp_not_enough(x: i32["n"], y: inout[i32["w"]]):
    s = shared(4, i32)
    t = threadIdx.x
    v = warp_sum(x[t])
    if t % 32 == 0:
        s[t // 32] = v
    syncwarp()
    if t == 0:
        y[0] = s[0] + s[1]


# atomics max plain init race
@case("global race", 4, 32, numbers(128), zeros(1))
def init_then_atomic(x: i32["n"], m: inout[i32["k"]]):
    i = blockIdx.x * 32 + threadIdx.x
    if i == 0:
        m[0] = -1
    simt.atomic_max(m, 0, x[i])


# wrong index: neighbouring threads write the same
@case("global race", 2, 64, zeros(128))
def off_by_block(y: inout[i32["n"]]):
    i = blockIdx.x * 32 + threadIdx.x
    y[i] = blockIdx.x * 1000 + threadIdx.x


@case(None, 2, 64, np.arange(128, dtype=np.int32), zeros(128))
def gather(p: i32["n"], y: inout[i32["n"]]):
    i = blockIdx.x * 64 + threadIdx.x
    y[p[i]] = i


@case("global race", 2, 64, np.arange(128, dtype=np.int32) // 2, zeros(128))
def scatter_dup(p: i32["n"], y: inout[i32["n"]]):
    i = blockIdx.x * 64 + threadIdx.x
    y[p[i]] = i


# early return then shared w/o barrier need
@case(None, 2, 64, numbers(100), zeros(100))
def early(x: i32["n"], y: inout[i32["n"]]):
    i = blockIdx.x * 64 + threadIdx.x
    if i >= x.shape[0]:
        return
    y[i] = x[i]


# ticket lock
@case(None, 3, 32, zeros(1), zeros(1), zeros(1))
def ticket(x: inout[i32["n"]], nxt: inout[i32["a"]], serving: inout[i32["b"]]):
    if threadIdx.x == 0:
        my = atomic_add(nxt, 0, 1)
        while volatile_load(serving, 0) != my:
            pass
        threadfence()
        x[0] += 1
        threadfence()
        atomic_add(serving, 0, 1)


# reader-writer through double-checked plain flag
@case("global race", 2, 32, zeros(2), zeros(1))
def double_checked(x: inout[i32["n"]], m: inout[i32["k"]]):
    if threadIdx.x == 0 and x[0] == 0:
        while atomic_cas(m, 0, 0, 1) != 0:
            pass
        threadfence()
        if x[0] == 0:
            x[0] = blockIdx.x + 5
        threadfence()
        atomic_exch(m, 0, 0)


@case("shared race", 1, 64, numbers(64), zeros(64))
def cond_barrier_uniform(x: i32["n"], y: inout[i32["n"]]):
    s = shared(64, i32)
    t = threadIdx.x
    s[t] = x[t]
    if blockDim.x > 64:
        syncthreads()
    y[t] = s[63 - t]


@case(None, 1, 64, numbers(64), zeros(64))
def cond_barrier_uniform_ok(x: i32["n"], y: inout[i32["n"]]):
    s = shared(64, i32)
    t = threadIdx.x
    s[t] = x[t]
    if blockDim.x > 32:
        syncthreads()
    y[t] = s[63 - t]


@case(None, 1, 64, numbers(64), zeros(64))
def dev_fn_barrier(x: i32["n"], y: inout[i32["n"]]):
    s = shared(64, i32)
    rev(s, x, y)


@case("global race", 1, 256, zeros(1))
def counter_nonatomic_one_block(c: inout[i32["n"]]):
    if threadIdx.x % 64 == 0:
        c[0] = c[0] + 1
