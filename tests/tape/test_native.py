"""The compiled matcher: references, threads, signals, hooks, and where it is not used."""

from __future__ import annotations

import gc
import signal
import sys
import threading
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import ridgeline as rl
from ridgeline.config import config
from ridgeline.execution import flush_log
from ridgeline.record.recorder import MISS
from ridgeline.tape import native, native_check, native_code
from ridgeline.tape.quick import quickly
from ridgeline.tape.tape_recorder import TapeRecorder
from tests.tape.test_tape import compiled, data, is_matched, run_until_matched  # noqa: F401

Step = Callable[[int], Any]


@pytest.fixture(autouse=True)
def machine_code(form: str) -> None:
    """The tests that are about one form run once."""
    if form != "machine code":
        pytest.skip("for the compiled form")


def calls(number: int, x: rl.Tensor, y: rl.Tensor) -> rl.Tensor:
    """Calls of many kinds: new tensors, views, several results, writes, numbers, constants."""
    z = (x * y + float(number)).relu().reshape(2, 6)
    a, b = z.chunk(2, dim=1)
    largest, places = z.max(dim=1)
    z[0, 1] = 0.25
    z += 1
    return (a @ b.T).sum() + largest.sum() + places.sum() + z[:, 2:4].mean(dim=-1).sum()


def test_matched_calls_keep_and_lose_no_references() -> None:
    x, y = data(3, 4), data(4)
    held = (x, x._cell, y, y._cell, None, MISS)

    def step(number: int) -> None:
        for _ in range(40):
            last = calls(2, x, y)
        last.item()

    _, programs = run_until_matched(step, 8)
    assert is_matched(programs) and native.is_on()
    gc.collect()
    before, blocks = [*map(sys.getrefcount, held[:4])], sys.getallocatedblocks()
    for _ in range(200):  # 40 times some 15 calls each: more than a hundred thousand
        step(0)
    gc.collect()
    assert [*map(sys.getrefcount, held[:4])] == before
    assert sys.getallocatedblocks() - blocks < 2_000


def test_values_under_profilers_tracers_and_the_monitor_of_calls() -> None:
    x, y = data(3, 4), data(4)

    def step(number: int) -> float:
        total: float = calls(number, x, y).item()
        return total

    found, programs = run_until_matched(step, 6)
    assert is_matched(programs)
    seen: list[str] = []

    def note(frame: Any, event: str, arg: Any) -> Any:
        seen.append(event)
        return note

    sys.setprofile(note)
    try:
        profiled = [step(number) for number in range(4)]
    finally:
        sys.setprofile(None)
    before = sys.gettrace()
    sys.settrace(note)
    try:
        traced = [step(number) for number in range(4)]
    finally:
        sys.settrace(before)
    assert "c_call" in seen and "line" in seen
    np.testing.assert_array_equal(profiled, found[:4])
    np.testing.assert_array_equal(traced, found[:4])


def test_signals_come_between_calls_and_never_inside_one() -> None:
    if not hasattr(signal, "setitimer"):
        pytest.skip("this system has no timers that signal")
    x, y = data(3, 4), data(4)

    def step(number: int) -> float:
        total: float = calls(number, x, y).item()
        return total

    class Interrupt(Exception):
        pass

    def handler(number: int, frame: Any) -> None:
        raise Interrupt

    wanted, _ = run_until_matched(step, 6)
    chosen = np.random.default_rng(0)
    before = signal.signal(signal.SIGALRM, handler)
    interrupted = 0
    try:
        for _ in range(150):
            try:
                try:
                    signal.setitimer(signal.ITIMER_REAL, float(chosen.uniform(1e-5, 2e-3)))
                    for number in range(4):
                        assert step(number) == wanted[number]
                finally:  # where the signal may come, too
                    signal.setitimer(signal.ITIMER_REAL, 0)
            except Interrupt:
                interrupted += 1
    finally:
        signal.signal(signal.SIGALRM, before)
    assert interrupted
    assert [step(number) for number in range(4)] == wanted[:4]


def test_threads_that_match_and_read_results_of_each_other() -> None:
    x, y = data(3, 4), data(4)
    wanted = [calls(number, x, y).item() for number in range(4)]
    failed: list[BaseException] = []
    shown: dict[int, rl.Tensor] = {}

    def work(own: int) -> None:
        try:
            for number in range(120):
                made = calls(number % 4, x, y)
                shown[own] = made
                other = shown.get((own + 1) % 3)
                if number % 3 == 0 and other is not None:
                    assert other.item() in wanted
                assert made.item() == wanted[number % 4]
        except BaseException as error:
            failed.append(error)

    interval = sys.getswitchinterval()
    sys.setswitchinterval(1e-5)
    try:
        threads = [threading.Thread(target=work, args=(own,)) for own in range(3)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    finally:
        sys.setswitchinterval(interval)
    assert not failed, failed


def test_more_parameters_than_the_stack_has_room_for() -> None:
    parameters = [rl.ones(2).requires_grad_() for _ in range(300)]

    def step(number: int) -> list[float]:
        total = rl.stack(parameters).sum() * float(number)
        total.backward()
        with rl.no_grad():
            for each in parameters:
                each -= 0.5 * each.grad
                each.grad = None
        return parameters[7].tolist()

    found, _ = run_until_matched(step, 6)
    level = 1.0
    for number, values in enumerate(found):
        level -= 0.5 * number
        assert values == [level, level]


def test_what_fails_its_test_is_not_used(monkeypatch: pytest.MonkeyPatch) -> None:
    def wrong(recorder: Any, *call: Any) -> Any:
        made = quickly(recorder, *call)
        if made is not MISS:
            recorder.run.count += 1
        return made

    assert native_check.difference(quickly, TapeRecorder) == ""
    assert "what it changed" in native_check.difference(wrong, TapeRecorder)
    kept = vars(native._native).copy()
    native._native.made = None
    monkeypatch.setattr(native_code, "compiled_matcher", lambda recorder: wrong)
    try:
        with pytest.warns(RuntimeWarning, match="known calls could not be compiled"):
            native._make(TapeRecorder)
        assert not native.is_on()
        assert "(in Python: MatcherError: its test fails" in matched_text()
    finally:
        vars(native._native).update(kept)
        native.follow_settings()


def test_what_cannot_be_compiled_is_said(monkeypatch: pytest.MonkeyPatch) -> None:
    def missing(recorder: Any) -> Any:
        raise native_code.Refused("quick.py is not there as source")

    kept = vars(native._native).copy()
    native._native.made = None
    monkeypatch.setattr(native_code, "compiled_matcher", missing)
    try:
        native._make(TapeRecorder)
        assert "(in Python: quick.py is not there as source)" in matched_text()
    finally:
        vars(native._native).update(kept)
        native.follow_settings()
    with config.override(native_tape=False):
        assert "(in Python: config.native_tape is off)" in matched_text()


def matched_text() -> str:
    """What is said of flushes that were matched."""
    x = data(3)

    def step(number: int) -> float:
        total: float = (x * 2).sum().item()
        return total

    _, programs = run_until_matched(step, 6)
    assert is_matched(programs)
    with rl.record_flushes() as log:
        step(0)
    assert isinstance(log, flush_log.FlushLog)
    return str(log)
