"""Signals during native runs, and containers that forget their members by C code."""

from __future__ import annotations

import gc
import signal
import sys
import time
from collections.abc import Iterator

import numpy as np
import pytest

import ridgeline as rl
from ridgeline.atomic import apply, steps
from ridgeline.runtime.buffer import HostBuffer, pool
from ridgeline.weak import WeakMap, WeakSet, WeakTable


class Stop(BaseException):
    """What the handler raises."""


@pytest.fixture(autouse=True)
def alarm() -> Iterator[None]:
    def handler(number: int, frame: object) -> None:
        raise Stop

    before = signal.signal(signal.SIGALRM, handler)
    with rl.config.override(tier="compiled"):
        yield
    signal.signal(signal.SIGALRM, before)


def test_a_long_plan_ends_between_two_kernels() -> None:
    x = rl.tensor(np.full((500, 500), 1e-3, np.float32))

    def work() -> rl.Tensor:
        total = x
        for _ in range(80):
            total = (total @ x).cos()
        return total.sum()

    work().item()  # compiled now
    begin = time.perf_counter()
    wanted = work().item()
    whole = time.perf_counter() - begin
    again = work()
    begin = time.perf_counter()
    signal.setitimer(signal.ITIMER_REAL, min(0.05, whole / 4))
    with pytest.raises(Stop):
        again.item()
    assert time.perf_counter() - begin < whole
    assert again.item() == wanted  # it is still there to be computed


def test_a_loop_without_end_ends() -> None:
    @rl.jit
    def count(limit: rl.Tensor) -> rl.Tensor:
        def goes_on(state: tuple[rl.Tensor, rl.Tensor]) -> rl.Tensor:
            return state[0] < limit

        def body(state: tuple[rl.Tensor, rl.Tensor]) -> tuple[rl.Tensor, rl.Tensor]:
            return state[0] + 1, state[1] * 0.5

        return rl.while_loop(goes_on, body, (rl.tensor(0), rl.ones(64)))[0]

    assert count(rl.tensor(3)).item() == 3
    signal.setitimer(signal.ITIMER_REAL, 0.2)
    with pytest.raises(Stop):
        count(rl.tensor(1 << 62))
    assert count(rl.tensor(5)).item() == 5


def test_a_handler_may_compute_in_the_middle_of_a_plan() -> None:
    x = rl.tensor(np.full((300, 300), 1e-3, np.float32))
    seen: list[float] = []
    signal.signal(signal.SIGALRM, lambda *_: seen.append((rl.ones(10) * 3).cos().sum().item()))

    def work() -> float:
        total = x
        for _ in range(60):
            total = (total @ x).cos()
        return total.sum().item()

    wanted = work()
    signal.setitimer(signal.ITIMER_REAL, 0.01)
    assert work() == wanted
    signal.setitimer(signal.ITIMER_REAL, 0)


def test_what_a_call_raises_leaves_all_changes_unmade() -> None:
    class Thing:
        value = 0

    thing, calls = Thing(), [lambda: None, [].pop]
    with pytest.raises(IndexError):
        apply(steps(calls, [(thing, "value", 1)]))
    assert thing.value == 0
    apply(steps(calls[:1], [(thing, "value", 1)]))
    assert thing.value == 1


class Member:
    """Something that can be referred to weakly."""


def test_forgetting_runs_no_python() -> None:
    members, table = WeakSet[Member](), WeakTable[Member]()
    values = WeakMap[Member, int]()
    ran: list[str] = []

    def profile(frame: object, event: str, argument: object) -> None:
        if event == "call":
            ran.append(str(frame))

    for cyclic in (False, True):
        made, buffer = Member(), HostBuffer.allocate(64)
        members.add(made)
        values[made] = 1
        assert table.keep("key", made) is made and table.keep("key", Member()) is made
        assert made in members and values[made] == 1 and len(members) == len(table) == 1
        if cyclic:
            made.itself = made  # type: ignore[attr-defined]
        before = pool.in_use
        sys.setprofile(profile)
        del made, buffer
        sys.setprofile(None)
        gc.collect()
        assert not ran and not members and not len(table) and table.get("key") is None
        assert pool.in_use < before
