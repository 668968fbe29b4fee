"""Tasks are shared out in parts that come out even."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given, strategies as st

from ridgeline.schedules.machine import Machine
from ridgeline.schedules.sharing import grain, largest_share

MANY = Machine(64, 32, 16, 48 << 10, 2 << 20, 64 << 20)
LONG = 1e-2


@pytest.mark.parametrize("tasks,seconds,share", [
    (144, 89e-6, 9),  # parts of seven would be twenty-one: five cores do two of them
    (72, 92e-6, 5),
    (1792, 201e-6, 114),
    (100, LONG, 7),
    (16, LONG, 1),
])  # fmt: skip
def test_no_core_gets_more_than_need_be(tasks: int, seconds: float, share: int) -> None:
    assert largest_share(tasks, grain(tasks, seconds, MANY), MANY.threads) == share


def test_short_work_and_single_cores_share_nothing() -> None:
    assert grain(1000, 1e-6, MANY) == 1000
    assert grain(1000, LONG, replace(MANY, threads=1)) == 1000
    assert grain(1, LONG, MANY) == 1


def played(tasks: int, grain: int, threads: int) -> int:
    """The longest queue when parts are dealt out one by one."""
    cores = [0] * threads
    for part in range(0, tasks, grain):
        cores[cores.index(min(cores))] += min(grain, tasks - part)
    return max(cores)


@given(st.integers(1, 5000), st.floats(8e-6, 1.0), st.integers(2, 64))
def test_parts_are_worth_fetching_and_even(tasks: int, seconds: float, threads: int) -> None:
    size = grain(tasks, seconds, replace(MANY, threads=threads))
    assert 1 <= size <= tasks
    assert size == tasks or size * seconds / tasks >= 4e-6 * 0.999
    assert -(-tasks // size) <= 8 * threads
    longest = played(tasks, size, threads)
    assert longest <= largest_share(tasks, size, threads)
    assert longest <= max(-(-tasks // threads) * 2, 2 * size)
