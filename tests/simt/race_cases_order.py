"""Labelled kernels: lanes that sync in part, copies under way, flags of several threads."""

from ridgeline.simt import (
    atomic_add,
    atomic_exch,
    atomic_load,
    atomic_store,
    blockIdx,
    cp_async,
    cp_async_commit,
    cp_async_wait,
    i32,
    inout,
    shared,
    shfl_down,
    syncthreads,
    syncwarp,
    threadfence,
    threadIdx,
)
from tests.simt.labelled import case, numbers, zeros


@case("shared race", 1, 96, zeros(1))
def atom_then_plain_one_warp(y: inout[i32["n"]]):
    s = shared(1, i32)
    t = threadIdx.x
    if t == 0:
        s[0] = 0
    syncthreads()
    atomic_add(s, 0, 1)
    syncwarp()
    if t == 95:
        y[0] = s[0]


@case("shared race", 1, 64, zeros(1))
def readers_then_write(y: inout[i32["n"]]):
    s = shared(1, i32)
    t = threadIdx.x
    if t == 0:
        s[0] = 0
    syncthreads()
    v = s[0]
    syncwarp()
    if t == 32:
        s[0] = v + 1


@case("shared race", 1, 96, zeros(1))
def readers_then_write3(y: inout[i32["n"]]):
    s = shared(1, i32)
    t = threadIdx.x
    if t == 0:
        s[0] = 0
    syncthreads()
    v = s[0]
    syncwarp()
    if t == 95:
        s[0] = v + 1


@case("shared race", 1, 96, zeros(1))
def readers_then_write4(y: inout[i32["n"]]):
    s = shared(1, i32)
    t = threadIdx.x
    if t == 0:
        s[0] = 0
    syncthreads()
    syncwarp()
    v = s[0]
    syncwarp()
    if t == 64:
        s[0] = v + 1


# cp.async
@case("shared race", 1, 64, numbers(256), zeros(256))
def async_issue_before_barrier(x: i32["n"], y: inout[i32["n"]]):
    s = shared((64,), i32)
    t = threadIdx.x
    s[t] = x[t]
    syncthreads()
    y[t] = s[63 - t]
    cp_async(s[t], x[64 + t], 1)
    cp_async_commit()
    syncthreads()
    cp_async_wait(0)
    syncthreads()
    y[64 + t] = s[63 - t]


@case("shared race", 1, 64, numbers(256), zeros(256))
def async_wait_one_too_few(x: i32["n"], y: inout[i32["n"]]):
    s = shared((2, 64), i32)
    t = threadIdx.x
    s[0, t] = 0
    s[1, t] = 0
    syncthreads()
    cp_async(s[0, t], x[t], 1)
    cp_async_commit()
    cp_async(s[1, t], x[64 + t], 1)
    cp_async_commit()
    cp_async_wait(1)
    syncthreads()
    y[t] = s[0, 63 - t]
    y[64 + t] = s[1, 63 - t]


@case("shared race", 1, 64, numbers(256), zeros(256))
def async_own_read_before_wait(x: i32["n"], y: inout[i32["n"]]):
    s = shared((64,), i32)
    t = threadIdx.x
    s[t] = 0
    cp_async(s[t], x[t], 1)
    cp_async_commit()
    y[t] = s[t]
    cp_async_wait(0)


@case(None, 1, 64, numbers(256), zeros(256))
def async_pipeline(x: i32["n"], y: inout[i32["n"]]):
    s = shared((2, 64), i32)
    t = threadIdx.x
    cp_async(s[0, t], x[t], 1)
    cp_async_commit()
    for k in range(4):
        if k < 3:
            cp_async(s[(k + 1) % 2, t], x[(k + 1) * 64 + t], 1)
        cp_async_commit()
        cp_async_wait(1)
        syncthreads()
        y[k * 64 + t] = s[k % 2, 63 - t]
        syncthreads()


@case("shared race", 1, 64, numbers(256), zeros(256))
def async_pipeline_no_second(x: i32["n"], y: inout[i32["n"]]):
    s = shared((2, 64), i32)
    t = threadIdx.x
    cp_async(s[0, t], x[t], 1)
    cp_async_commit()
    for k in range(4):
        if k < 3:
            cp_async(s[(k + 1) % 2, t], x[(k + 1) * 64 + t], 1)
        cp_async_commit()
        cp_async_wait(1)
        syncthreads()
        y[k * 64 + t] = s[k % 2, 63 - t]


@case(None, 1, 64, numbers(64), zeros(64))
def async_own_ok(x: i32["n"], y: inout[i32["n"]]):
    s = shared((64,), i32)
    t = threadIdx.x
    cp_async(s[t], x[t], 1)
    cp_async_commit()
    cp_async_wait(0)
    y[t] = s[t]


# acks from one of two consumers
@case("global race", 3, 32, zeros(1), zeros(3), zeros(3))
def one_ack(x: inout[i32["n"]], f: inout[i32["m"]], y: inout[i32["k"]]):
    b = blockIdx.x
    if threadIdx.x == 0:
        if b < 2:
            y[b] = x[0]
            threadfence()
            if b == 0:
                atomic_exch(f[0], 1)
        else:
            while atomic_add(f[0], 0) == 0:
                pass
            threadfence()
            y[2] = x[0]
            x[0] = 5


@case(None, 3, 32, zeros(1), zeros(3), zeros(3))
def both_ack(x: inout[i32["n"]], f: inout[i32["m"]], y: inout[i32["k"]]):
    b = blockIdx.x
    if threadIdx.x == 0:
        if b < 2:
            y[b] = x[0]
            threadfence()
            atomic_add(f[0], 1)
        else:
            while atomic_add(f[0], 0) != 2:
                pass
            threadfence()
            y[2] = x[0]
            x[0] = 5


@case("global race", 3, 32, zeros(1), zeros(3), zeros(3))
def counted_too_few(x: inout[i32["n"]], f: inout[i32["m"]], y: inout[i32["k"]]):
    b = blockIdx.x
    if threadIdx.x == 0:
        if b < 2:
            y[b] = x[0]
            threadfence()
            atomic_add(f[0], 1)
        else:
            while atomic_add(f[0], 0) < 1:
                pass
            threadfence()
            x[0] = 5


# shared array not initialised in reads of other lanes
@case("uninitialised", 1, 64, zeros(64))
def partly(y: inout[i32["n"]]):
    s = shared(64, i32)
    t = threadIdx.x
    if t % 2 == 0:
        s[t] = t
    syncthreads()
    y[t] = s[t ^ 1]


@case("shared race", 1, 64, zeros(64))
def divergent_same_warp(y: inout[i32["n"]]):
    s = shared(64, i32)
    t = threadIdx.x
    if t % 2 == 0:
        s[t] = t
    else:
        s[t - 1] = 2 * t
    syncthreads()
    y[t] = s[t - t % 2]


@case("shared race", 1, 32, zeros(32))
def shfl_is_no_fence(y: inout[i32["n"]]):
    s = shared(32, i32)
    t = threadIdx.x
    s[t] = t
    v = shfl_down(t, 1)
    y[t] = s[31 - t] + v


@case(None, 1, 64, zeros(64))
def own_only(y: inout[i32["n"]]):
    s = shared(64, i32)
    t = threadIdx.x
    s[t] = t
    y[t] = s[t]
    s[t] += 1
    y[t] += s[t]


@case(None, 2, 32, zeros(1), zeros(1), zeros(1))
def handed_on_in_one_order_for_all(x: inout[i32["n"]], f: inout[i32["m"]], y: inout[i32["k"]]):
    if threadIdx.x == 0:
        if blockIdx.x == 0:
            x[0] = 7
            atomic_store(f, 0, 1, order="seq_cst")
        else:
            while atomic_load(f, 0, order="seq_cst") == 0:
                pass
            y[0] = x[0]


@case("global race", 2, 32, zeros(1), zeros(1), zeros(1))
def handed_on_relaxed(x: inout[i32["n"]], f: inout[i32["m"]], y: inout[i32["k"]]):
    if threadIdx.x == 0:
        if blockIdx.x == 0:
            x[0] = 7
            atomic_store(f, 0, 1, order="relaxed")
        else:
            while atomic_load(f, 0, order="seq_cst") == 0:
                pass
            y[0] = x[0]


@case(None, 2, 64, zeros(1), zeros(1))
def atomics_in_turn_by_a_flag(x: inout[i32["n"]], f: inout[i32["m"]]):
    if threadIdx.x == 0:
        if blockIdx.x == 0:
            atomic_exch(x, 0, 1, scope="block")
            threadfence()
            atomic_exch(f, 0, 1)
        else:
            while atomic_add(f, 0, 0) != 1:
                pass
            atomic_exch(x, 0, 2, scope="block")


@case("global race", 2, 64, zeros(1), zeros(1))
def plain_write_after_a_flag_without_a_fence(x: inout[i32["n"]], f: inout[i32["m"]]):
    if threadIdx.x == 0:
        if blockIdx.x == 0:
            atomic_exch(x, 0, 1, scope="block")
            threadfence()
            atomic_exch(f, 0, 1)
        else:
            while atomic_add(f, 0, 0) != 1:
                pass
            x[0] = 2
