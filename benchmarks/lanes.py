"""Many workloads on a machine with many cores: `python -m benchmarks.lanes [NAMES…] --cores 2`.

The machine's cores are shared out into lanes of a few cores each. Every lane measures one workload
after the other with all its candidates, as `python -m benchmarks` does on a machine of that size,
until the time is up; what was measured is one file in `results/`, and what was not is named there.
With `BENCHMARK_DEVICE=cuda` the programs of all lanes run on one GPU: trust the minima then.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import threading
import time
from collections import deque
from collections.abc import Collection, Sequence
from functools import partial
from pathlib import Path
from typing import Any

from benchmarks.process import ROOT
from benchmarks.report import write_json
from benchmarks.scaling import usable_cores
from benchmarks.workload import OWN, TORCH
from benchmarks.workloads import WORKLOADS, named


def measured(name: str, cpus: Collection[int], options: Sequence[str], until: float) -> Any:
    """What `python -m benchmarks` says of one workload on some cores; None where it did not end."""
    command = [sys.executable, "-m", "benchmarks", name, "--json", "--no-save", *options]
    try:
        done = subprocess.run(
            command, cwd=ROOT, capture_output=True, text=True, check=True,
            timeout=max(until - time.monotonic(), 1.0),
            preexec_fn=partial(os.sched_setaffinity, 0, cpus),
        )  # fmt: skip
    except (subprocess.CalledProcessError, subprocess.TimeoutExpired) as error:
        print(f"{name}: {error}", file=sys.stderr)
        return None
    return json.loads(done.stdout[done.stdout.index("{") :])


class Lanes:
    """Workloads that wait, and the results of those that were measured."""

    def __init__(self, names: Sequence[str], options: Sequence[str], until: float) -> None:
        self._waiting = deque(names)
        self._options, self._until = options, until
        self.results: dict[str, Any] = {}

    def work(self, cpus: Collection[int]) -> None:
        """Measure workloads on some cores while there are any, and time is left."""
        while time.monotonic() < self._until:
            try:
                name = self._waiting.popleft()
            except IndexError:
                return
            data = measured(name, cpus, self._options, self._until)
            if data is not None:
                self.results[name] = data
                print(_line(name, data["workloads"][name]), flush=True)


def _line(name: str, found: dict[str, Any]) -> str:
    """A workload's figures, ours over torch's: medians, minima, and the first calls."""
    candidates = found["candidates"]
    torch = candidates.get(TORCH, {})
    parts = []
    for own in OWN:
        ours = candidates.get(own, {})
        if not ours.get("median") or not torch.get("median"):
            parts.append(f"{own}: {ours.get('error') or torch.get('error') or 'not measured'}")
            continue
        keys = ("median", "best", "first_call_cold")
        median, best, first = (ours[key] / torch[key] for key in keys)
        peaks = f"{ours['peak_memory'] >> 20}/{torch['peak_memory'] >> 20} MiB"
        parts.append(
            f"{own} {ours['median'] * 1e3:.3f} ms: {median:.2f}, minima {best:.2f}, "
            f"first {first:.2f}, {peaks}"
        )
    torch_ms = 1e3 * torch.get("median", 0.0)
    return f"{name}: torch {torch_ms:.3f} ms; " + "; ".join(parts)


def merged(names: Sequence[str], results: dict[str, Any]) -> dict[str, Any]:
    """All lanes as one run of benchmarks."""
    first = next(iter(results.values()))
    workloads = {name: results[name]["workloads"][name] for name in names if name in results}
    return {
        "date": first["date"],
        "machine": {**first["machine"], "device": os.environ.get("BENCHMARK_DEVICE", "cpu")},
        "not_measured": [name for name in names if name not in results],
        "workloads": workloads,
    }


def lanes_of(size: int, most: int) -> list[list[int]]:
    """The usable cores in lanes of a size."""
    cores = usable_cores()
    starts = range(0, len(cores) - size + 1, size)
    return [cores[start : start + size] for start in starts][:most] or [cores]


def build_parser() -> argparse.ArgumentParser:
    """The options of a run in lanes."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.lanes", description=__doc__)
    parser.add_argument("names", nargs="+", metavar="NAME", help="workloads or sets of them")
    parser.add_argument("--cores", type=int, default=2, help="of each lane (2)")
    parser.add_argument("--lanes", type=int, default=64, help="at most so many")
    parser.add_argument("--rounds", default="7", help="quiet rounds to measure (7)")
    parser.add_argument("--seconds", type=float, default=330.0, help="for all together (330)")
    parser.add_argument("--into", type=Path, help="folder of the result, instead of results/")
    return parser


def main() -> int:
    """Measure in all lanes, and store what came of it."""
    parser = build_parser()
    arguments = parser.parse_args()
    unknown = [name for name in arguments.names if not named(name)]
    if unknown:
        parser.error(f"no workload {unknown[0]!r}; there are {', '.join(WORKLOADS)}")
    names = [full for name in arguments.names for full in named(name)]
    options = ["--no-warm-first", "--rounds", arguments.rounds]
    lanes = Lanes(names, options, time.monotonic() + arguments.seconds)
    cores = lanes_of(arguments.cores, arguments.lanes)
    threads = [threading.Thread(target=lanes.work, args=(cpus,)) for cpus in cores]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    if not lanes.results:
        print("nothing was measured", file=sys.stderr)
        return 1
    data = merged(names, lanes.results)
    into = {} if arguments.into is None else {"folder": arguments.into}
    device = os.environ.get("BENCHMARK_DEVICE", "cpu")
    print(f"stored in {write_json(data, subject=f'programs-{device}', **into)}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
