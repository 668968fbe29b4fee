"""Running trials in processes of their own: a crash or a hang is a finding like any other."""

from __future__ import annotations

import faulthandler
import os
import subprocess
import sys
import threading
import time
import traceback
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import nullcontext
from dataclasses import dataclass
from itertools import chain, count
from tempfile import TemporaryDirectory

from tests.attacks.attack import Attack
from tests.fuzz.faults import planted

_BATCH = 25  # trials of a process
_GRACE = 30  # seconds that a process has for its start
_LATE = 5  # seconds after the end of a campaign that a trial at work has


@dataclass(frozen=True, slots=True)
class Finding:
    """A trial that failed, and what was said about it."""

    attack: str
    seed: int
    said: str

    def __str__(self) -> str:
        repeat = f"python -m tests.attacks --only {self.attack} --seed {self.seed} --trials 1"
        return f"{self.said}\nfault: {self.attack}, seed {self.seed}; repeat with\n  {repeat}"


def run_here(attack: Attack, seeds: Sequence[int], fault: str | None = None) -> int:
    """Run trials in this process, saying each seed first and what is wrong with it."""
    chosen = [f for f in attack.faults if f.name == fault]
    failed = 0
    for seed in seeds:
        print(f"seed {seed}", flush=True)
        faulthandler.dump_traceback_later(attack.limit, exit=True)
        try:
            with planted(chosen[0]) if chosen else nullcontext():
                attack.trial(seed)
        except Exception:
            failed += 1
            print(traceback.format_exc(), "failed", sep="\n", flush=True)
        faulthandler.cancel_dump_traceback_later()
    return failed


def run_apart(attack: Attack, seeds: Sequence[int], fault: str | None = None) -> list[Finding]:
    """Run trials in processes of their own; a seed that ends one is a finding, the rest go on."""
    return _run_until(attack, seeds, fault, float("inf"))[1]


def _run_until(
    attack: Attack, seeds: Sequence[int], fault: str | None, deadline: float
) -> tuple[int, list[Finding]]:
    """How many trials came to an end before a deadline, and what they found."""
    found: list[Finding] = []
    left = list(seeds)
    while left and time.monotonic() < deadline:
        at, lines, code = _one_process(attack, left, fault, deadline)
        late = time.monotonic() >= deadline  # its process was ended from here
        if at is None and not late:
            raise SystemExit(f"{attack.name}: a process did not start\n" + "\n".join(lines))
        for seed, said in _by_seed(lines):
            if said and said[-1] == "failed":
                found.append(Finding(attack.name, seed, "\n".join(said[:-1])))
            elif seed == at and code and not late:
                said.append(f"the process ended with {code}")
                found.append(Finding(attack.name, seed, "\n".join(said)))
        if late:
            ended = [seed for seed, _ in _by_seed(lines)][: None if code == 0 else -1]
            return len(seeds) - len(left) + len(ended), found
        left = left[left.index(at) + 1 :] if at is not None else []
    return len(seeds) - len(left), found


def _one_process(
    attack: Attack, seeds: Sequence[int], fault: str | None, deadline: float
) -> tuple[int | None, list[str], int]:
    words = [sys.executable, "-m", "tests.attacks", "--here", "--only", attack.name]
    words += ["--seeds", ",".join(map(str, seeds))]
    if fault is not None:
        words += ["--fault", fault]
    with TemporaryDirectory(prefix="ridgeline-attacks-") as cache:
        variables = {"RIDGELINE_CALIBRATE": "0", **os.environ, "RIDGELINE_CACHE_DIR": cache}
        longest = attack.limit * len(seeds) + _GRACE
        longest = min(longest, deadline - time.monotonic() + _LATE)
        child = subprocess.Popen(
            words, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, env=variables
        )
        watch = threading.Timer(longest, child.kill)  # where even the watchdog inside is stuck
        watch.start()
        said, _ = child.communicate()
        watch.cancel()
    lines = said.splitlines()
    begun = [seed for seed, _ in _by_seed(lines)]
    return (begun[-1] if begun else None), lines, child.returncode


def _by_seed(lines: Sequence[str]) -> list[tuple[int, list[str]]]:
    """What was said, under the seed that was said before it."""
    found: list[tuple[int, list[str]]] = []
    for line in lines:
        word, _, number = line.partition(" ")
        if word == "seed" and number.isdigit():
            found.append((int(number), []))
        elif found:
            found[-1][1].append(line)
    return found


def campaign(
    chosen: Sequence[Attack], first: int, trials: int | None, deadline: float, jobs: int
) -> tuple[int, list[Finding]]:
    """Batches of all attacks in turn until the trials or the time are spent."""
    done, found, lock = 0, list[Finding](), threading.Lock()
    tasks = chain.from_iterable(_rounds(chosen, first, trials))

    def following() -> tuple[Attack, list[int]] | None:
        with lock:
            return None if time.monotonic() >= deadline else next(tasks, None)

    def work() -> None:
        nonlocal done
        while task := following():
            attack, seeds = task
            ended, findings = _run_until(attack, seeds, None, deadline)
            with lock:
                done += ended
                found.extend(findings)
                for finding in findings:
                    print(finding, flush=True)

    with ThreadPoolExecutor(jobs) as pool:
        for worker in [pool.submit(work) for _ in range(jobs)]:
            worker.result()
    return done, found


def _rounds(
    chosen: Sequence[Attack], first: int, trials: int | None
) -> Iterator[list[tuple[Attack, list[int]]]]:
    """One batch of each attack, then the next one of each."""
    end = None if trials is None else first + trials
    for begin in count(first, _BATCH):
        if end is not None and begin >= end:
            return
        stop = begin + _BATCH if end is None else min(begin + _BATCH, end)
        yield [(attack, list(range(begin, stop))) for attack in chosen]
