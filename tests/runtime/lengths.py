"""One function over ever new lengths: prints the way, the count, MB in use and CPU ms a call.

`python -m tests.runtime.lengths WAY COUNT`
"""

from __future__ import annotations

import gc
import os
import sys
import tempfile
import time
from collections.abc import Callable

import numpy as np

os.environ.setdefault("RIDGELINE_CACHE_DIR", tempfile.mkdtemp(prefix="ridgeline-lengths-"))
os.environ.setdefault("RIDGELINE_CALIBRATE", "0")

import ridgeline as rl

SHOWN = (100, 500, 1000, 2000, 3000, 5000, 7500, 10_000)


def in_use() -> float:
    """Megabytes of this process that lie in memory."""
    with open("/proc/self/status", encoding="ascii") as file:
        (line,) = (line for line in file if line.startswith("VmRSS"))
    return int(line.split()[1]) / 1024


def work(x: rl.Tensor) -> rl.Tensor:
    """Pointwise work, a scan and reductions."""
    return (rl.relu(x * 2 + 1).cumsum(0) / (x.sum() + 1)).max()


def training() -> Callable[[rl.Tensor], rl.Tensor]:
    """A small model's loss and gradients."""
    weight = rl.tensor(np.full((16, 16), 0.1, np.float32), requires_grad=True)

    def step(x: rl.Tensor) -> rl.Tensor:
        y = rl.relu(x @ weight).softmax(-1)
        loss = (y * y).mean(0).sum() + y.std()
        loss.backward()
        weight.grad = None
        return loss

    return step


def main(way: str, count: int) -> None:
    """Run so many lengths."""
    function: Callable[[rl.Tensor], rl.Tensor] = training() if "train" in way else work
    if way.startswith("jit"):
        function = rl.jit(function)
    elif way == "dynamic":
        function = rl.jit(function, dynamic=True)
    elif way == "compiled":
        rl.config.tier = "compiled"
    since, begin = 0, time.process_time()  # whatever else the machine does
    # shuffled, so that calls cost the same on average throughout
    for number, length in enumerate(np.random.default_rng(0).permutation(count) + 8, 1):
        function(rl.tensor(np.ones((length, 16), np.float32))).item()
        if number in SHOWN or number == count:
            each = (time.process_time() - begin) / (number - since)
            gc.collect()
            print(way, number, f"{in_use():.0f} {each * 1e3:.2f}", flush=True)
            since, begin = number, time.process_time()


if __name__ == "__main__":
    main(sys.argv[1], int(sys.argv[2]))
