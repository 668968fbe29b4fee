"""Indices of guarded loads are guarded too: nothing is read outside of what a condition allows."""

from __future__ import annotations

import subprocess
import sys

# ranks name places: what lies before or behind them in memory, spoilt, is a place far out
_RANKS = """
import ctypes
import ridgeline as rl
from ridgeline.runtime.cpu import executor

rl.config.tier = "compiled"
x = rl.arange(132).flip(0) * 1.0
x.numpy()
ctypes.memset(executor._scratch.address, 0x7F, executor.SCRATCH_BYTES)
smallest = rl.topk(rl.sort(x)[0], 71, largest=False)[0]
print(rl.roll(smallest, -1).tolist() == [*range(1, 71), 0])
"""

# an array between two pages that cannot be read
_PAGES = """
import ctypes, mmap
import numpy as np
import ridgeline as rl

PAGE = mmap.PAGESIZE
memory = mmap.mmap(-1, 3 * PAGE)
start = ctypes.addressof(ctypes.c_char.from_buffer(memory))
libc = ctypes.CDLL(None, use_errno=True)
for page in (0, 2):
    assert libc.mprotect(ctypes.c_void_p(start + page * PAGE), PAGE, 0) == 0
count = PAGE // 8
places = np.frombuffer(memory, np.int64, count, PAGE)
places[:] = np.arange(count) * 7 % 50
table = np.arange(50, dtype=np.float32) * 3
rl.config.tier = "compiled"
given, values = rl.from_numpy(places), rl.from_numpy(table)
for by in (1, -1, 3, 37, -200):
    found = rl.jit(lambda v, p: rl.roll(v[p], by) + rl.roll(v[p.flip(0)], by))(values, given)
    wanted = np.roll(table[places], by) + np.roll(table[places[::-1]], by)
    assert np.array_equal(found.numpy(), wanted)
found = rl.jit(lambda v, p: rl.nn.functional.pad(v[p], (5, 9)))(values, given)
assert np.array_equal(found.numpy(), np.pad(table[places], (5, 9)))
print("True")
"""


def _prints_true(script: str) -> None:
    ran = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True)
    assert ran.returncode == 0 and ran.stdout == "True\n", ran.stderr


def test_ranks_of_ranks_joined_from_parts() -> None:
    _prints_true(_RANKS)


def test_nothing_is_read_beside_an_array_of_places() -> None:
    _prints_true(_PAGES)
