"""Labelled kernels: queues, barriers over the grid, branches, bounds."""

import numpy as np

from ridgeline.simt import (
    atomic_add,
    atomic_cas,
    atomic_exch,
    atomic_load,
    blockIdx,
    i32,
    inout,
    lane,
    match,
    popc,
    shared,
    shfl_xor,
    syncthreads,
    syncwarp,
    threadfence,
    threadIdx,
    u32,
)
from tests.simt.labelled import case, numbers, zeros


@case(None, 1, 64, numbers(64), zeros(1))
def any_found_atomic(x: i32["n"], f: inout[i32["k"]]):
    if x[threadIdx.x] % 7 == 3:
        atomic_exch(f[0], 1)


@case("global race", 1, 64, numbers(64), zeros(2))
def any_found_read(x: i32["n"], f: inout[i32["k"]]):
    if x[threadIdx.x] % 7 == 3:
        f[0] = 1
    if f[0] == 0:
        f[1] = x[threadIdx.x]


@case(None, 3, 64, numbers(192), zeros(192))
def halo_stencil_iter(x: i32["n"], y: inout[i32["n"]]):
    s = shared(66, i32)
    t = threadIdx.x
    i = blockIdx.x * 64 + t
    s[t + 1] = x[i]
    if t == 0:
        s[0] = x.get(i - 1, 0)
    if t == 63:
        s[65] = x.get(i + 1, 0)
    syncthreads()
    for _ in range(3):
        v = s[t] + s[t + 1] + s[t + 2]
        syncthreads()
        s[t + 1] = v
        syncthreads()
    y[i] = s[t + 1]


@case("shared race", 3, 64, numbers(192), zeros(192))
def halo_stencil_iter_bad(x: i32["n"], y: inout[i32["n"]]):
    s = shared(66, i32)
    t = threadIdx.x
    i = blockIdx.x * 64 + t
    s[t + 1] = x[i]
    if t == 0:
        s[0] = x.get(i - 1, 0)
    if t == 63:
        s[65] = x.get(i + 1, 0)
    syncthreads()
    for _ in range(3):
        v = s[t] + s[t + 1] + s[t + 2]
        s[t + 1] = v
        syncthreads()
    y[i] = s[t + 1]


@case(None, 2, 64, numbers(128), zeros(128))
def early_return_guard(x: i32["n"], y: inout[i32["n"]]):
    i = blockIdx.x * 64 + threadIdx.x
    if i >= 100:
        return
    y[i] = x[99 - i]


@case(None, 1, 64, numbers(64), zeros(64))
def matched(x: i32["n"], y: inout[i32["n"]]):
    t = threadIdx.x
    m = match(x[t] % 4)
    lead = popc(m & ((u32(1) << u32(lane)) - u32(1)))
    if lead == 0:
        atomic_add(y[x[t] % 4], popc(m))


@case(None, 8, 32, zeros(8), zeros(1), zeros(8))
def grid_count_barrier(x: inout[i32["b"]], c: inout[i32["k"]], y: inout[i32["b"]]):
    t = threadIdx.x
    for it in range(3):
        if t == 0:
            x[blockIdx.x] = blockIdx.x + it
            threadfence()
            atomic_add(c[0], 1)
            while atomic_load(c, 0) < 8 * (2 * it + 1):
                pass
            threadfence()
        syncthreads()
        if t == 0:
            y[blockIdx.x] = x[(blockIdx.x + 1) % 8]
        syncthreads()
        if t == 0:
            threadfence()
            atomic_add(c[0], 1)
            while atomic_load(c, 0) < 8 * (2 * it + 2):
                pass
            threadfence()
        syncthreads()


@case(None, 2, 32, zeros(64), zeros(2))
def bidirectional(x: inout[i32["n"]], f: inout[i32["k"]]):
    b = blockIdx.x
    if threadIdx.x == 0:
        x[b * 32] = b + 1
        threadfence()
        atomic_exch(f[b], 1)
        while atomic_load(f, 1 - b) == 0:
            pass
        threadfence()
        x[b * 32 + 1] = x[(1 - b) * 32]


@case("global race", 2, 32, zeros(64), zeros(2))
def bidirectional_late(x: inout[i32["n"]], f: inout[i32["k"]]):
    b = blockIdx.x
    if threadIdx.x == 0:
        threadfence()
        atomic_exch(f[b], 1)
        x[b * 32] = b + 1
        while atomic_load(f, 1 - b) == 0:
            pass
        threadfence()
        x[b * 32 + 1] = x[(1 - b) * 32]


@case(None, 4, 64, numbers(256), zeros(256), zeros(1))
def persistent_queue(x: i32["n"], y: inout[i32["n"]], c: inout[i32["k"]]):
    job = shared(1, i32)
    t = threadIdx.x
    while True:
        if t == 0:
            job[0] = atomic_add(c[0], 1)
        syncthreads()
        j = job[0]
        syncthreads()
        if j >= 4:
            break
        y[j * 64 + t] = x[j * 64 + 63 - t]


@case("shared race", 4, 64, numbers(256), zeros(256), zeros(1))
def persistent_queue_bad(x: i32["n"], y: inout[i32["n"]], c: inout[i32["k"]]):
    job = shared(1, i32)
    t = threadIdx.x
    while True:
        if t == 0:
            job[0] = atomic_add(c[0], 1)
        syncthreads()
        j = job[0]
        if j >= 4:
            break
        y[j * 64 + t] = x[j * 64 + 63 - t]


@case(None, 1, 64, np.array([3], np.int32), zeros(64))
def uniform_branch_barrier(n: i32["k"], y: inout[i32["m"]]):
    s = shared(64, i32)
    t = threadIdx.x
    s[t] = t
    if n[0] == 3:
        syncthreads()
        y[t] = s[63 - t]


@case("divergent barrier", 1, 64, numbers(64), zeros(64))
def data_branch_barrier(n: i32["k"], y: inout[i32["m"]]):
    s = shared(64, i32)
    t = threadIdx.x
    s[t] = t
    if n[t] > 3:
        syncthreads()
    y[t] = s[t]


@case(None, 1, 64, numbers(64), zeros(64))
def xor_shuffle_sort(x: i32["n"], y: inout[i32["m"]]):
    v = x[threadIdx.x]
    for k in (1, 2, 4, 8, 16):
        o = shfl_xor(v, k)
        v = min(v, o) if (lane & k) == 0 else max(v, o)
    y[threadIdx.x] = v


@case(None, 2, 32, numbers(64), zeros(64))
def dcas_list(x: i32["n"], head: inout[i32["m"]]):
    # lock-free push: next pointers are own, head by cas
    i = blockIdx.x * 32 + threadIdx.x
    if i > 0:
        old = atomic_load(head, 0)
        ok = False
        while not ok:
            head[i] = old
            threadfence()
            seen = atomic_cas(head[0], old, i)
            ok = seen == old
            old = seen


@case(None, 2, 64, zeros(128))
def rw_own_block(y: inout[i32["n"]]):
    i = blockIdx.x * 64 + threadIdx.x
    y[i] = i
    syncthreads()
    j = blockIdx.x * 64 + 63 - threadIdx.x
    v = y[j]
    syncthreads()
    y[i] = v


@case("global race", 2, 64, zeros(128))
def rw_other_block(y: inout[i32["n"]]):
    i = blockIdx.x * 64 + threadIdx.x
    y[i] = i
    syncthreads()
    v = y[127 - i]
    syncthreads()
    y[i] = v


@case(None, 1, 64, numbers(64))
def two_arrays(x: inout[i32["n"]]):
    s = shared(64, i32)
    r = shared(64, i32)
    t = threadIdx.x
    s[t] = x[t]
    syncthreads()
    r[t] = s[63 - t]
    syncthreads()
    s[t] = r[63 - t]
    syncthreads()
    x[t] = s[t]


@case("global race", 1, 2, zeros(1), zeros(4))
def add_tid(i: inout[i32["k"]], a: inout[i32["n"]]):
    t = threadIdx.x
    j = atomic_add(i[0], t)
    a[j] = t


@case("global race", 1, 2, zeros(1), zeros(4))
def add_other(i: inout[i32["k"]], a: inout[i32["n"]]):
    t = threadIdx.x
    j = atomic_add(i[0], 1 - t)
    a[j] = t


@case(None, 1, 64, numbers(64), zeros(64))
def syncwarp_tail(x: i32["n"], y: inout[i32["m"]]):
    s = shared(64, i32)
    t = threadIdx.x
    s[t] = x[t]
    syncthreads()
    if t < 32:
        v = s[t] + s[t + 32]
        s[t] = v
        syncwarp()
        v += s[t ^ 16]
        syncwarp()
        s[t] = v
        syncwarp()
        y[t] = s[t ^ 8]


@case(None, 1, (8, 8), numbers(64), zeros(64))
def block2d(x: i32["n"], y: inout[i32["m"]]):
    s = shared((8, 9), i32)
    s[threadIdx.y, threadIdx.x] = x[threadIdx.y * 8 + threadIdx.x]
    syncthreads()
    y[threadIdx.y * 8 + threadIdx.x] = s[threadIdx.x, threadIdx.y]


@case("warning", 1, 64, zeros(64))
def memset_all(y: inout[i32["m"]]):
    for k in range(64):
        y[k] = 0


@case("warning", 2, 32, numbers(64), zeros(4))
def benign_flag(x: i32["n"], y: inout[i32["m"]]):
    if x[blockIdx.x * 32 + threadIdx.x] > 5:
        y[0] = 1


@case("out of bounds", 2, 64, numbers(100), zeros(128))
def off_by_one(x: i32["n"], y: inout[i32["m"]]):
    i = blockIdx.x * 64 + threadIdx.x
    if i <= 100:
        y[i] = x[i]


@case("out of bounds", 1, 64, zeros(64))
def shared_oob(y: inout[i32["m"]]):
    s = shared(64, i32)
    s[threadIdx.x + 1] = 1
    y[threadIdx.x] = 0


@case("out of bounds", 1, (4, 16), np.zeros((4, 4), np.int32))
def row_overrun(y: inout[i32["a b"]]):
    y[threadIdx.x, threadIdx.y] = 1
