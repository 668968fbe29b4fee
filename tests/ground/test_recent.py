"""The table of the last used: what it keeps, and that threads may share it."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

from ridgeline.weak import Recent

SHARED = """
import threading, time
from ridgeline.weak import Recent

class Key:
    def __init__(self, number):
        self.number = number
    def __hash__(self):
        return self.number
    def __eq__(self, other):
        time.sleep(0)  # other threads run meanwhile
        return self.number == other.number

table = Recent(40)

def use(seed):
    for step in range(1000):
        key = Key((seed * 7 + step * step) % 60)
        if table.get(key) is None or step % 5 == 0:
            table.keep(key, step)

threads = [threading.Thread(target=use, args=(seed,)) for seed in range(8)]
for thread in threads:
    thread.start()
for thread in threads:
    thread.join()
assert len(table) == table.weight == 40
print("whole")
"""


def test_the_last_used_stay() -> None:
    table: Recent[str, int] = Recent(3, most_weight=10)
    for number, name in enumerate("abc"):
        assert table.keep(name, number) == []
    assert table.get("a") == 0  # used now, so b is the oldest
    assert table.keep("d", 3) == [1]
    assert table.keep("e", 4, weight=9) == [2, 0]  # with d that is 10
    assert table.keep("e", 5, weight=20) == [3]  # the last one always stays
    assert (table.get("e"), len(table), table.weight) == (5, 1, 20)
    table.clear()
    assert (table.get("e"), len(table), table.weight) == (None, 0, 0)


def test_threads_share_a_table_whose_keys_are_compared_by_python() -> None:
    """In a process of its own, which a broken table would end."""
    environment = {**os.environ, "PYTHONPATH": str(Path(__file__).parents[2])}
    done = subprocess.run(
        [sys.executable, "-c", SHARED], env=environment, capture_output=True, text=True
    )
    assert (done.returncode, done.stdout) == (0, "whole\n"), done.stderr[-2000:]
