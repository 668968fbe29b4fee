"""Streams: order, lifetime of what is kept, errors, many producers, full rings, forks and exit."""

from __future__ import annotations

import gc
import subprocess
import sys
import textwrap
import threading
import weakref
from collections.abc import Iterator

import numpy as np
import pytest

from ridgeline.config import config
from ridgeline.runtime.buffer import HostBuffer, pool
from ridgeline.runtime.cpu.executor import NativePlan, NativeStep
from ridgeline.runtime.cpu.stream import HostStream, default_stream
from ridgeline.runtime.cpu.stream_ir import CAPACITY
from tests.runtime.kernels import kernel


@pytest.fixture
def stream() -> Iterator[HostStream]:
    made = default_stream()
    yield made
    made.synchronize()


def increments(tasks: int = 64, grain: int = 64) -> NativePlan:
    return NativePlan([NativeStep(kernel("increment"), (0, 0), tasks, grain)], 1)


def pause(milliseconds: int) -> NativePlan:
    return NativePlan([NativeStep(kernel("pause"), (), milliseconds, milliseconds)], 0)


def test_plans_run_in_order(stream: HostStream) -> None:
    values = np.zeros((2, 64), np.int64)
    first, second = (HostBuffer.borrow(row).address for row in values)
    add = NativePlan([NativeStep(kernel("add_to"), (0, 1), 64, 16)], 2)
    plan = increments()
    stream.enqueue(pause(3), ())
    for _ in range(200):
        stream.enqueue(plan, (first,))
        ticket = stream.enqueue(add, (first, second))
    ticket.wait()
    assert (values[0] == 200).all()
    assert (values[1] == 200 * 201 // 2).all()


def test_enqueueing_does_not_wait_for_the_work(stream: HostStream) -> None:
    ticket = stream.enqueue(pause(30), ())
    assert not ticket.done
    ticket.wait()
    assert ticket.done


def test_temporaries_are_apart_though_calls_overlap(stream: HostStream) -> None:
    plan = NativePlan(
        [
            NativeStep(kernel("copy_to"), (0, 2), 100, 10),
            NativeStep(kernel("copy_to"), (2, 1), 100, 10),
        ],
        slots=3,
        arena=[(2, 0)],
        arena_bytes=1024,
    )
    given = [np.full(100, number, np.int64) for number in range(50)]
    results = [np.zeros(100, np.int64) for _ in range(50)]
    for source, result in zip(given, results):
        stream.enqueue(plan, (HostBuffer.borrow(source).address, HostBuffer.borrow(result).address))
    stream.synchronize()
    assert all((result == number).all() for number, result in enumerate(results))


def test_what_is_needed_is_kept_until_done_and_then_released(stream: HostStream) -> None:
    class Kept:
        pass

    kept = Kept()
    watch = weakref.ref(kept)
    buffer = HostBuffer.allocate(512)
    np.asarray(buffer)[:] = 0
    gc.collect()  # what earlier tests left in cycles
    in_use = pool.in_use
    stream.enqueue(pause(20), ())
    plan = increments()
    ticket = stream.enqueue(plan, (buffer.address,), (kept, buffer))
    del kept, plan
    gc.collect()
    assert watch() is not None
    ticket.wait()
    assert watch() is None
    assert pool.in_use == in_use
    assert (np.asarray(buffer).view(np.int64) == 1).all()


def test_short_work_on_an_empty_stream_runs_at_once(stream: HostStream) -> None:
    counts = np.zeros(64, np.int64)
    address = HostBuffer.borrow(counts).address
    plan = increments()
    stream.enqueue(plan, (address,)).wait()
    assert plan.stream_nanoseconds > 0
    plan.stream_nanoseconds = 100
    ticket = stream.enqueue(plan, (address,))
    assert ticket.settled
    assert counts[0] == 2
    stream.enqueue(pause(5), ())
    plan.stream_nanoseconds = 100
    assert not stream.enqueue(plan, (address,)).settled  # not before the pause


def test_a_full_ring_makes_the_producer_wait(stream: HostStream) -> None:
    counts = np.zeros(64, np.int64)
    address = HostBuffer.borrow(counts).address
    plan = increments()
    stream.enqueue(pause(20), ())
    for _ in range(3 * CAPACITY):
        stream.enqueue(plan, (address,))
    stream.synchronize()
    assert (counts == 3 * CAPACITY).all()


def test_errors_reach_whoever_waits(stream: HostStream) -> None:
    def fail() -> None:
        raise ValueError("index out of range")

    bad = stream.enqueue(pause(2), (), check=fail)
    good = stream.enqueue(pause(1), ())
    good.wait()
    with pytest.raises(ValueError, match="index out of range"):
        bad.wait()
    stream.synchronize()  # it has been told
    stream.enqueue(pause(1), (), check=fail)
    with pytest.raises(ValueError, match="index out of range"):
        stream.synchronize()
    for _ in range(2):
        stream.enqueue(pause(1), (), check=fail)
    with pytest.raises(ExceptionGroup) as caught:
        stream.synchronize()
    assert len(caught.value.exceptions) == 2
    stream.synchronize()


def test_wrong_addresses_raise_at_once(stream: HostStream) -> None:
    with pytest.raises(TypeError, match="wrong number"):
        stream.enqueue(increments(), ())


def test_several_producers(stream: HostStream) -> None:
    plan = increments(64, 16)
    counts = np.zeros((4, 64), np.int64)

    def produce(row: int) -> None:
        address = HostBuffer.borrow(counts[row]).address
        for round in range(300):
            ticket = stream.enqueue(plan, (address,))
            if round % 50 == 0:
                ticket.wait()
                assert counts[row, 0] == round + 1

    with config.override(threads=3):
        threads = [threading.Thread(target=produce, args=(row,)) for row in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        stream.synchronize()
    assert (counts == 300).all()


PRELUDE = """
import atexit, ctypes, os, sys, threading, time
import numpy as np
from ridgeline.runtime.buffer import HostBuffer
from ridgeline.runtime.cpu.executor import NativePlan, NativeStep
from ridgeline.runtime.cpu.stream import LostWorkError, default_stream
from tests.runtime.kernels import kernel
counts = np.zeros(1000, np.int64)
address = HostBuffer.borrow(counts).address
plan = NativePlan([NativeStep(kernel("increment"), (0, 0), 1000, 8)] * 20, 1)
pause = NativePlan([NativeStep(kernel("pause"), (), 30, 30)], 0)
stream = default_stream()
"""


def run_script(body: str) -> subprocess.CompletedProcess[str]:
    script = PRELUDE + textwrap.dedent(body)
    quiet = (
        "-Wignore:This process:DeprecationWarning"  # newer Pythons warn of any fork with threads
    )
    return subprocess.run(
        [sys.executable, quiet, "-c", script], capture_output=True, text=True, timeout=60
    )


@pytest.mark.parametrize(
    "body",
    [
        "stream.enqueue(plan, (address,)).wait()",
        "stream.enqueue(plan, (address,)).wait(); time.sleep(0.01)",
        "[stream.enqueue(plan, (address,), counts) for _ in range(500)]; del counts, plan",
        "stream.enqueue(pause, ())",
        "ticket = stream.enqueue(pause, (), HostBuffer.allocate(8 << 20)); sys.kept = ticket",
    ],
)
def test_exit_is_clean(body: str) -> None:
    for _ in range(2):
        done = run_script(body)
        assert (done.returncode, done.stderr) == (0, "")


def test_work_enqueued_while_exiting_still_runs() -> None:
    done = run_script(
        """
        def late():
            stream.enqueue(plan, (address,)).wait()
            print(counts.min(), counts.max())
        atexit._clear()
        atexit.register(late)  # runs after the stream's own handler
        atexit.register(stream._at_exit)
        """
    )
    assert (done.stdout.strip(), done.stderr) == ("20 20", "")


def test_an_error_nobody_waited_for_is_printed_at_exit() -> None:
    done = run_script(
        """
        def fail():
            raise ValueError("lost and found")
        stream.enqueue(pause, (), check=fail)
        """
    )
    assert "lost and found" in done.stderr


def test_a_forked_child_has_results_and_a_stream() -> None:
    done = run_script(
        """
        for round in range(5):
            before = counts[0]
            stream.enqueue(pause, ())
            ticket = stream.enqueue(plan, (address,))
            child = os.fork()
            if child == 0:
                ticket.wait()
                ok = counts[0] == before + 20  # finished before the fork
                stream.enqueue(pause, ())
                stream.enqueue(plan, (address,)).wait()
                os._exit(0 if ok and counts[0] == before + 40 else 1)
            assert os.waitpid(child, 0)[1] == 0, round
            ticket.wait()
        """
    )
    assert (done.returncode, done.stderr) == (0, "")


@pytest.mark.skipif(config.portable, reason="forks that Python does not make are Linux's to notice")
def test_work_left_in_the_parent_by_a_native_fork_is_an_error() -> None:
    done = run_script(
        """
        ticket = stream.enqueue(pause, ())
        child = ctypes.PyDLL(None).fork()
        if child == 0:
            try:
                ticket.wait()
            except LostWorkError:
                plan.stream_nanoseconds = 0
                stream.enqueue(plan, (address,)).wait()
                os._exit(0 if counts[0] == 20 else 2)
            os._exit(1)
        assert os.waitpid(child, 0)[1] == 0
        ticket.wait()
        """
    )
    assert (done.returncode, done.stderr) == (0, "")


def test_waiting_can_be_interrupted() -> None:
    done = run_script(
        """
        import signal
        long = NativePlan([NativeStep(kernel("pause"), (), 900, 900)], 0)
        ticket = stream.enqueue(long, ())
        signal.signal(signal.SIGALRM, signal.default_int_handler)
        signal.setitimer(signal.ITIMER_REAL, 0.05)
        try:
            ticket.wait()
        except KeyboardInterrupt:
            print("interrupted", ticket.done)
        """
    )
    assert (done.stdout.strip(), done.stderr) == ("interrupted False", "")
