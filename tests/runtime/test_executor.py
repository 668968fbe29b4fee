"""Plans: slots, arena, tasks and grains, errors, profile, counting, and no leaks."""

from __future__ import annotations

import resource
import sys

import numpy as np
import pytest

from ridgeline.runtime.buffer import HostBuffer, pool
from ridgeline.runtime.cpu import executor
from ridgeline.runtime.cpu.control_words import Await, Post
from ridgeline.runtime.cpu.executor import NativePlan, NativeStep
from tests.runtime.kernels import kernel


def zeros(count: int) -> tuple[np.ndarray[tuple[int], np.dtype[np.int64]], int]:
    array = np.zeros(count, np.int64)
    return array, HostBuffer.borrow(array).address


def test_steps_run_in_order_over_slots_and_temporaries() -> None:
    given, given_at = zeros(100)
    result, result_at = zeros(100)
    given[:] = np.arange(100)
    plan = NativePlan(
        [
            NativeStep(kernel("copy_to"), (0, 2), 100, 7),  # first = given
            NativeStep(kernel("increment"), (2, 2), 100, 100),  # first += 1
            NativeStep(kernel("copy_to"), (2, 3), 100, 33),  # second = first
            NativeStep(kernel("add_to"), (2, 3), 100, 1),  # second += first
            NativeStep(kernel("copy_to"), (3, 1), 100, 50),  # result = second
        ],
        slots=4,
        arena=[(2, 0), (3, 832)],
        arena_bytes=832 + 800,
    )
    for _ in range(50):
        result[:] = 0
        plan.run((given_at, result_at))
        assert (result == 2 * (np.arange(100) + 1)).all()


def test_one_chunk_is_one_call_with_the_whole_range() -> None:
    seen, seen_at = zeros(2)
    for tasks, grain in ((1, 1), (10, 10), (10, 99)):
        NativePlan([NativeStep(kernel("range"), (0,), tasks, grain)], 1).run((seen_at,))
        assert seen.tolist() == [0, tasks]


def test_a_plan_without_steps_or_slots_runs() -> None:
    NativePlan([], 0).run(())
    NativePlan([NativeStep(kernel("nothing"), ())], 0).run(())


def test_many_slots_and_wide_steps() -> None:
    arrays = [zeros(1) for _ in range(300)]
    steps = [NativeStep(kernel("increment"), (slot, slot, *range(300))) for slot in range(300)]
    NativePlan(steps, 300).run([address for _, address in arrays])
    assert all(array[0] == 1 for array, _ in arrays)


def test_wrong_addresses_raise() -> None:
    plan = NativePlan([NativeStep(kernel("nothing"), (0,))], 1)
    for wrong in ((), (1, 2)):
        with pytest.raises(TypeError, match="wrong number of addresses"):
            plan.run(wrong)
    with pytest.raises(TypeError):
        plan.run(("text",))  # type: ignore[arg-type]
    with pytest.raises(OverflowError):
        plan.run((-1,))
    with pytest.raises(OverflowError):
        plan.run((1 << 64,))


@pytest.mark.parametrize(
    "make",
    [
        lambda: NativePlan([NativeStep(kernel("nothing"), (1,))], 1),
        lambda: NativePlan([NativeStep(kernel("nothing"), (-1,))], 1),
        lambda: NativePlan([NativeStep(0, ())], 0),
        lambda: NativePlan([NativeStep(kernel("nothing"), (), 1, 0)], 0),
        lambda: NativePlan([NativeStep(kernel("nothing"), (), -1, 1)], 0),
        lambda: NativePlan([Post(0, 1, 0, 0, 2, (0,))], 2),
        lambda: NativePlan([Post(0, 1, 0, 0, -1, (0, 0, 0, 0))], 2),
        lambda: NativePlan([Await(0, 2)], 2),
        lambda: NativePlan([], 2, [(0, 0)], 64),
        lambda: NativePlan([], 2, [(1, 128)], 64),
        lambda: NativePlan([], 2, [(1, 8)], 64),
        lambda: NativePlan([], 2, [(1, 0), (1, 0)], 64),
    ],
)
def test_impossible_plans_are_refused(make: object) -> None:
    with pytest.raises(ValueError, match=r"slot|step"):
        make()  # type: ignore[operator]


def test_every_run_is_one_native_call() -> None:
    plan = NativePlan([NativeStep(kernel("nothing"), (), 8, 1)] * 20, 0)
    before = executor.calls()
    for _ in range(5):
        plan.run(())
    assert executor.calls() == before + 5
    with pytest.raises(AttributeError):
        _ = executor.nonsense


def test_profile_gives_each_steps_time() -> None:
    steps = [NativeStep(kernel("nothing"), ()), NativeStep(kernel("pause"), (), 5, 5)]
    times = NativePlan(steps, 0).profile(())
    assert len(times) == 2
    assert 0 <= times[0] < times[1]
    assert times[1] >= 5e-3


def test_running_leaks_nothing() -> None:
    plan = NativePlan(
        [NativeStep(kernel("increment"), (1, 1), 16, 4)],
        slots=2,
        arena=[(1, 0)],
        arena_bytes=1 << 16,
    )
    _kept, address = zeros(1)

    def work(count: int) -> None:
        for _ in range(count):
            plan.run((address,))
            plan.profile((address,))
            NativePlan(plan.steps, 2, [(1, 0)], 256).run((address,))

    work(200)
    nones, in_use = sys.getrefcount(None), pool.in_use
    resident = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    work(5000)
    assert abs(sys.getrefcount(None) - nones) < 1000
    assert pool.in_use == in_use
    assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - resident < 4096  # KiB
