"""How workloads scale with cores: `python -m benchmarks.scaling [NAMES…] --cores 1 2 4 8 16`.

Every candidate runs in processes that may use the first cores of the machine only, one hardware
thread each. They are made ready side by side, then have their turns at every number of cores; the
least time of the calls counts.
With `--isa avx2` every candidate is kept from using wider vectors.
"""

from __future__ import annotations

import argparse
import os
import sys
import tempfile
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.table import Table

from benchmarks import machine
from benchmarks.measure import BLOCK_SECONDS
from benchmarks.process import CandidateError, Worker
from benchmarks.report import write_json
from benchmarks.workload import CANDIDATES, JAX, OURS, TORCH
from benchmarks.workloads import WORKLOADS, named

_TOPOLOGY = "/sys/devices/system/cpu/cpu{}/topology/thread_siblings_list"
NARROW = {  # what keeps each candidate from 512-bit vectors
    "RIDGELINE_ISA": "avx2", "ATEN_CPU_CAPABILITY": "avx2", "ONEDNN_MAX_CPU_ISA": "AVX2",
    "MKL_ENABLE_INSTRUCTIONS": "AVX2", "XLA_FLAGS": "--xla_cpu_max_isa=AVX2",
}  # fmt: skip
DEFAULT = ("gemm", "linear_gelu", "attention", "resnet18_inference", "gpt_step")


def usable_cores() -> list[int]:
    """One hardware thread of every core that this process may use."""
    found: dict[str, int] = {}
    for cpu in sorted(os.sched_getaffinity(0)):
        try:
            core = Path(_TOPOLOGY.format(cpu)).read_text()
        except OSError:
            core = str(cpu)
        found.setdefault(core, cpu)
    return list(found.values())


def least_times(
    workload: str,
    candidate: str,
    affinities: list[list[int]],
    blocks: int,
    folder: Path,
    cpu: bool = False,
) -> list[float]:
    """Seconds of the fastest call on each set of cores; CPU seconds if so wished."""
    workers = [
        Worker(workload, candidate, folder, folder / f"cache{len(cpus)}", cpus)
        for cpus in affinities
    ]
    try:
        for worker in workers:
            worker.send("first")
        for worker in workers:
            worker.ready()
            worker.answer()
        return [_least(worker, blocks, cpu) for worker in workers]
    finally:
        for worker in workers:
            worker.close()


def _least(worker: Worker, blocks: int, cpu: bool) -> float:
    answers = [worker.ask("block", seconds=BLOCK_SECONDS, cpu=cpu) for _ in range(blocks)]
    return min(t for answer in answers for t in answer["times"])


def main() -> int:
    """Measure, print a table and store the figures."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.scaling", description=__doc__)
    parser.add_argument("names", nargs="*", default=list(DEFAULT), metavar="NAME")
    parser.add_argument("--cores", type=int, nargs="+", default=[1, 2, 4, 8, 16])
    parser.add_argument("--only", action="append", metavar="CANDIDATE")
    parser.add_argument("--blocks", type=int, default=3, help="blocks of calls (3)")
    parser.add_argument("--no-save", action="store_true", help="keep no file of the results")
    parser.add_argument("--isa", choices=("avx2",), help="the widest instructions to use")
    parser.add_argument(
        "--cpu", action="store_true", help="CPU seconds, for one core of a busy machine"
    )
    arguments = parser.parse_args()
    if arguments.cpu and arguments.cores != [1]:
        parser.error("--cpu counts the seconds of all threads: use it with --cores 1")
    os.environ.update(NARROW if arguments.isa else {})
    names = [full for given in arguments.names for full in named(given)]
    cpus = usable_cores()
    counts = [n for n in arguments.cores if n <= len(cpus)]
    wanted = arguments.only or [OURS, TORCH, JAX]
    data: dict[str, Any] = {
        "date": datetime.now(UTC).isoformat(), "machine": machine.describe(), "cores": counts,
        "isa": arguments.isa or "auto", "clock": "CPU" if arguments.cpu else "elapsed",
        "seconds": {},
    }  # fmt: skip
    subject = "-".join(filter(None, ("scaling", arguments.isa)))
    stored: Path | None = None
    for name in names:
        figures = data["seconds"].setdefault(name, {})
        for candidate in (c for c in CANDIDATES if c in wanted and c in WORKLOADS[name].builders):
            figures[candidate] = _measured(
                name, candidate, cpus, counts, arguments.blocks, arguments.cpu
            )
            if not arguments.no_save:
                stored = write_json(data, over=stored, subject=subject)
    _print(data, Console(width=None if sys.stdout.isatty() else 120))
    if stored is not None:
        print(f"stored in {stored}", file=sys.stderr)
    return 0


def _measured(
    name: str, candidate: str, cpus: list[int], counts: list[int], blocks: int, cpu: bool
) -> list[float] | str:
    """Seconds for every number of cores, or why there are none."""
    with tempfile.TemporaryDirectory(prefix="ridgeline-scaling-") as folder:
        try:
            return least_times(
                name, candidate, [cpus[:n] for n in counts], blocks, Path(folder), cpu
            )
        except CandidateError as error:
            return str(error)


def _print(data: dict[str, Any], console: Console) -> None:
    table = Table("workload", "candidate", *(f"{n} cores, ms" for n in data["cores"]), "speedup")
    for name, figures in data["seconds"].items():
        for candidate, found in figures.items():
            if isinstance(found, str):
                table.add_row(name, candidate, found)
                continue
            speedup = f"{found[0] / found[-1]:.1f}"
            table.add_row(name, candidate, *(f"{s * 1e3:.3f}" for s in found), speedup)
    console.print(table)


if __name__ == "__main__":
    sys.exit(main())
