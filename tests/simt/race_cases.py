"""Labelled kernels: shared memory, barriers, warps, atomics, fences and classic mistakes."""

from ridgeline import simt
from ridgeline.simt import (
    atomic_add,
    atomic_cas,
    atomic_exch,
    ballot,
    blockIdx,
    grid_sync,
    gridDim,
    i32,
    inout,
    lane,
    shared,
    shfl_down,
    syncthreads,
    syncthreads_count,
    syncwarp,
    threadfence,
    threadfence_block,
    threadIdx,
    u32,
    volatile_load,
    volatile_store,
)
from ridgeline.simt.simulator.simulate import SimulationOptions
from tests.simt.labelled import case, numbers, zeros


@case("shared race", 1, 64, numbers(64))
def rev_nobar(d: inout[i32["n"]]):
    s = shared(64, i32)
    i = threadIdx.x
    s[i] = d[i]
    d[i] = s[63 - i]


@case("shared race", 1, 32, numbers(32))
def intrawarp(d: inout[i32["n"]]):
    s = shared(33, i32)
    i = threadIdx.x
    s[i] = d[i]
    d[i] = s[31 - i]


@case(None, 1, 32, numbers(32))
def intrawarp_ok(d: inout[i32["n"]]):
    s = shared(33, i32)
    i = threadIdx.x
    s[i] = d[i]
    syncwarp()
    d[i] = s[31 - i]


@case("global race", 4, 64, zeros(1))
def sum_race(y: inout[i32["n"]]):
    y[0] += threadIdx.x


@case(None, 4, 64, zeros(1))
def sum_ok(y: inout[i32["n"]]):
    atomic_add(y, 0, threadIdx.x)


@case("warning", 4, 64, zeros(1))
def same_value(y: inout[i32["n"]]):
    y[0] = 7


@case("divergent barrier", 1, 64, numbers(64))
def barrier_if(d: inout[i32["n"]]):
    s = shared(64, i32)
    i = threadIdx.x
    s[i] = d[i]
    if i < 40:
        syncthreads()
    d[i] = 0


@case("warning", 1, 64, numbers(40))
def barrier_after_exit(d: inout[i32["n"]]):
    s = shared(64, i32)
    i = threadIdx.x
    if i >= 40:
        return
    s[i] = d[i]
    syncthreads()
    d[i] = s[39 - i]


@case("shared race", 2, 128, numbers(256), numbers(2))
def reduce_missing(x: i32["n"], y: inout[i32["m"]]):
    s = shared(128, i32)
    t = threadIdx.x
    s[t] = x[blockIdx.x * 128 + t]
    syncthreads()
    k = 64
    while k > 0:
        if t < k:
            s[t] += s[t + k]
        k //= 2
    if t == 0:
        y[blockIdx.x] = s[0]


@case(None, 2, 128, numbers(256), numbers(2))
def reduce_ok(x: i32["n"], y: inout[i32["m"]]):
    s = shared(128, i32)
    t = threadIdx.x
    s[t] = x[blockIdx.x * 128 + t]
    syncthreads()
    k = 64
    while k > 0:
        if t < k:
            s[t] += s[t + k]
        syncthreads()
        k //= 2
    if t == 0:
        y[blockIdx.x] = s[0]


@case("shared race", 2, 128, numbers(256), numbers(2))
def reduce_warp_unsync(x: i32["n"], y: inout[i32["m"]]):
    s = shared(128, i32)
    t = threadIdx.x
    s[t] = x[blockIdx.x * 128 + t]
    syncthreads()
    if t < 64:
        s[t] += s[t + 64]
    syncthreads()
    if t < 32:
        s[t] += s[t + 32]
        s[t] += s[t + 16]
        s[t] += s[t + 8]
    if t == 0:
        y[blockIdx.x] = s[0]


@case(None, 1, 32, numbers(64), numbers(1))
def reduce_warp_sync(x: i32["n"], y: inout[i32["m"]]):
    s = shared(64, i32)
    t = threadIdx.x
    s[t] = x[t]
    s[t + 32] = x[t + 32]
    v = s[t]
    syncwarp()
    v += s[t + 32]
    syncwarp()
    s[t] = v
    syncwarp()
    v += s[t + 16]
    syncwarp()
    s[t] = v
    syncwarp()
    if t == 0:
        y[0] = s[0]


@case("shared race", 1, 64, numbers(256), numbers(256))
def loop_second_barrier(x: i32["n"], y: inout[i32["n"]]):
    s = shared(64, i32)
    t = threadIdx.x
    for k in range(4):
        s[t] = x[k * 64 + t]
        syncthreads()
        y[k * 64 + t] = s[63 - t]


@case(None, 1, 64, numbers(256), numbers(256))
def loop_double_buffer(x: i32["n"], y: inout[i32["n"]]):
    s = shared((2, 64), i32)
    t = threadIdx.x
    for k in range(4):
        s[k % 2, t] = x[k * 64 + t]
        syncthreads()
        y[k * 64 + t] = s[k % 2, 63 - t]


@case("global race", 2, 64, numbers(128))
def exchange(x: inout[i32["n"]]):
    i = blockIdx.x * 64 + threadIdx.x
    x[i] = x[127 - i]


@case(None, 2, 64, numbers(128), numbers(1))
def mp_ok(x: inout[i32["n"]], flag: inout[i32["m"]]):
    if blockIdx.x == 0:
        if threadIdx.x == 0:
            x[5] = 42
            threadfence()
            atomic_exch(flag, 0, 1)
    else:
        if threadIdx.x == 0:
            while atomic_add(flag, 0, 0) == 0:
                pass
            threadfence()
            x[6] = x[5]


@case("global race", 2, 64, numbers(128), numbers(1))
def mp_nofence(x: inout[i32["n"]], flag: inout[i32["m"]]):
    if blockIdx.x == 0:
        if threadIdx.x == 0:
            x[5] = 42
            atomic_exch(flag, 0, 1)
    else:
        if threadIdx.x == 0:
            while atomic_add(flag, 0, 0) == 0:
                pass
            threadfence()
            x[6] = x[5]


@case("global race", 2, 64, numbers(128), numbers(1))
def mp_blockfence(x: inout[i32["n"]], flag: inout[i32["m"]]):
    if blockIdx.x == 0:
        if threadIdx.x == 0:
            x[5] = 42
            threadfence_block()
            atomic_exch(flag, 0, 1)
    else:
        if threadIdx.x == 0:
            while atomic_add(flag, 0, 0) == 0:
                pass
            threadfence()
            x[6] = x[5]


@case("global race", 2, 64, numbers(128), numbers(1))
def mp_plainflag(x: inout[i32["n"]], flag: inout[i32["m"]]):
    if blockIdx.x == 0:
        if threadIdx.x == 0:
            x[5] = 42
            threadfence()
            flag[0] = 1
    else:
        if threadIdx.x == 0:
            while volatile_load(flag, 0) == 0:
                pass
            threadfence()
            x[6] = x[5]


@case(None, 2, 64, numbers(128), numbers(1))
def mp_volatile(x: inout[i32["n"]], flag: inout[i32["m"]]):
    if blockIdx.x == 0:
        if threadIdx.x == 0:
            x[5] = 42
            threadfence()
            volatile_store(flag, 0, 1)
    else:
        if threadIdx.x == 0:
            while volatile_load(flag, 0) == 0:
                pass
            threadfence()
            x[6] = x[5]


@case(None, 4, 32, zeros(1), zeros(1))
def lock_ok(x: inout[i32["n"]], m: inout[i32["k"]]):
    done = False
    while not done:
        if atomic_cas(m, 0, 0, 1) == 0:
            threadfence()
            x[0] += 1
            threadfence()
            atomic_exch(m, 0, 0)
            done = True


@case("global race", 4, 32, zeros(1), zeros(1))
def lock_nofence(x: inout[i32["n"]], m: inout[i32["k"]]):
    done = False
    while not done:
        if atomic_cas(m, 0, 0, 1) == 0:
            x[0] += 1
            atomic_exch(m, 0, 0)
            done = True


@case(None, 4, 32, zeros(1), zeros(1))
def lock_spin(x: inout[i32["n"]], m: inout[i32["k"]]):
    while atomic_cas(m, 0, 0, 1) != 0:
        pass
    threadfence()
    x[0] += 1
    threadfence()
    atomic_exch(m, 0, 0)


@case(None, 8, 64, numbers(512), zeros(8), zeros(1), zeros(1))
def last_block(x: i32["n"], part: inout[i32["b"]], count: inout[i32["k"]], y: inout[i32["o"]]):
    s = shared(64, i32)
    t = threadIdx.x
    islast = shared(1, i32)
    s[t] = x[blockIdx.x * 64 + t]
    syncthreads()
    if t == 0:
        tot = 0
        for i in range(64):
            tot += s[i]
        part[blockIdx.x] = tot
        threadfence()
        islast[0] = 1 if atomic_add(count, 0, 1) == gridDim.x - 1 else 0
    syncthreads()
    if islast[0] == 1 and t == 0:
        tot2 = 0
        for i in range(8):
            tot2 += part[i]
        y[0] = tot2


@case("global race", 8, 64, numbers(512), zeros(8), zeros(1), zeros(1))
def last_block_nofence(
    x: i32["n"], part: inout[i32["b"]], count: inout[i32["k"]], y: inout[i32["o"]]
):
    t = threadIdx.x
    islast = shared(1, i32)
    if t == 0:
        part[blockIdx.x] = x[blockIdx.x]
        islast[0] = 1 if atomic_add(count, 0, 1) == gridDim.x - 1 else 0
    syncthreads()
    if islast[0] == 1 and t == 0:
        tot2 = 0
        for i in range(8):
            tot2 += part[i]
        y[0] = tot2


@case(None, 4, 64, numbers(256), zeros(256))
def grid_barrier(x: inout[i32["n"]], y: inout[i32["n"]]):
    i = blockIdx.x * 64 + threadIdx.x
    x[i] = i * 2
    grid_sync()
    y[i] = x[255 - i]


@case("shared race", 1, 64, numbers(64), zeros(16))
def hist_race(x: i32["n"], h: inout[i32["b"]]):
    s = shared(16, i32)
    t = threadIdx.x
    if t < 16:
        s[t] = 0
    syncthreads()
    s[x[t] % 16] += 1
    syncthreads()
    if t < 16:
        atomic_add(h, t, s[t])


@case(None, 1, 64, numbers(64), zeros(16))
def hist_ok(x: i32["n"], h: inout[i32["b"]]):
    s = shared(16, i32)
    t = threadIdx.x
    if t < 16:
        s[t] = 0
    syncthreads()
    atomic_add(s, x[t] % 16, 1)
    syncthreads()
    if t < 16:
        atomic_add(h, t, s[t])


@case("shared race", 1, 64, numbers(64), zeros(16))
def hist_noinitbar(x: i32["n"], h: inout[i32["b"]]):
    s = shared(16, i32)
    t = threadIdx.x
    if t < 16:
        s[t] = 0
    atomic_add(s, x[t] % 16, 1)
    syncthreads()
    if t < 16:
        atomic_add(h, t, s[t])


@case("global race", 4, 64, zeros(1), zeros(256))
def atomic_then_plain(c: inout[i32["n"]], y: inout[i32["m"]]):
    atomic_add(c, 0, 1)
    y[blockIdx.x * 64 + threadIdx.x] = c[0]


@case("global race", 4, 64, zeros(1))
def atomic_block_scope(c: inout[i32["n"]]):
    atomic_add(c, 0, 1, scope="block")


@case("uninitialised", 1, 64, zeros(64))
def uninit(y: inout[i32["n"]]):
    s = shared(64, i32)
    t = threadIdx.x
    if t < 32:
        s[t] = t
    syncthreads()
    y[t] = s[t]


@case("out of bounds", 1, 64, zeros(60))
def oob(y: inout[i32["n"]]):
    y[threadIdx.x] = 1


@case("out of bounds", 1, 64, zeros(64), zeros(64))
def oob_neg(x: i32["n"], y: inout[i32["n"]]):
    y[threadIdx.x] = x[threadIdx.x - 1]


@case("never ends", 1, 64, zeros(4))
def hang(y: inout[i32["n"]]):
    while volatile_load(y, 0) == 0:
        pass


@case("never ends", 1, 64, zeros(4))
def hang2(y: inout[i32["n"]]):
    while y[0] == 0:
        pass


@case("never ends", 1, 64, zeros(4), options=SimulationOptions(limit=3000))
def hang3(y: inout[i32["n"]]):
    i = 0
    while True:
        i += 1


@case("shuffle", 1, 64, zeros(64))
def shfl_exited(y: inout[i32["n"]]):
    t = threadIdx.x
    if lane >= 16:
        return
    y[t] = shfl_down(t, 8)


@case("warp mask", 1, 64, zeros(64))
def shfl_divergent(y: inout[i32["n"]]):
    t = threadIdx.x
    if lane < 16:
        y[t] = shfl_down(t, 8)
    else:
        syncthreads()


@case(None, 1, 64, numbers(64), zeros(1))
def warp_reduce(x: i32["n"], y: inout[i32["m"]]):
    v = x[threadIdx.x]
    for d in (16, 8, 4, 2, 1):
        v += shfl_down(v, d)
    if lane == 0:
        atomic_add(y, 0, v)


@case(None, 2, 64, numbers(128), zeros(128), zeros(1))
def warp_agg(x: i32["n"], y: inout[i32["n"]], c: inout[i32["m"]]):
    i = blockIdx.x * 64 + threadIdx.x
    keep = x[i] % 3 == 0
    m = ballot(keep)
    base = 0
    if lane == 0:
        base = atomic_add(c, 0, simt.popc(m))
    base = simt.shfl(base, 0)
    if keep:
        rank = simt.popc(m & ((u32(1) << lane) - 1))
        y[base + rank] = x[i]


@case(None, 3, 64, numbers(192), zeros(192))
def stencil(x: i32["n"], y: inout[i32["n"]]):
    s = shared(66, i32)
    t = threadIdx.x
    i = blockIdx.x * 64 + t
    s[t + 1] = x[i]
    if t == 0:
        s[0] = x.get(i - 1, 0)
    if t == 63:
        s[65] = x.get(i + 1, 0)
    syncthreads()
    y[i] = s[t] + s[t + 1] + s[t + 2]


@case("shared race", 3, 64, numbers(192), zeros(192))
def stencil_nobar(x: i32["n"], y: inout[i32["n"]]):
    s = shared(66, i32)
    t = threadIdx.x
    i = blockIdx.x * 64 + t
    s[t + 1] = x[i]
    if t == 0:
        s[0] = x.get(i - 1, 0)
    if t == 63:
        s[65] = x.get(i + 1, 0)
    y[i] = s[t + 1] + s[t + 2]


@case("global race", 3, 64, numbers(192))
def stencil_inplace(x: inout[i32["n"]]):
    i = blockIdx.x * 64 + threadIdx.x
    x[i] = x.get(i - 1, 0) + x.get(i + 1, 0)


@case(None, 3, 50, numbers(1000), zeros(1000))
def gridstride(x: i32["n"], y: inout[i32["n"]]):
    for i in simt.grid_stride(1000):
        y[i] = x[i] + 1


@case("divergent barrier", 1, 64, numbers(64))
def bar_loop(x: inout[i32["n"]]):
    for _ in range(threadIdx.x // 32 + 1):
        syncthreads()


@case("divergent barrier", 1, 64, numbers(64))
def bar_two(x: inout[i32["n"]]):
    if threadIdx.x < 32:
        syncthreads()
    else:
        syncthreads()


@case(None, 1, 64, numbers(64), zeros(64))
def votes(x: i32["n"], y: inout[i32["n"]]):
    y[threadIdx.x] = syncthreads_count(x[threadIdx.x] > 10)


@case("assertion", 1, 64, numbers(64))
def asserts(x: i32["n"]):
    assert x[threadIdx.x] < 60, "small"


@case("shared race", 1, 128, numbers(128), zeros(128))
def two_warps_no_bar(x: i32["n"], y: inout[i32["n"]]):
    s = shared(128, i32)
    t = threadIdx.x
    s[t] = x[t]
    syncwarp()
    y[t] = s[127 - t]


@case("shared race", 1, 32, numbers(32), zeros(32))
def half_mask(x: i32["n"], y: inout[i32["n"]]):
    s = shared(32, i32)
    t = threadIdx.x
    s[t] = x[t]
    if t < 16:
        syncwarp(0xFFFF)
    else:
        syncwarp(0xFFFF0000)
    y[t] = s[31 - t]


@case(None, 1, 32, numbers(32), zeros(32))
def half_mask_ok(x: i32["n"], y: inout[i32["n"]]):
    s = shared(32, i32)
    t = threadIdx.x
    s[t] = x[t]
    if t < 16:
        syncwarp(0xFFFF)
    else:
        syncwarp(0xFFFF0000)
    y[t] = s[t ^ 15]


@case("shared race", 1, 64, numbers(64), zeros(64))
def scan_hillis_bad(x: i32["n"], y: inout[i32["n"]]):
    s = shared(64, i32)
    t = threadIdx.x
    s[t] = x[t]
    syncthreads()
    d = 1
    while d < 64:
        if t >= d:
            s[t] += s[t - d]
        syncthreads()
        d *= 2
    y[t] = s[t]


@case(None, 1, 64, numbers(64), zeros(64))
def scan_hillis(x: i32["n"], y: inout[i32["n"]]):
    s = shared(64, i32)
    t = threadIdx.x
    s[t] = x[t]
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
    y[t] = s[t]
