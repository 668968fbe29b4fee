"""Labelled kernels: locks, queues, tables and barriers made of atomics, and work of many blocks."""

import numpy as np

from ridgeline import simt
from ridgeline.simt import (
    atomic_add,
    atomic_cas,
    atomic_exch,
    atomic_inc,
    atomic_load,
    atomic_max,
    atomic_store,
    blockDim,
    blockIdx,
    cluster_rank,
    cluster_sync,
    cp_async,
    cp_async_commit,
    cp_async_wait,
    grid_sync,
    gridDim,
    i32,
    i64,
    inout,
    out,
    remote,
    shared,
    syncthreads,
    syncwarp,
    threadfence,
    threadfence_block,
    threadIdx,
    u32,
    volatile_load,
    volatile_store,
)
from tests.simt.labelled import case, numbers, zeros


@simt.device
def locked(m, k):
    while atomic_cas(m, k, 0, 1) != 0:
        pass
    threadfence()


@simt.device
def unlocked(m, k):
    threadfence()
    atomic_exch(m, k, 0)


KEYS = (np.arange(64, dtype=np.int32) * 7) % 16


@case(None, 2, 32, KEYS, zeros(16), zeros(16))
def lock_for_each_bucket(x: i32["n"], m: inout[i32["b"]], y: inout[i32["b"]]):
    k = x[blockIdx.x * 32 + threadIdx.x]
    done = False
    while not done:
        if atomic_cas(m, k, 0, 1) == 0:
            threadfence()
            y[k] += 1
            unlocked(m, k)
            done = True


@case("global race", 2, 32, KEYS, zeros(16), zeros(16))
def lock_of_another_bucket(x: i32["n"], m: inout[i32["b"]], y: inout[i32["b"]]):
    i = blockIdx.x * 32 + threadIdx.x
    done = False
    while not done:
        if atomic_cas(m, i % 16, 0, 1) == 0:
            threadfence()
            y[x[i] // 2] += 1
            unlocked(m, i % 16)
            done = True


@case("global race", 2, 32, zeros(1), zeros(2))
def written_after_the_unlock(m: inout[i32["k"]], y: inout[i32["n"]]):
    if threadIdx.x == 0:
        locked(m, 0)
        y[0] += 1
        unlocked(m, 0)
        y[1] = blockIdx.x


@case("global race", 2, 32, zeros(1), zeros(2))
def read_before_the_lock(m: inout[i32["k"]], y: inout[i32["n"]]):
    if threadIdx.x == 0:
        seen = y[0]
        locked(m, 0)
        y[0] = seen + 1
        unlocked(m, 0)


@case("global race", 2, 32, zeros(1), zeros(2))
def unlocked_by_a_plain_write(m: inout[i32["k"]], y: inout[i32["n"]]):
    if threadIdx.x == 0:
        locked(m, 0)
        y[0] += 1
        threadfence()
        m[0] = 0


@case(None, 2, 32, zeros(1), zeros(2))
def unlocked_by_a_volatile_write(m: inout[i32["k"]], y: inout[i32["n"]]):
    if threadIdx.x == 0:
        locked(m, 0)
        y[0] += 1
        threadfence()
        volatile_store(m, 0, 0)


@case(None, 2, 64, zeros(1), zeros(64))
def lock_taken_for_a_block(m: inout[i32["k"]], y: inout[i32["n"]]):
    if threadIdx.x == 0:
        locked(m, 0)
    syncthreads()
    y[threadIdx.x] += 1
    syncthreads()
    if threadIdx.x == 0:
        unlocked(m, 0)


@case("global race", 2, 64, zeros(1), zeros(64))
def lock_given_back_too_early(m: inout[i32["k"]], y: inout[i32["n"]]):
    if threadIdx.x == 0:
        locked(m, 0)
    syncthreads()
    y[threadIdx.x] += 1
    if threadIdx.x == 0:
        unlocked(m, 0)


@case(None, 2, 64, zeros(1), zeros(32))
def lock_taken_for_a_warp(m: inout[i32["k"]], y: inout[i32["n"]]):
    if threadIdx.x < 32:
        if threadIdx.x == 0:
            locked(m, 0)
        syncwarp()
        y[threadIdx.x] += 1
        syncwarp()
        if threadIdx.x == 0:
            unlocked(m, 0)


@case("global race", 2, 64, zeros(1), zeros(32))
def lock_taken_for_a_warp_no_sync(m: inout[i32["k"]], y: inout[i32["n"]]):
    if threadIdx.x < 32:
        if threadIdx.x == 0:
            locked(m, 0)
        y[threadIdx.x] += 1
        syncwarp()
        if threadIdx.x == 0:
            unlocked(m, 0)


@case(None, 2, 32, numbers(64), np.full(128, -1, np.int32), zeros(128))
def hash_table(x: i32["n"], keys: inout[i32["m"]], values: inout[i32["m"]]):
    i = blockIdx.x * 32 + threadIdx.x
    k = x[i] * 5 % 128
    while atomic_cas(keys, k, -1, x[i]) != -1:
        k = (k + 1) % 128
    values[k] = x[i] * 2


@case("global race", 2, 32, numbers(64) // 2, np.full(128, -1, np.int32), zeros(128))
def hash_table_shared_keys(x: i32["n"], keys: inout[i32["m"]], values: inout[i32["m"]]):
    i = blockIdx.x * 32 + threadIdx.x
    k = x[i] * 5 % 128
    while True:
        found = atomic_cas(keys, k, -1, x[i])
        if found == -1 or found == x[i]:
            values[k] = i
            break
        k = (k + 1) % 128


@case("global race", 2, 32, numbers(64), np.full(128, -1, np.int32))
def hash_table_looks_first(x: i32["n"], keys: inout[i32["m"]]):
    i = blockIdx.x * 32 + threadIdx.x
    k = x[i] % 16
    while keys[k] != -1 or atomic_cas(keys, k, -1, x[i]) != -1:
        k = (k + 1) % 128


@case(None, 2, 32, numbers(64), zeros(64), np.full(1, -1, np.int32), zeros(64))
def stack_of_nodes(x: i32["n"], value: inout[i32["n"]], head: inout[i32["k"]],
                   next_: inout[i32["n"]]):  # fmt: skip
    i = blockIdx.x * 32 + threadIdx.x
    value[i] = x[i]
    done = False
    while not done:
        top = volatile_load(head, 0)
        next_[i] = top
        threadfence()
        done = atomic_cas(head, 0, top, i) == top


@case("global race", 2, 32, numbers(64), zeros(64), np.full(1, -1, np.int32), zeros(64))
def stack_plain_head(x: i32["n"], value: inout[i32["n"]], head: inout[i32["k"]],
                     next_: inout[i32["n"]]):  # fmt: skip
    i = blockIdx.x * 32 + threadIdx.x
    value[i] = x[i]
    done = False
    while not done:
        top = head[0]
        next_[i] = top
        threadfence()
        done = atomic_cas(head, 0, top, i) == top


@case(None, 4, 32, zeros(2), zeros(128), zeros(128))
def barrier_with_a_sense(c: inout[i32["2"]], x: inout[i32["n"]], y: inout[i32["n"]]):
    i = blockIdx.x * 32 + threadIdx.x
    for turn in range(2):
        x[i] += turn + 1
        syncthreads()
        if threadIdx.x == 0:
            threadfence()
            if atomic_add(c, 0, 1) == gridDim.x - 1:
                atomic_exch(c, 0, 0)
                threadfence()
                atomic_add(c, 1, 1)
            else:
                while volatile_load(c, 1) <= turn:
                    pass
            threadfence()
        syncthreads()
        y[i] += x[127 - i]
        syncthreads()
        if threadIdx.x == 0:
            threadfence()
            atomic_add(c, 1, 0)
        if turn == 0:
            grid_sync()


@case("global race", 4, 32, zeros(1), zeros(128), zeros(128))
def barrier_that_counts_one_short(c: inout[i32["1"]], x: inout[i32["n"]], y: inout[i32["n"]]):
    i = blockIdx.x * 32 + threadIdx.x
    x[i] = i
    syncthreads()
    if threadIdx.x == 0:
        threadfence()
        atomic_add(c, 0, 1)
        while volatile_load(c, 0) < gridDim.x - 1:
            pass
        threadfence()
    syncthreads()
    y[i] = x[127 - i]


@case(None, 4, 32, np.zeros(1, np.uint32), numbers(128), zeros(4), zeros(1))
def last_block_by_inc(c: inout[u32["1"]], x: i32["n"], part: inout[i32["b"]],
                      y: inout[i32["1"]]):  # fmt: skip
    last = shared(1, i32)
    total = simt.warp_sum(x[blockIdx.x * 32 + threadIdx.x])
    if threadIdx.x == 0:
        part[blockIdx.x] = total
        threadfence()
        ticket = atomic_inc(c, 0, u32(3))
        last[0] = i32(ticket == u32(3))
        threadfence()
    syncthreads()
    if last[0] == 1 and threadIdx.x == 0:
        y[0] = part[0] + part[1] + part[2] + part[3]


@case("global race", 4, 32, np.zeros(1, np.uint32), numbers(128), zeros(4), zeros(1))
def last_block_counts_too_soon(c: inout[u32["1"]], x: i32["n"], part: inout[i32["b"]],
                               y: inout[i32["1"]]):  # fmt: skip
    if threadIdx.x == 0:
        threadfence()
        ticket = atomic_inc(c, 0, u32(3))
        part[blockIdx.x] = x[blockIdx.x]
        threadfence()
        if ticket == u32(3):
            y[0] = part[0] + part[1] + part[2] + part[3]


@case(None, 4, 32, zeros(128), zeros(128))
def turns_with_two_buffers(a: inout[i32["n"]], b: inout[i32["n"]]):
    i = blockIdx.x * 32 + threadIdx.x
    for k in range(4):
        if k % 2 == 0:
            b[i] = a[(i + 1) % 128] + 1
        else:
            a[i] = b[(i + 1) % 128] + 1
        grid_sync()


@case("global race", 4, 32, zeros(128), zeros(128))
def turns_synced_by_blocks(a: inout[i32["n"]], b: inout[i32["n"]]):
    i = blockIdx.x * 32 + threadIdx.x
    for k in range(4):
        if k % 2 == 0:
            b[i] = a[(i + 1) % 128] + 1
        else:
            a[i] = b[(i + 1) % 128] + 1
        syncthreads()


@case("global race", 3, 40, zeros(128))
def blocks_that_overlap_by_one(y: inout[i32["n"]]):
    i = blockIdx.x * 39 + threadIdx.x
    y[i] = blockIdx.x


@case("warning", 3, 40, zeros(128))
def blocks_that_overlap_and_agree(y: inout[i32["n"]]):
    i = blockIdx.x * 39 + threadIdx.x
    y[i] = i


@case("global race", 2, 64, zeros(100))
def clamped_index(y: inout[i32["n"]]):
    i = blockIdx.x * 64 + threadIdx.x
    y[min(i, 99)] = i


@case(None, 2, 64, zeros(100))
def guarded_index(y: inout[i32["n"]]):
    i = blockIdx.x * 64 + threadIdx.x
    if i < 100:
        y[i] = i


@case("global race", 2, 64, zeros(128))
def halved_index(y: inout[i32["n"]]):
    i = blockIdx.x * 64 + threadIdx.x
    y[i >> 1] = i


@case(None, (2, 2), (8, 8), np.zeros((16, 16), np.int32))
def squares_of_blocks(y: inout[i32["r c"]]):
    y[blockIdx.y * 8 + threadIdx.y, blockIdx.x * 8 + threadIdx.x] = threadIdx.x


@case("global race", (2, 2), (8, 8), np.zeros((16, 16), np.int32))
def squares_of_one_row_of_blocks(y: inout[i32["r c"]]):
    y[blockIdx.x * 8 + threadIdx.y, blockIdx.x * 8 + threadIdx.x] = blockIdx.y


@case("global race", 1, 64, np.zeros(8, np.int64))
def columns_summed_plainly(y: inout[i64["n"]]):
    y[threadIdx.x % 8] += i64(threadIdx.x)


@case(None, 2, 64, zeros(2))
def scope_of_a_block_in_its_own(c: inout[i32["n"]]):
    atomic_max(c, blockIdx.x, threadIdx.x, scope="block")


@case("global race", 2, 64, zeros(2), zeros(2))
def scope_of_a_block_for_two(c: inout[i32["n"]], y: inout[i32["n"]]):
    atomic_max(c, 0, threadIdx.x, scope="block")


@case("global race", 2, 32, zeros(4), zeros(1))
def released_for_the_block_only(x: inout[i32["n"]], f: inout[i32["k"]]):
    if threadIdx.x == 0:
        if blockIdx.x == 0:
            x[0] = 5
            threadfence_block()
            atomic_store(f, 0, 1)
        else:
            while atomic_load(f, 0) == 0:
                pass
            threadfence()
            x[1] = x[0]


@case(None, 2, 32, zeros(4), zeros(1))
def released_and_acquired_by_order(x: inout[i32["n"]], f: inout[i32["k"]]):
    if threadIdx.x == 0:
        if blockIdx.x == 0:
            x[0] = 5
            atomic_store(f, 0, 1, order="release")
        else:
            while atomic_load(f, 0, order="acquire") == 0:
                pass
            x[1] = x[0]


@case("global race", 2, 32, zeros(4), zeros(1))
def acquired_without_waiting(x: inout[i32["n"]], f: inout[i32["k"]]):
    if threadIdx.x == 0:
        if blockIdx.x == 0:
            x[0] = 5
            atomic_store(f, 0, 1, order="release")
        else:
            seen = atomic_load(f, 0, order="acquire")
            x[1] = x[0] + seen


@case(None, 2, 32, zeros(4), zeros(1))
def read_only_where_it_was_released(x: inout[i32["n"]], f: inout[i32["k"]]):
    if threadIdx.x == 0:
        if blockIdx.x == 0:
            x[0] = 5
            atomic_store(f, 0, 1, order="release")
        elif atomic_load(f, 0, order="acquire") == 1:
            x[1] = x[0]


@case(None, 4, 32, numbers(128), zeros(128), zeros(4))
def rows_handed_on(x: i32["n"], y: inout[i32["n"]], ready: inout[i32["b"]]):
    b, t = blockIdx.x, threadIdx.x
    before = 0
    if b > 0:
        if t == 0:
            while volatile_load(ready, b - 1) == 0:
                pass
            threadfence()
        syncthreads()
        before = y[(b - 1) * 32 + t]
    y[b * 32 + t] = x[b * 32 + t] + before
    syncthreads()
    if t == 0:
        threadfence()
        volatile_store(ready, b, 1)


@case("global race", 4, 32, numbers(128), zeros(128), zeros(4))
def rows_handed_on_unsynced(x: i32["n"], y: inout[i32["n"]], ready: inout[i32["b"]]):
    b, t = blockIdx.x, threadIdx.x
    before = 0
    if b > 0:
        if t == 0:
            while volatile_load(ready, b - 1) == 0:
                pass
            threadfence()
        syncthreads()
        before = y[(b - 1) * 32 + t]
    y[b * 32 + t] = x[b * 32 + t] + before
    if t == 0:
        threadfence()
        volatile_store(ready, b, 1)


@case("global race", 3, 32, numbers(96))
def results_read_by_the_next(x: i32["n"], y: out[i32["n"]]):
    i = blockIdx.x * blockDim.x + threadIdx.x
    y[i] = x[i]
    if i + 32 < y.shape[0]:
        y[i] = y[i] + y[i + 32]


@case(None, 2, 32, zeros(64), np.arange(64, dtype=np.int32))
def union_by_minimum(parent: inout[i32["n"]], other: i32["n"]):
    i = blockIdx.x * 32 + threadIdx.x
    simt.atomic_min(parent, other[i] // 2, i)


@case("global race", 2, 32, np.arange(64, dtype=np.int32), zeros(64))
def pointer_jumping(parent: inout[i32["n"]], y: inout[i32["n"]]):
    i = blockIdx.x * 32 + threadIdx.x
    if i > 0:
        parent[i] = parent[i - 1] // 2
    y[i] = parent[parent[i]]


@case("global race", 1, 64, numbers(64), zeros(64))
def source_changed_before_the_wait(x: inout[i32["n"]], y: inout[i32["n"]]):
    buf = shared(64, i32)
    t = threadIdx.x
    cp_async(buf[t], x[t])
    cp_async_commit()
    x[t] = 0
    cp_async_wait(0)
    y[t] = buf[t]


@case("global race", 1, 64, numbers(64), zeros(64))
def source_changed_after_a_barrier(x: inout[i32["n"]], y: inout[i32["n"]]):
    buf = shared(64, i32)
    t = threadIdx.x
    cp_async(buf[t], x[t])
    cp_async_commit()
    syncthreads()
    x[63 - t] = 0
    cp_async_wait(0)
    y[t] = buf[t]


@case(None, 1, 64, numbers(64), zeros(64))
def source_changed_after_the_wait(x: inout[i32["n"]], y: inout[i32["n"]]):
    buf = shared(64, i32)
    t = threadIdx.x
    cp_async(buf[t], x[t])
    cp_async_commit()
    cp_async_wait(0)
    syncthreads()
    x[63 - t] = buf[t]
    y[t] = buf[t]


@case("shared race", 2, 32, numbers(64), zeros(64), cluster=2)
def many_cluster_barriers(x: i32["n"], y: inout[i32["n"]]):
    buf = shared(32, i32)
    buf[threadIdx.x] = x[threadIdx.x]
    for _ in range(70):
        cluster_sync()
    buf[threadIdx.x] = 1
    y[blockIdx.x * 32 + threadIdx.x] = remote(buf, 1 - cluster_rank)[threadIdx.x]
