"""How many tasks a core fetches at a time."""

from __future__ import annotations

from dataclasses import replace

from hypothesis import given, strategies as st

from ridgeline.schedules.machine import Machine, grain

MANY = Machine(64, 32, 16, 48 << 10, 2 << 20, 64 << 20)
LONG = 1e-2


def test_short_work_and_single_cores_share_nothing() -> None:
    assert grain(1000, 1e-6, MANY) == 1000
    assert grain(1000, LONG, replace(MANY, threads=1)) == 1000
    assert grain(1, LONG, MANY) == 1


@given(st.integers(1, 5000), st.floats(8e-6, 1.0), st.integers(2, 64))
def test_parts_are_worth_fetching_and_not_worth_waiting_for(
    tasks: int, seconds: float, threads: int
) -> None:
    size = grain(tasks, seconds, replace(MANY, threads=threads))
    each = seconds / tasks
    assert 1 <= size <= tasks
    assert size == tasks or size * each >= 4e-6 * 0.999
    assert size == 1 or size * each <= 50e-6 * 1.001
    assert size * each <= 4e-6 + each or size <= -(-tasks // (8 * threads))


def test_the_cost_of_a_parallel_step_decides_what_is_shared() -> None:
    few = replace(MANY, threads=2)
    assert grain(1000, 7e-6, few) == 1000 > grain(1000, 9e-6, few)
    slow = replace(MANY, region_seconds=5e-6)
    assert grain(1000, 20e-6, slow) == 1000 > grain(1000, 22e-6, slow)
