"""Programs compiled beside the one that runs: the same results, nothing waits or is left over."""

from __future__ import annotations

import gc
import os
import subprocess
import sys
import threading
import weakref
from collections.abc import Iterator

import numpy as np
import pytest

import ridgeline as rl
from ridgeline.compiler.background import MOST_WAITING, Background, GaveWay, background
from ridgeline.config import config
from ridgeline.execution import generalize, tiers


@pytest.fixture(autouse=True)
def beside(nothing_recorded: None) -> Iterator[None]:
    with config.override(background=True):
        generalize._forms.clear()  # no program of another test's length serves this one's
        yield
        background.wait()


def _work(x: rl.Tensor, factor: float) -> rl.Tensor:
    for n in range(12):
        x = (x * factor + n).sin()
    return x


def test_a_piece_is_interpreted_until_its_program_is_there() -> None:
    x = rl.linspace(0.0, 1.0, 37)
    truth = np.asarray(_work(x, 0.71).numpy())
    with rl.config.override(tape=False), rl.record_flushes() as log:
        for _ in range(4):
            np.testing.assert_allclose(_work(x, 0.71).numpy(), truth, rtol=3e-6)
        background.wait()
        np.testing.assert_allclose(_work(x, 0.71).numpy(), truth, rtol=3e-6)
    programs = [flush.program for flush in log.flushes]
    assert "new" not in programs
    assert (programs[0], programs[-1]) == ("interpreted", "found")


def test_a_training_loop_goes_on_from_its_state() -> None:
    def losses() -> list[float]:
        rl.manual_seed(3)
        model = rl.nn.Sequential(rl.nn.Linear(5, 7), rl.nn.Tanh(), rl.nn.Linear(7, 1))
        optimizer = rl.optim.Adam(model.parameters(), lr=0.05)
        x = rl.randn(11, 5)
        found = []
        for step in range(10):
            optimizer.zero_grad()
            loss = model(x).square().mean()
            loss.backward()
            optimizer.step()
            found.append(loss.item())
            if step == 5:
                background.wait()
        return found

    here = losses()
    with config.override(tier="interpreter"):
        np.testing.assert_allclose(here, losses(), rtol=1e-5)


def test_whoever_needs_the_compiler_goes_first() -> None:
    worker = Background()
    begun, stopped, seen = threading.Event(), threading.Event(), []

    def job() -> None:
        seen.append("begun")
        begun.set()
        try:
            while not stopped.is_set():
                worker.checkpoint()
        except GaveWay:
            stopped.set()
            raise
        seen.append("ended")

    assert worker.submit(job)
    begun.wait(10)
    with worker.needed():
        worker.checkpoint()  # nothing in another thread
        assert stopped.wait(10)
        assert seen == ["begun"]
    worker.wait()
    assert seen == ["begun", "begun", "ended"]


def test_jobs_beyond_a_number_are_not_taken() -> None:
    worker = Background()
    free = threading.Event()
    taken = [worker.submit(lambda: bool(free.wait(10))) for _ in range(MOST_WAITING + 1)]
    assert taken == [True] * MOST_WAITING + [False]
    free.set()
    worker.wait()


def test_a_forked_child_has_a_free_compiler() -> None:
    begun, stop = threading.Event(), threading.Event()

    def until_stopped() -> None:
        begun.set()
        while not stop.is_set():
            background.checkpoint()

    background.submit(until_stopped)
    begun.wait(10)
    child = os.fork()
    if not child:
        with config.override(tier="compiled"):
            os._exit(0 if (rl.arange(5.0) * 1.375).sum().item() == 13.75 else 1)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
    stop.set()
    background.wait()


def test_what_fails_beside_the_program_fails_in_it(monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(*_: object) -> object:
        raise RuntimeError("no such code")

    monkeypatch.setattr(tiers, "program_for", broken)
    x = rl.linspace(0.0, 1.0, 41)
    for _ in range(3):
        _work(x, 0.73).numpy()
    background.wait()
    with pytest.raises(RuntimeError, match="no such code"):
        for _ in range(10_000):
            _work(x, 0.73).numpy()


def test_settings_that_change_meanwhile_are_not_mixed_up() -> None:
    x = rl.linspace(0.0, 1.0, 43)
    stop = threading.Event()
    background.submit(lambda: bool(stop.wait(10)))
    for _ in range(4):
        _work(x, 0.77).numpy()
    with config.override(threads=1):
        stop.set()
        background.wait()
    with rl.record_flushes() as log:
        _work(x, 0.77).numpy()
    assert log.flushes[0].program == "interpreted"


def test_deterministic_runs_never_change_by_the_clock() -> None:
    x = rl.linspace(0.0, 1.0, 47)
    with config.override(deterministic=True), rl.record_flushes() as log:
        for _ in range(6):
            _work(x, 0.79).numpy()
        background.wait()
        _work(x, 0.79).numpy()
    assert {flush.program for flush in log.flushes} == {"interpreted"}


def test_waiting_jobs_keep_no_values() -> None:
    stop = threading.Event()
    background.submit(lambda: bool(stop.wait(10)))
    x = rl.linspace(0.0, 1.0, 53)
    for _ in range(4):
        _work(x, 0.81).numpy()
    memory = weakref.ref(x._cell.node)
    del x
    gc.collect()
    assert memory() is None
    stop.set()


def test_gave_way_is_no_error_that_code_would_catch() -> None:
    assert not issubclass(GaveWay, Exception)


_EXITS = """
import ridgeline as rl
x = rl.linspace(0.0, 1.0, 59)
for _ in range(4):
    y = x
    for n in range(200):
        y = (y * 0.5 + n).sin()
    y.numpy()
print("ends")
"""


def test_a_program_ends_while_another_is_compiled() -> None:
    environment = {**os.environ, "RIDGELINE_BACKGROUND": "1", "RIDGELINE_CACHE_MAX_BYTES": "0"}
    ended = subprocess.run(
        [sys.executable, "-X", "faulthandler", "-c", _EXITS],
        env=environment, capture_output=True, text=True, timeout=120, check=False,
    )  # fmt: skip
    assert (ended.returncode, ended.stdout, ended.stderr) == (0, "ends\n", "")
