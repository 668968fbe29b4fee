"""Labelled kernels: volatile accesses of flags that threads wait for, and of data they share."""

from ridgeline.simt import (
    atomic_add,
    atomic_cas,
    atomic_exch,
    atomic_max,
    blockIdx,
    i32,
    inout,
    shared,
    syncthreads,
    syncwarp,
    threadfence,
    threadfence_block,
    threadIdx,
    volatile_load,
    volatile_store,
)
from tests.simt.labelled import case, numbers, zeros


@case("shared race", 1, 64, numbers(64), zeros(1))
def volatile_last_warp(x: i32["n"], y: inout[i32["m"]]):
    s = shared(64, i32)
    t = threadIdx.x
    s[t] = x[t]
    syncthreads()
    if t < 32:
        volatile_store(s, t, volatile_load(s, t) + volatile_load(s, t + 32))
        volatile_store(s, t, volatile_load(s, t) + volatile_load(s, t + 16))
        volatile_store(s, t, volatile_load(s, t) + volatile_load(s, t + 8))
    if t == 0:
        y[0] = s[0]


@case(None, 1, 64, numbers(64), zeros(1))
def volatile_last_warp_synced(x: i32["n"], y: inout[i32["m"]]):
    s = shared(96, i32)
    t = threadIdx.x
    s[t] = x[t]
    if t < 32:
        s[64 + t] = 0
    syncthreads()
    if t < 32:
        total = volatile_load(s, t)
        for half in (32, 16, 8, 4, 2, 1):
            total += volatile_load(s, t + half)
            syncwarp()
            volatile_store(s, t, total)
            syncwarp()
    if t == 0:
        y[0] = s[0]


@case("shared race", 1, 64, numbers(64), zeros(1))
def volatile_greatest(x: i32["n"], y: inout[i32["m"]]):
    s = shared(64, i32)
    t = threadIdx.x
    s[t] = x[t]
    syncthreads()
    half = 16
    while half > 0:
        if t < half:
            other = volatile_load(s, t + half)
            if other > volatile_load(s, t):
                volatile_store(s, t, other)
        half //= 2
    if t == 0:
        y[0] = s[0]


@case("global race", 2, 1, zeros(1), zeros(1))
def unlocked_without_a_fence(data: inout[i32["n"]], lock: inout[i32["m"]]):
    while atomic_cas(lock, 0, 0, 1) != 0:
        pass
    threadfence()
    volatile_store(data, 0, blockIdx.x)
    atomic_exch(lock, 0, 0)


@case("global race", 2, 1, zeros(1), zeros(1))
def locked_without_a_fence(data: inout[i32["n"]], lock: inout[i32["m"]]):
    while atomic_cas(lock, 0, 0, 1) != 0:
        pass
    volatile_store(data, 0, blockIdx.x)
    threadfence()
    atomic_exch(lock, 0, 0)


@case(None, 2, 1, zeros(1), zeros(1))
def locked_with_fences(data: inout[i32["n"]], lock: inout[i32["m"]]):
    while atomic_cas(lock, 0, 0, 1) != 0:
        pass
    threadfence()
    volatile_store(data, 0, blockIdx.x)
    threadfence()
    atomic_exch(lock, 0, 0)


@case(None, 2, 1, zeros(1), zeros(1), zeros(1))
def volatile_read_after_a_flag(data: inout[i32["n"]], flag: inout[i32["m"]], y: inout[i32["k"]]):
    if blockIdx.x == 0:
        volatile_store(data, 0, 7)
        threadfence()
        atomic_exch(flag, 0, 1)
    else:
        while atomic_exch(flag, 0, 0) == 0:
            pass
        y[0] = volatile_load(data, 0)


@case("global race", 2, 1, zeros(1), zeros(1), zeros(1))
def plain_read_after_a_flag(data: inout[i32["n"]], flag: inout[i32["m"]], y: inout[i32["k"]]):
    if blockIdx.x == 0:
        volatile_store(data, 0, 7)
        threadfence()
        atomic_exch(flag, 0, 1)
    else:
        while atomic_exch(flag, 0, 0) == 0:
            pass
        y[0] = data[0]


@case("global race", 2, 1, zeros(1), zeros(1), zeros(1))
def fence_of_a_block_for_two(data: inout[i32["n"]], flag: inout[i32["m"]], y: inout[i32["k"]]):
    if blockIdx.x == 0:
        volatile_store(data, 0, 7)
        threadfence_block()
        atomic_exch(flag, 0, 1)
    else:
        while atomic_exch(flag, 0, 0) == 0:
            pass
        y[0] = volatile_load(data, 0)


@case("global race", 2, 1, zeros(1), zeros(1))
def read_again_after_the_flag(data: inout[i32["n"]], flag: inout[i32["m"]]):
    if blockIdx.x == 0:
        first = volatile_load(data, 0)
        threadfence()
        atomic_exch(flag, 0, 1)
        atomic_add(flag, 0, first + volatile_load(data, 0))
    else:
        while atomic_add(flag, 0, 0) == 0:
            pass
        volatile_store(data, 0, 1)


@case("global race", 2, 1, zeros(1))
def volatile_write_beside_an_atomic(data: inout[i32["n"]]):
    if blockIdx.x == 0:
        atomic_exch(data, 0, 1)
    else:
        volatile_store(data, 0, 2)


@case(None, 4, 32, numbers(128), zeros(1))
def volatile_look_before_an_atomic(x: i32["n"], most: inout[i32["m"]]):
    value = x[blockIdx.x * 32 + threadIdx.x]
    if volatile_load(most, 0) < value:
        atomic_max(most, 0, value)


@case(None, 1, 64, zeros(1), zeros(1))
def stopped_by_a_volatile_flag(stop: inout[i32["n"]], y: inout[i32["m"]]):
    if threadIdx.x == 0:
        volatile_store(stop, 0, 1)
    if threadIdx.x == 32:
        turns = 0
        while turns < 1000:
            if volatile_load(stop, 0) != 0:
                break
            turns += 1
        y[0] = turns


@case("global race", 2, 32, zeros(64), zeros(64))
def volatile_neighbours(x: inout[i32["n"]], y: inout[i32["n"]]):
    i = blockIdx.x * 32 + threadIdx.x
    volatile_store(x, i, i)
    y[i] = volatile_load(x, 63 - i)


@case("warning", 2, 32, zeros(1))
def volatile_same_value(changed: inout[i32["n"]]):
    volatile_store(changed, 0, 1)
