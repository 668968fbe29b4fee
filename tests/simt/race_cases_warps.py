"""Labelled kernels: locks and flags in shared memory, warps with roles, vectors, clusters."""

from ridgeline.simt import (
    atomic_add,
    atomic_cas,
    atomic_exch,
    atomic_load,
    atomic_store,
    ballot,
    blockIdx,
    cluster_rank,
    cluster_sync,
    i32,
    inout,
    lane,
    load2,
    load4,
    local,
    popc,
    remote,
    shared,
    store4,
    syncthreads,
    syncwarp,
    threadfence_block,
    threadIdx,
    warp,
    warp_sum,
)
from tests.simt.labelled import case, numbers, zeros


@case(None, 4, 64, numbers(256), zeros(256), zeros(4))
def decoupled_flags(x: i32["n"], y: inout[i32["n"]], st: inout[i32["b"]]):
    # flag packed with value in one word: relaxed atomics carry the data themselves
    b = blockIdx.x
    t = threadIdx.x
    s = shared(64, i32)
    pre = shared(1, i32)
    s[t] = x[b * 64 + t]
    syncthreads()
    d = 1
    while d < 64:
        v = 0
        if t >= d:
            v = s[t - d]
        syncthreads()
        s[t] += v
        syncthreads()
        d *= 2
    if t == 0:
        p = 0
        if b > 0:
            w = atomic_load(st, b - 1)
            while w == 0:
                w = atomic_load(st, b - 1)
            p = w - 1
        atomic_store(st, b, p + s[63] + 1)
        pre[0] = p
    syncthreads()
    y[b * 64 + t] = s[t] + pre[0]


@case(None, 2, 64, numbers(128), zeros(2))
def leader_elect(x: i32["n"], y: inout[i32["b"]]):
    s = shared(2, i32)
    m = ballot(x[blockIdx.x * 64 + threadIdx.x] % 3 == 0)
    if lane == 0:
        s[warp] = popc(m)
    syncthreads()
    if threadIdx.x == 0:
        y[blockIdx.x] = s[0] + s[1]


@case(None, 1, 64, numbers(64))
def inplace_reg(x: inout[i32["n"]]):
    t = threadIdx.x
    v = x[63 - t]
    syncthreads()
    x[t] = v


@case("global race", 1, 64, numbers(64))
def inplace_reg_bad(x: inout[i32["n"]]):
    t = threadIdx.x
    v = x[63 - t]
    x[t] = v


@case(None, 2, 64, numbers(64), zeros(128))
def spin_lock_shared(x: i32["n"], y: inout[i32["m"]]):
    s = shared(2, i32)
    t = threadIdx.x
    if t == 0:
        s[0] = 0
        s[1] = 0
    syncthreads()
    done = 0
    while done == 0:
        if atomic_cas(s[0], 0, 1) == 0:
            threadfence_block()
            s[1] += x[t]
            threadfence_block()
            atomic_exch(s[0], 0)
            done = 1
    syncthreads()
    y[blockIdx.x * 64 + t] = s[1]


@case(None, 1, 128, numbers(128), zeros(128))
def producer_warps(x: i32["n"], y: inout[i32["n"]]):
    # warp specialised with shared flags: warp 0 produces, others consume
    buf = shared(32, i32)
    flag = shared(1, i32)
    t = threadIdx.x
    if t == 0:
        flag[0] = 0
    syncthreads()
    if warp == 0:
        buf[lane] = x[lane] * 2
        syncwarp()
        if lane == 0:
            threadfence_block()
            atomic_exch(flag[0], 1)
    else:
        while atomic_load(flag, 0) == 0:
            pass
        threadfence_block()
        y[t] = buf[31 - lane]


@case("shared race", 1, 128, numbers(128), zeros(128))
def producer_warps_nosync(x: i32["n"], y: inout[i32["n"]]):
    buf = shared(32, i32)
    flag = shared(1, i32)
    t = threadIdx.x
    if t == 0:
        flag[0] = 0
    syncthreads()
    if warp == 0:
        buf[lane] = x[lane] * 2
        if lane == 0:
            threadfence_block()
            atomic_exch(flag[0], 1)
    else:
        while atomic_load(flag, 0) == 0:
            pass
        threadfence_block()
        y[t] = buf[31 - lane]


@case(None, 1, 128, numbers(128), zeros(128))
def producer_warps_leader(x: i32["n"], y: inout[i32["n"]]):
    buf = shared(32, i32)
    flag = shared(1, i32)
    t = threadIdx.x
    if t == 0:
        flag[0] = 0
    syncthreads()
    if warp == 0:
        buf[lane] = x[lane] * 2
        syncwarp()
        if lane == 0:
            threadfence_block()
            atomic_exch(flag[0], 1)
    else:
        if lane == 0:
            while atomic_load(flag, 0) == 0:
                pass
            threadfence_block()
        syncwarp()
        y[t] = buf[31 - lane]


@case("shared race", 1, 128, numbers(128), zeros(128))
def producer_warps_leader_nosync(x: i32["n"], y: inout[i32["n"]]):
    buf = shared(32, i32)
    flag = shared(1, i32)
    t = threadIdx.x
    if t == 0:
        flag[0] = 0
    syncthreads()
    if warp == 0:
        buf[lane] = x[lane] * 2
        syncwarp()
        if lane == 0:
            threadfence_block()
            atomic_exch(flag[0], 1)
    else:
        if lane == 0:
            while atomic_load(flag, 0) == 0:
                pass
            threadfence_block()
        y[t] = buf[31 - lane]


@case(None, 1, 64, numbers(64), zeros(64))
def release_acquire(x: i32["n"], y: inout[i32["n"]]):
    buf = shared(1, i32)
    flag = shared(1, i32)
    t = threadIdx.x
    if t == 0:
        flag[0] = 0
    syncthreads()
    if t == 0:
        buf[0] = 7
        atomic_store(flag, 0, 1, order="release")
    elif t == 32:
        while atomic_load(flag, 0, order="acquire") == 0:
            pass
        y[0] = buf[0]


@case(None, 4, 32, zeros(1), zeros(4))
def ticket_slots(c: inout[i32["k"]], y: inout[i32["n"]]):
    if threadIdx.x == 0:
        k = atomic_add(c[0], 1)
        y[k] = blockIdx.x


@case("global race", 4, 32, zeros(1), zeros(4))
def ticket_wrap(c: inout[i32["k"]], y: inout[i32["n"]]):
    if threadIdx.x == 0:
        k = atomic_add(c[0], 1)
        y[k % 2] = blockIdx.x


@case(None, 1, 96, numbers(96), zeros(96))
def histogram_private(x: i32["n"], y: inout[i32["n"]]):
    h = shared((3, 16), i32)
    t = threadIdx.x
    for k in range(lane, 16, 32):
        h[warp, k] = 0
    syncwarp()
    atomic_add(h[warp, x[t] % 16], 1)
    syncthreads()
    if t < 16:
        y[t] = h[0, t] + h[1, t] + h[2, t]


@case(None, 1, 64, numbers(256), zeros(256))
def vec_ok(x: i32["n"], y: inout[i32["n"]]):
    t = threadIdx.x
    a, b, c, d = load4(x[4 * t])
    store4(y[4 * t], d, c, b, a)


@case("global race", 1, 64, numbers(256), zeros(256))
def vec_scalar_overlap(x: i32["n"], y: inout[i32["n"]]):
    t = threadIdx.x
    a, b, c, d = load4(x[4 * t])
    store4(y[4 * t], d, c, b, a)
    if t < 63:
        y[4 * t + 4] = 1 + t


@case("shared race", 1, 64, numbers(256), zeros(256))
def vec2_vs_4(x: i32["n"], y: inout[i32["n"]]):
    s = shared(256, i32)
    t = threadIdx.x
    store4(s[4 * t], t, t, t, t)
    a, b = load2(s[(4 * t + 6) % 256])
    y[t] = a + b


@case(None, 2, 64, numbers(128), zeros(128))
def per_thread_local(x: i32["n"], y: inout[i32["n"]]):
    a = local(4, i32, fill=0)
    t = blockIdx.x * 64 + threadIdx.x
    for k in range(4):
        a[k] = x[t] + k
    y[t] = a[0] + a[3]


@case("uninitialised", 1, 32, zeros(32))
def local_uninit(y: inout[i32["n"]]):
    a = local(4, i32)
    a[0] = 1
    y[threadIdx.x] = a[1]


@case(None, 1, 256, numbers(256), zeros(8))
def warp_reduce_shared(x: i32["n"], y: inout[i32["w"]]):
    s = shared(8, i32)
    v = warp_sum(x[threadIdx.x])
    if lane == 0:
        s[warp] = v
    syncthreads()
    if threadIdx.x < 8:
        y[threadIdx.x] = s[threadIdx.x]


@case("shared race", 1, 256, numbers(256), zeros(8))
def warp_reduce_shared_bad(x: i32["n"], y: inout[i32["w"]]):
    s = shared(8, i32)
    v = warp_sum(x[threadIdx.x])
    if lane == 0:
        s[warp] = v
    if threadIdx.x < 8:
        y[threadIdx.x] = s[threadIdx.x]


@case(None, 4, 32, zeros(128), zeros(128), cluster=2)
def cluster_pairs(x: inout[i32["n"]], y: inout[i32["n"]]):
    s = shared(32, i32)
    t = threadIdx.x
    s[t] = blockIdx.x * 32 + t
    cluster_sync()
    y[blockIdx.x * 32 + t] = remote(s, 1 - cluster_rank)[t]
    cluster_sync()


@case("shared race", 4, 32, zeros(128), zeros(128), cluster=2)
def cluster_pairs_write(x: inout[i32["n"]], y: inout[i32["n"]]):
    s = shared(32, i32)
    t = threadIdx.x
    s[t] = blockIdx.x * 32 + t
    cluster_sync()
    y[blockIdx.x * 32 + t] = remote(s, 1 - cluster_rank)[t]
    s[t] = 0
