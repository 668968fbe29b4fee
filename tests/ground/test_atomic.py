"""Looking at all objects of a process while other threads are still making some."""

from __future__ import annotations

import gc
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager

import pytest

import ridgeline as rl
from ridgeline.atomic import young
from ridgeline.runtime.cuda.shortage import holders


@contextmanager
def _others_build_tuples() -> Iterator[list[BaseException]]:
    """Threads that switch in the middle of a tuple, whose length is not known before its end."""
    errors: list[BaseException] = []
    done = threading.Event()

    def build() -> None:
        try:
            while not done.is_set():
                tuple(_slowly(40))
        except BaseException as error:
            errors.append(error)

    before = sys.getswitchinterval()
    sys.setswitchinterval(1e-6)
    threads = [threading.Thread(target=build) for _ in range(4)]
    for thread in threads:
        thread.start()
    try:
        yield errors
    finally:
        done.set()
        for thread in threads:
            thread.join()
        sys.setswitchinterval(before)


def _slowly(count: int) -> Iterator[list[int]]:
    for number in range(count):
        yield [number]


def _trace() -> None:
    state = {"scale": [2.0]}
    assert rl.jit(lambda x: x * state["scale"][0])(rl.ones(2)).tolist() == [2.0, 2.0]


@pytest.mark.parametrize("look", [_trace, lambda: holders("cuda:0"), lambda: young([1, 2])])
def test_tuples_of_other_threads_are_left_alone(look: Callable[[], object]) -> None:
    with _others_build_tuples() as errors:
        for _ in range(10):
            look()
    assert not errors


def test_hooks_that_watch_the_process_change_nothing() -> None:
    """Python that CPython runs for every `id`; a hook cannot be removed, so in a process apart."""
    program = (
        "import sys; sys.addaudithook(lambda name, given: None)\n"
        "from tests.ground.test_atomic import _trace, test_tuples_of_other_threads_are_left_alone\n"
        "test_tuples_of_other_threads_are_left_alone(_trace)"
    )
    subprocess.run([sys.executable, "-c", program], check=True, timeout=120)


def test_objects_are_found_by_their_age() -> None:
    gc.collect()
    gc.disable()
    try:
        new, number = [[0]], 5
        assert young([new, gc.__dict__, number]) == {id(new)}
    finally:
        gc.enable()
