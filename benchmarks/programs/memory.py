"""How much memory do programs take? `python -m benchmarks.programs --memory [NAMES…]`.

Every program runs in small form in processes of its own, over torch, undecorated and under jit. Of
each it is said how much its process takes at most, and how much more after all steps than after the
first tenth of them, when everything is compiled.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from benchmarks.programs.switch import Framework, start

WAYS = {
    "torch": Framework("torch"),
    "undecorated": Framework("ridgeline"),
    "jit": Framework("ridgeline", jit=True),
}
PARTS = 10
MEGABYTE = 1 << 20


@dataclass(frozen=True, slots=True)
class Memory:
    """What a process takes, code of its libraries included, in megabytes."""

    peak: float
    growth: float  # from the first tenth of the steps to the last

    def __str__(self) -> str:
        return f"peak {self.peak:6.1f} MB, then {self.growth:+.1f} MB"


def resident() -> float:
    """The memory of this process that is in use now."""
    pages = int(Path("/proc/self/statm").read_text().split()[1])
    return pages * os.sysconf("SC_PAGE_SIZE") / MEGABYTE


def sampled(program: str, way: str, small: bool, steps: int) -> Iterator[float]:
    """Memory after every tenth of a program's steps."""
    if way == "torch":
        WAYS[way].module().set_num_threads(2)
    step = start(program, WAYS[way], small)
    for number in range(steps):
        step(number).item()
        if (number + 1) % max(steps // PARTS, 1) == 0:
            yield resident()


def measure(program: str, way: str, small: bool, steps: int) -> Memory:
    """The memory of a program in a process of its own."""
    order = [program, way, str(int(small)), str(steps)]
    command = [sys.executable, "-m", "benchmarks.programs.memory", *order]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    samples = json.loads(done.stdout.splitlines()[-1])
    return Memory(max(samples), samples[-1] - samples[0])


def report(names: list[str], small: bool, steps: int) -> int:
    """Print the memory of programs in all ways; 1 where ours is more than torch's."""
    more = False
    for name in names:
        found = {way: measure(name, way, small, steps) for way in WAYS}
        print(f"{name:24}" + "   ".join(f"{way} {m}" for way, m in found.items()), flush=True)
        ours = max(found[way].peak for way in WAYS if way != "torch")
        more |= ours > found["torch"].peak
    return int(more)


if __name__ == "__main__":
    program, way, small, steps = sys.argv[1:]
    with suppress(BrokenPipeError):
        print(json.dumps(list(sampled(program, way, small == "1", int(steps)))))
