"""Kernels over parts of arrays: rows, slices and steps, with their results by NumPy."""

import numpy as np

from ridgeline import simt
from ridgeline.simt import (
    atomic_add,
    blockIdx,
    dynamic,
    i32,
    inout,
    local,
    out,
    shared,
    syncthreads,
    threadIdx,
    u32,
    u64,
)
from tests.simt.three_ways import Solved

A = np.arange(96, dtype=np.int32).reshape(3, 32)
T = np.arange(32, dtype=np.int32)


@simt.device
def buffer_and_shift():
    return shared(32, i32), 7


@simt.device
def after(x, many):
    return x[many:]


@simt.device
def summed(x):
    total = 0
    for i in range(len(x)):
        total += x[i]
    return total


@simt.kernel
def rows(a: i32["m n"], y: out[i32["m n"]]):
    row, mine = a[blockIdx.x], y[blockIdx.x]
    t = threadIdx.x
    s, shift = buffer_and_shift()
    low, high = s[:16], s[16:]
    if t < 16:
        low[t] = row[t]
    else:
        high[t - 16] = 2 * row[t]
    syncthreads()
    mine[t] = s[31 - t] + shift


@simt.kernel
def columns(a: i32["m n"], y: out[i32["n"]]):
    t = threadIdx.x
    column = a[:, t]
    inner = a[1:, 2::3]
    y[t] = summed(column) + inner[1][t % 10] + column.shape[0] + len(inner[0]) + inner.shape[1]


@simt.kernel
def moving(x: i32["n"], y: out[i32["n"]], L: simt.const = 8):
    """A name that goes over one array, and a tuple that changes."""
    mine = local(L, i32)
    window = x[threadIdx.x % 4 :][:4]
    total, pair = 0, (threadIdx.x, 1)
    for i in range(1, 5):
        total += window[0] - window[3] * i
        window = x[i * 2 : i * 2 + 4]
        pair = (pair[1] + i, pair[0])
        mine[2 * i - 2 :][1] = i
        mine[::2][i - 1] = -i
    y[threadIdx.x] = total + 100 * pair[0] + 10000 * pair[1] + summed(mine)


@simt.kernel
def places(y: inout[i32["n"]], at: u32["n"], far: u64["1"]):
    """Starts and indices of other types; atomics on elements of parts."""
    t = threadIdx.x
    part = after(y[at[0] :], 2)
    atomic_add(part, at[t] % u32(4), 1)
    atomic_add(part[1:][2], 1)
    atomic_add(y[far[0] :], 0, 2)


@simt.kernel
def carved(x: i32["n"], y: out[i32["n"]]):
    """Two buffers out of one dynamic one, whose length the launch decides."""
    whole = shared(dynamic, i32)
    half = whole.shape[0] // 2
    first, second = whole[:half], whole[half:]
    t = threadIdx.x
    first[t] = x[t]
    second[t] = 3 * x[t]
    syncthreads()
    y[t] = first[31 - t] + second[t ^ 1] + first.shape[0] + second.size


def moved() -> np.ndarray:
    found = []
    for t in range(32):
        total, pair, window = 0, (t, 1), A[0][t % 4 :][:4]
        for i in range(1, 5):
            total += int(window[0] - window[3] * i)
            window = A[0][i * 2 : i * 2 + 4]
            pair = (pair[1] + i, pair[0])
        found.append(total + 100 * pair[0] + 10000 * pair[1])
    return np.array(found)


def placed() -> np.ndarray:
    y = np.zeros(32, np.int32)
    np.add.at(y, 3 + T % 4, 1)
    y[6] += 32
    y[5] += 64
    return y


S = np.where(T < 16, A, 2 * A)
SOLVED = [
    Solved("rows", rows, 3, 32, (A,), (S[:, ::-1] + 7,)),
    Solved("columns", columns, 1, 32, (A,), (A.sum(0) + A[2, 2::3][T % 10] + 3 + 10 + 10,)),
    Solved("moving", moving, 1, 32, (A[0],), (moved(),)),
    Solved("places", places, 1, 32, (np.zeros(32, np.int32), np.append(1, T[1:]).astype(np.uint32),
           np.array([5], np.uint64)), (placed() + np.eye(32, dtype=np.int32)[4]
                                       - np.eye(32, dtype=np.int32)[3],)),
    Solved("carved", carved, 1, 32, (A[1],), (A[1, ::-1] + 3 * A[1][T ^ 1] + 64,), {"shared": 256}),
]  # fmt: skip
