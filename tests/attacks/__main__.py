"""Attacks as a command: `python -m tests.attacks --hours 1`, or one trial again by its seed.

`--only NAME` takes one attack, `--seed` and `--trials` say which trials; without `--trials` they go
on until the time is spent. `--device cuda` takes a real GPU where one is pretended otherwise. Every
failure is printed with the command that repeats it.
"""

from __future__ import annotations

import argparse
import os
import sys
import time

from tests.attacks.attack import attacks
from tests.attacks.runner import campaign, run_here
from tests.fuzz.__main__ import commit


def main() -> int:
    """Attack, and print what was found and how much was tried."""
    known = attacks()
    parser = argparse.ArgumentParser(prog="tests.attacks", description=__doc__)
    parser.add_argument("--only", action="append", choices=sorted(known), help="one attack")
    parser.add_argument("--seed", type=int, default=0, help="the first trial")
    parser.add_argument("--trials", type=int, help="how many of each attack")
    parser.add_argument("--hours", type=float, help="begin nothing after")
    parser.add_argument("--jobs", type=int, default=2, help="processes at a time")
    parser.add_argument("--device", choices=("cuda",), help="a real GPU where one is pretended")
    parser.add_argument("--list", action="store_true", help="say what there is, and end")
    parser.add_argument("--here", action="store_true", help=argparse.SUPPRESS)
    parser.add_argument("--seeds", help=argparse.SUPPRESS)
    parser.add_argument("--fault", help=argparse.SUPPRESS)
    given = parser.parse_args()
    if given.device is not None:
        os.environ["RIDGELINE_ATTACK_DEVICE"] = given.device  # for the processes of the trials too
    chosen = [known[name] for name in given.only or sorted(known)]
    if given.list:
        for attack in chosen:
            print(f"{attack.name}: {attack.promise}")
        return 0
    if given.here:
        run_here(chosen[0], [int(seed) for seed in given.seeds.split(",")], given.fault)
        return 0
    begin = time.monotonic()
    trials = given.trials
    if trials is None and given.hours is None:
        trials = 25
    deadline = begin + given.hours * 3600 if given.hours is not None else float("inf")
    done, found = campaign(chosen, given.seed, trials, deadline, given.jobs)
    seeds = sorted((finding.attack, finding.seed) for finding in found)
    spent = time.monotonic() - begin
    print(f"{done} trials at {commit()}: {len(found)} faults {seeds}, {spent:.0f} s")
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main())
