"""Errors that kernels find: when they are raised, what they name, what waits for whom."""

from __future__ import annotations

import ctypes
import threading
from functools import partial
from typing import Any

import numpy as np
import pytest

import ridgeline as rl
from ridgeline import dtypes
from ridgeline.errors import IndexRangeError
from ridgeline.runtime.cuda import device, flags
from ridgeline.runtime.cuda.memory import DeviceBuffer, allocate
from ridgeline.runtime.cuda.space import DeviceSpace

from .fake_code import FakeCode
from .fake_driver import FakeDriver


def test_an_error_comes_before_a_run_overwrites_its_state(fake_code: FakeCode) -> None:
    """A call that raises changes nothing: neither what it writes to nor what it counts."""
    table, state = rl.ones(3, 2, device="cuda:0"), rl.zeros(2, device="cuda:0")

    @rl.jit
    def step(index: Any) -> None:
        state.add_(table.index_select(0, index).sum(0))

    right, bad = (rl.tensor([n], device="cuda:0") for n in (1, 3))
    step(bad)
    done = 1
    with pytest.raises(IndexRangeError, match="3"):
        for _ in range(1000):  # without any read
            step(right)
            done += 1
    assert done < 1000 and state.tolist() == [done] * 2


def test_large_inputs_of_runs_that_are_done_are_let_go(fake: FakeDriver) -> None:
    chosen = device.device(0)
    watch = flags.watch(chosen.stream)
    for _ in range(40):
        watch.make_room()
        held = allocate(chosen.stream, 100 << 20)  # of a device of 1 GiB
        watch.add(partial(_look_at, held), held.nbytes)


def _look_at(held: DeviceBuffer) -> None:
    held.array(dtypes.uint8, (1,))


def test_reports_wait_for_streams_without_holding_others_up(fake: FakeDriver) -> None:
    """Two threads, each on a stream of its own, meet the other's error."""
    main, side = rl.cuda.default_stream("cuda:0"), rl.cuda.Stream("cuda:0")
    value = DeviceSpace(0).take_in(np.array(True))
    both = threading.Barrier(2, timeout=10)
    raised: list[Exception] = []

    def report() -> None:
        both.wait()
        value.array(dtypes.bool_, ())
        raise IndexRangeError("index 7 is out of range")

    def meet(own: Any, other: Any) -> None:
        with rl.cuda.stream(own):
            try:
                flags.wait(other)
            except IndexRangeError as error:
                raised.append(error)

    for stream in (main, side):
        watch = flags.watch(stream)
        watch.add(report)
        ctypes.c_bool.from_address(watch.device_address).value = True
    threads = [
        threading.Thread(target=meet, args=pair, daemon=True)
        for pair in ((main, side), (side, main))
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(timeout=10)
    assert len(raised) == 2


def test_checked_values_are_checked_on_a_gpu_too(fake_code: FakeCode) -> None:
    def there(*values: Any) -> Any:
        return rl.tensor(values, device="cuda:0")

    divide, hot = rl.jit(lambda a, b: a // b), rl.jit(lambda y: rl.nn.functional.one_hot(y, 3))
    assert divide(there(7, 8), there(2, 3)).tolist() == [3, 2]
    for wrong in (
        lambda: divide(there(7, 8), there(2, 0)).tolist(),
        lambda: (there(7, 8) // there(2, 0)).tolist(),
    ):
        with pytest.raises(ZeroDivisionError):
            wrong()
    assert hot(there(0, 2)).tolist() == [[1, 0, 0], [0, 0, 1]]
    with pytest.raises(IndexRangeError, match="label 3"):
        hot(there(0, 3)).tolist()


def test_loops_and_branches_carry_flags_of_their_device(fake_code: FakeCode) -> None:
    values = np.arange(12.0, dtype=np.float32).reshape(3, 4)

    def gradient(place: str) -> np.ndarray:
        x = rl.tensor(values, device=place).requires_grad_()
        rows = rl.scan(lambda c, r: (rl.sort((c + r) % 5, dim=0)[0], c - r), x[0] * 0, x)[1]
        index = rl.tensor([2, 0], device=place)
        picked = rl.cond(x.sum() > 0, lambda r: r.index_select(0, index), lambda r: r[:2], rows)
        (picked * picked).sum().backward()
        assert x.grad is not None
        return x.grad.cpu().numpy()

    np.testing.assert_allclose(gradient("cuda:0"), gradient("cpu"), rtol=1e-6)


def test_a_number_is_the_result_of_a_step_that_overwrites(fake_code: FakeCode) -> None:
    state = rl.ones(3, device="cuda:0")

    @rl.jit
    def step(x: Any) -> Any:
        state.add_(x)
        y = x[:1].softmax(0)
        y[0] = 0.5
        return y

    for n in range(1, 4):
        assert step(rl.ones(3, device="cuda:0")).tolist() == [0.5]
        assert state.tolist() == [1.0 + n] * 3
