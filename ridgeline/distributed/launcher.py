"""`ridgeline launch`: processes of one job under mpiexec, watched until all have ended.

Every rank keeps a record of what it does (`communicators/status.py`). A job in which all that are
left wait, or in which one waits for longer than the timeout, is ended here, and what every rank was
doing is said. After a death the record of the dead rank tells what it did last.
"""

from __future__ import annotations

import contextlib
import os
import select
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from ridgeline.communicators.mpi_engine import TIMEOUT
from ridgeline.communicators.status import (
    COMPILING,
    ENDED,
    FAILED,
    FOLDER,
    RUNNING,
    WAITING,
    Status,
    read_records,
)
from ridgeline.distributed.discovery import JobStartError
from ridgeline.errors import BadValueError

RESTART = "RIDGELINE_RESTART"  # how often the job was started again
_LOOK = 0.1  # seconds between looks at the records
_STUCK = 2.0  # seconds after which ranks that all wait are taken to wait for ever


@dataclass(frozen=True, slots=True)
class LaunchedJob:
    """What to start, how often, and for how long a rank may be silent."""

    ranks: int
    command: tuple[str, ...]
    timeout: float = 300.0
    restarts: int = 0


def launch(job: LaunchedJob) -> int:
    """Run a job to its end, again if it fails and restarts are left; its exit code."""
    if job.ranks < 1:
        raise BadValueError(f"a job has at least one rank, not {job.ranks}")
    if job.timeout <= 0 or job.restarts < 0:
        raise BadValueError("a timeout is more than nothing, and restarts are 0 or more")
    prefix = mpiexec(job.ranks)
    for attempt in range(job.restarts + 1):
        code = _run_once(job, prefix, attempt)
        if code == 0 or code == -signal.SIGINT or attempt == job.restarts:
            return code
        _say(f"the job failed with code {code}; start {attempt + 2} of {job.restarts + 1}")
    return 0


def mpiexec(ranks: int) -> list[str]:
    """The command that starts some processes: of the MPI beside this Python, or another one."""
    beside = Path(sys.executable).with_name("mpiexec")
    found = str(beside) if beside.exists() else shutil.which("mpiexec")
    if found is None:
        raise JobStartError(
            "there is no mpiexec here", help="pip install 'ridgeline[distributed]' brings one"
        )
    version = subprocess.run([found, "--version"], capture_output=True, text=True, check=False)
    if "Open MPI" in version.stdout or "prte" in version.stdout.lower():
        return [found, "--allow-run-as-root", "--oversubscribe", "--bind-to", "none",
                "-n", str(ranks)]  # fmt: skip
    return [found, "-n", str(ranks)]


def _run_once(job: LaunchedJob, prefix: Sequence[str], attempt: int) -> int:
    with tempfile.TemporaryDirectory(prefix="ridgeline-job-") as folder:
        environment = _environment(job, folder, attempt)
        process = subprocess.Popen(
            [*prefix, sys.executable, "-m", "ridgeline.distributed.launched", *job.command],
            env=environment,
            start_new_session=True,
        )
        watch = _Watch(process, Path(folder), job)
        try:
            reason = watch.until_the_end()
        except BaseException:
            _end(process, Path(folder))
            raise
        if reason:
            _say(reason)
            _end(process, Path(folder))
            return 1
        if process.returncode:
            _say(death(read_records(Path(folder)), watch.dead, process.returncode))
        return process.returncode


def _environment(job: LaunchedJob, folder: str, attempt: int) -> dict[str, str]:
    """What ranks are told: where their records are, and their share of the cores."""
    share = max(1, len(os.sched_getaffinity(0)) // job.ranks)
    return {
        "RIDGELINE_THREADS": str(share),
        "OMP_NUM_THREADS": str(share),
        **os.environ,
        FOLDER: folder,
        RESTART: str(attempt),
        TIMEOUT: str(job.timeout),
    }


class _Watch:
    """A job that runs: who of it has died first, and whether it can go on."""

    def __init__(self, process: subprocess.Popen[bytes], folder: Path, job: LaunchedJob) -> None:
        self._process, self._folder, self._job = process, folder, job
        self.dead: tuple[int, ...] = ()  # who was gone first

    def until_the_end(self) -> str:
        """Why the job has to be ended, or nothing where it ended by itself."""
        with contextlib.closing(Deaths()) as deaths:
            while self._process.poll() is None:
                gone = deaths.next(_LOOK)
                self.dead = self.dead or gone
                if gone:  # mpiexec ends the others
                    time.sleep(_LOOK)
                records = read_records(self._folder)
                missed = deaths.watch(records)
                self.dead = self.dead or missed
                reason = fault(records, self._job.ranks, self._job.timeout, time.time())
                if reason:
                    return reason
        return ""


class Deaths:
    """Ranks whose processes end, in the order in which they do, however late one asks.

    mpiexec ends all ranks soon after the first has died, often before anybody looks; the kernel's
    list of what is ready keeps the order.
    """

    def __init__(self) -> None:
        self._ranks: dict[int, int] = {}  # by the descriptors of their processes
        self._ready = select.epoll()

    def close(self) -> None:
        """Let go of the kernel's lists."""
        self._ready.close()
        for number in self._ranks:
            os.close(number)

    def watch(self, records: Sequence[Status]) -> tuple[int, ...]:
        """Watch the processes of ranks that are new; those that were gone before."""
        missed = []
        for each in records:
            if each.rank not in self._ranks.values():
                try:
                    number = os.pidfd_open(each.process)
                except OSError:
                    missed.append(each.rank)
                    continue
                self._ranks[number] = each.rank
                self._ready.register(number, select.EPOLLIN)
        return tuple(missed)

    def next(self, seconds: float) -> tuple[int, ...]:
        """The first rank that has died, waiting for one for a while; later calls turn to others."""
        return tuple(self._ranks[number] for number, _ in self._ready.poll(seconds, 1))


def fault(records: Sequence[Status], ranks: int, timeout: float, now: float) -> str:
    """What is wrong with a job, by the records of its ranks; nothing where it may go on."""
    waiting = [each for each in records if each.state == WAITING]
    if not waiting or len(records) < ranks:
        return ""
    shortest = min(now - each.since for each in waiting)
    longest = max(waiting, key=lambda each: now - each.since)
    over = [each for each in records if each.state in (ENDED, FAILED)]
    told = "".join(f"\n  {each}" for each in records)
    if len(waiting) + len(over) == ranks and shortest > _STUCK:
        return f"no rank can go on: all that are left wait{told}"
    compiles = any(each.state == COMPILING for each in records)
    if now - longest.since > timeout and not compiles:
        silent = ", ".join(str(each.rank) for each in records if each.state == RUNNING)
        return (
            f"rank {silent} is silent: rank {longest.rank} has waited for it for more than "
            f"{timeout:g} s{told}"
        )
    return ""


def death(records: Sequence[Status], dead: Sequence[int], code: int) -> str:
    """What ranks did when the job died: the one that failed, or else the first that was gone."""
    how = f"signal {signal.Signals(-code).name}" if code < 0 else f"code {code}"
    failed = [each for each in records if each.state == FAILED]
    if failed:
        return f"the job ended with {how}: {failed[0]}"
    told = "".join(f"\n  {each}" for each in records)
    active = [each.rank for each in records if each.rank in dead and each.state != WAITING]
    names = ", ".join(map(str, active or dead))  # of several, those that waited died of the others
    who = f"rank {names} died" if names else "a rank died"
    return f"{who} (the job ended with {how}); before that{told}"


def _is_alive(process: int) -> bool:
    try:
        os.kill(process, 0)
    except OSError:
        return False
    return True


def _end(process: subprocess.Popen[bytes], folder: Path) -> None:
    """End mpiexec and what is left of the ranks."""
    for number in (signal.SIGTERM, signal.SIGKILL):
        try:
            os.killpg(process.pid, number)
            process.wait(1.0)
            break
        except subprocess.TimeoutExpired:
            continue
        except ProcessLookupError:
            break
    for record in read_records(folder):
        if _is_alive(record.process):
            os.kill(record.process, signal.SIGKILL)


def _say(text: str) -> None:
    sys.stderr.write(f"ridgeline launch: {text}\n")
    sys.stderr.flush()
