"""What only a real GPU shows, in six minutes: `python tools/check_gpu.py`.

The seams between devices and what failed calls leave behind, as tests; the attack on seams with
several seeds at a time; then the fuzzer for the time that is left. Each part has its own limit, and
the last line says which of them failed.
"""

from __future__ import annotations

import argparse
import subprocess
import sys
import time
from collections.abc import Sequence

TESTS = ("test_seams_gpu.py", "test_faults_gpu.py", "test_contexts_gpu.py")


def started(words: Sequence[str]) -> subprocess.Popen[bytes]:
    """A part as a process of its own."""
    print("$ python", *words, flush=True)
    return subprocess.Popen([sys.executable, *words])


def ended(processes: Sequence[subprocess.Popen[bytes]], limit: float) -> bool:
    """Whether all of some processes end well within a limit."""
    end = time.monotonic() + limit
    for process in processes:
        try:
            process.wait(max(end - time.monotonic(), 0.1))
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()
    return not any(process.returncode for process in processes)


def main() -> int:
    """Run all parts, and say which failed."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seed", type=int, default=0, help="of the attack and of the fuzzer")
    parser.add_argument("--jobs", type=int, default=8, help="processes at a time")
    parser.add_argument("--minutes", type=float, default=6)
    parser.add_argument("--programs", type=int, default=3000, help="for the fuzzer")
    given = parser.parse_args()
    end = time.monotonic() + given.minutes * 60
    files = [f"tests/cuda/{name}" for name in TESTS]
    passed = {"tests": ended([started(["-m", "pytest", "-m", "gpu", "-q", *files])], 170)}
    attack = ["-m", "tests.attacks", "--only", "seams", "--device", "cuda", "--hours", "0.015"]
    processes = [
        started([*attack, "--seed", str(given.seed + 10_000 * n), "--jobs", "1"])
        for n in range(given.jobs)
    ]
    passed["attack"] = ended(processes, 120)
    left = max(end - time.monotonic() - 15, 30)
    fuzzer = ["-m", "tests.fuzz", "--device", "cuda", "--programs", str(given.programs)]
    fuzzer += ["--seed", str(given.seed), "--jobs", str(given.jobs), "--seconds", f"{left:.0f}"]
    passed["fuzzer"] = ended([started(fuzzer)], left + 60)
    failed = [name for name, fine in passed.items() if not fine]
    print(f"failed: {', '.join(failed)}" if failed else "all passed", flush=True)
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
