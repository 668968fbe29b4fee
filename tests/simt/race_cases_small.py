"""Labelled kernels of a few lines: one access pattern each, with and without its mistake."""

import numpy as np

from ridgeline import simt
from ridgeline.simt import (
    atomic_add,
    atomic_cas,
    atomic_dec,
    atomic_inc,
    atomic_max,
    atomic_min,
    blockDim,
    blockIdx,
    cp_async,
    cp_async_commit,
    cp_async_wait,
    f32,
    gridDim,
    i32,
    i64,
    inout,
    load4,
    local,
    out,
    shared,
    syncthreads,
    threadIdx,
    u32,
)
from tests.simt.labelled import case, numbers, zeros

PRIMES = simt.constant(np.array([2, 3, 5, 7], np.int32))


@case(None, 1, 4, numbers(4))
def copy_in(d: inout[i32["n"]]):
    s = shared(4, i32)
    t = threadIdx.x
    cp_async(s[t], d[t], 1)
    cp_async_commit()
    cp_async_wait(0)
    syncthreads()
    d[3 - t] = s[t]


@case("shared race", 1, 4, numbers(4))
def copy_over_a_write(d: inout[i32["n"]]):
    s = shared(4, i32)
    t = threadIdx.x
    s[t] = 0
    cp_async(s[3 - t], d[t], 1)
    cp_async_commit()
    cp_async_wait(0)
    syncthreads()
    d[t] = s[t]


@case("shared race", 1, 4, numbers(4))
def copies_to_one_place(d: inout[i32["n"]]):
    s = shared(4, i32)
    t = threadIdx.x
    cp_async(s[t // 2 * 2], d[t], 1)
    cp_async_commit()
    cp_async_wait(0)
    syncthreads()
    if t == 0:
        d[0] = s[0]


@case("uninitialised", 1, 4, numbers(4))
def copy_of_others_missing(d: inout[i32["n"]]):
    s = shared(4, i32)
    t = threadIdx.x
    if t < 3:
        cp_async(s[t], d[t], 1)
    cp_async_commit()
    cp_async_wait(0)
    syncthreads()
    d[t] = s[3 - t]


@case(None, 1, 4, numbers(4))
def copy_element_by_element(d: inout[i32["n"]]):
    s = shared(4, i32)
    t = threadIdx.x
    if t == 0:
        for j in range(4):
            cp_async(s[j], d[j], 1)
            cp_async_commit()
        cp_async_wait(0)
    syncthreads()
    d[3 - t] = s[t]


@case("shared race", 1, 4, numbers(4))
def copies_waited_for_in_part(d: inout[i32["n"]]):
    s = shared(4, i32)
    t = threadIdx.x
    s[t] = 0
    syncthreads()
    if t == 0:
        for j in range(4):
            cp_async(s[j], d[j], 1)
            cp_async_commit()
        cp_async_wait(2)
    syncthreads()
    d[t] = s[t]


@case("out of bounds", 1, 4, numbers(4))
def copy_past_the_end(d: inout[i32["n"]]):
    s = shared(8, i32)
    t = threadIdx.x
    cp_async(s[t], d[t + 1], 1)
    cp_async_commit()
    cp_async_wait(0)


@case(None, 4, 1, np.zeros(1, np.int64))
def wide_sum(d: inout[i64["n"]]):
    atomic_add(d[0], i64(4294967295))


@case(None, 1, 4, zeros(5))
def failed_exchanges_only_read(d: inout[i32["n"]]):
    s = shared(1, i32)
    t = threadIdx.x
    if t == 0:
        s[0] = 0
    syncthreads()
    done = False
    for _ in range(4):
        syncthreads()
        before = s[0]
        syncthreads()
        if not done and atomic_cas(s[0], before, before + 1) == before:
            done = True
            d[t + 1] = s[0]
    syncthreads()
    if t == 0:
        d[0] = s[0]


@case("global race", 1, 2, zeros(1))
def exchange_beside_a_write(d: inout[i32["n"]]):
    if threadIdx.x == 0:
        d[0] = 0
    else:
        atomic_cas(d[0], 0, 16777217)


@case("global race", 1, 2, zeros(1))
def write_before_own_exchange(d: inout[i32["n"]]):
    t = threadIdx.x
    if t == 0:
        d[0] = 0
    atomic_cas(d[0], t, 42)


@case(None, 2, 4, zeros(2), zeros(2))
def sums_of_blocks(d: inout[i32["n"]], s: inout[i32["n"]]):
    g = blockIdx.x
    if threadIdx.x == 0:
        s[g] = 0
    syncthreads()
    atomic_add(s[g], g * 4 + threadIdx.x)
    syncthreads()
    if threadIdx.x == 0:
        d[g] = s[g]


@case("global race", 2, 4, zeros(2), zeros(1))
def sum_of_all_read_early(d: inout[i32["n"]], s: inout[i32["m"]]):
    atomic_add(s[0], threadIdx.x)
    syncthreads()
    if threadIdx.x == 0:
        d[blockIdx.x] = s[0]


@case("global race", 2, 4, zeros(1))
def cleared_by_one_block(d: inout[i32["n"]]):
    if blockIdx.x == 0 and threadIdx.x == 0:
        d[0] = 0
    syncthreads()
    atomic_add(d[0], 1)


@case(None, 1, 1, zeros(12))
def signed_extremes(d: inout[i32["n"]]):
    for k in range(6):
        atomic_min(d[k], k * 3 - 8)
        atomic_max(d[k + 6], k * 3 - 8)


@case("global race", 1, 4, zeros(1), zeros(1))
def count_read_by_the_last(d: inout[i32["n"]], y: inout[i32["n"]]):
    atomic_add(d[0], 1)
    if threadIdx.x == 3:
        y[0] = d[0]


@case("global race", 1, 4, np.zeros(1, np.uint32))
def cleared_and_counted_down(d: inout[u32["n"]]):
    if threadIdx.x == 0:
        d[0] = 0
    atomic_dec(d[0], 9)


@case(None, 1, 4, np.zeros(4, np.uint32))
def own_counter(d: inout[u32["n"]]):
    t = threadIdx.x
    if t % 2 == 0:
        d[t] = 0
        atomic_inc(d[t], 9)
    else:
        atomic_inc(d[t], 9)
        d[t] = d[t] + 1


@case("divergent barrier", 1, 4, zeros(4))
def two_barriers_for_one(d: inout[i32["n"]]):
    t = threadIdx.x
    if t == 0:
        d[0] = 42
        syncthreads()
    else:
        syncthreads()
        d[t] = t + d[0]


@case("divergent barrier", 1, 4, zeros(4))
def barrier_without_the_first(d: inout[i32["n"]]):
    t = threadIdx.x
    if t != 0:
        syncthreads()
    d[t] = t


@case(None, 4, 1, numbers(1), zeros(4))
def one_for_all(v: i32["n"], y: inout[i32["m"]]):
    y[blockIdx.x] = v[0]


@case(None, 4, 4, zeros(16), zeros(4))
def sums_through_memory(s: inout[i32["n"]], y: inout[i32["m"]]):
    g = blockIdx.x
    s[g * 4 + threadIdx.x] = threadIdx.x
    syncthreads()
    if threadIdx.x == 0:
        total = 0
        for k in range(4):
            total += s[g * 4 + k]
        y[g] = total


@case("global race", 1, 4, numbers(4))
def left_neighbour(d: inout[i32["n"]]):
    t = threadIdx.x
    if t > 0:
        d[t] = d[t - 1]


@case("global race", 4, 1, zeros(1))
def all_write_one(d: inout[i32["n"]]):
    d[0] = blockIdx.x


@case(None, 4, 1, numbers(4))
def own_increment(d: inout[i32["n"]]):
    d[blockIdx.x] = d[blockIdx.x] + 1


@case("global race", 2, 1, zeros(1), zeros(2))
def read_by_all_written_by_one(d: inout[i32["n"]], y: inout[i32["m"]]):
    y[blockIdx.x] = d[0]
    if blockIdx.x == 1:
        d[0] = 1


@case("global race", 2, 4, zeros(2))
def blocks_summed_by_the_first(d: inout[i32["n"]]):
    if threadIdx.x == 0:
        d[blockIdx.x] = blockIdx.x
    syncthreads()
    if blockIdx.x == 0 and threadIdx.x == 0:
        d[0] = d[0] + d[1]


@case("warning", 1, 4, zeros(1))
def all_write_the_same(d: inout[i32["n"]]):
    d[0] = 42


@case("out of bounds", 1, 4, zeros(2))
def counter_past_the_end(d: inout[i32["n"]]):
    atomic_add(d[threadIdx.x], 1)


@case("out of bounds", 4, 1, numbers(3), zeros(4))
def read_past_the_end(x: i32["n"], y: inout[i32["m"]]):
    y[blockIdx.x] = x[blockIdx.x]


@case("out of bounds", 4, 1, zeros(3))
def write_past_the_end(y: inout[i32["n"]]):
    y[blockIdx.x] = 1


@case(None, 4, 1, numbers(3), zeros(4))
def guarded_read(x: i32["n"], y: inout[i32["m"]]):
    y[blockIdx.x] = x.get(blockIdx.x, -1)


@case("out of bounds", 1, 4, zeros(4))
def private_past_the_end(y: inout[i32["n"]]):
    a = local(3, i32, fill=0)
    y[threadIdx.x] = a[threadIdx.x]


@case("out of bounds", 1, 4, zeros(4))
def table_past_the_end(y: inout[i32["n"]]):
    y[threadIdx.x] = PRIMES[threadIdx.x + 1]


@case(None, 1, 4, zeros(4))
def table(y: inout[i32["n"]]):
    y[threadIdx.x] = PRIMES[3 - threadIdx.x]


@case("out of bounds", 1, 2, numbers(6), zeros(8))
def vector_past_the_end(x: i32["n"], y: inout[i32["m"]]):
    a, b, c, d = load4(x[4 * threadIdx.x])
    y[threadIdx.x] = a + b + c + d


@case("uninitialised", 1, 4, zeros(4))
def private_never_written(y: inout[i32["n"]]):
    a = local(2, i32)
    y[threadIdx.x] = a[0]


@case(None, 1, 4, zeros(4))
def private_written(y: inout[i32["n"]]):
    a = local(3, i32)
    for k in range(3):
        a[k] = k + threadIdx.x
    y[threadIdx.x] = a[2]


@case("uninitialised", 1, 4, zeros(4))
def address_never_written(y: inout[i32["n"]]):
    s = shared(4, i32)
    y[s[threadIdx.x] % 4] = 1


@case("uninitialised", 1, 4, zeros(4))
def shared_written_by_half(y: inout[i32["n"]]):
    s = shared(4, i32)
    if threadIdx.x < 2:
        s[threadIdx.x] = 1
    syncthreads()
    y[threadIdx.x] = s[threadIdx.x]


@case("uninitialised", 4, 1)
def result_read_first(y: out[i32["4"]]):
    y[blockIdx.x] = y[blockIdx.x] + 1


@case("uninitialised", 1, 4, zeros(4))
def counted_from_nothing(y: inout[i32["n"]]):
    s = shared(1, i32)
    atomic_add(s[0], 1)
    syncthreads()
    y[threadIdx.x] = s[0]


@case(None, 2, 8, numbers(16).astype(np.float32), np.zeros(2, np.float32))
def halves(x: f32["n"], y: inout[f32["m"]]):
    s = shared(8, f32)
    t = threadIdx.x
    s[t] = x[blockIdx.x * 8 + t]
    syncthreads()
    half = blockDim.x // 2
    while half > 0:
        if t < half:
            s[t] += s[t + half]
        syncthreads()
        half //= 2
    if t == 0:
        y[blockIdx.x] = s[0]


@case(None, 3, 4, zeros(10))
def odd_end(y: inout[i32["n"]]):
    i = blockIdx.x * blockDim.x + threadIdx.x
    if i < y.shape[0]:
        y[i] = i + gridDim.x
