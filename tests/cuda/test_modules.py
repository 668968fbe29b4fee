"""Code on a GPU that is not there: it is unloaded when nothing can run it any more."""

from __future__ import annotations

import gc
import threading

import pytest

import ridgeline as rl
from ridgeline.runtime.cuda import device as devices

from .code_on_devices import FEW, ever_new_lengths, first_step, small_tables
from .fake_code import FakeCode
from .fake_driver import INVALID_HANDLE, NOT_CAPTURED


@pytest.fixture
def little_room(fake_code: FakeCode, monkeypatch: pytest.MonkeyPatch) -> FakeCode:
    """As `small_tables`, on GPUs that are not there."""
    small_tables(monkeypatch)
    return fake_code


def test_code_of_programs_that_are_gone_is_unloaded(little_room: FakeCode) -> None:
    ever_new_lengths(3, 40)
    gc.collect()
    loaded = little_room.driver.calls["cuModuleLoadData"]
    assert loaded >= 37
    assert len(little_room.driver.modules) <= 5 * FEW < loaded
    ever_new_lengths(3, 6)  # those that were unloaded are loaded again


def test_code_in_use_stays_loaded(little_room: FakeCode) -> None:
    function = rl.jit(lambda x: (x.cumsum(0) * 2).sum())
    x = rl.tensor([1.0, 2.0, 3.0], device="cuda:0")
    assert function(x).item() == 20.0
    ever_new_lengths(3, 30)
    launched = [function(x).item() for _ in range(3)]  # launches and graphs of them
    assert launched == [20.0] * 3


def test_code_is_not_unloaded_while_launches_may_be_pending(little_room: FakeCode) -> None:
    """The driver refuses that, which fails a test of itself (`machines.pretended_gpus`)."""
    driver, gpu = little_room.driver, devices.device(0)
    assert (rl.tensor([1.0], device="cuda:0") * 5).tolist() == [5.0]
    assert driver.pending
    (pending, *_) = driver.pending
    gpu.activate()
    assert driver.cuModuleUnload(pending)[0] == INVALID_HANDLE
    driver.refused.clear()
    gpu.unload_discarded()
    assert pending in driver.modules  # held by the program
    ever_new_lengths(3, 20)
    gc.collect()
    gpu.unload_discarded()
    assert pending not in driver.modules


def test_nothing_is_unloaded_while_another_thread_enqueues(little_room: FakeCode) -> None:
    driver, gpu = little_room.driver, devices.device(0)
    held, done = threading.Event(), threading.Event()

    def enqueue() -> None:
        with gpu.enqueuing:
            held.set()
            done.wait(20)

    ever_new_lengths(3, 12)
    gc.collect()
    before = set(driver.modules)
    thread = threading.Thread(target=enqueue)
    thread.start()
    held.wait(20)
    assert gpu.discarded_modules
    gpu.unload_discarded()
    assert driver.modules == before
    done.set()
    thread.join()
    gpu.unload_discarded()
    assert driver.modules < before and not gpu.discarded_modules


def test_large_programs_find_all_their_code(little_room: FakeCode) -> None:
    """Room for one module is no reason to unload the others of the same program."""
    x = rl.tensor([[1.0, 2.0], [3.0, 4.0]], device="cuda:0")

    @rl.jit
    def several(x: rl.Tensor) -> tuple[rl.Tensor, ...]:
        return (x @ x).cumsum(0), x.sort(0).values, x.exp().sum(1).cumsum(0), x.argmax()

    found = [part.tolist() for part in several(x)]
    assert found[0] == [[7.0, 10.0], [22.0, 32.0]] and found[3] == 3


def test_a_first_step_overwrites_its_state(fake_code: FakeCode) -> None:
    size = 1 << 18
    state = first_step(size)
    held = 2 * 4 * size
    assert rl.cuda.max_memory_allocated() < 1.25 * held
    assert state.tolist() == [7.0] * size


def test_a_first_step_that_no_capture_takes_runs_by_itself(fake_code: FakeCode) -> None:
    state = rl.zeros(4, device="cuda:0") + 1
    assert state.tolist() == [1.0] * 4

    @rl.jit
    def step() -> None:
        state.add_(1.0)

    fake_code.driver.failing["cuGraphInstantiate"] = [NOT_CAPTURED]
    for _ in range(3):
        step()
    assert state.tolist() == [4.0] * 4
