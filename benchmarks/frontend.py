"""What an op and a call cost in Python, and what is left behind: `python -m benchmarks.frontend`.

Times are CPU seconds of the thread, the least and the median of rounds: other work on the machine
disturbs them little. The last part runs ten thousand steps and re-traces a thousand times, and
shows how much memory, how many nodes and how many buffers there are more than before.
"""

from __future__ import annotations

import argparse
import gc
import json
import statistics
import sys
import time
from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import numpy as np

import ridgeline as rl
from benchmarks import machine
from benchmarks.report import write_json
from ridgeline import compiler, nn
from ridgeline.graph import node
from ridgeline.runtime.buffer import pool

ROUNDS = 15
STEPS, TRACES = 10_000, 1_000
BARS = {"record an op": 8e-6, "call a jitted function": 15e-6, "a new op at the prompt": 1e-3}


def per_call(function: Callable[[], object], calls: int) -> dict[str, float]:
    """Seconds of one call."""
    times = []
    for _ in range(ROUNDS):
        begin = time.thread_time()
        for _ in range(calls):
            function()
        times.append((time.thread_time() - begin) / calls)
    return {"least": min(times), "median": statistics.median(times)}


def recording() -> dict[str, float]:
    """Recording one primitive op of a chain that is computed afterwards."""
    x = rl.ones(64, 64)
    times = []
    for _ in range(ROUNDS):
        y = x
        begin = time.thread_time()
        for _ in range(200):
            y = y + x
        times.append((time.thread_time() - begin) / 200)
        y.numpy()
    return {"least": min(times), "median": statistics.median(times)}


def calling() -> dict[str, float]:
    """A jitted addition of resident tensors."""
    add = rl.jit(lambda x, y: x + y)
    x, y = rl.ones(8), rl.ones(8)
    x.numpy(), y.numpy(), add(x, y)
    return per_call(lambda: add(x, y), 2000)


def at_the_prompt() -> dict[str, float]:
    """An op on small tensors whose shapes never occurred, until its value is there."""
    given = [rl.tensor(np.ones((3, 5 + i), np.float32)) for i in range(ROUNDS)]
    (given[0] * 2).sin().numpy()
    times = []
    for x in given[1:]:
        begin = time.thread_time()
        ((x - 1) * x).cos().numpy()
        times.append(time.thread_time() - begin)
    return {"least": min(times), "median": statistics.median(times)}


def trainer() -> Callable[[], Any]:
    """A small training step."""
    model = nn.Sequential(nn.Linear(4, 8), nn.ReLU(), nn.Linear(8, 3))
    optimizer = rl.optim.Adam(model.parameters(), lr=1e-3)
    x, y = rl.tensor(np.ones((5, 4), np.float32)), rl.tensor(np.zeros(5, np.int64))

    def step() -> Any:
        optimizer.zero_grad()
        loss = nn.functional.cross_entropy(model(x), y)
        loss.backward()
        optimizer.step()
        return loss

    return step


def held() -> dict[str, int]:
    """What the process holds."""
    gc.collect()
    pages = int(Path("/proc/self/statm").read_text().split()[1])
    return {
        "resident_kib": pages * 4, "buffer_bytes": pool.in_use, "nodes": len(node._table),
        "objects": len(gc.get_objects()),
    }  # fmt: skip


def growth(run: Callable[[int], object], first: int, count: int) -> dict[str, int]:
    """What is held more after some runs, the first ones aside."""
    for number in range(first):
        run(number)
    before = held()
    for number in range(first, first + count):
        run(number)
    return {name: value - before[name] for name, value in held().items()}


def leaks() -> dict[str, dict[str, int]]:
    """Steps in both ways to run, and traces for ever new arguments."""
    jitted, deferred, retraced = rl.jit(trainer()), trainer(), trainer()
    traced = rl.jit(lambda word: retraced())
    with rl.config.override(tier="compiled"):
        return {
            f"{STEPS} jitted steps": growth(lambda number: jitted(), 500, STEPS),
            f"{STEPS} deferred steps": growth(lambda number: deferred(), 500, STEPS),
            f"{TRACES} traces": growth(lambda number: traced(f"word {number}"), 100, TRACES),
        }


def arena() -> dict[str, float]:
    """The memory for temporaries of a GPT's training step, over what is alive at the peak."""
    from benchmarks.workload import OURS
    from benchmarks.workloads.gpt_step import WORKLOAD

    WORKLOAD.builders[OURS](WORKLOAD.inputs()).call()
    layout = max((p.layout for p in compiler._programs.values()), key=lambda one: one.arena_bytes)
    return {
        "arena_bytes": layout.arena_bytes, "peak_live": layout.peak_live,
        "ratio": layout.arena_bytes / layout.peak_live,
    }  # fmt: skip


def report(data: dict[str, Any]) -> str:
    """The figures as text."""
    lines = ["                              least     median        bar, µs of CPU"]
    for name, row in data["python"].items():
        low, middle, bar = (v * 1e6 for v in (row["least"], row["median"], BARS[name]))
        lines.append(f"{name:24} {low:10.2f} {middle:10.2f} {bar:10.0f}")
    for name, row in data.get("leaks", {}).items():
        lines.append(f"{name}: " + ", ".join(f"{v:+} {k}" for k, v in row.items()))
    if "arena" in data:
        lines.append(f"arena over peak live: {data['arena']['ratio']:.4f} (bar 1.05)")
    return "\n".join(lines)


def main() -> None:
    """Measure, print, store."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.frontend", description=__doc__)
    parser.add_argument("--short", action="store_true", help="leave the long runs out")
    parser.add_argument("--no-save", action="store_true", help="keep no file of the results")
    parser.add_argument("--json", action="store_true", help="print JSON instead of the table")
    arguments = parser.parse_args()
    date = datetime.now(UTC).isoformat(timespec="seconds")
    data: dict[str, Any] = {"date": date, "machine": machine.describe()}
    measures = (recording, calling, at_the_prompt)
    data["python"] = {name: measure() for name, measure in zip(BARS, measures)}
    if not arguments.short:
        data["leaks"], data["arena"] = leaks(), arena()
    print(json.dumps(data) if arguments.json else report(data))
    if not arguments.no_save:
        print(f"stored in {write_json(data, subject='frontend')}", file=sys.stderr)


if __name__ == "__main__":
    main()
