"""The thread of a process that calls MPI: it starts calls and makes progress.

Calls are nonblocking ones of MPI that are tested, with pauses that grow, so that ranks which wait
leave the cores to those that compute. They come from the program (`submit`) and, by way of a
mailbox, from the plans that it runs. What ends a rank ends the job: an error that nobody caught,
and a call that lasts longer than `RIDGELINE_TIMEOUT` seconds.
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
from collections.abc import Iterator, Sequence
from types import TracebackType
from typing import Any, Protocol

import numpy as np

from ridgeline.communicators.calls import CommunicationError
from ridgeline.communicators.interface import Work
from ridgeline.communicators.status import ENDED, FAILED, FOLDER, RUNNING, WAITING, StatusRecord

TIMEOUT = "RIDGELINE_TIMEOUT"
# seconds between two looks at calls: at first, then while the program waits, and while it computes
_PAUSE, _LONGEST_PAUSE, _LONGEST_BESIDE = 5e-5, 3e-4, 1e-3
_SPIN = 1e-4  # seconds of looks without a pause
_BEAT = 0.5  # seconds between looks at whether the rank compiles
# for the launcher to pass on what the rank wrote: it stops reading when a job is aborted
_LAST_WORDS = 1.0


class MpiJob(Work, ABC):
    """A call of MPI under way."""

    is_message = False  # it has to be tested by itself

    def __init__(self, what: str) -> None:
        self.what = what
        self.began = time.monotonic()
        self._steps: Iterator[Any] | None = None
        self.request: Any = None  # of MPI, under way
        self._over = threading.Event()
        self._result: np.ndarray = np.empty(0)
        self._error: BaseException | None = None
        self._over_at: float | None = None
        self.engine: Engine | None = None

    @abstractmethod
    def steps(self) -> Iterator[Any]:
        """Requests of MPI, each started when the one before is over; None: not yet."""

    def has_come(self) -> bool:
        """True where a message is here."""
        return False

    def proceed(self) -> bool:
        """Go on where the request is over, or there is none; true where that was all."""
        if self._steps is None:
            self._steps = self.steps()
        try:
            self.request = next(self._steps)
        except StopIteration:
            return True
        return False

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
            self.engine.waiting += 1
            try:
                self._over.wait()
            finally:
                self.engine.waiting -= 1
            self.engine.status.become(RUNNING)
        if self._error is not None:
            raise self._error
        return self._result


class _Nothing(MpiJob):
    """Wakes the thread."""

    def steps(self) -> Iterator[Any]:
        """There are none."""
        return iter(())

    def end(self) -> np.ndarray:
        """Nothing."""
        return np.empty(0)


class Postbox(Protocol):
    """Where plans post calls: `runtime/cpu/mailbox.py`."""

    def taken(self) -> Sequence[Posted]:
        """What came since it was asked last."""

    def sleep(self, seconds: float) -> None:
        """Until something comes, or one is rung for."""

    def ring(self) -> None:
        """Wake who sleeps."""


class Posted(Protocol):
    """A call that a plan has posted."""

    is_known_to_wait: bool

    @property
    def is_awaited(self) -> bool:
        """True where the plan can do nothing else."""

    @property
    def words(self) -> str:
        """What it is."""

    def begin(self) -> None:
        """Start it."""

    def is_over(self) -> bool:
        """True where finishing takes no time."""

    def finish(self) -> None:
        """Let the plan go on."""

    def fail(self, error: BaseException) -> None:
        """End the plan."""


class _Pause:
    """How long the thread sleeps between two looks: longer and longer, leaving the cores to others.

    It is in a hurry where the program waits for a call, and not where it computes meanwhile.
    """

    def __init__(self, engine: Engine) -> None:
        self._engine, self._began, self._seconds = engine, time.perf_counter(), _PAUSE

    def rest(self) -> None:
        """Let others run for a while."""
        hurries = self._engine.is_awaited()
        if hurries and time.perf_counter() - self._began < _SPIN:
            os.sched_yield()
            return
        self._engine.sleep(self._seconds)
        longest = _LONGEST_PAUSE if hurries else _LONGEST_BESIDE
        self._seconds = min(self._seconds * 1.5, longest)


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
        self._box: Postbox | None = None
        self._posted: list[Posted] = []
        self.parted = 0  # calls whose second half has yet to be started
        self.waiting = 0  # threads of the program that wait for a call
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
        if self._box is not None:
            self._box.ring()
        return job

    def empty(self, box: Postbox) -> None:
        """Take what plans post from now on."""
        self._box = box
        self._jobs.put(_Nothing(""))  # the thread sleeps in the mailbox from now on

    def is_awaited(self) -> bool:
        """True where the program waits; that it does is noted in the rank's record."""
        for posted in self._posted:
            if posted.is_awaited:
                if not posted.is_known_to_wait:
                    posted.is_known_to_wait = True
                    self.status.become(WAITING, posted.words)
                return True
        return self.waiting > 0

    def sleep(self, seconds: float) -> None:
        """Sleep for so long, or until the program wants something."""
        if self._box is None:
            time.sleep(seconds)
        else:
            self._box.sleep(seconds)

    def _serve(self) -> None:
        pause = _Pause(self)
        while True:
            moved = self._take_posted()
            with contextlib.suppress(queue.Empty):
                job = self._jobs.get_nowait()
                if job is None:
                    return
                self._open.append(job)
                moved = True
            if self._progress() or moved:
                self._finish_posted()
                pause = _Pause(self)
            elif self._open:
                pause.rest()
            else:
                self._rest_idle()

    def _rest_idle(self) -> None:
        """Nothing is under way: sleep until something comes, and look whether the rank compiles."""
        self.status.beat()
        if self._box is not None:
            self._box.sleep(_BEAT)
            return
        with contextlib.suppress(queue.Empty):
            job = self._jobs.get(timeout=_BEAT)
            self._open.append(job) if job is not None else self._jobs.put(None)

    def _take_posted(self) -> bool:
        """Submit what plans have posted."""
        new = () if self._box is None else self._box.taken()
        for posted in new:
            try:
                posted.begin()
            except BaseException as error:
                posted.fail(error)
            else:
                self._posted.append(posted)
        return bool(new)

    def _finish_posted(self) -> None:
        """Let plans go on whose calls are over."""
        for posted in [each for each in self._posted if each.is_over()]:
            self._posted.remove(posted)
            posted.finish()
            if posted.is_known_to_wait:
                self.status.become(RUNNING)

    def _progress(self) -> bool:
        """Look at the calls under way; true where one is further than before."""
        moved, over = False, self._over()
        for job in list(self._open):
            try:
                if job.request is None or job in over or job.has_come():
                    is_through = job.proceed()
                    moved = moved or is_through or job.request is not None
                else:
                    is_through = False
                if not is_through:
                    self._check_time(job)
                    continue
                error = None
            except BaseException as raised:
                moved, error = True, raised
            self._open.remove(job)
            job.settle(error)
        return moved

    def _over(self) -> set[MpiJob]:
        """The calls whose requests are over: one look at all of them is what costs least."""
        tested = [job for job in self._open if job.request is not None and not job.is_message]
        try:
            found = self.mpi.Request.Testsome([job.request for job in tested])
        except self.mpi.Exception as error:
            for job in tested:
                self._open.remove(job)
                job.settle(error)
            return set()
        return {tested[number] for number in found or ()}

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
        if self._box is not None:
            self._box.ring()
        self.status.become(ENDED)
        self._thread.join(5.0)
