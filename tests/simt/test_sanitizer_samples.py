"""The device errors of NVIDIA's compute-sanitizer samples, said anew: each found at its line."""

import numpy as np

from ridgeline import simt
from ridgeline.simt import (
    ballot,
    blockDim,
    blockIdx,
    i32,
    inout,
    out,
    shared,
    store2,
    syncthreads,
    syncwarp,
    threadIdx,
)
from tests.simt.test_mistakes import reported


@simt.device
def far_away(x):
    x[0x07654320] = 42


@simt.kernel
def unaligned(x: inout[i32["n"]]):
    store2(x, 1, 42, 42)


@simt.kernel
def out_of_bounds(x: inout[i32["n"]]):
    far_away(x)


def test_memcheck() -> None:
    assert reported(unaligned, 1, 1, np.zeros(4, np.int32)) == {
        ("misaligned vector", "store2(x, 1, 42, 42)")
    }
    found = out_of_bounds.simulate(1, 1, np.zeros(4, np.int32)).errors
    assert [(f.kind, f.place.line) for f in found] == [
        ("out of bounds", far_away.captured.source.first + 2)
    ]


@simt.kernel
def added_to_nothing(v: out[i32["n"]]):
    t = threadIdx.x + blockDim.x * blockIdx.x
    if t < 16:  # a fill of as many bytes as there are elements
        v[t] = 0
    v[t] += t


def test_initcheck() -> None:
    found = added_to_nothing.simulate(2, 32, n=64).errors
    assert [(f.kind, f.count) for f in found] == [("uninitialised", 48)]


@simt.kernel
def sum_of_a_block(x: i32["n"], total: out[i32["1"]]):
    s = shared(128, i32)
    t = threadIdx.x
    s[t] = x[t] + t
    if t == 0:
        total[0] = 0
        for i in range(128):
            total[0] += s[i]


@simt.kernel
def sums_of_warps(x: i32["n"], total: out[i32["1"]]):
    first, second = shared(64, i32), shared(2, i32)
    t = threadIdx.x
    first[t] = x[t] + t
    if t % 32 == 0:
        w = t // 32
        second[w] = 0
        for i in range(32):
            second[w] += first[w * 32 + i]
    syncthreads()
    if t == 0:
        total[0] = second[0] + second[1]


def test_racecheck() -> None:
    numbers = np.zeros(128, np.int32)
    assert reported(sum_of_a_block, 1, 128, numbers) == {("shared race", "total[0] += s[i]")}
    assert reported(sums_of_warps, 1, 64, numbers[:64]) == {
        ("shared race", "second[w] += first[w * 32 + i]")
    }


@simt.kernel
def divergent_threads(x: i32["n"], total: out[i32["1"]]):
    s = shared(64, i32)
    t = threadIdx.x
    s[t] = 0
    syncthreads()
    for b in range(16):
        offset = 64 * b + t
        if offset < x.shape[0]:
            s[t] += x[offset]
            syncthreads()
    if t == 0:
        total[0] = 0
        for i in range(64):
            total[0] += s[i]


@simt.kernel
def illegal_syncwarp(total: out[i32["1"]]):
    s = shared(32, i32)
    t = threadIdx.x
    mask = ballot(t < 16)
    if t <= 16:
        s[t] = t
        syncwarp(mask)
        if t == 0:
            total[0] = 0
            for i in range(16):
                total[0] += s[i]
    syncthreads()


def test_synccheck() -> None:
    wrong = reported(divergent_threads, 1, 64, np.zeros(64 * 16 - 16, np.int32))
    assert ("divergent barrier", "syncthreads()") in wrong
    assert reported(illegal_syncwarp, 1, 32) == {("warp mask", "syncwarp(mask)")}
