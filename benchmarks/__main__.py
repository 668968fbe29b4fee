"""Compare ridgeline with its peers: `python -m benchmarks [NAMES…]`.

Every candidate does the same work in float32, is checked against a float64 reference, and is then
timed in interleaved rounds. Without names, every workload runs.
"""

from __future__ import annotations

import argparse
import json
import sys
from pathlib import Path

from rich.console import Console

from benchmarks import machine
from benchmarks.measure import Outcome, measure
from benchmarks.report import as_json, print_report, write_json
from benchmarks.workload import CANDIDATES
from benchmarks.workloads import WORKLOADS, named

WIDTH = 150  # columns, where the output is no terminal
KNOWN = ", ".join(dict.fromkeys(name.partition(":")[0] for name in WORKLOADS))


def build_parser() -> argparse.ArgumentParser:
    """The options of a benchmark run."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks", description=__doc__)
    parser.add_argument("names", nargs="*", metavar="NAME", help=f"any of {KNOWN}")
    parser.add_argument("--rounds", type=int, default=7, help="quiet rounds to measure (7)")
    parser.add_argument("--only", action="append", metavar="CANDIDATE", help="leave others out")
    parser.add_argument("--no-warm-first", action="store_true", help="skip the second first call")
    parser.add_argument("--json", action="store_true", help="print JSON instead of the table")
    parser.add_argument("--no-save", action="store_true", help="keep no file of the results")
    return parser


def main() -> int:
    """Run the chosen workloads and print and store what they took."""
    parser = build_parser()
    arguments = parser.parse_args()
    unknown = [name for name in arguments.names if not named(name)]
    if unknown:
        parser.error(f"no workload {unknown[0]!r}; there are {KNOWN}")
    wrong = [name for name in arguments.only or () if name not in CANDIDATES]
    if wrong:
        parser.error(f"no candidate {wrong[0]!r}; there are {', '.join(CANDIDATES)}")
    progress = Console(stderr=True)
    outcomes: list[Outcome] = []
    described = machine.describe()
    stored: Path | None = None
    chosen = [full for given in arguments.names for full in named(given)]
    for name in chosen or WORKLOADS:
        workload = WORKLOADS[name]
        candidates = [
            c for c in CANDIDATES
            if c in workload.builders and (not arguments.only or c in arguments.only)
        ]  # fmt: skip
        with progress.status(name) as status:
            outcomes.append(
                measure(
                    workload,
                    candidates,
                    arguments.rounds,
                    status.update,
                    first_calls=not arguments.no_warm_first,
                )
            )
        data = as_json(outcomes, described)
        if not arguments.no_save:  # after each, so that a run that is cut short is not lost
            stored = write_json(data, over=stored)
    if arguments.json:
        print(json.dumps(data, indent=1))
    else:
        width = None if sys.stdout.isatty() else WIDTH
        print_report(outcomes, described, Console(width=width))
    if stored is not None:
        print(f"stored in {stored}", file=sys.stderr)
    return 0


if __name__ == "__main__":
    sys.exit(main())
