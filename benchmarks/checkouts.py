"""This checkout beside another in one run: `python -m benchmarks.checkouts ../before [NAMES…]`.

Both do the workloads of this checkout in interleaved rounds, jitted and undecorated; then what an
op and a call cost in Python is measured in turns. With `--compile` it is, instead, what compiling
the workloads costs with a cold cache, in CPU seconds of a process each. Ratios are ours here over
ours there: above 1 this checkout is slower. Results are not judged, so that the price of a mended
one can be seen.
"""

from __future__ import annotations

import argparse
import json
import math
import os
import statistics
import subprocess
import sys
import tempfile
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.table import Table

from benchmarks import machine
from benchmarks.measure import Timing, able, rounds
from benchmarks.process import ROOT, Worker
from benchmarks.report import write_json
from benchmarks.workload import OURS, OWN, Workload
from benchmarks.workloads import WORKLOADS, named

HERE, THERE = "here", "there"
TURNS = 5  # of the costs in Python


class Checkout:
    """A folder in which `ridgeline` is that of one checkout, and nothing else of it is found."""

    def __init__(self, name: str, root: Path, folder: Path) -> None:
        self.name, self._place = name, folder / name
        self._place.mkdir()
        (self._place / "ridgeline").symlink_to(root / "ridgeline")
        self.cache = folder / f"{name}-cache"

    @property
    def variables(self) -> dict[str, str]:
        """With these a process imports this checkout's package and the benchmarks of ours."""
        path = os.pathsep.join(map(str, (self._place, ROOT)))
        return {"PYTHONPATH": path, "PYTHONSAFEPATH": "1"}


def compared(
    workload: Workload, candidate: str, checkouts: Sequence[Checkout], wanted: int, folder: Path
) -> dict[str, Timing]:
    """One candidate in all checkouts, in interleaved rounds."""
    timings = {checkout.name: Timing() for checkout in checkouts}
    workers = []
    for checkout in checkouts:
        worker = Worker(
            workload.name, candidate, folder, checkout.cache, variables=checkout.variables
        )
        worker.name = checkout.name
        workers.append(worker)
    try:
        workers = able(workers, timings, Worker.ready)
        workers = able(workers, timings, lambda w: w.ask("first"))
        workers = able(workers, timings, lambda w: w.ask("warm"))
        rounds(workers, timings, wanted, lambda said: None)
    finally:
        for worker in workers:
            worker.close()
    return timings


def in_python(checkouts: Sequence[Checkout]) -> dict[str, dict[str, float]]:
    """By cost and checkout: the least of some turns, in seconds of CPU."""
    found: dict[str, dict[str, float]] = {}
    words = [sys.executable, "-m", "benchmarks.frontend", "--short", "--no-save", "--json"]
    for _ in range(TURNS):
        for checkout in checkouts:
            variables = {
                **os.environ, **checkout.variables, "RIDGELINE_CACHE_DIR": str(checkout.cache)
            }  # fmt: skip
            said = subprocess.run(words, env=variables, capture_output=True, text=True, check=True)
            for name, row in json.loads(said.stdout)["python"].items():
                least = found.setdefault(name, {})
                least[checkout.name] = min(row["least"], least.get(checkout.name, math.inf))
    return found


def compiling(
    names: Sequence[str], checkouts: Sequence[Checkout], turns: int, folder: Path
) -> dict[str, dict[str, dict[str, float]]]:
    """By workload and checkout: CPU seconds of a first call beyond those of later ones."""
    found: dict[str, dict[str, list[float]]] = {name: {HERE: [], THERE: []} for name in names}
    for turn in range(turns):
        for name in names:
            for checkout in checkouts:
                cache = folder / f"cold-{checkout.name}-{name}-{turn}"
                variables = {
                    **os.environ, **checkout.variables, "RIDGELINE_CACHE_DIR": str(cache),
                    "RIDGELINE_CALIBRATE": "0",
                }  # fmt: skip
                words = ["-m", "benchmarks.compile_time", "--task", OURS, "--workload", name]
                said = subprocess.check_output([sys.executable, *words], env=variables, text=True)
                found[name][checkout.name].append(json.loads(said)["compiling_cpu"])
    return {
        name: {k: {"median": statistics.median(t), "best": min(t)} for k, t in times.items()}
        for name, times in found.items()
    }


def relative(figures: Mapping[str, float]) -> float | None:
    """Here over there, where both were measured."""
    here, there = figures.get(HERE, 0.0), figures.get(THERE, 0.0)
    return here / there if here and there else None


def show(data: dict[str, Any], console: Console) -> None:
    """A row for each workload and candidate: both times, and their ratios."""
    table = Table("work", "candidate", "here ms", "there ms", "ratio", "of minima")
    for name, candidates in data["workloads"].items():
        for candidate, timings in candidates.items():
            errors = [t["error"] for t in timings.values() if t["error"]]
            if errors:
                table.add_row(name, candidate, *errors)
                continue
            medians = {k: t["median"] for k, t in timings.items()}
            best = {k: t["best"] for k, t in timings.items()}
            times = [f"{medians[k] * 1e3:.4g}" for k in (HERE, THERE)]
            ratios = [f"{relative(both):.3f}" for both in (medians, best)]
            table.add_row(name, candidate, *times, *ratios)
    for name, timings in data["compile"].items():
        times = [f"{timings[k]['median'] * 1e3:.4g}" for k in (HERE, THERE)]
        ratios = [
            f"{relative({k: t[which] for k, t in timings.items()}):.3f}"
            for which in ("median", "best")
        ]
        table.add_row(name, "compiling", *times, *ratios)
    for name, least in data["python"].items():
        times = [f"{least[k] * 1e3:.4g}" for k in (HERE, THERE)]
        table.add_row(name, "Python", *times, "", f"{relative(least):.3f}")
    console.print(table)


def main() -> int:
    """Measure, print, store."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.checkouts", description=__doc__)
    parser.add_argument("other", type=Path, help="the root of another checkout")
    parser.add_argument("names", nargs="*", metavar="NAME", help="workloads; all of them if none")
    parser.add_argument("--rounds", type=int, default=7, help="quiet rounds to measure (7)")
    parser.add_argument("--compile", action="store_true", help="what compiling costs, cold")
    parser.add_argument("--only", action="append", choices=OWN, help="jitted or undecorated alone")
    parser.add_argument("--no-save", action="store_true", help="keep no file of the results")
    given = parser.parse_args()
    other = given.other.resolve()
    if not (other / "ridgeline" / "__init__.py").is_file():
        parser.error(f"{given.other} is no checkout: it has no folder ridgeline")
    unknown = [name for name in given.names if not named(name)]
    if unknown:
        parser.error(f"no workload {unknown[0]!r}")
    chosen = [full for name in given.names for full in named(name)] or list(WORKLOADS)
    data: dict[str, Any] = {
        "date": datetime.now(UTC).isoformat(timespec="seconds"), "machine": machine.describe(),
        "workloads": {}, "compile": {}, "python": {},
    }  # fmt: skip
    stored: Path | None = None
    with tempfile.TemporaryDirectory(prefix="ridgeline-checkouts-") as folder:
        place = Path(folder)
        checkouts = [Checkout(HERE, ROOT, place), Checkout(THERE, other, place)]
        if given.compile:
            data["compile"] = compiling(chosen, checkouts, given.rounds, place)
        for name in () if given.compile else chosen:
            workload = WORKLOADS[name]
            for candidate in given.only or OWN:
                if candidate not in workload.builders:
                    continue
                timings = compared(workload, candidate, checkouts, given.rounds, place)
                data["workloads"].setdefault(name, {})[candidate] = {
                    k: {"median": t.median, "best": t.best, "rounds": t.rounds, "error": t.error}
                    for k, t in timings.items()
                }
                if not given.no_save:
                    stored = write_json(data, over=stored, subject="checkouts")
        if not given.compile:
            data["python"] = in_python(checkouts)
    show(data, Console(width=None if sys.stdout.isatty() else 120))
    ratios = [r for row in data["workloads"].values() for t in row.values() if (r := _ratio(t))]
    if ratios:
        print(f"geometric mean {statistics.geometric_mean(ratios):.3f}")
    if not given.no_save:
        print(f"stored in {write_json(data, over=stored, subject='checkouts')}", file=sys.stderr)
    return 0


def _ratio(timings: dict[str, dict[str, Any]]) -> float | None:
    return relative({name: timing["median"] for name, timing in timings.items()})


if __name__ == "__main__":
    sys.exit(main())
