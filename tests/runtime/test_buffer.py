"""Buffers: reuse, alignment, slack, lifetime, threads and exit."""

from __future__ import annotations

import gc
import subprocess
import sys
import threading

import numpy as np
import pytest
from hypothesis import settings, strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule

from ridgeline import dtypes
from ridgeline.config import config
from ridgeline.runtime.buffer import HostBuffer, pool
from ridgeline.runtime.memory import LARGE, Pool, block_bytes

SIZES = (0, 1, 63, 64, 65, 4096, 100_000, LARGE - 65, LARGE - 1, LARGE, LARGE + 1, 5 << 20)


@pytest.mark.parametrize("nbytes", SIZES)
def test_blocks_are_aligned_with_readable_slack(nbytes: int) -> None:
    buffer = HostBuffer.allocate(nbytes)
    assert buffer.address % (2 << 20 if nbytes >= LARGE else 64) == 0
    view = buffer.array(dtypes.uint8, (nbytes,))
    view[...] = 7
    past = np.frombuffer((np.ctypeslib.ctypes.c_char * 64).from_address(buffer.address + nbytes))
    assert past.nbytes == 64
    past.sum()


@pytest.mark.parametrize("nbytes", SIZES)
def test_a_dropped_block_is_used_again(nbytes: int) -> None:
    first = HostBuffer.allocate(nbytes)
    address = first.address
    del first
    assert HostBuffer.allocate(nbytes).address == address


def test_statistics_follow_allocation_and_trim() -> None:
    pool.trim()  # or a slightly larger cached block might be taken
    before = pool.in_use
    buffer = HostBuffer.allocate(3 << 20)
    assert pool.in_use == before + block_bytes(3 << 20)
    assert pool.peak >= pool.in_use
    del buffer
    assert pool.in_use == before
    assert pool.cached >= block_bytes(3 << 20)
    assert pool.trim() > 0
    assert pool.cached == 0


def test_the_cap_on_cached_bytes_holds() -> None:
    pool.trim()
    with config.override(buffer_cache_bytes=8 << 20):
        held = [HostBuffer.allocate(4 << 20) for _ in range(5)]
        del held
        assert pool.cached <= 8 << 20


def test_views_keep_the_memory() -> None:
    before = pool.in_use
    buffer = HostBuffer.allocate(4096)
    view = buffer.array(dtypes.float32, (32, 32))[1:, ::2]
    view[...] = 3.0
    address = buffer.address
    del buffer
    others = [HostBuffer.allocate(4096) for _ in range(8)]
    assert all(other.address != address for other in others)
    assert (view == 3.0).all()
    del view, others
    assert pool.in_use == before


def test_views_have_the_type_and_fit() -> None:
    buffer = HostBuffer.allocate(64)
    assert buffer.array(dtypes.bfloat16, (4, 8)).dtype == dtypes.bfloat16.numpy
    assert buffer.array(dtypes.float64, ()).shape == ()
    assert buffer.array(dtypes.float64, (0, 5)).shape == (0, 5)
    with pytest.raises(ValueError, match="72 bytes"):
        buffer.array(dtypes.float64, (9,))


def test_borrowing_shares_memory_and_is_never_pooled() -> None:
    array = np.arange(12, dtype=np.float32).reshape(3, 4)
    gc.collect()  # what other tests left in cycles goes now, not between the two readings
    before = (pool.in_use, pool.cached)
    buffer = HostBuffer.borrow(array)
    assert buffer.borrowed
    assert not HostBuffer.allocate(1).borrowed
    buffer.array(dtypes.float32, (12,))[3] = 99
    assert array[0, 3] == 99
    kept = buffer.array(dtypes.float32, (3, 4))
    del array, buffer
    gc.collect()
    assert kept[0, 3] == 99
    assert pool.in_use == before[0]


def test_borrowing_respects_layout_and_read_only() -> None:
    array = np.zeros((4, 4))
    with pytest.raises(ValueError, match="contiguous"):
        HostBuffer.borrow(array.T[1:])
    array.flags.writeable = False
    buffer = HostBuffer.borrow(array)
    assert not buffer.writeable
    assert not buffer.array(dtypes.float64, (4, 4)).flags.writeable


def test_impossible_sizes_are_refused() -> None:
    with pytest.raises(ValueError, match="-1"):
        HostBuffer.allocate(-1)
    before = pool.in_use
    with pytest.raises(MemoryError):
        HostBuffer.allocate(1 << 55)
    assert pool.in_use == before


class Aliasing(RuleBasedStateMachine):
    """Whatever the order of taking and dropping, no two live blocks share a byte."""

    def __init__(self) -> None:
        super().__init__()
        self.pool = Pool()
        self.live: dict[int, tuple[int, int]] = {}

    @rule(nbytes=st.sampled_from(SIZES))
    def take(self, nbytes: int) -> None:
        address, size = self.pool.take(nbytes)
        assert size >= nbytes
        self.live[address] = (size, nbytes)

    @rule(choice=st.integers(0, 100))
    def drop(self, choice: int) -> None:
        if self.live:
            address = sorted(self.live)[choice % len(self.live)]
            self.pool.give_back(address, self.live.pop(address)[0])

    @rule(keep=st.sampled_from([0, 1 << 20, 16 << 20]))
    def trim(self, keep: int) -> None:
        self.pool.trim(keep)
        assert self.pool.cached <= keep

    @invariant()
    def disjoint(self) -> None:
        ends = 0
        for address, (size, _) in sorted(self.live.items()):
            assert address >= ends
            ends = address + size
        assert self.pool.in_use == sum(size for size, _ in self.live.values())

    def teardown(self) -> None:
        for address, (size, _) in self.live.items():
            self.pool.give_back(address, size)
        self.pool.trim()


TestAliasing = Aliasing.TestCase
TestAliasing.settings = settings(max_examples=40, stateful_step_count=30, deadline=None)


def test_threads_never_share_a_block() -> None:
    wrong: list[int] = []

    def work(mark: int) -> None:
        random = np.random.default_rng(mark)
        held: list[np.ndarray[tuple[int], np.dtype[np.int64]]] = []
        for _ in range(1500):
            count = int(random.integers(1, 600))
            view = HostBuffer.allocate(count * 8).array(dtypes.int64, (count,))
            view[...] = mark
            held.append(view)
            if len(held) > 12:
                checked = held.pop(int(random.integers(len(held))))
                wrong.extend([mark] if (checked != mark).any() else [])

    threads = [threading.Thread(target=work, args=(mark,)) for mark in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not wrong


def test_buffers_in_cycles_and_at_exit_are_quiet() -> None:
    script = """
import sys
from ridgeline import dtypes
from ridgeline.runtime.buffer import HostBuffer
class Node: pass
for size in (10, 3 << 20):
    node = Node(); node.self = node; node.buffer = HostBuffer.allocate(size)
keep = HostBuffer.allocate(5 << 20)
view = keep.array(dtypes.float32, (4,))
sys.kept = [HostBuffer.allocate(7 << 20), view]
"""
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True)
    assert (done.returncode, done.stderr) == (0, "")


def test_size_classes_waste_little() -> None:
    before = 0
    for nbytes in range(LARGE, 40 << 20, 37_001):
        size = block_bytes(nbytes)
        assert max(nbytes, before) <= size <= nbytes * 7 / 6 + (nbytes >> 3)
        assert size % 4096 == 0
        before = size
