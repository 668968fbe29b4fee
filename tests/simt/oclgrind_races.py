"""Oclgrind's kernels on copies, atomics, barriers and data races."""

import numpy as np

from ridgeline import simt
from ridgeline.simt import (
    atomic_add,
    atomic_cas,
    atomic_max,
    atomic_min,
    atomic_sub,
    blockDim,
    blockIdx,
    cp_async,
    cp_async_commit,
    cp_async_wait,
    dynamic,
    f32,
    gridDim,
    i32,
    inout,
    out,
    shared,
    syncthreads,
    threadIdx,
    u64,
)
from tests.simt.labelled import numbers, zeros
from tests.simt.oclgrind import said


def filled(n, value):
    return np.full(n, value, np.int32)


@said("alignment/unaligned", "misaligned vector", 1, 1, filled(4, 42), zeros(1))
def unaligned(source: i32["n"], y: inout[i32["1"]]):
    a, b = simt.load2(source, 1)
    y[0] = a + b


@said("async_copy/async_copy", None, 1, 4, numbers(4), shared=16, data=[3, 2, 1, 0])
def async_copy(data: inout[i32["n"]]):
    scratch = shared(dynamic, i32)
    t = threadIdx.x
    cp_async(scratch[t], data[t])
    cp_async_commit()
    cp_async_wait(0)
    syncthreads()
    data[blockDim.x - t - 1] = scratch[t]


@said("async_copy/async_copy_global_race", "global race", 1, 4, numbers(4))
def async_copy_global_race(data: inout[i32["n"]]):
    scratch = shared(4, i32)
    t = threadIdx.x
    scratch[t] = t
    syncthreads()
    data[t] = 0
    if t == 0:
        for k in range(4):
            data[k] = scratch[k]


@said("async_copy/async_copy_local_race", "shared race", 1, 4, numbers(4))
def async_copy_local_race(data: inout[i32["n"]]):
    scratch = shared(4, i32)
    t = threadIdx.x
    scratch[t] = 0
    if t == 0:
        for k in range(4):
            cp_async(scratch[k], data[k])
    cp_async_commit()
    cp_async_wait(0)
    syncthreads()
    data[3 - t] = scratch[t]


@said("async_copy/async_copy_loop", None, 1, 4, numbers(4), data=[3, 2, 1, 0])
def async_copy_loop(data: inout[i32["n"]]):
    scratch = shared(4, i32)
    t = threadIdx.x
    if t == 0:
        for k in range(blockDim.x):
            cp_async(scratch[k], data[k])
            cp_async_commit()
    cp_async_wait(0)
    syncthreads()
    data[blockDim.x - t - 1] = scratch[t]


@said("async_copy/async_copy_unwaited", "copy not waited for", 1, 4, numbers(4))
def async_copy_unwaited(data: i32["n"], y: out[i32["n"]]):
    scratch = shared(4, i32)
    t = threadIdx.x
    cp_async(scratch[t], data[t])
    cp_async_commit()
    y[3 - t] = t


@said("atomics/atomic_cmpxchg_false_race", None, 1, 4, zeros(5), data=[4, 1, 2, 3, 4])
def atomic_cmpxchg_false_race(data: inout[i32["n"]]):
    scratch = shared(1, i32)
    t = threadIdx.x
    if t == 0:
        scratch[0] = 0
    done, result = False, 0
    for _ in range(blockDim.x):
        syncthreads()
        before = scratch[0]
        syncthreads()
        if not done and atomic_cas(scratch, 0, before, before + 1) == before:
            done = True
            result = scratch[0]
    syncthreads()
    if t == 0:
        data[0] = scratch[0]
    data[t + 1] = result


@said("atomics/atomic_cmpxchg_read_race", "global race", 1, 2, filled(1, -1))
def atomic_cmpxchg_read_race(data: inout[i32["1"]]):
    if threadIdx.x == 0:
        data[0] = 0
    else:
        atomic_cas(data, 0, 0, 0x01000001)


@said("atomics/atomic_cmpxchg_write_race", "global race", 1, 2, filled(1, -1))
def atomic_cmpxchg_write_race(data: inout[i32["1"]]):
    if threadIdx.x == 0:
        data[0] = 0
    atomic_cas(data, 0, threadIdx.x, 42)


@said("atomics/atomic_global_fence", None, 2, 4, zeros(2), filled(2, -1), data=[6, 22])
def atomic_global_fence(data: inout[i32["2"]], scratch: inout[i32["2"]]):
    g = blockIdx.x
    if threadIdx.x == 0:
        scratch[g] = 0
    syncthreads()
    atomic_add(scratch, g, g * blockDim.x + threadIdx.x)
    syncthreads()
    if threadIdx.x == 0:
        data[g] = scratch[g]


@said("atomics/atomic_global_fence_race", "global race", 2, 4, zeros(2), zeros(1))
def atomic_global_fence_race(data: inout[i32["2"]], scratch: inout[i32["1"]]):
    atomic_add(scratch, 0, blockIdx.x * blockDim.x + threadIdx.x)
    syncthreads()
    if threadIdx.x == 0:
        data[blockIdx.x] = scratch[0]


@said("atomics/atomic_increment", None, 4, 1, zeros(1), data=[4])
def atomic_increment(data: inout[i32["1"]]):
    atomic_add(data, 0, 1)


@said("atomics/atomic_intergroup_race", "global race", 2, 4, filled(1, -1))
def atomic_intergroup_race(data: inout[i32["1"]]):
    if blockIdx.x == 0 and threadIdx.x == 0:
        data[0] = 0
    syncthreads()
    atomic_add(data, 0, 1)


@said("atomics/atomic_local_fence", None, 2, 4, zeros(2), data=[6, 22])
def atomic_local_fence(data: inout[i32["2"]]):
    scratch = shared(1, i32)
    if threadIdx.x == 0:
        scratch[0] = 0
    syncthreads()
    atomic_add(scratch, 0, blockIdx.x * blockDim.x + threadIdx.x)
    syncthreads()
    if threadIdx.x == 0:
        data[blockIdx.x] = scratch[0]


@said("atomics/atomic_minmax_signed", None, 1, 1,
      np.array([-7, -7, 7, 7, -7, -7, 7, 7], np.int32),
      data=[-8, -7, -3, 6, -7, -6, 7, 8])  # fmt: skip
def atomic_minmax_signed(data: inout[i32["n"]]):
    atomic_min(data, 0, -8)
    atomic_min(data, 1, 3)
    atomic_min(data, 2, -3)
    atomic_min(data, 3, 6)
    atomic_max(data, 4, -8)
    atomic_max(data, 5, -6)
    atomic_max(data, 6, -3)
    atomic_max(data, 7, 8)


@said("atomics/atomic_race_after", "global race", 1, 4, zeros(1), zeros(1))
def atomic_race_after(data: inout[i32["1"]], y: inout[i32["1"]]):
    atomic_add(data, 0, 1)
    if threadIdx.x == blockDim.x - 1:
        y[0] = data[0]


@said("atomics/atomic_race_before", "global race", 1, 4, zeros(1))
def atomic_race_before(data: inout[i32["1"]]):
    if threadIdx.x == 0:
        data[0] = 0
    atomic_sub(data, 0, 1)


@said("atomics/atomic_same_workitem", None, 1, 4, zeros(4), data=[1, 2, 1, 2])
def atomic_same_workitem(data: inout[i32["n"]]):
    t = threadIdx.x
    if t % 2 == 0:
        data[t] = 0
        atomic_add(data, t, 1)
    else:
        atomic_add(data, t, 1)
        data[t] = data[t] + 1


@said("atomics/atom_add", None, 4, 1, np.zeros(1, np.uint64), data=[17179869180])
def atom_add(data: inout[u64["1"]]):
    atomic_add(data, 0, u64(0xFFFFFFFF))


@said("barrier/barrier_different_instructions", "divergent barrier", 1, 4, zeros(4))
def barrier_different_instructions(data: inout[i32["n"]]):
    t = threadIdx.x
    if t == 0:
        data[0] = 42
        syncthreads()
    else:
        syncthreads()
        data[t] = t + data[0]


@said("barrier/barrier_divergence", "divergent barrier", 1, 4, zeros(4))
def barrier_divergence(data: inout[i32["n"]]):
    if threadIdx.x != 0:
        syncthreads()
    data[threadIdx.x] = threadIdx.x


@said("data-race/broadcast", None, 4, 1, filled(1, 42), y=[42] * 4, sizes={"n": 4})
def broadcast(value: i32["1"], y: out[i32["n"]]):
    y[blockIdx.x] = value[0]


@said("data-race/global_fence", None, 4, 4, zeros(16), zeros(4), y=[6, 22, 38, 54])
def global_fence(scratch: inout[i32["n"]], y: inout[i32["m"]]):
    i = blockIdx.x * blockDim.x + threadIdx.x
    scratch[i] = i
    syncthreads()
    if threadIdx.x == 0:
        total = 0
        for k in range(blockDim.x):
            total += scratch[blockDim.x * blockIdx.x + k]
        y[blockIdx.x] = total


@said("data-race/global_read_write_race", "global race", 1, 4, numbers(4))
def global_read_write_race(data: inout[i32["n"]]):
    if threadIdx.x > 0:
        data[threadIdx.x] = data[threadIdx.x - 1]


@said("data-race/global_write_write_race", "global race", 4, 1, zeros(1))
def global_write_write_race(data: inout[i32["1"]]):
    data[0] = blockIdx.x


@said("data-race/increment", None, 4, 1, numbers(4), data=[1, 2, 3, 4])
def increment(data: inout[i32["n"]]):
    data[blockIdx.x] = data[blockIdx.x] + 1


@said("data-race/intergroup_hidden_race", "global race", 2, 1, zeros(1), zeros(2))
def intergroup_hidden_race(data: inout[i32["1"]], y: inout[i32["2"]]):
    y[blockIdx.x] = data[0]
    if blockIdx.x == 1:
        data[0] = blockIdx.x


@said("data-race/intergroup_race", "global race", 2, 4, zeros(2))
def intergroup_race(data: inout[i32["2"]]):
    if threadIdx.x == 0:
        data[blockIdx.x] = blockIdx.x
    syncthreads()
    if blockIdx.x == 0 and threadIdx.x == 0:
        total = 0
        for k in range(gridDim.x):
            total += data[k]
        data[0] = total
    syncthreads()


@said("data-race/local_read_write_race", "shared race", 1, 4, zeros(1))
def local_read_write_race(data: inout[i32["1"]]):
    scratch = shared(4, i32)
    t = threadIdx.x
    scratch[t] = 0
    syncthreads()
    scratch[t] = t
    if t == 0:
        total = 0
        for k in range(blockDim.x):
            total += scratch[k]
        data[0] = total


@said("data-race/local_write_write_race", "shared race", 1, 4, zeros(4))
def local_write_write_race(data: inout[i32["n"]]):
    scratch = shared(1, i32)
    scratch[0] = threadIdx.x
    syncthreads()
    data[threadIdx.x] = scratch[0]


@said("data-race/uniform_write_race", "same-value race", 1, 4, filled(1, -1), data=[0])
def uniform_write_race(data: inout[i32["1"]]):
    data[0] = 0


@said("wait_event/wait_event_chained", None, 1, 4, numbers(4), data=[3, 2, 1, 0])
def wait_event_chained(data: inout[i32["n"]]):
    scratch = shared(4, i32)
    t = threadIdx.x
    if t == 0:
        cp_async(scratch[0], data[0])
        for k in range(1, 4):
            cp_async(scratch[k], data[k])
        cp_async_commit()
    cp_async_wait(0)
    syncthreads()
    data[3 - t] = scratch[t]


@said("wait_event/wait_event_duplicates", None, 1, 4, numbers(4), data=[3, 2, 1, 0])
def wait_event_duplicates(data: inout[i32["n"]]):
    scratch = shared(4, i32)
    t = threadIdx.x
    if t == 0:
        cp_async(scratch[0], data[0])
        cp_async_commit()
        for k in range(1, 4):
            cp_async(scratch[k], data[k])
        cp_async_commit()
    cp_async_wait(1)
    cp_async_wait(0)
    cp_async_wait(0)
    syncthreads()
    data[3 - t] = scratch[t]


@said("misc/reduce", None, 16, 4, np.arange(256, dtype=np.uint32), sizes={"m": 16}, shared=16,
      y=list(range(1560, 2521, 64)))  # fmt: skip
def reduce(data: simt.u32["n"], y: out[simt.u32["m"]]):
    own = shared(dynamic, simt.u32)
    t = threadIdx.x
    total = simt.u32(0)
    for i in simt.grid_stride(data.shape[0]):
        total += data[i]
    own[t] = total
    half = blockDim.x // 2
    while half > 0:
        syncthreads()
        if t < half:
            own[t] += own[t + half]
        half //= 2
    if t == 0:
        y[blockIdx.x] = own[0]


@said("bugs/restrict", None, 16, 4, np.arange(256, dtype=np.float32), sizes={"m": 16},
      y=[float(k) for k in range(1560, 2521, 64)])  # fmt: skip
def restrict(data: f32["n"], y: out[f32["m"]]):
    own = shared(4, f32)
    t = threadIdx.x
    total = 0.0
    for i in range(blockIdx.x * 4 + t, data.shape[0], 64):
        total += data[i]
    own[t] = total
    for half in (2, 1):
        syncthreads()
        if t < half:
            own[t] += own[t + half]
    if t == 0:
        y[blockIdx.x] = own[0]
