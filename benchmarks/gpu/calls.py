"""What a call costs the host, `python -m benchmarks.gpu.calls`: one op, many tensors, nothing else.

Calls are made back to back without waiting for the device, which is quicker than the host here.
`--profile` says in which functions the time is spent.
"""

from __future__ import annotations

import argparse
import cProfile
import io
import pstats
import sys
import time
from collections.abc import Callable
from typing import Any

import ridgeline as rl
from benchmarks.gpu.command import parsed

CALLS = 2000


def microseconds(run: Callable[[], Any]) -> float:
    """Host time of a call, the best of five blocks."""
    for _ in range(50):
        run()
    best = float("inf")
    for _ in range(5):
        rl.cuda.synchronize()
        begin = time.perf_counter()
        for _ in range(CALLS):
            run()
        best = min(best, time.perf_counter() - begin)
    rl.cuda.synchronize()
    return best / CALLS * 1e6


def workloads() -> dict[str, Callable[[], Any]]:
    """The calls by name."""
    x = rl.rand(1024, device="cuda")
    one = rl.jit(lambda x: x * 2.0 + 1.0)
    several = [rl.rand(64, device="cuda") for _ in range(100)]

    @rl.jit
    def update(tensors: list[Any]) -> None:
        for tensor in tensors:
            tensor.mul_(0.999)

    found: dict[str, Callable[[], Any]] = {
        "one op": lambda: one(x),
        "100 state tensors": lambda: update(several),
    }
    try:
        import torch
    except ImportError:
        return found
    y = torch.rand(1024, device="cuda")
    found["torch: one op, eager"] = lambda: y * 2.0
    return found


def main() -> int:
    """Measure and print."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.gpu.calls", description=__doc__)
    parser.add_argument("--profile", action="store_true")
    given = parsed(parser)
    for name, run in workloads().items():
        print(f"{name:<24} {microseconds(run):>8.2f} µs", flush=True)
        if given.profile and not name.startswith("torch"):
            profile = cProfile.Profile()
            profile.enable()
            for _ in range(CALLS):
                run()
            profile.disable()
            text = io.StringIO()
            pstats.Stats(profile, stream=text).sort_stats("tottime").print_stats(14)
            print(text.getvalue()[:3500])
    return 0


if __name__ == "__main__":
    sys.exit(main())
