"""The CUDA runtime over a driver that only pretends: copies, pools, plans, graphs, errors."""

from __future__ import annotations

import ctypes
import gc
import weakref
from typing import Any

import numpy as np
import pytest

import ridgeline as rl
from ridgeline import Tensor, dtypes
from ridgeline.errors import DeviceError, IndexRangeError, OutOfMemoryError
from ridgeline.runtime.buffer import HostBuffer
from ridgeline.runtime.cuda import device, flags
from ridgeline.runtime.cuda.graphs import MOST_GRAPHS
from ridgeline.runtime.cuda.memory import allocate
from ridgeline.runtime.cuda.plan import DevicePlan, HostStep, Slots
from ridgeline.runtime.cuda.space import DeviceSpace
from ridgeline.runtime.cuda.steps import ArgumentWords, KernelStep
from ridgeline.runtime.cuda.stream import Event, Stream

from .fake_driver import FakeDriver


def test_values_go_there_and_back(fake: FakeDriver) -> None:
    values = np.arange(1000, dtype=np.float32).reshape(10, 100)
    there = DeviceSpace(0).take_in(values)
    assert there.device == "cuda:0" and there.nbytes == 4000
    np.testing.assert_array_equal(there.array(dtypes.float32, (10, 100)), values)
    np.testing.assert_array_equal(
        DeviceSpace(1).copy(there).array(dtypes.float32, (10, 100)), values
    )


def test_freed_memory_is_used_again(fake: FakeDriver) -> None:
    stream = device.device(0).stream
    first = allocate(stream, 5000)
    address = first.device_address
    del first
    assert allocate(stream, 5000).device_address == address
    assert fake.calls["cuMemAllocAsync"] == 1


def test_memory_used_by_another_stream_waits_for_it(fake: FakeDriver) -> None:
    chosen = device.device(0)
    other = Stream(chosen)
    buffer = allocate(chosen.stream, 100)
    buffer.used_on(other)
    buffer.used_on(other)
    assert [stream for stream, _ in fake.waits] == [other.handle]
    del buffer
    allocate(chosen.stream, 100)  # before the memory is handed out again
    assert [stream for stream, _ in fake.waits] == [other.handle, chosen.stream.handle]


def test_properties(fake: FakeDriver) -> None:
    found = device.device(0).properties
    assert (found.name, found.major, found.multi_processor_count) == ("Fake", 9, 132)
    assert device.device(0).architecture == "sm_90a" and device.count() == 2


def test_out_of_memory_says_who_holds_what(fake: FakeDriver) -> None:
    import ridgeline as rl
    from ridgeline.tensors.tensor import from_array

    kept = from_array(np.zeros(1 << 20, np.float32), rl.float32, "cuda:0")
    fake.gpus[0].memory = 1 << 24
    with pytest.raises(OutOfMemoryError, match="no room for 1 GiB") as caught:
        allocate(device.device(0).stream, 1 << 30)
    assert "4 MiB in 1 values made at" in str(caught.value)
    assert "test_runtime.py" in str(caught.value)
    assert isinstance(caught.value, MemoryError)
    del kept


def plan_of(fake: FakeDriver, made: int = 1) -> DevicePlan:
    """Two launches: from the inputs to the arena, and from there to what is made."""
    slots = Slots(inputs=2, made=(64,) * made, arena=((2 + made, 256),), arena_bytes=512,
                  workspace_bytes=128)  # fmt: skip

    def steps(words: ArgumentWords) -> list[KernelStep]:
        first = KernelStep(fake.function("first", 2), 1, 32, 0, 1, (0, 2 + made), words)
        second = KernelStep(fake.function("second", 2), 1, 32, 0, 1, (2 + made, 2), words)
        return [first, second]

    return DevicePlan(device.device(0), slots, steps)


def test_a_plan_launches_then_replays_a_graph(fake: FakeDriver) -> None:
    plan = plan_of(fake)
    inputs = [DeviceSpace(0).take_in(np.ones(4, np.float32)) for _ in range(2)]
    results = [plan.run(inputs)[2] for _ in range(3)]
    assert fake.calls["cuLaunchKernel"] == 6  # two for each set of addresses
    assert fake.calls.get("cuGraphLaunch") == 2
    kernels = [kernel for kernel, _ in fake.launches]
    assert kernels == ["first", "second"] * 3
    for number, result in enumerate(results):
        first, second = fake.launches[2 * number : 2 * number + 2]
        assert first[1][0] == inputs[0].device_address and second[1][1] == result.device_address
        assert first[1][1] == second[1][0]  # the arena
    assert len({r.device_address for r in results}) == 3


def test_a_single_kernel_is_a_graph_when_its_addresses_come_again(fake: FakeDriver) -> None:
    slots = Slots(inputs=1, made=(64,), arena=(), arena_bytes=0, workspace_bytes=0)

    def steps(words: ArgumentWords) -> list[KernelStep]:
        return [KernelStep(fake.function("only", 2), 1, 32, 0, 1, (0, 1), words)]

    plan = DevicePlan(device.device(0), slots, steps)
    given = DeviceSpace(0).take_in(np.ones(4, np.float32))
    for _ in range(20):
        result = plan.run([given])[1]
        assert fake.launches[-1][1] == (given.device_address, result.device_address)
    (graphs,) = plan.graphs.values()
    assert graphs.captured == 2 and fake.calls["cuGraphLaunch"] == 17  # two sets in turn
    held = [plan.run([given])[1] for _ in range(10)]
    assert graphs.captured <= 3 and len(held) == 10  # other addresses every time: just launched


def test_addresses_that_come_again_need_no_new_graph(fake: FakeDriver) -> None:
    plan = plan_of(fake)
    inputs = [DeviceSpace(0).take_in(np.ones(4, np.float32)) for _ in range(2)]
    for _ in range(50):
        plan.run(inputs)  # results are let go, so the pool hands out the same memory again
    (graphs,) = plan.graphs.values()
    assert graphs.captured <= 2 and graphs.updated == 0


def test_the_oldest_graph_is_changed_for_new_addresses(fake: FakeDriver) -> None:
    plan = plan_of(fake)
    inputs = [DeviceSpace(0).take_in(np.ones(4, np.float32)) for _ in range(2)]
    kept = [plan.run(inputs)[2] for _ in range(2 * MOST_GRAPHS)]
    (graphs,) = plan.graphs.values()
    assert graphs.captured == MOST_GRAPHS and graphs.updated == MOST_GRAPHS - 1
    written = [words[1] for kernel, words in fake.launches if kernel == "second"]
    assert written == [result.device_address for result in kept]


class LibraryCall:
    """A step that is not a kernel of our own."""

    slots = frozenset((0, 1))
    waits = False

    def __init__(self) -> None:
        self.calls = 0

    def enqueue(self, stream: object) -> None:
        self.calls += 1


def test_a_library_call_is_captured_when_its_addresses_come_again(fake: FakeDriver) -> None:
    call = LibraryCall()
    slots = Slots(inputs=1, made=(64,), arena=(), arena_bytes=0, workspace_bytes=0)
    plan = DevicePlan(device.device(0), slots, lambda words: [call])
    given = DeviceSpace(0).take_in(np.ones(4, np.float32))
    for _ in range(20):
        plan.run([given])
    assert call.calls <= 5 and fake.calls["cuGraphLaunch"] >= 15
    held = [plan.run([DeviceSpace(0).take_in(np.ones(4, np.float32))]) for _ in range(10)]
    (graphs,) = plan.graphs.values()
    assert graphs.captured <= 2 and len(held) == 10  # other addresses every time: just called


def test_numbers_from_the_host_travel_together(fake: FakeDriver) -> None:
    plan = plan_of(fake)
    there = DeviceSpace(0).take_in(np.ones(4, np.float32))
    for value in (0.5, 0.25):
        copies = fake.calls.get("cuMemcpyHtoDAsync", 0)
        plan.run([HostBuffer.borrow(np.array(value, np.float32)), there])
        assert fake.calls["cuMemcpyHtoDAsync"] == copies + 1
        address = fake.shown(fake.launches[-2][1][0])
        seen = np.frombuffer((np.ctypeslib.ctypes.c_char * 4).from_address(address), np.float32)
        assert seen[0] == value


def test_memory_of_another_space_is_refused(fake: FakeDriver) -> None:
    plan = plan_of(fake)
    array = np.arange(100, dtype=np.float32)
    here, there = (DeviceSpace(number).take_in(array) for number in range(2))
    for memory, place in ((HostBuffer.borrow(array), "cpu"), (there, "cuda:1")):
        with pytest.raises(DeviceError, match=f"program of cuda:0 was given memory of {place}"):
            plan.run([memory, here])
    assert not fake.launches and not hasattr(here, "address")


def test_a_host_step_runs_between_launches_and_is_not_captured(fake: FakeDriver) -> None:
    order: list[str] = []

    def steps(words: ArgumentWords) -> list[KernelStep | HostStep]:
        return [
            KernelStep(fake.function("before", 1), 1, 32, 0, 1, (0,), words),
            HostStep(lambda held: order.append([k for k, _ in fake.launches][-1])),
            KernelStep(fake.function("after", 1), 1, 32, 0, 1, (0,), words),
        ]

    plan = DevicePlan(device.device(0), Slots(1, (), (), 0, 0), steps)
    there = DeviceSpace(0).take_in(np.ones(4, np.float32))
    for _ in range(3):
        plan.run([there])
    assert order == ["before"] * 3 and "cuGraphLaunch" not in fake.calls


def _wrong() -> None:
    raise IndexRangeError("index 7 is outside")


def _set(watch: flags.ErrorFlag) -> None:
    """What a kernel does."""
    ctypes.c_bool.from_address(watch.device_address).value = True


def test_a_wrong_index_is_raised_on_the_next_read(fake: FakeDriver) -> None:
    watch = flags.watch(device.device(0).stream)
    value = DeviceSpace(0).take_in(np.array(True))
    watch.add(lambda: pytest.fail("nothing is wrong"))
    assert value.array(dtypes.bool_, ())
    for report in (lambda: None, _wrong, lambda: pytest.fail("one error is told")):
        watch.add(report)
    _set(watch)
    with pytest.raises(IndexRangeError, match="index 7"):
        value.array(dtypes.bool_, ())
    assert value.array(dtypes.bool_, ())  # told once
    _set(watch)
    with pytest.raises(IndexRangeError, match="an index is out of range"):  # nobody owns up to it
        rl.cuda.synchronize()


def test_runs_that_may_be_wrong_are_forgotten_once_done(
    fake: FakeDriver, monkeypatch: pytest.MonkeyPatch
) -> None:
    watch = flags.watch(device.device(0).stream)
    kept: list[weakref.ref[Any]] = []

    def note() -> None:
        held = np.zeros(1)
        kept.append(weakref.ref(held))
        watch.make_room()
        watch.add(lambda: held.fill(0))

    for _ in range(1000):
        note()
    assert sum(one() is not None for one in kept) < 64
    assert fake.calls["cuEventRecord"] == 1000 // 64
    waited: list[bool] = []
    monkeypatch.setattr(Event, "query", lambda event: False)
    monkeypatch.setattr(Event, "synchronize", lambda event: waited.append(True))
    for _ in range(1000):
        note()
    assert sum(one() is not None for one in kept) <= 5 * 64 and waited
    watch.add(_wrong)
    _set(watch)
    with pytest.raises(IndexRangeError, match="index 7"):
        for _ in range(1000):  # without any read
            watch.make_room()
            watch.add(lambda: None)


def test_profiles_time_every_step(fake: FakeDriver) -> None:
    plan = plan_of(fake)
    inputs = [DeviceSpace(0).take_in(np.ones(4, np.float32)) for _ in range(2)]
    assert plan.profile(inputs) == [1e-4, 1e-4]  # ten times in a millisecond each


def test_pinned_memory_is_taken_back_after_its_copy(fake: FakeDriver) -> None:
    space = DeviceSpace(0)
    for _ in range(20):
        space.take_in(np.ones(1000, np.float32))
    assert fake.calls["cuMemHostAlloc"] == 1


def test_events_are_destroyed(fake: FakeDriver) -> None:
    event = Event()
    event.record(device.device(0).stream)
    del event
    gc.collect()
    assert "cuEventDestroy" not in fake.calls, "no finalizer calls the driver"
    device.device(0).stream.record_event()
    assert fake.calls["cuEventDestroy"] == 1


@pytest.mark.parametrize("dtype", [rl.float64, rl.complex128])
def test_gradients_are_checked_where_the_arguments_are(fake: FakeDriver, dtype: rl.DType) -> None:
    with rl.config.override(tier="interpreter"):
        x = rl.tensor([0.5, -1.25, 2.0], dtype=dtype, device="cuda:0", requires_grad=True)
        still = rl.tensor([1.0, 2.0, 4.0], dtype=dtype, device="cuda:0")

        def function(x: Tensor, factor: Tensor) -> tuple[Tensor, Tensor]:
            assert x.is_cuda and factor.is_cuda
            return x * x * factor, (x * 3).sum()

        for fast in (False, True):
            assert rl.autograd.gradcheck(function, (x, still), fast_mode=fast)
            assert rl.autograd.gradgradcheck(function, (x, still), fast_mode=fast)
        assert rl.autograd.gradcheck(function, (x, still), check_batched_grad=True)
        with pytest.raises(rl.RidgelineError, match="output 0 by input 0"):
            rl.autograd.gradcheck(lambda x: x.detach() * 2 + x, x)
