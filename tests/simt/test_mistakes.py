"""The classic mistakes in the textbook's kernels are reported, at the line that is wrong."""

import numpy as np
import pytest

from ridgeline import simt
from ridgeline.simt import (
    atomic_add,
    atomic_cas,
    blockIdx,
    f32,
    i32,
    inout,
    out,
    shared,
    syncthreads,
    threadIdx,
)
from ridgeline.simt.simulator.simulate import SimulationOptions


def reported(kernel: object, grid: object, block: object, *arguments: object) -> set:
    """Kinds and lines, as text, of the errors."""
    found = kernel.simulate(grid, block, *arguments)
    source = kernel.captured.source
    return {(f.kind, source.lines[f.place.line - source.first].strip()) for f in found.errors}


floats = np.ones(256, np.float32)


@simt.kernel
def halo_with_the_wrong_length(x: f32["n"], y: out[f32["n"]]):
    tile = shared(70, f32)
    t = threadIdx.x
    i = blockIdx.x * 64 + t
    tile[t + 3] = x[i]
    if t < 3:
        tile[t] = x[i - 3] if i >= 3 else 0.0
        tile[t + 67] = x[i + 64] if i + 64 <= x.shape[0] else 0.0
    syncthreads()
    y[i] = tile[t] + tile[t + 6]


def test_a_halo_guarded_with_the_wrong_length() -> None:
    wrong = reported(halo_with_the_wrong_length, 4, 64, floats)
    assert wrong == {("out of bounds", "tile[t + 67] = x[i + 64] if i + 64 <= x.shape[0] else 0.0")}


@simt.kernel
def tile_from_the_wrong_array(a: f32["m k"], b: f32["k n"], c: out[f32["m n"]]):
    ta, tb = shared((16, 16), f32), shared((16, 16), f32)
    ty, tx = threadIdx.y, threadIdx.x
    ta[ty, tx] = a[ty, tx]
    ta[ty, tx] = b[ty, tx]
    syncthreads()
    total = 0.0
    for i in range(16):
        total += ta[ty, i] * tb[i, tx]
    c[ty, tx] = total


def test_a_tile_loaded_into_the_wrong_array() -> None:
    square = np.ones((16, 16), np.float32)
    wrong = reported(tile_from_the_wrong_array, 1, (16, 16), square, square)
    assert wrong == {("uninitialised", "total += ta[ty, i] * tb[i, tx]")}


@simt.kernel
def missing_barrier(x: f32["n"], y: out[f32["n"]]):
    buf = shared(64, f32)
    buf[threadIdx.x] = x[threadIdx.x]
    y[threadIdx.x] = buf[63 - threadIdx.x]


@simt.kernel
def barrier_in_if(x: f32["n"], y: out[f32["n"]]):
    buf = shared(64, f32)
    buf[threadIdx.x] = x[threadIdx.x]
    if threadIdx.x < 32:
        syncthreads()
    y[threadIdx.x] = buf[threadIdx.x]


def test_barriers_that_are_missing_or_divergent() -> None:
    wrong = reported(missing_barrier, 1, 64, floats[:64])
    assert wrong == {("shared race", "y[threadIdx.x] = buf[63 - threadIdx.x]")}
    assert reported(barrier_in_if, 1, 64, floats[:64]) == {("divergent barrier", "syncthreads()")}


@simt.kernel
def everybody_writes(x: f32["n"], y: inout[f32["1"]]):
    y[0] += x[blockIdx.x * 64 + threadIdx.x]


def test_all_threads_adding_to_one_element_are_told_of_atomics() -> None:
    found = everybody_writes.simulate(4, 64, floats, np.zeros(1, np.float32))
    assert {finding.kind for finding in found.errors} == {"global race"}
    assert "atomic_add" in found.errors[0].help


@simt.kernel
def last_block_adds(x: i32["n"], part: inout[i32["b"]], done: inout[i32["1"]], y: inout[i32["1"]]):
    if threadIdx.x == 0:
        part[blockIdx.x] = x[blockIdx.x]
        if atomic_add(done, 0, 1) == 3:
            total = 0
            for k in range(4):
                total += part[k]
            y[0] = total


def test_blocks_that_exchange_data_without_fences() -> None:
    part, done, total = (np.zeros(n, np.int32) for n in (4, 1, 1))
    wrong = reported(last_block_adds, 4, 32, np.arange(4, dtype=np.int32), part, done, total)
    assert wrong == {("global race", "total += part[k]")}


@pytest.mark.parametrize("seed", [None, 1, 2, 3])
def test_findings_do_not_depend_on_the_schedule(seed: int | None) -> None:
    options = SimulationOptions(seed=seed)
    found = missing_barrier.simulate(1, 64, floats[:64], options=options)
    again = missing_barrier.simulate(1, 64, floats[:64], options=options)
    assert {finding.kind for finding in found.errors} == {"shared race"}
    assert found.findings == again.findings


@simt.kernel
def waits_for_who_waits(x: inout[i32["n"]]):
    if threadIdx.x < 32:
        while simt.volatile_load(x, 0) == 0:
            pass
    syncthreads()
    if threadIdx.x == 40:
        simt.volatile_store(x, 0, 1)


@simt.kernel
def counts_for_ever(x: inout[i32["n"]]):
    i = 0
    while True:
        i = (i + 1) % 1000
        x[0] = i


def test_kernels_that_never_end_are_stopped_where_their_warps_wait() -> None:
    zero = np.zeros(4, np.int32)
    assert reported(waits_for_who_waits, 1, 64, zero) == {
        ("never ends", "while simt.volatile_load(x, 0) == 0:"), ("never ends", "syncthreads()")
    }  # fmt: skip
    found = counts_for_ever.simulate(1, 1, zero, options=SimulationOptions(limit=200))
    assert [(f.kind, f.place.line) for f in found.errors] == [
        ("never ends", counts_for_ever.captured.source.first + 3)
    ]


@simt.kernel
def counts_while_it_waits(x: inout[i32["n"]]):
    turns = 0
    while atomic_cas(x, 0, 0, 1) != 0:
        turns += 1
    x[1] = turns


@simt.kernel
def computes_long(x: inout[i32["n"]]):
    y = x[threadIdx.x]
    for _ in range(3000):
        y = y * 5 + 1
    x[threadIdx.x] = y


def test_who_counts_the_turns_waits_none_the_less() -> None:
    taken = np.ones(2, np.int32)
    assert reported(counts_while_it_waits, 1, 1, taken) == {
        ("never ends", "while atomic_cas(x, 0, 0, 1) != 0:")
    }


def test_a_loop_that_only_takes_long_is_no_mistake() -> None:
    found = computes_long.simulate(1, 32, np.zeros(32, np.int32),
                                   options=SimulationOptions(limit=1000))  # fmt: skip
    assert not found.errors
    assert [(f.kind, f.place.line) for f in found.warnings] == [
        ("not finished", computes_long.captured.source.first + 3)
    ]
    assert found.verdict == "not finished"
