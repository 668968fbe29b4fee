"""Arguments that share memory: one memory to the simulator, written by one name in a launch."""

import numpy as np
import pytest

import ridgeline as rl
from ridgeline import simt
from ridgeline.simt import (
    atomic_add,
    blockIdx,
    i32,
    inout,
    out,
    syncthreads,
    threadfence,
    threadIdx,
)
from ridgeline.simt.launch import LaunchError
from tests.simt.labelled import numbers, zeros


@simt.kernel
def reversed_into(a: i32["n"], b: inout[i32["n"]]):
    b[threadIdx.x] = a[a.shape[0] - 1 - threadIdx.x]


@simt.kernel
def doubled_into(a: i32["n"], b: inout[i32["n"]]):
    b[threadIdx.x] = a[threadIdx.x] * 2


@simt.kernel
def both_written(a: inout[i32["n"]], b: inout[i32["n"]]):
    a[threadIdx.x] = threadIdx.x
    syncthreads()
    b[threadIdx.x] += 1


@simt.kernel
def message(x: inout[i32["n"]], sent: inout[i32["m"]], seen: inout[i32["m"]]):
    if threadIdx.x == 0:
        if blockIdx.x == 0:
            x[0] = 42
            threadfence()
            atomic_add(sent, 0, 1)
        else:
            while atomic_add(seen, 0, 0) == 0:
                pass
            threadfence()
            x[1] = x[0]


def kinds(kernel: object, grid: int, block: int, *arguments: object) -> list[str]:
    return [finding.kind for finding in kernel.simulate(grid, block, *arguments).errors]


def test_threads_race_by_two_names_of_one_memory() -> None:
    x = numbers(64)
    assert kinds(reversed_into, 1, 64, x, x) == ["global race"]
    assert kinds(doubled_into, 1, 64, x, x) == []
    assert kinds(reversed_into, 1, 64, x, x.copy()) == []
    assert kinds(both_written, 2, 64, x, x) == ["global race"] * 3


def test_views_that_overlap_race_where_they_do() -> None:
    x = numbers(96)
    assert kinds(doubled_into, 1, 64, x[:64], x[32:]) == ["global race"]
    assert kinds(doubled_into, 1, 48, x[:48], x[48:]) == []
    one = doubled_into.simulate(1, 64, x[:64], x[32:]).findings[0]
    assert "b[0]" in one.message or "b[32]" in one.message or "a[32]" in one.message
    assert kinds(reversed_into, 1, 64, (t := rl.arange(64, dtype=rl.int32)), t) == ["global race"]


def test_results_are_seen_by_both_names() -> None:
    x = numbers(32)
    found = both_written.simulate(1, 32, x, x).outputs
    assert found["a"].tolist() == found["b"].tolist() == list(range(1, 33))
    assert x.tolist() == list(range(32))


def test_a_flag_by_two_names_orders() -> None:
    flag = zeros(1)
    assert kinds(message, 2, 32, zeros(2), flag, flag) == []


def test_elements_that_do_not_coincide_are_refused() -> None:
    x = np.zeros(66, np.uint8)[1:65].view(np.int32)
    bytes_ = simt.kernel("def f(a: u8['n'], b: inout[i32['m']]):\n    b[0] = i32(a[0])")
    with pytest.raises(LaunchError, match="share memory"):
        bytes_.simulate(1, 1, x.view(np.uint8), x)


def test_a_launch_writes_memory_by_one_name() -> None:
    for value in (numbers(64), rl.arange(64, dtype=rl.int32)):
        with pytest.raises(LaunchError, match="a and b of both_written are the same memory"):
            both_written[1, 64](value, value)
    x = rl.arange(64, dtype=rl.int32)
    reversed_into[1, 64](x, x)  # what is only read is as it was before the launch
    assert x.tolist() == list(range(64))[::-1]
    pieces = rl.zeros(64, dtype=rl.int32)
    both_written[1, 32](pieces[:32], pieces[32:])
    assert pieces.tolist() == [*range(32), *[1] * 32]


@simt.kernel
def fresh(a: i32["n"], b: out[i32["n"]]):
    b[threadIdx.x] = a[threadIdx.x] + 1


def test_a_given_result_may_be_what_is_read() -> None:
    x = numbers(16)
    assert fresh.simulate(1, 16, x, x).outputs["b"].tolist() == list(range(1, 17))
