"""Whole programs over a driver that only pretends: what graphs read anew, faults, and shortages."""

from __future__ import annotations

import gc
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import ridgeline as rl
from ridgeline import Tensor
from ridgeline.errors import IndexRangeError, OutOfMemoryError
from ridgeline.runtime.cuda import device as devices
from ridgeline.runtime.cuda.driver import DeviceFailure
from ridgeline.runtime.cuda.memory import allocate
from ridgeline.runtime.cuda.stream import Stream

from .fake_code import FakeCode
from .fake_driver import ILLEGAL_ADDRESS, OUT_OF_MEMORY, FakeDriver


def captures(code: FakeCode) -> int:
    return code.driver.calls.get("cuStreamBeginCapture", 0)


def test_a_replayed_graph_reads_numbers_counters_and_positions_anew(fake_code: FakeCode) -> None:
    """A lifted float, a random stream's place, and a position are memory of the device."""
    found: dict[str, list[Any]] = {}
    for place in ("cpu", "cuda:0"):
        rl.manual_seed(3)
        cache = rl.zeros(8, 4, device=place)

        @rl.jit
        def step(x: rl.Tensor, at: rl.Tensor, rate: float, cache: Any = cache) -> rl.Tensor:
            noisy = x * rate + rl.rand(4, device=x.device)
            cache.index_copy_(0, at.reshape(1), noisy.softmax(0).unsqueeze(0))
            return cache.sum(0)

        results, graphs = [], []
        for n in range(16):
            x = rl.tensor([1.0, 2.0, 3.0, 4.0], device=place)
            results.append(step(x, rl.tensor(n % 8), 0.5 + n / 8).tolist())
            graphs.append(captures(fake_code))
        found[place] = [results, cache.tolist()]
        if place != "cpu":
            # the cache is overwritten, so each of two traces is a graph from its first call on;
            # the pool hands out a few sets of addresses in turn, and then no new graph is made
            assert fake_code.driver.calls["cuGraphLaunch"] == 16 and graphs[7] == graphs[-1] < 6
            assert step.traces == 2  # the float is lifted when it is seen to change
    for wanted, got in zip(found["cpu"], found["cuda:0"]):
        np.testing.assert_allclose(got, wanted, rtol=1e-5)


def test_sizes_that_come_again_find_their_graph(fake_code: FakeCode) -> None:
    """`dynamic=True`: traced once, and every tuple of sizes has a plan with graphs of its own."""
    function = rl.jit(lambda x: (x.exp().sum(1, keepdim=True) + x).cumsum(0), dynamic=True)
    counts = []
    for _ in range(6):
        for rows in (2, 3, 5):
            x = np.random.default_rng(rows).normal(size=(rows, 4)).astype(np.float32)
            got = function(rl.tensor(x, device="cuda:0")).cpu().numpy()
            wanted = np.cumsum(np.exp(x).sum(1, keepdims=True) + x, 0)
            np.testing.assert_allclose(got, wanted, rtol=1e-5)
        counts.append(captures(fake_code))
    # the pool hands out a few sets of addresses in turn, and then no new graph is made
    assert 0 < counts[2] == counts[-1] <= 6
    assert function.traces <= 2  # the first size, then all


@pytest.mark.parametrize("call", ["cuStreamSynchronize", "cuLaunchKernel", "cuMemcpyDtoHAsync"])
def test_a_failure_names_the_lines_that_were_enqueued_last(fake_code: FakeCode, call: str) -> None:
    x = rl.tensor([1.0, 2.0], device="cuda:0")
    y = x.exp() * 2  # the line
    fake_code.driver.failing[call] = [ILLEGAL_ADDRESS]
    with pytest.raises(DeviceFailure, match="CUDA_ERROR_ILLEGAL_ADDRESS") as caught:
        y.tolist()
    texts = Path(__file__).read_text().splitlines()
    line = 1 + next(n for n, text in enumerate(texts) if text.endswith("# the line"))
    assert f"test_programs_run.py:{line}" in str(caught.value)
    assert str(caught.value).count("enqueued last") == 1


@pytest.mark.parametrize("call", ["cuMemcpyHtoDAsync", "cuMemAllocAsync", "cuEventRecord"])
def test_a_failure_that_the_next_copy_meets_names_them_too(fake_code: FakeCode, call: str) -> None:
    rl.tensor([1.0, 2.0], device="cuda:0").exp().tolist()
    fake_code.driver.failing[call] = [ILLEGAL_ADDRESS]
    with pytest.raises(DeviceFailure, match="enqueued last") as caught:
        rl.tensor(np.ones(1000, np.float32), device="cuda:0").tolist()
    assert "test_programs_run.py" in str(caught.value)


def test_a_graph_without_room_is_destroyed(fake_code: FakeCode) -> None:
    driver, x = fake_code.driver, rl.ones(40, 40, device="cuda:0")
    function = rl.jit(lambda x: (x.sum(0) @ x).exp().sum())
    function(x)
    driver.failing["cuGraphInstantiate"] = [OUT_OF_MEMORY] * 2
    with pytest.raises(OutOfMemoryError, match="cuGraphInstantiate"):
        function(x)
    gc.collect()
    rl.ones(4, device="cuda:0").tolist()  # what was let go is destroyed when memory is taken
    assert driver.calls["cuGraphDestroy"] == driver.calls["cuStreamEndCapture"] == 1


def test_a_program_without_room_names_its_line_and_who_holds_what(fake_code: FakeCode) -> None:
    kept = rl.tensor(np.zeros(1 << 18, np.float32), device="cuda:0")
    small = rl.tensor([1.0, 2.0], device="cuda:0")
    large = small.reshape(2, 1).expand(2, 1 << 22).exp()  # asked for
    fake_code.driver.gpus[0].memory = fake_code.driver.used + (1 << 20)
    with pytest.raises(OutOfMemoryError, match="cuda:0 has no room for 16 MiB") as caught:
        large.sum(0).tolist()  # all that was recorded has no room, nor has this alone
    text = str(caught.value)
    assert "1 MiB in 1 values made at" in text and "needed for what was recorded at" in text
    assert kept.device == "cuda:0"


def test_memory_that_other_streams_keep_is_used_before_giving_up(fake: FakeDriver) -> None:
    first = devices.device(0)
    side = Stream(first)
    fake.gpus[0].memory = 40 << 20
    allocate(first.stream, 30 << 20)  # let go at once, and kept for reuse
    assert allocate(side, 30 << 20).nbytes == 30 << 20
    with pytest.raises(OutOfMemoryError, match="no room for 50 MiB"):
        allocate(side, 50 << 20)


def test_code_finds_room_when_pools_keep_all_of_it(fake_code: FakeCode) -> None:
    allocate(devices.device(0).stream, 1 << 20)
    fake_code.driver.failing["cuModuleLoadData"] = [OUT_OF_MEMORY]
    assert (rl.tensor([3.0], device="cuda:0") * 2).tolist() == [6.0]
    fake_code.driver.failing["cuModuleLoadData"] = [OUT_OF_MEMORY] * 2
    with pytest.raises(OutOfMemoryError, match="cuModuleLoadData found no memory left"):
        (rl.tensor([3.0], device="cuda:0") - 2).tolist()


def test_copies_on_another_stream_wait_for_nothing(fake_code: FakeCode) -> None:
    """Work and a copy on two streams meet only where the program says so."""
    driver = fake_code.driver
    x = rl.tensor(np.ones(100, np.float32), device="cuda:0")
    y = x * 2
    rl.cuda.synchronize()
    side = rl.cuda.Stream()
    with rl.cuda.stream(side):
        batch = rl.tensor(np.full(100, 3.0, np.float32)).to("cuda:0")
        batch.exp().cpu()
    assert not driver.waits
    rl.cuda.current_stream().wait_stream(side)
    assert [stream for stream, _ in driver.waits] == [rl.cuda.current_stream().handle]
    assert (batch + y).tolist() == [5.0] * 100


@pytest.mark.parametrize("wrong", [7, -8, 1 << 40])
@pytest.mark.parametrize("replayed", [False, True])
def test_a_wrong_index_names_its_line_on_the_next_read(
    fake_code: FakeCode, wrong: int, replayed: bool
) -> None:
    """Later runs that are right do not hide it, and nothing is copied or recorded for a run."""
    table = rl.tensor(np.arange(21, dtype=np.float32).reshape(7, 3), device="cuda:0")
    right, bad = (rl.tensor([0, 3, n, 1], device="cuda:0") for n in (6, wrong))
    function = rl.jit(lambda table, index: table.index_select(0, index))
    for _ in range(4 * replayed):
        function(table, right)
    rl.cuda.synchronize()
    before = dict(fake_code.driver.calls)
    calls = [function(table, index) for index in (right, bad, right, bad, right)]
    for name in ("cuMemcpyDtoHAsync", "cuEventRecord"):
        assert fake_code.driver.calls.get(name, 0) == before.get(name, 0)
    with pytest.raises(IndexRangeError, match=f"{wrong}.*7") as caught:
        calls[-1].tolist()
    assert Path(__file__).name in str(caught.value)
    assert calls[-1].tolist() == table.cpu().numpy()[[0, 3, 6, 1]].tolist()  # told once


def test_wrong_indices_of_one_stream_are_not_told_to_another(fake_code: FakeCode) -> None:
    table, bad = rl.ones(3, 2, device="cuda:0"), rl.tensor([3], device="cuda:0")
    function = rl.jit(lambda table, index: table.index_select(0, index))
    side = rl.cuda.Stream()
    with rl.cuda.stream(side):
        function(table, bad)
    assert table.sum().item() == 6
    with pytest.raises(IndexRangeError):
        rl.cuda.synchronize()
    rl.cuda.synchronize()


def test_streams_made_in_every_step_are_a_few(fake_code: FakeCode) -> None:
    """Memory belongs to a stream for as long as it is kept for reuse, and so do graphs."""
    driver, total = fake_code.driver, rl.zeros(100, device="cuda:0")
    for number in range(200):
        side = rl.cuda.Stream()
        side.wait_stream(rl.cuda.current_stream())
        with rl.cuda.stream(side):
            total = total + 1
            assert rl.cuda.current_stream() is side
        rl.cuda.current_stream().wait_stream(side)
        if number == 100:
            used = driver.used
    assert total.tolist() == [200.0] * 100
    assert driver.calls["cuStreamCreateWithPriority"] < 50 and driver.used == used
    assert len({id(rl.cuda.Stream()) for _ in range(200)}) == 32
    assert rl.cuda.Stream(priority=-1) is not rl.cuda.Stream() is not rl.cuda.Stream("cuda:1")
    assert rl.cuda.Stream("cuda:1").device.number == 1


def test_a_step_without_room_ends_and_leaves_its_state(fake_code: FakeCode) -> None:
    """The memory that it would have overwritten is named too, and nobody waits for it."""
    driver, state = fake_code.driver, rl.zeros(1 << 10, device="cuda:0")
    messages: list[str] = []

    @rl.jit
    def step() -> Tensor:
        state.add_(1.0)
        return state * 2

    def short() -> None:
        with pytest.raises(OutOfMemoryError, match="cuda:0 has no room") as caught:
            step()
        messages.append(str(caught.value))

    kept = [step() for _ in range(3)]
    rl.cuda.empty_cache()
    driver.gpus[0].memory = driver.used
    thread = threading.Thread(target=short, daemon=True)
    thread.start()
    thread.join(timeout=20)
    assert messages and "4 KiB in 1 values made at" in messages[0]
    driver.gpus[0].memory = 1 << 30
    assert state.tolist() == [3.0] * (1 << 10) and kept[-1].tolist() == [6.0] * (1 << 10)


def two_states_of_one_value(size: int) -> tuple[Tensor, Tensor, Callable[[], None]]:
    """Two tensors, and a step that gives both the first one's value plus one."""
    first, second = (rl.zeros(size, device="cuda:0") for _ in range(2))

    @rl.jit
    def step() -> None:
        value = first + 1
        first.copy_(value)
        second.copy_(value)

    return first, second, step


def test_no_room_for_a_second_copy_of_a_value(fake_code: FakeCode) -> None:
    """It is found before the run: both states keep their values."""
    first, second, step = two_states_of_one_value(1 << 10)
    for _ in range(4):
        step()
    rl.cuda.empty_cache()
    fake_code.driver.gpus[0].memory = fake_code.driver.used + (1 << 11)
    with pytest.raises(OutOfMemoryError, match="cuda:0 has no room"):
        step()
    fake_code.driver.gpus[0].memory = 1 << 30
    assert first.tolist() == second.tolist() == [4.0] * (1 << 10)


def test_two_states_that_were_one_value(fake_code: FakeCode) -> None:
    """What could be overwritten is shared in the first step, and in later ones is not."""
    first, second, step = two_states_of_one_value(8)
    for _ in range(3):
        step()
    assert first.tolist() == second.tolist() == [3.0] * 8
