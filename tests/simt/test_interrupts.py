"""Kernels that never end on the CPU: a handler of a signal ends them, and an error elsewhere."""

from __future__ import annotations

import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np
import pytest

import ridgeline as rl
from ridgeline import simt
from ridgeline.simt import blockIdx, i32, inout, out, syncthreads, threadIdx
from ridgeline.simt.host.run import LaunchFault


@simt.kernel
def waits(x: inout[i32["n"]]):
    while x[0] == 0:
        pass


@simt.kernel
def waits_apart(x: inout[i32["n"]]):
    """Lanes leave the loop one by one, and most never."""
    i = threadIdx.x
    while x[i] < 3 or i > 5:
        x[i] += 1


@simt.kernel
def waits_at_barriers(x: inout[i32["n"]]):
    turns = 0
    while x[0] == 0:
        turns += 1
        x[1] = turns
        syncthreads()


@simt.kernel
def fails_beside_waiting(x: inout[i32["n"]]):
    if blockIdx.x == 0:
        x[-1 - threadIdx.x] = 1
    while x[0] == 0:
        pass


@simt.kernel
def halved(x: i32["n"], y: out[i32["n"]]):
    value, turns = x[threadIdx.x], 0
    while value > 1:
        value //= 2
        turns += 1
    y[threadIdx.x] = turns


class Stop(Exception):
    pass


@contextmanager
def alarm_after(seconds: float) -> Iterator[None]:
    def handler(*_: Any) -> None:
        raise Stop

    before = signal.signal(signal.SIGALRM, handler)
    signal.setitimer(signal.ITIMER_REAL, seconds)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)


def check_works() -> None:
    numbers = np.arange(1, 65, dtype=np.int32)
    found = halved[1, 64](rl.tensor(numbers)).numpy()
    assert found.tolist() == [int(n).bit_length() - 1 for n in numbers]


pytestmark = pytest.mark.skipif(not hasattr(signal, "SIGALRM"), reason="no alarms here")


@pytest.mark.parametrize("kernel", [waits, waits_apart, waits_at_barriers])
@pytest.mark.parametrize("blocks", [1, 3])
def test_a_handler_ends_a_launch(kernel: Any, blocks: int) -> None:
    x = rl.tensor(np.zeros(64, np.int32))
    with alarm_after(0.2), pytest.raises(Stop), rl.eager():
        kernel[blocks, 64](x)
    del x
    check_works()


def test_deferred_and_jitted() -> None:
    for call in (lambda x: waits[1, 64](x), rl.jit(lambda x: waits[1, 64](x))):
        x = rl.tensor(np.zeros(64, np.int32))
        with alarm_after(0.3), pytest.raises(Stop):
            call(x)
            x.numpy()
        del x
        check_works()


def test_a_handler_may_launch() -> None:
    """In the main thread, while the launch that it interrupts still runs."""
    found = []

    def handler(*_: Any) -> None:
        found.append(halved[1, 2](rl.tensor(np.array([8, 9], np.int32))).numpy().tolist())
        raise Stop

    x = rl.tensor(np.zeros(64, np.int32))
    with alarm_after(10), pytest.raises(Stop), rl.eager():
        signal.signal(signal.SIGALRM, handler)
        signal.setitimer(signal.ITIMER_REAL, 0.2)
        waits[1, 64](x)
    assert found == [[3, 3]]


def test_an_error_ends_loops_elsewhere() -> None:
    with pytest.raises(LaunchFault, match="out of bounds"), rl.eager():
        fails_beside_waiting[4, 64](rl.tensor(np.zeros(4, np.int32)))
    check_works()


def test_other_threads_launch_as_ever() -> None:
    failed: list[BaseException] = []

    def work() -> None:
        try:
            for _ in range(20):
                check_works()
        except BaseException as error:
            failed.append(error)

    threads = [threading.Thread(target=work) for _ in range(4)]
    for thread in threads:
        thread.start()
    check_works()
    for thread in threads:
        thread.join()
    assert not failed
