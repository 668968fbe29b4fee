"""On a GPU: what a call that fails leaves behind, and what its error says."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest

import ridgeline as rl
from ridgeline import nn
from ridgeline.errors import DeviceError, IndexRangeError, OutOfMemoryError
from ridgeline.runtime.buffer import space

pytestmark = pytest.mark.gpu
_TOO_MANY = 60 << 30  # float32 elements, 240 GiB


@pytest.fixture(autouse=True)
def compiled() -> Iterator[None]:
    with rl.config.override(tier="compiled"):
        yield


def test_a_step_without_memory_names_who_holds_it_and_changes_nothing() -> None:
    kept = rl.ones(64 << 20, device="cuda") * 2
    state, one = rl.zeros(4, device="cuda") + 1, rl.ones(1, device="cuda") * 1
    assert kept.sum().item() == 128 << 20 and state.sum().item() == 4

    @rl.jit
    def step() -> rl.Tensor:
        state.add_(1)
        return one.expand(_TOO_MANY) * state.sum()

    for _ in range(2):
        with pytest.raises(OutOfMemoryError, match="has no room for 240 GiB") as caught:
            step()
        said = str(caught.value)
        assert "256 MiB in 1 values made at" in said and "test_faults_gpu.py" in said
        assert "needed for what was recorded at" in said
        assert state.tolist() == [1.0] * 4
    rl.cuda.empty_cache()
    assert (kept[:4] + state).tolist() == [3.0] * 4  # the process goes on


def test_a_wrong_index_is_raised_before_a_later_step_overwrites_state() -> None:
    table, state = rl.ones(3, 2, device="cuda"), rl.zeros(2, device="cuda")

    @rl.jit
    def step(index: Any) -> None:
        state.add_(table.index_select(0, index).sum(0))

    right, bad = (rl.tensor([n], device="cuda") for n in (1, 3))
    step(right)
    assert state.tolist() == [1.0, 1.0]
    step(bad)
    done = 2
    with pytest.raises(IndexRangeError, match="3"):
        for _ in range(100_000):  # without any read
            step(right)
            done += 1
    assert state.tolist() == [float(done)] * 2
    step(right)
    assert state.tolist() == [done + 1.0] * 2


def test_two_threads_that_wait_for_each_others_streams() -> None:
    """Each works on a stream of its own over what the other computed, and meets its errors."""
    streams = [rl.cuda.default_stream("cuda:0"), rl.cuda.Stream("cuda:0")]
    table = rl.tensor(np.arange(20, dtype=np.float32).reshape(10, 2), device="cuda")
    both = threading.Barrier(2, timeout=60)
    made: list[Any] = [None, None]
    raised: list[str] = []

    def work(own: int) -> None:
        with rl.cuda.stream(streams[own]):
            for turn in range(50):
                number = 99 if turn % 10 == 9 else turn % 10
                made[own] = nn.functional.embedding(rl.tensor([number], device="cuda"), table)
                rl.cuda.current_stream()
                both.wait()
                streams[own].wait_stream(streams[1 - own])
                try:
                    made[1 - own].cpu().numpy()
                except IndexRangeError as error:
                    raised.append(str(error))
                both.wait()

    threads = [threading.Thread(target=work, args=(own,), daemon=True) for own in range(2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(timeout=120)
    assert not any(thread.is_alive() for thread in threads)
    assert raised and all("index 99" in said for said in raised)


def test_programs_refuse_memory_of_another_space() -> None:
    add = rl.jit(lambda a, b: a + b)
    here, there = rl.ones(1000) * 2, rl.ones(1000, device="cuda") * 2
    add(here, here), add(there, there)
    memory = {place: space(place).take_in(np.ones(1000, np.float32)) for place in ("cpu", "cuda:0")}
    programs = {
        trace.executable.output_types[0].device: trace.executable.program for trace in add._traces
    }
    for place, other in (("cpu", "cuda:0"), ("cuda:0", "cpu")):
        with pytest.raises(DeviceError, match=f"program of {place} was given memory of {other}"):
            programs[place].run([memory[place], memory[other]])
    assert add(there, there).tolist() == [4.0] * 1000
