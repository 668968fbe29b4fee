"""The fuzzer and all attacks at once, on a machine with many cores: `python tools/campaign.py`.

Random programs on the CPU, on a GPU where there is one, and the attacks share the cores until the
minutes are over. Only what is found is printed, each with its seed, then a count of every part.
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
import threading
import time
from collections.abc import Sequence

_END = 25  # seconds in which parts end what they began


class Part:
    """A search in a process of its own, of whose lines those about findings are kept."""

    def __init__(self, name: str, words: Sequence[str], threads: int) -> None:
        self.name, self.said = name, list[str]()
        variables = {"RIDGELINE_THREADS": str(threads), **os.environ}
        print(f"{name}: python", *words, flush=True)
        self._child = subprocess.Popen(
            [sys.executable, *words], stdout=subprocess.PIPE, text=True, env=variables,
            stderr=subprocess.DEVNULL,
        )  # fmt: skip
        self._reader = threading.Thread(target=self._read, daemon=True)
        self._reader.start()

    def _read(self) -> None:
        assert self._child.stdout is not None
        self.said.extend(line.rstrip() for line in self._child.stdout if not _progress(line))

    def end(self, limit: float) -> bool:
        """Print what was found; whether that is nothing and all of the part came to its end."""
        try:
            self._child.wait(max(limit, 0.1))
        except subprocess.TimeoutExpired:
            self._child.kill()
        self._reader.join(5)
        print(f"---- {self.name}", *self.said, sep="\n", flush=True)
        return self._child.returncode == 0


def _progress(line: str) -> bool:
    return line.endswith(" s\n") and " faults, " in line and " of " not in line


def main() -> int:
    """Run all parts, and say which found something."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seed", type=int, default=0, help="of all parts")
    parser.add_argument("--minutes", type=float, default=8)
    parser.add_argument("--cores", type=int, default=os.cpu_count())
    parser.add_argument("--programs", type=int, default=20_000, help="on the CPU")
    parser.add_argument("--gpu-programs", type=int, default=0, help="on a GPU")
    given = parser.parse_args()
    end = time.monotonic() + given.minutes * 60
    seconds = given.minutes * 60 - _END
    attacking = max(1, given.cores // 5)
    on_gpu = given.cores // 4 if given.gpu_programs else 0
    searching = max(1, given.cores - attacking - on_gpu)
    fuzzer = ["-m", "tests.fuzz", "--seed", str(given.seed), "--seconds", f"{seconds:.0f}"]
    words = [*fuzzer, "--programs", str(given.programs), "--jobs", str(searching)]
    parts = [Part("fuzzer", words, 2)]
    if on_gpu:
        words = [*fuzzer, "--programs", str(given.gpu_programs), "--jobs", str(on_gpu)]
        parts.append(Part("fuzzer on a GPU", [*words, "--device", "cuda"], 2))
    words = ["-m", "tests.attacks", "--seed", str(given.seed), "--jobs", str(attacking)]
    parts.append(Part("attacks", [*words, "--hours", f"{seconds / 3600:.4f}"], 2))
    found = [part.name for part in parts if not part.end(end - time.monotonic())]
    print(f"findings of: {', '.join(found)}" if found else "nothing found", flush=True)
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main())
