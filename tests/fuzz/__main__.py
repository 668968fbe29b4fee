"""The fuzzer as a command: `python -m tests.fuzz --programs 20000 --seed 0 --jobs 16`.

Every seed names one program. Seeds are shared out in batches to processes of their own, so that
memory comes back and a crash or a hang is a finding like any other. A disagreement is shrunk,
printed as a program to run, and written to a file of the folder `--found`. `--device cuda` runs
programs on a GPU and compares them with the interpreter; `--device loops` interprets the loops that
a GPU would run, without one. With `--cache FOLDER` a second search over the same seeds takes all
programs from disk, as a second process of a user does.
"""

from __future__ import annotations

import argparse
import subprocess
import sys
import time
from pathlib import Path

from tests.fuzz.workers import Search, run_batch


def main() -> int:
    """Search, and print what was found and how far the search came."""
    parser = argparse.ArgumentParser(prog="tests.fuzz", description=__doc__)
    parser.add_argument("--programs", type=int, default=1000)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--size", type=int, default=8, help="statements of a program, about")
    parser.add_argument("--jobs", type=int, default=1, help="processes at a time")
    parser.add_argument("--device", default="cpu", choices=("cpu", "cuda", "loops"))
    parser.add_argument("--seconds", type=float, default=float("inf"), help="begin nothing after")
    parser.add_argument("--found", type=Path, default=Path("fuzz-found"), help="for what it finds")
    parser.add_argument("--cache", type=Path, help="keep what is compiled here, and use it")
    parser.add_argument("--batch", action="store_true", help=argparse.SUPPRESS)
    chosen = parser.parse_args()
    if chosen.batch:
        return run_batch(chosen.seed, chosen.programs, chosen.size, chosen.device)
    begin = time.monotonic()
    search = Search(
        chosen.size, chosen.device, chosen.jobs, begin + chosen.seconds, chosen.found, chosen.cache
    )
    search.run(chosen.seed, chosen.programs)
    print(
        f"{search.programs} of {chosen.programs} programs from seed {chosen.seed} on "
        f"{chosen.device} at {commit()}: {len(search.faults)} faults {sorted(search.faults)}, "
        f"{time.monotonic() - begin:.0f} s in {chosen.jobs} processes"
    )
    return 1 if search.faults else 0


def commit() -> str:
    """The commit that is checked out here, `dirty` where files differ from it."""
    words = ["git", "describe", "--always", "--dirty", "--exclude=*"]
    try:
        said = subprocess.run(words, capture_output=True, text=True, cwd=Path(__file__).parent)
    except OSError:
        return "an unknown commit"
    return said.stdout.strip() or "an unknown commit"


if __name__ == "__main__":
    sys.exit(main())
