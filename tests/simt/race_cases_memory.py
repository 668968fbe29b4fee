"""More labelled kernels: graphs, locks, flags, vectors, asynchronous copies, clusters."""

import numpy as np

from ridgeline import simt
from ridgeline.simt import (
    atomic_add,
    atomic_cas,
    atomic_exch,
    blockIdx,
    cluster_rank,
    cluster_sync,
    cp_async,
    cp_async_commit,
    cp_async_wait,
    gridDim,
    i32,
    inout,
    load4,
    remote,
    shared,
    store4,
    syncthreads,
    threadfence,
    threadfence_block,
    threadIdx,
    volatile_load,
    warp_sum,
)
from tests.simt.labelled import case, numbers, zeros


# warp-synchronous with lockstep same statement write after read
@case("shared race", 1, 32, numbers(32))
def shift_inplace(d: inout[i32["n"]]):
    s = shared(33, i32)
    t = threadIdx.x
    s[t] = d[t]
    if t == 0:
        s[32] = 0
    syncthreads()
    s[t] = s[t + 1]
    syncthreads()
    d[t] = s[t]


# read all, then write by one without barrier
@case("shared race", 1, 64, numbers(64))
def read_then_write(d: inout[i32["n"]]):
    s = shared(1, i32)
    t = threadIdx.x
    if t == 0:
        s[0] = 5
    syncthreads()
    v = s[0]
    if t == 63:
        s[0] = v + 1
    syncthreads()
    d[t] = v + s[0]


@case(None, 1, 64, numbers(64))
def read_then_write_ok(d: inout[i32["n"]]):
    s = shared(1, i32)
    t = threadIdx.x
    if t == 0:
        s[0] = 5
    syncthreads()
    v = s[0]
    syncthreads()
    if t == 63:
        s[0] = v + 1
    syncthreads()
    d[t] = v + s[0]


@case(None, 2, 64, numbers(1024), zeros(2))
def reduce_seq(x: i32["n"], y: inout[i32["b"]]):
    s = shared(64, i32)
    t = threadIdx.x
    acc = 0
    i = blockIdx.x * 64 + t
    while i < x.shape[0]:
        acc += x[i]
        i += 64 * gridDim.x
    s[t] = acc
    syncthreads()
    d = 32
    while d >= 1:
        if t < d:
            s[t] += s[t + d]
        syncthreads()
        d //= 2
    if t == 0:
        y[blockIdx.x] = s[0]


# bfs-like worklist: many threads write level of same node with same value (warning)
@case("warning", 2, 64, np.repeat(numbers(32), 4), zeros(32))
def bfs_level(dst: i32["e"], lvl: inout[i32["v"]]):
    e = blockIdx.x * 64 + threadIdx.x
    lvl[dst[e]] = 3


@case("global race", 2, 64, np.repeat(numbers(32), 4), np.full(32, 100, np.int32))
def relax_race(dst: i32["e"], d: inout[i32["v"]]):
    e = blockIdx.x * 64 + threadIdx.x
    if d[dst[e]] > e:
        d[dst[e]] = e


@case("global race", 2, 64, np.repeat(numbers(32), 4), np.full(32, 100, np.int32))
def relax_guard(dst: i32["e"], d: inout[i32["v"]]):
    e = blockIdx.x * 64 + threadIdx.x
    if d[dst[e]] > e:
        simt.atomic_min(d, dst[e], e)


@case(None, 2, 64, np.repeat(numbers(32), 4), np.full(32, 100, np.int32))
def relax_ok(dst: i32["e"], d: inout[i32["v"]]):
    e = blockIdx.x * 64 + threadIdx.x
    simt.atomic_min(d, dst[e], e)


# worklist push w/o atomic
@case("global race", 2, 64, numbers(128), zeros(128), zeros(1))
def push_race(x: i32["n"], wl: inout[i32["n"]], size: inout[i32["one"]]):
    i = blockIdx.x * 64 + threadIdx.x
    if x[i] % 2 == 0:
        k = size[0]
        size[0] = k + 1
        wl[k] = i


@case(None, 2, 64, numbers(128), zeros(128), zeros(1))
def push_ok(x: i32["n"], wl: inout[i32["n"]], size: inout[i32["one"]]):
    i = blockIdx.x * 64 + threadIdx.x
    if x[i] % 2 == 0:
        k = atomic_add(size, 0, 1)
        wl[k] = i


# block-level scope ok inside block only
@case(None, 2, 64, zeros(2))
def block_scope_ok(c: inout[i32["b"]]):
    atomic_add(c, blockIdx.x, 1, scope="block")


# fence block scope ok in block
@case(None, 1, 64, numbers(64), zeros(1))
def mp_block(x: inout[i32["n"]], f: inout[i32["k"]]):
    if threadIdx.x == 0:
        x[1] = 7
        threadfence_block()
        atomic_exch(f, 0, 1)
    if threadIdx.x == 32:
        while atomic_add(f, 0, 0) == 0:
            pass
        threadfence_block()
        x[2] = x[1]


# acquire/release explicit
@case(None, 2, 32, numbers(64), zeros(1))
def mp_acqrel(x: inout[i32["n"]], f: inout[i32["k"]]):
    if threadIdx.x == 0:
        if blockIdx.x == 0:
            x[1] = 7
            simt.atomic_store(f, 0, 1, order="release")
        else:
            while simt.atomic_load(f, 0, order="acquire") == 0:
                pass
            x[2] = x[1]


@case("global race", 2, 32, numbers(64), zeros(1))
def mp_relaxed(x: inout[i32["n"]], f: inout[i32["k"]]):
    if threadIdx.x == 0:
        if blockIdx.x == 0:
            x[1] = 7
            simt.atomic_store(f, 0, 1)
        else:
            while simt.atomic_load(f, 0) == 0:
                pass
            x[2] = x[1]


# release publishes the block's data after a barrier; acquirer's block reads after barrier
@case(None, 2, 64, numbers(128), zeros(1), zeros(64))
def mp_whole_block(x: inout[i32["n"]], f: inout[i32["k"]], y: inout[i32["m"]]):
    t = threadIdx.x
    if blockIdx.x == 0:
        x[t] = t * 3
        syncthreads()
        if t == 0:
            threadfence()
            atomic_exch(f, 0, 1)
    else:
        if t == 0:
            while atomic_add(f, 0, 0) == 0:
                pass
            threadfence()
        syncthreads()
        y[t] = x[t]


@case("global race", 2, 64, numbers(128), zeros(1), zeros(64))
def mp_whole_block_nobar(x: inout[i32["n"]], f: inout[i32["k"]], y: inout[i32["m"]]):
    t = threadIdx.x
    if blockIdx.x == 0:
        x[t] = t * 3
        if t == 0:
            threadfence()
            atomic_exch(f, 0, 1)
    else:
        if t == 0:
            while atomic_add(f, 0, 0) == 0:
                pass
            threadfence()
        syncthreads()
        y[t] = x[t]


# each thread fences then one counts (programming guide)
@case(None, 4, 32, numbers(128), zeros(128), zeros(1), zeros(1))
def guide_sum(x: i32["n"], part: inout[i32["n"]], c: inout[i32["k"]], y: inout[i32["o"]]):
    last = shared(1, i32)
    t = threadIdx.x
    i = blockIdx.x * 32 + t
    part[i] = x[i] * 2
    threadfence()
    syncthreads()
    if t == 0:
        last[0] = i32(atomic_add(c, 0, 1) == 3)
    syncthreads()
    if last[0] == 1:
        s = 0
        for k in range(4):
            s += part[k * 32 + t]
        s = warp_sum(s)
        if t == 0:
            y[0] = s


# own grid barrier built from atomics
@case(None, 4, 64, numbers(256), zeros(1), zeros(256))
def soft_grid_barrier(x: inout[i32["n"]], c: inout[i32["k"]], y: inout[i32["n"]]):
    i = blockIdx.x * 64 + threadIdx.x
    x[i] = i + 1
    threadfence()
    syncthreads()
    if threadIdx.x == 0:
        atomic_add(c, 0, 1)
        while volatile_load(c, 0) < gridDim.x:
            pass
        threadfence()
    syncthreads()
    y[i] = x[255 - i]


@case("global race", 4, 64, numbers(256), zeros(1), zeros(256))
def soft_grid_barrier_nofence(x: inout[i32["n"]], c: inout[i32["k"]], y: inout[i32["n"]]):
    i = blockIdx.x * 64 + threadIdx.x
    x[i] = i + 1
    syncthreads()
    if threadIdx.x == 0:
        atomic_add(c, 0, 1)
        while volatile_load(c, 0) < gridDim.x:
            pass
    syncthreads()
    y[i] = x[255 - i]


@case("global race", 4, 64, numbers(256), zeros(1), zeros(256))
def soft_grid_barrier_nosync(x: inout[i32["n"]], c: inout[i32["k"]], y: inout[i32["n"]]):
    i = blockIdx.x * 64 + threadIdx.x
    x[i] = i + 1
    threadfence()
    if threadIdx.x == 0:
        atomic_add(c, 0, 1)
        while volatile_load(c, 0) < gridDim.x:
            pass
        threadfence()
    syncthreads()
    y[i] = x[255 - i]


# lock-order hidden race
@case("global race", 2, 32, zeros(4), zeros(1))
def hidden_by_lock(x: inout[i32["n"]], m: inout[i32["k"]]):
    if threadIdx.x == 0:
        if blockIdx.x == 0:
            x[0] = 1
        while atomic_cas(m, 0, 0, 1) != 0:
            pass
        threadfence()
        x[1] += 1
        threadfence()
        atomic_exch(m, 0, 0)
        if blockIdx.x == 1:
            x[0] = 2


# different locks for same data
@case("global race", 2, 32, zeros(4), zeros(2))
def two_locks(x: inout[i32["n"]], m: inout[i32["k"]]):
    if threadIdx.x == 0:
        while atomic_cas(m, blockIdx.x, 0, 1) != 0:
            pass
        threadfence()
        x[1] += 1
        threadfence()
        atomic_exch(m, blockIdx.x, 0)


@case("global race", 2, 32, zeros(4), zeros(1))
def lock_block_scope(x: inout[i32["n"]], m: inout[i32["k"]]):
    if threadIdx.x == 0:
        while atomic_cas(m, 0, 0, 1, scope="block") != 0:
            pass
        threadfence()
        x[1] += 1
        threadfence()
        atomic_exch(m, 0, 0, scope="block")


@case(None, 1, 32, numbers(32), zeros(32))
def tile16(x: i32["n"], y: inout[i32["n"]]):
    v = x[threadIdx.x]
    for d in (8, 4, 2, 1):
        v += simt.shfl_xor(v, d, width=16)
    y[threadIdx.x] = v


@case("warp mask", 1, 64, numbers(64), zeros(64))
def shfl_in_if(x: i32["n"], y: inout[i32["n"]]):
    v = x[threadIdx.x]
    if threadIdx.x < 16:
        v += simt.shfl_down(v, 8)
    y[threadIdx.x] = v


@case(None, 1, 64, numbers(64), zeros(64))
def shfl_in_if_mask(x: i32["n"], y: inout[i32["n"]]):
    v = x[threadIdx.x]
    if threadIdx.x < 16:
        v += simt.shfl_down(v, 8, mask=0xFFFF, width=16)
    y[threadIdx.x] = v


@case(None, 1, 64, numbers(256), zeros(256))
def vec4(x: i32["n"], y: inout[i32["n"]]):
    a, b, c, d = load4(x, threadIdx.x * 4)
    store4(y, threadIdx.x * 4, d, c, b, a)


@case("global race", 1, 64, numbers(256), zeros(256))
def vec4_overlap(x: i32["n"], y: inout[i32["n"]]):
    a, b, c, d = load4(x, threadIdx.x * 4)
    store4(y, threadIdx.x // 2 * 4, d, c, b, a)


@case("misaligned vector", 1, 32, numbers(256), zeros(256))
def vec4_mis(x: i32["n"], y: inout[i32["n"]]):
    a, b, c, d = load4(x, threadIdx.x * 4 + 1)
    store4(y, threadIdx.x * 4, d, c, b, a)


@case(None, 1, 64, numbers(64), zeros(64))
def async_ok(x: i32["n"], y: inout[i32["n"]]):
    s = shared(64, i32)
    t = threadIdx.x
    cp_async(s[t], x[t])
    cp_async_commit()
    cp_async_wait(0)
    syncthreads()
    y[t] = s[63 - t]


@case("uninitialised", 1, 64, numbers(64), zeros(64))
def async_nowait(x: i32["n"], y: inout[i32["n"]]):
    s = shared(64, i32)
    t = threadIdx.x
    cp_async(s[t], x[t])
    cp_async_commit()
    syncthreads()
    y[t] = s[63 - t]


@case("shared race", 1, 64, numbers(64), zeros(64))
def async_nobar(x: i32["n"], y: inout[i32["n"]]):
    s = shared(64, i32)
    t = threadIdx.x
    cp_async(s[t], x[t])
    cp_async_commit()
    cp_async_wait(0)
    y[t] = s[63 - t]


@case(None, 4, 32, numbers(128), zeros(128), cluster=2)
def cluster_ok(x: i32["n"], y: inout[i32["n"]]):
    s = shared(32, i32)
    t = threadIdx.x
    i = blockIdx.x * 32 + t
    s[t] = x[i]
    cluster_sync()
    y[i] = remote(s, cluster_rank ^ 1)[t]
    cluster_sync()


@case("shared race", 4, 32, numbers(128), zeros(128), cluster=2)
def cluster_nosync(x: i32["n"], y: inout[i32["n"]]):
    s = shared(32, i32)
    t = threadIdx.x
    i = blockIdx.x * 32 + t
    s[t] = x[i]
    syncthreads()
    y[i] = remote(s, cluster_rank ^ 1)[t]


@case("divergent barrier", 1, 64, numbers(64))
def bar_else(x: inout[i32["n"]]):
    if threadIdx.x < 32:
        x[threadIdx.x] = 1
        syncthreads()
    else:
        x[threadIdx.x] = 2


@case("divergent barrier", 1, 96, numbers(96))
def bar_break(x: inout[i32["n"]]):
    for k in range(4):
        if x[threadIdx.x] > 40 + k:
            break
        syncthreads()


@case(None, 2, 64, numbers(64), zeros(64))
def barrier_uniform_loop(x: i32["n"], y: inout[i32["n"]]):
    s = shared(64, i32)
    t = threadIdx.x
    s[t] = x[t]
    n = 5
    while n > 0:
        syncthreads()
        v = s[(t + 1) % 64]
        syncthreads()
        s[t] = v
        n -= 1
    syncthreads()
    if blockIdx.x == 0:
        y[t] = s[t]


@case(None, 1, (8, 8), np.arange(64, dtype=np.int32).reshape(8, 8), np.zeros((8, 8), np.int32))
def transpose2d(x: i32["a b"], y: inout[i32["b a"]]):
    s = shared((8, 9), i32)
    s[threadIdx.y, threadIdx.x] = x[threadIdx.y, threadIdx.x]
    syncthreads()
    y[threadIdx.y, threadIdx.x] = s[threadIdx.x, threadIdx.y]


@case("global race", 1, (8, 8), np.zeros((8, 8), np.int32))
def wrong_dim(y: inout[i32["b a"]]):
    y[threadIdx.x, 0] = threadIdx.y


@case("shared race", 1, 64, numbers(64), zeros(64))
def pingpong_bad(x: i32["n"], y: inout[i32["n"]]):
    s = shared((2, 64), i32)
    t = threadIdx.x
    s[0, t] = x[t]
    cur = 0
    d = 1
    while d < 64:
        v = s[cur, t]
        if t >= d:
            v += s[cur, t - d]
        s[1 - cur, t] = v
        cur = 1 - cur
        d *= 2
    y[t] = s[cur, t]


@case(None, 1, 64, numbers(64), zeros(64))
def pingpong(x: i32["n"], y: inout[i32["n"]]):
    s = shared((2, 64), i32)
    t = threadIdx.x
    s[0, t] = x[t]
    cur = 0
    d = 1
    while d < 64:
        syncthreads()
        v = s[cur, t]
        if t >= d:
            v += s[cur, t - d]
        s[1 - cur, t] = v
        cur = 1 - cur
        d *= 2
    y[t] = s[cur, t]


@case("global race", 4, 64, numbers(256), zeros(1))
def flag_plain(x: i32["n"], found: inout[i32["k"]]):
    i = blockIdx.x * 64 + threadIdx.x
    if found[0] == 0 and x[i] == 77:
        found[0] = i


@case(None, 2, 33, numbers(66), zeros(66))
def oddblock(x: i32["n"], y: inout[i32["n"]]):
    s = shared(33, i32)
    t = threadIdx.x
    s[t] = x[blockIdx.x * 33 + t]
    syncthreads()
    y[blockIdx.x * 33 + t] = s[32 - t]


@case("shared race", 2, 33, numbers(66), zeros(66))
def oddblock_bad(x: i32["n"], y: inout[i32["n"]]):
    s = shared(33, i32)
    t = threadIdx.x
    s[t] = x[blockIdx.x * 33 + t]
    y[blockIdx.x * 33 + t] = s[(t + 1) % 33]
