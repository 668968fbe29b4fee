"""Background compilation: one thread, which yields to whoever waits for the compiler.

A job passes `checkpoint` between passes and between kernels. It stops there when the process ends,
and when another thread needs the compiler at once; then it is begun again afterwards, and what it
left in the caches makes that short.

Where the program itself waits long for the compiler, one line on stderr says so (`Announced`).
"""

from __future__ import annotations

import atexit
import sys
import threading
import warnings
from collections import deque
from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from itertools import repeat
from threading import Timer
from typing import Any

from ridgeline.atomic import Block, at_fork
from ridgeline.codegen.llvm import machine_code  # noqa: F401  # see `Background`
from ridgeline.communicators.status import compile_state
from ridgeline.config import config
from ridgeline.graph.graph import Graph
from ridgeline.graph.origins import user_line

MOST_WAITING = 32  # jobs; more are not taken, since they would come too late to help
_PAUSE = 0.02  # seconds between looks whether the compiler is free
_LONGEST_KERNEL = 10.0  # seconds that the end of the process waits for the kernel under way
PATIENCE = 0.5  # seconds until something is said


class GaveWay(BaseException):
    """Cancels a background job: the compiler is needed at once, or the process ends."""


def report_defect(what: str, error: Exception) -> None:
    """Report that the compiler failed in a place where the program goes on without it."""
    warnings.warn(
        f"{what} could not be compiled and runs as before: a defect of the compiler, please report "
        f"it: {type(error).__name__}: {error}",
        RuntimeWarning,
        stacklevel=2,
    )


class Background:
    """The compile jobs of a process, and the thread that runs them one at a time."""

    def __init__(self) -> None:
        self._forget()
        at_fork(
            before=self._before_fork,
            after_in_parent=self._after_fork,
            after_in_child=self._forget,
        )
        # behind what `machine_code` registers: the thread ends while it can still call LLVM
        atexit.register(self._end)

    def _forget(self) -> None:
        """Start without jobs and without a thread, as in a forked child."""
        # taken by itself: a condition is entered in Python, where an interrupt leaves it taken
        self._lock = threading.RLock()
        self._changed = threading.Condition(self._lock)
        self._jobs: deque[Callable[[], None]] = deque()
        self._thread: threading.Thread | None = None
        self._busy = False
        self._needed: list[None] = []  # one for each thread that compiles, or waits to
        self._ending = False

    def submit(self, job: Callable[[], None], next: bool = False) -> bool:
        """Queue a job, at the end or as the next one; False if the queue is full."""
        with self._lock:
            if self._ending or len(self._jobs) >= MOST_WAITING:
                return False
            if next:
                self._jobs.insert(1, job)  # the first is under way
            else:
                self._jobs.append(job)
            if self._thread is None:
                self._thread = threading.Thread(
                    target=self._work, name="ridgeline-compiler", daemon=True
                )
                self._thread.start()
            self._changed.notify_all()
        return True

    def is_here(self) -> bool:
        """True in the thread that runs the jobs."""
        return threading.current_thread() is self._thread

    def checkpoint(self) -> None:
        """Where a job can be cancelled; elsewhere it does nothing."""
        if (self._needed or self._ending) and self.is_here():
            raise GaveWay

    def needed(self) -> AbstractContextManager[Any]:
        """A block in which the calling thread uses the compiler and jobs wait."""
        if self.is_here():
            return nullcontext()
        needed = repeat(self._needed)
        return Block(map(list.append, needed, repeat(None)), map(list.pop, needed))

    def _before_fork(self) -> None:
        """Stop the job: in a child its locks would be held by a thread that does not exist."""
        with self._lock:
            self._needed.append(None)
            self._changed.wait_for(lambda: not self._busy or self.is_here(), _LONGEST_KERNEL)

    def _after_fork(self) -> None:
        self._needed.pop()

    def wait(self) -> None:
        """Return when all submitted jobs are done."""
        with self._lock:
            self._changed.wait_for(lambda: not self._jobs)

    def _work(self) -> None:
        while True:
            with self._lock:
                self._changed.wait_for(lambda: self._ending or self._jobs)
                while self._needed and not self._ending:  # whose end nobody tells of
                    self._changed.wait(_PAUSE)
                if self._ending:
                    return
                job = self._jobs[0]
                self._busy = True
            done = True
            try:
                job()
            except GaveWay:
                done = False
            with self._lock:
                self._busy = False
                if done:
                    self._jobs.popleft()
                self._changed.notify_all()

    def _end(self) -> None:
        with self._lock:
            self._ending = True
            self._changed.notify_all()
        if self._thread is not None:
            self._thread.join(_LONGEST_KERNEL)


background = Background()


class Announced:
    """A block that compiles a graph; if that takes long, it prints a line meanwhile."""

    def __init__(self, graph: Graph) -> None:
        self._timer: Timer | None = None
        if config.announce and not background.is_here():
            self._timer = Timer(PATIENCE, _say, [_waiting_for(graph)])
            self._timer.daemon = True

    def __enter__(self) -> None:
        compile_state.depth += 1
        if self._timer is not None:
            self._timer.start()

    def __exit__(self, *_: object) -> None:
        compile_state.depth -= 1
        if self._timer is not None:
            self._timer.cancel()


def _waiting_for(graph: Graph) -> str:
    devices = sorted({node.type.device for node in graph.outputs})
    line = user_line()
    needed = f", needed at {line}" if line else ""
    return f"ridgeline: compiling {len(graph.order)} ops for {', '.join(devices)}{needed} …"


def _say(text: str) -> None:
    if sys.stderr is not None:  # a program without a console has none
        sys.stderr.write(text + "\n")
