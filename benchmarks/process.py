"""A worker as its parent sees it: send a command, get an answer or the candidate's error."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Collection, Mapping
from functools import partial
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parent.parent


class CandidateError(Exception):
    """A candidate that could not do the work; the text is what it said last."""


def _devices() -> dict[str, str]:
    """No GPU is seen, so that nobody has to look for one, unless programs are to run there."""
    return {} if os.environ.get("BENCHMARK_DEVICE") else {"CUDA_VISIBLE_DEVICES": ""}


class Worker:
    """One candidate of one workload in a process of its own, which begins to build it at once.

    Workers that are made one after the other thus import and build side by side; `ready` waits.
    """

    def __init__(
        self,
        workload: str,
        candidate: str,
        folder: Path,
        cache: Path,
        cpus: Collection[int] | None = None,
        variables: Mapping[str, str] | None = None,
    ) -> None:
        self.name = candidate
        self._errors = tempfile.TemporaryFile("w+", dir=folder)  # noqa: SIM115
        environment = {
            **os.environ,
            "RIDGELINE_CACHE_DIR": str(cache / "ridgeline"),
            "TORCHINDUCTOR_CACHE_DIR": str(cache / "inductor"),
            "JAX_PLATFORMS": "cpu",  # where there is a GPU, it would take that
            **_devices(),
            **(variables or {}),
        }
        self._process = subprocess.Popen(
            [sys.executable, "-m", "benchmarks.worker", workload, candidate, str(folder)],
            cwd=ROOT,
            env=environment,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=self._errors,
            text=True,
            preexec_fn=None if cpus is None else partial(os.sched_setaffinity, 0, cpus),
        )
        self.send("build")

    def ready(self) -> None:
        """Wait until the candidate is built."""
        self.answer()

    def ask(self, do: str, **arguments: Any) -> dict[str, Any]:
        """Send a command and wait for its answer."""
        self.send(do, **arguments)
        return self.answer()

    def send(self, do: str, **arguments: Any) -> None:
        """Send a command whose answer is waited for later."""
        assert self._process.stdin is not None
        try:
            self._process.stdin.write(json.dumps({"do": do, **arguments}) + "\n")
            self._process.stdin.flush()
        except BrokenPipeError:
            raise CandidateError(self._last_words()) from None

    def answer(self) -> dict[str, Any]:
        """The answer to the earliest command that has none yet."""
        assert self._process.stdout is not None
        line = self._process.stdout.readline()
        if not line:
            raise CandidateError(self._last_words())
        answer: dict[str, Any] = json.loads(line)
        return answer

    def _last_words(self) -> str:
        """The end of what the process wrote to standard error: its exception, as a rule."""
        code = self._process.wait()
        self._errors.seek(0)
        lines = [line.strip() for line in self._errors.read().splitlines() if line.strip()]
        starts = [i for i, line in enumerate(lines) if line.startswith("Traceback")]
        if not starts:
            return lines[-1] if lines else f"ended with exit code {code}"
        raised = [
            line for line in lines[starts[-1] :]
            if line.split(":")[0].replace(".", "").replace("_", "").isalnum() and ":" in line
        ]  # fmt: skip
        return raised[-1] if raised else lines[-1]

    def close(self) -> None:
        """End the process, whatever it is doing."""
        if self._process.poll() is None:
            self._process.terminate()
            self._process.wait()
        for stream in (self._process.stdin, self._process.stdout, self._errors):
            if stream is not None:
                stream.close()
