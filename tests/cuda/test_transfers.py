"""Copies between the host and a GPU that is not there: in pieces, by several threads, pinned."""

from __future__ import annotations

import ctypes
from collections.abc import Iterator

import numpy as np
import pytest

import ridgeline as rl
from ridgeline import dtypes
from ridgeline.record.cells import resident_block
from ridgeline.runtime.cuda import transfer
from ridgeline.runtime.cuda.driver import DeviceFailure
from ridgeline.runtime.cuda.space import DeviceSpace
from ridgeline.runtime.cuda.stream import Event

from .fake_driver import ILLEGAL_ADDRESS, FakeDriver


@pytest.fixture
def in_pieces(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Small pieces, which several threads copy."""
    monkeypatch.setattr(transfer, "CHUNK", 5000)
    monkeypatch.setattr(transfer, "_SHARE", 700)
    monkeypatch.setattr(transfer, "_threads_for_copies", lambda: 3)
    transfer._copiers.cache_clear()
    yield
    transfer._copiers().shutdown()
    transfer._copiers.cache_clear()


@pytest.mark.usefixtures("in_pieces")
@pytest.mark.parametrize("count", [1, 4999, 5000, 5001, 52_345])
def test_large_arrays_go_in_pieces(fake: FakeDriver, count: int) -> None:
    values = np.random.default_rng(count).integers(0, 255, count).astype(np.uint8)
    there = DeviceSpace(0).take_in(values)
    pieces = -(-count // 5000)
    assert fake.calls["cuMemcpyHtoDAsync"] == pieces
    np.testing.assert_array_equal(there.array(dtypes.uint8, (count,)), values)
    assert fake.calls["cuMemcpyDtoHAsync"] == pieces
    assert fake.calls["cuMemHostAlloc"] <= 6, "blocks are used again"


@pytest.mark.usefixtures("in_pieces")
def test_a_copy_that_fails_leaves_its_blocks_until_the_device_is_done(
    fake: FakeDriver, monkeypatch: pytest.MonkeyPatch
) -> None:
    values = np.arange(40_000, dtype=np.uint8)
    there = DeviceSpace(0).take_in(values)
    with monkeypatch.context() as patch:
        patch.setattr(Event, "query", lambda event: False)
        fake.failing["cuEventSynchronize"] = [ILLEGAL_ADDRESS]
        with pytest.raises(DeviceFailure):
            there.array(dtypes.uint8, (40_000,))
    before = fake.calls["cuMemHostAlloc"]
    np.testing.assert_array_equal(there.array(dtypes.uint8, (40_000,)), values)
    assert fake.calls["cuMemHostAlloc"] == before


def test_pinned_memory_is_read_where_it_lies(fake: FakeDriver) -> None:
    values = np.random.default_rng(0).standard_normal((64, 8)).astype(np.float32)
    plain = rl.tensor(values)
    pinned = plain.pin_memory()
    assert pinned.is_pinned() and not plain.is_pinned()
    blocks = fake.calls["cuMemHostAlloc"]
    for shown, wanted in ((pinned, values), (pinned[3:40], values[3:40])):
        memory = resident_block(shown._cell.node, shown._steps)[0].buffer
        there = DeviceSpace(0).copy(memory)
        assert fake.calls["cuMemHostAlloc"] == blocks, "there is no memory between the two"
        np.testing.assert_array_equal(there.array(dtypes.float32, wanted.shape), wanted)
        blocks = fake.calls["cuMemHostAlloc"]
    np.testing.assert_array_equal(pinned.to("cuda", non_blocking=True).cpu().numpy(), values)


def test_what_is_written_after_a_copy_began_is_not_copied(
    fake: FakeDriver, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The device may read pinned memory long after the call: nobody overwrites it until then."""
    monkeypatch.setattr(Event, "query", lambda event: False)
    pinned = rl.arange(100.0).pin_memory()
    address = pinned.data_ptr()
    there = DeviceSpace(0).copy(pinned._cell.node.buffer)

    @rl.jit
    def step() -> None:
        pinned.mul_(2)

    step()
    assert pinned.data_ptr() != address
    pinned.numpy()[:] = 7
    held = np.frombuffer((ctypes.c_float * 100).from_address(address), np.float32)
    np.testing.assert_array_equal(held, np.arange(100.0))
    assert pinned.tolist() == [7.0] * 100
    assert there.nbytes == 400


def test_pinning_changes_nothing_where_it_has_no_meaning(fake: FakeDriver) -> None:
    leaf = rl.ones(3, requires_grad=True)
    assert leaf.pin_memory() is leaf
    there = rl.ones(3).to("cuda")
    assert there.pin_memory() is there and not there.is_pinned()
    assert rl.jit(lambda x: x.pin_memory() * 2)(rl.ones(3)).tolist() == [2.0] * 3


def test_without_a_gpu_a_tensor_is_pinned_already() -> None:
    x = rl.ones(3)
    if not rl.cuda.is_available():
        assert x.pin_memory() is x and not x.is_pinned()
