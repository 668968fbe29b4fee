"""The thread of a process that calls MPI: it starts calls in program order and makes progress.

Calls are nonblocking ones of MPI that are tested in turn, with pauses that grow, so that ranks
which wait leave the cores to those that compute. What ends a rank ends the job: an error that
nobody caught, and a call that lasts longer than `RIDGELINE_TIMEOUT` seconds.
"""

from __future__ import annotations

import atexit
import contextlib
import os
import queue
import sys
import threading
import time
from abc import ABC, abstractmethod
from collections.abc import Callable
from types import TracebackType
from typing import Any, TypeVar

import numpy as np

from ridgeline.communicators.calls import CommunicationError
from ridgeline.communicators.interface import Work
from ridgeline.communicators.status import ENDED, FAILED, FOLDER, RUNNING, WAITING, StatusRecord

T = TypeVar("T")
TIMEOUT = "RIDGELINE_TIMEOUT"
_SPINS, _PAUSE, _LONGEST_PAUSE = 200, 2e-5, 1e-3
_BEAT = 0.5  # seconds between looks at whether the rank compiles
# for the launcher to pass on what the rank wrote: it stops reading when a job is aborted
_LAST_WORDS = 1.0


class MpiJob(Work, ABC):
    """A call of MPI under way."""

    def __init__(self, what: str) -> None:
        self.what = what
        self.began = time.monotonic()
        self.request: Any = None
        self._over = threading.Event()
        self._result: np.ndarray = np.empty(0)
        self._error: BaseException | None = None
        self._over_at: float | None = None
        self.engine: Engine | None = None

    def prepare(self, engine: Engine) -> None:
        """What has to happen between the ranks before the call."""

    @abstractmethod
    def begin(self) -> Any:
        """Start the call: MPI's request."""

    def check_received(self, nbytes: int) -> None:
        """Raise where a message has another length than expected."""

    @abstractmethod
    def end(self) -> np.ndarray:
        """The call is over: what the rank gets."""

    def settle(self, error: BaseException | None = None) -> None:
        """The call is over, or has failed."""
        try:
            self._result = self.end() if error is None else self._result
        except BaseException as raised:
            error = raised
        if error is not None and not isinstance(error, CommunicationError):
            error = CommunicationError(f"{self.what}: {error}")
        self._error, self._over_at = error, time.perf_counter()
        self._over.set()

    def done(self) -> bool:
        """True when the call is over."""
        return self._over.is_set()

    def over_at(self) -> float | None:
        """When the thread saw that it was."""
        return self._over_at

    def wait(self) -> np.ndarray:
        """What the rank gets, once it is there."""
        if not self._over.is_set():
            assert self.engine is not None
            self.engine.status.become(WAITING, self.what)
            self._over.wait()
            self.engine.status.become(RUNNING)
        if self._error is not None:
            raise self._error
        return self._result


class _Task(MpiJob):
    """A function that the thread calls, such as one that makes a group."""

    def __init__(self, what: str, function: Callable[[], Any]) -> None:
        super().__init__(what)
        self._function, self.value = function, None

    def begin(self) -> Any:
        """Call it."""
        self.value = self._function()

    def end(self) -> np.ndarray:
        """Nothing: the value is kept."""
        return self._result


class Engine:
    """MPI in this process, and the thread that calls it."""

    def __init__(self) -> None:
        from mpi4py import MPI

        self.mpi: Any = MPI
        self.rank: int = MPI.COMM_WORLD.Get_rank()
        self.status = StatusRecord(self.rank)
        self._timeout = float(os.environ.get(TIMEOUT, "300"))
        self._watched = bool(os.environ.get(FOLDER))  # by a launcher, which knows who compiles
        self._jobs: queue.SimpleQueue[MpiJob | None] = queue.SimpleQueue()
        self._open: list[MpiJob] = []
        self._thread = threading.Thread(target=self._serve, name="MPI", daemon=True)
        self._thread.start()
        self._shown = sys.excepthook
        sys.excepthook = self._failed
        atexit.register(self._end)

    def submit(self, job: MpiJob) -> MpiJob:
        """Put a call behind those that were submitted before."""
        job.engine = self
        self.status.came_to(job.what)
        self._jobs.put(job)
        return job

    def call(self, function: Callable[[], T], what: str) -> T:
        """What a function gives that calls MPI, behind what was submitted before."""
        task = _Task(what, function)
        self.submit(task).wait()
        value: Any = task.value
        return value  # type: ignore[no-any-return]

    def complete(self, request: Any, job: MpiJob) -> None:
        """Make progress until a request of a job is over."""
        pause, spins = _PAUSE, 0
        while not request.Test():
            pause, spins = self._rest(pause, spins)
            self._progress()
            self._check_time(job)

    def _serve(self) -> None:
        while True:
            job = self._next()
            if job is None:
                return
            try:
                job.prepare(self)
                job.request = job.begin()
            except BaseException as error:
                job.settle(error)
                continue
            if job.request is None:
                job.settle()
            else:
                self._open.append(job)

    def _next(self) -> MpiJob | None:
        """The next job; until it comes, those that are open make progress."""
        pause, spins = _PAUSE, 0
        while self._open:
            with contextlib.suppress(queue.Empty):
                return self._jobs.get_nowait()
            self._progress()
            pause, spins = self._rest(pause, spins)
        while True:
            with contextlib.suppress(queue.Empty):
                return self._jobs.get(timeout=_BEAT)
            self.status.beat()

    def _progress(self) -> None:
        for job in list(self._open):
            status = self.mpi.Status()
            try:
                if not job.request.Test(status):
                    self._check_time(job)
                    continue
                job.check_received(status.Get_count(self.mpi.BYTE))
                error = None
            except BaseException as raised:
                error = raised
            self._open.remove(job)
            job.settle(error)

    @staticmethod
    def _rest(pause: float, spins: int) -> tuple[float, int]:
        if spins < _SPINS:
            os.sched_yield()
            return pause, spins + 1
        time.sleep(pause)
        return min(pause * 1.2, _LONGEST_PAUSE), spins

    def _check_time(self, job: MpiJob) -> None:
        if not self._watched and time.monotonic() - job.began > self._timeout:
            raise CommunicationError(
                f"rank {self.rank} waited {self._timeout:g} s in {job.what}",
                help=f"{TIMEOUT} sets how long; a rank that is stuck or has ended never comes",
            )

    def abort(self, reason: str) -> None:
        """End all processes."""
        self.status.become(FAILED, reason)
        sys.stderr.write(f"ridgeline: rank {self.rank} ended the job: {reason}\n")
        sys.stderr.flush()
        time.sleep(_LAST_WORDS)
        self.mpi.COMM_WORLD.Abort(1)

    def _failed(
        self, kind: type[BaseException], error: BaseException, trace: TracebackType | None
    ) -> None:
        """An error that nobody caught: the other ranks would wait for this one."""
        self._shown(kind, error, trace)
        self.abort(f"{kind.__name__}: {error}")

    def _end(self) -> None:
        """Finish what was started, and say so."""
        self._jobs.put(None)
        self.status.become(ENDED)
        self._thread.join(5.0)
