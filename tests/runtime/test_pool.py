"""The thread pool: exact over many regions, concurrent, nested, resized, forked, and at exit."""

from __future__ import annotations

import subprocess
import sys
import textwrap
import threading
import time

import numpy as np
import pytest

from ridgeline.config import config
from ridgeline.runtime.buffer import HostBuffer
from ridgeline.runtime.cpu import executor
from ridgeline.runtime.cpu.executor import NativePlan, NativeStep
from tests.runtime.kernels import kernel


@pytest.mark.parametrize("threads", range(1, 9))
def test_every_task_runs_exactly_once(threads: int) -> None:
    counts = np.zeros(257, np.int64)
    grains = (1, 2, 3, 16, 128, 256)
    plan = NativePlan([NativeStep(kernel("increment"), (0, 0), 257, grain) for grain in grains], 1)
    address = HostBuffer.borrow(counts).address
    with config.override(threads=threads):
        for round in range(300):
            plan.run((address,))
            if round % 100 == 0:
                time.sleep(0.002)  # let the workers fall asleep
    assert (counts == 300 * len(grains)).all()


def test_more_threads_than_ranges_are_exact() -> None:
    counts = np.zeros(1000, np.int64)
    plan = NativePlan([NativeStep(kernel("increment"), (0, 0), 1000, grain) for grain in (1, 3)], 1)
    with config.override(threads=70):
        for _ in range(50):
            plan.run((HostBuffer.borrow(counts).address,))
    assert (counts == 100).all()


def test_a_thread_takes_tasks_of_others_only_after_its_own() -> None:
    threads_of = np.zeros(64, np.int64)
    plan = NativePlan([NativeStep(kernel("note_thread"), (0, 0), 64, 2)], 1)
    caller = threading.get_ident()  # which is what pthread_self gives
    with config.override(threads=2):
        for _ in range(300):
            plan.run((HostBuffer.borrow(threads_of).address,))
            helped = (threads_of[:32] != caller).any()
            assert not (helped and (threads_of[32:] == caller).any())
            assert (threads_of[:32] == caller).all() or helped


@pytest.mark.parametrize("tasks,grain,threads,begins", [
    (18, 2, 2, [0, 2, 4, 6, 8, 9, 11, 13, 15, 17]), (18, 4, 2, [0, 4, 8, 9, 13, 17]),
    (10, 3, 3, [0, 3, 4, 7]), (5, 4, 8, [0, 3]), (7, 1, 2, list(range(7))),
])  # fmt: skip
def test_threads_have_equal_shares_whatever_the_chunk(
    tasks: int, grain: int, threads: int, begins: list[int]
) -> None:
    chunk_of = np.zeros(tasks, np.int64)
    plan = NativePlan([NativeStep(kernel("note_chunk"), (0, 0), tasks, grain)], 1)
    with config.override(threads=threads):
        plan.run((HostBuffer.borrow(chunk_of).address,))
    assert sorted(set(chunk_of.tolist())) == begins


def test_a_step_sees_all_of_the_step_before() -> None:
    values = np.zeros((2, 512), np.int64)
    first, second = (HostBuffer.borrow(row).address for row in values)
    steps = [
        NativeStep(kernel("increment"), (0, 0), 512, 8),
        NativeStep(kernel("add_to"), (0, 1), 512, 32),
    ]
    with config.override(threads=4):
        NativePlan(steps * 400, 2).run((first, second))
    assert (values[0] == 400).all()
    assert (values[1] == 400 * 401 // 2).all()


def test_concurrent_callers_are_exact() -> None:
    failures: list[str] = []
    plan = NativePlan(
        [
            NativeStep(kernel("copy_to"), (0, 2), 300, 16),
            NativeStep(kernel("increment"), (2, 2), 300, 16),
            NativeStep(kernel("copy_to"), (2, 1), 300, 16),
        ],
        slots=3,
        arena=[(2, 0)],
        arena_bytes=4096,
    )

    def work(mark: int) -> None:
        given, result = np.full(300, mark, np.int64), np.zeros(300, np.int64)
        addresses = (HostBuffer.borrow(given).address, HostBuffer.borrow(result).address)
        for round in range(400):
            given[:] = mark + round
            plan.run(addresses)
            if (result != mark + round + 1).any():
                failures.append(f"caller {mark}, round {round}")

    with config.override(threads=3):
        callers = [threading.Thread(target=work, args=(mark * 1000,)) for mark in range(4)]
        for caller in callers:
            caller.start()
        for caller in callers:
            caller.join()
    assert not failures


def test_plans_inside_parallel_steps_run_inline() -> None:
    counts = np.zeros((16, 64), np.int64)
    inner = NativePlan([NativeStep(kernel("increment"), (0, 0), 64, 4)] * 3, 1)
    outer = NativePlan([NativeStep(kernel("run_plans"), (0, 1), 16, 1)], 2)
    rows = np.array([HostBuffer.borrow(row).address for row in counts], np.int64)
    slots = np.array([rows[i : i + 1].__array_interface__["data"][0] for i in range(16)], np.int64)
    called = np.array(
        [executor.machine_code().address("ridgeline_execute"), inner.address], np.int64
    )
    with config.override(threads=4):
        for _ in range(200):
            outer.run((HostBuffer.borrow(slots).address, HostBuffer.borrow(called).address))
    assert (counts == 600).all()


def test_workers_follow_the_setting() -> None:
    plan = NativePlan(
        [NativeStep(kernel("pause"), (), 8, 1)], 0
    )  # long enough to be worth waking workers
    for threads in (6, 2, 4, 1, 3):
        with config.override(threads=threads):
            deadline = time.monotonic() + 10
            plan.run(())
            while executor.workers() != threads - 1 and time.monotonic() < deadline:
                plan.run(())
                time.sleep(0.001)
            assert executor.workers() == threads - 1


def test_long_steps_wait_for_their_workers() -> None:
    done = np.zeros(8, np.int64)
    plan = NativePlan(
        [NativeStep(kernel("pause"), (), 8, 1), NativeStep(kernel("increment"), (0, 0), 8, 1)],
        slots=1,
    )
    with config.override(threads=8):
        for _ in range(5):
            plan.run((HostBuffer.borrow(done).address,))
    assert (done == 5).all()


PRELUDE = """
import os, sys, threading, time, ctypes
import numpy as np
from ridgeline.config import config
from ridgeline.runtime.buffer import HostBuffer
from ridgeline.runtime.cpu import executor
from ridgeline.runtime.cpu.executor import NativePlan, NativeStep
from tests.runtime.kernels import kernel
config.threads = 3
counts = np.zeros(1000, np.int64)
address = HostBuffer.borrow(counts).address
plan = NativePlan([NativeStep(kernel("increment"), (0, 0), 1000, 8)] * 20, 1)
slow = NativePlan([NativeStep(kernel("pause"), (), 100000, 10)], 0)
plan.run((address,))
"""


def run_script(body: str) -> subprocess.CompletedProcess[str]:
    script = PRELUDE + textwrap.dedent(body)
    return subprocess.run(
        # newer Pythons warn of every fork beside threads, which is what these scripts are about
        [sys.executable, "-W", "ignore::DeprecationWarning", "-c", script],
        capture_output=True,
        text=True,
        timeout=60,
    )


@pytest.mark.parametrize(
    "body",
    [
        "pass  # workers spinning",
        "time.sleep(0.01)  # workers asleep",
        "threading.Thread(target=slow.run, args=((),), daemon=True).start(); time.sleep(0.02)",
        "threading.Thread(target=lambda: [plan.run((address,)) for _ in range(10**9)], "
        "daemon=True).start(); time.sleep(0.02)",
        "import atexit; atexit.register(plan.run, (address,))",
        "import gc; del plan, slow; gc.collect()",
    ],
)
def test_exit_is_clean_whatever_the_workers_do(body: str) -> None:
    for _ in range(3):
        done = run_script(body)
        assert (done.returncode, done.stderr) == (0, "")


def test_a_forked_child_runs_plans() -> None:
    done = run_script(
        """
        for round in range(10):
            child = os.fork()
            if child == 0:
                counts[:] = 0
                assert executor.workers() == 0
                NativePlan([NativeStep(kernel("pause"), (), 4, 1)], 0).run(())
                for _ in range(50):
                    plan.run((address,))
                ok = (counts == 1000).all() and executor.workers() == 2
                os._exit(0 if ok else 1)
            plan.run((address,))
            assert os.waitpid(child, 0)[1] == 0, round
        """
    )
    assert (done.returncode, done.stderr) == (0, "")


def test_a_fork_by_native_code_while_others_run_plans() -> None:
    done = run_script(
        """
        # inside native code, so that none waits for the GIL: Python itself, told of no fork,
        # could not let go of one that another thread waited for
        threading.Thread(target=slow.run, args=((),), daemon=True).start()
        time.sleep(0.02)
        fork = ctypes.PyDLL(None).fork  # holds the GIL, and tells Python nothing
        for round in range(10):
            child = fork()
            if child == 0:
                counts[:] = 0
                plan.run((address,))
                os._exit(0 if (counts == 20).all() else 1)
            assert os.waitpid(child, 0)[1] == 0, round
        """
    )
    assert (done.returncode, done.stderr) == (0, "")


def test_workers_block_signals_and_python_gets_them() -> None:
    done = run_script(
        """
        import signal
        got = []
        signal.signal(signal.SIGUSR1, lambda *_: got.append(threading.current_thread()))
        for _ in range(20):
            os.kill(os.getpid(), signal.SIGUSR1)
            plan.run((address,))
        assert got and set(got) == {threading.main_thread()}
        """
    )
    assert (done.returncode, done.stderr) == (0, "")


def test_serial_and_short_work_starts_no_threads() -> None:
    done = run_script(
        """
        child = os.fork()
        if child == 0:
            NativePlan([NativeStep(kernel("pause"), ())] * 3, 0).run(())
            os._exit(executor.workers())
        assert os.waitpid(child, 0)[1] == 0
        """
    )
    assert (done.returncode, done.stderr) == (0, "")
