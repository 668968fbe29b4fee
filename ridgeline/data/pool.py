"""The worker processes of a loader, seen from the loader: tasks out, batches in.

Each worker has a socket of its own. Waiting for a batch is waiting for that socket or for the
process to end, so a killed worker is noticed at once and nothing can hang on a lock it held.
"""

from __future__ import annotations

import _socket
import atexit
import multiprocessing
import pickle
import signal
import socket
import sys
import time
from collections import deque
from collections.abc import Callable
from contextlib import suppress
from functools import partial
from itertools import chain
from multiprocessing import forkserver, resource_tracker
from multiprocessing.connection import wait
from operator import attrgetter
from typing import Any, NoReturn

from ridgeline.atomic import apply
from ridgeline.data import worker
from ridgeline.data.making import BatchMaker
from ridgeline.data.transport import Channel, Message
from ridgeline.errors import RidgelineError
from ridgeline.weak import WeakSet

STARTING = 120.0  # seconds a worker has to start
GRACE = 2.0  # seconds a worker has to end by itself
# imported once, in the server that workers are forked from
_PRELOAD = ["ridgeline.data.worker", "ridgeline.data.unguarded"]


class WorkerError(RidgelineError):
    """A worker process of a loader that died, did not answer, or failed in a dataset."""

    code = "RL0611"


class WorkerTraceback(Exception):
    """Where in a worker process an exception came from; stands as its cause."""

    def __init__(self, number: int, text: str) -> None:
        super().__init__(f"in worker {number}:\n{text}")


def start_server() -> None:
    """Start the process that workers are forked from, unless it runs.

    A terminal sends Ctrl-C to it as well, which would end it while it imports.
    """
    resource_tracker.ensure_running()  # which lets interrupts through again when it starts
    before = signal.pthread_sigmask(signal.SIG_BLOCK, ())  # asked before, for it may raise
    try:
        signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})
        forkserver.ensure_running()
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)


class WorkerPool:
    """Running workers; `close()` ends them, as does the end of the program.

    Those of a pool that is let go read the end of their sockets and end by themselves. Finalizers
    run C code alone: the sockets are closed, and the processes are waited for at the next chance.
    """

    __slots__ = ("__del__", "__weakref__", "channels", "copies", "processes", "timeout")
    __del__: Callable[[], object]

    def __init__(
        self,
        maker: BatchMaker,
        count: int,
        init: Callable[[int], None] | None,
        context: str | None,
        timeout: float,
    ) -> None:
        self.timeout = timeout
        # a batch that is not made into tensors here may be kept by the user: it owns its memory
        self.copies = maker.collate_fn is not None or maker.batch_size is None
        self.processes: list[Any] = []
        self.channels: list[Channel] = []
        _end_abandoned()
        sockets = map(attrgetter("socket"), self.channels)  # of those that there are by then
        closed = map(_socket.socket.close, sockets)  # also of what was closed already
        waited_for = map(abandoned.append, (self.processes,))
        self.__del__ = partial(apply, chain(closed, waited_for))
        _running.add(self)
        try:
            message = _written((maker, init))
            try:
                for number in range(count):
                    self._start(number, count, context)
                    with suppress(ConnectionError):  # a dead worker is met below
                        self.channels[-1].send_message(worker.MAKER, 0, message)
            finally:
                message.close()
            for number in range(count):
                kind, _, value = self._expect(number, STARTING)
                if kind == worker.ERROR:
                    _raise(number, *value)
        except BaseException as error:
            # none has begun to work: who interrupts the start does not wait for them
            grace = GRACE if isinstance(error, Exception) else 0.0
            _shut_down(self.processes, self.channels, grace)
            raise

    def _start(self, number: int, count: int, context: str | None) -> None:
        method = context or ("forkserver" if sys.platform == "linux" else "spawn")
        chosen: Any = multiprocessing.get_context(method)
        if method == "forkserver":
            chosen.set_forkserver_preload(_PRELOAD)
            start_server()
        ours, theirs = socket.socketpair()
        with theirs:
            process = chosen.Process(
                target=worker.main, args=(theirs, number, count), daemon=True,
                name=f"ridgeline-loader-{number}",
            )  # fmt: skip
            self.channels.append(Channel(ours))
            process.start()
            self.processes.append(process)

    def ask(self, number: int, ticket: int, task: tuple[Any, ...]) -> None:
        """Give a worker something to do."""
        try:
            self.channels[number].send(worker.TASK, ticket, task)
        except ConnectionError:
            self._gone(number)

    def answer(self, number: int, ticket: int) -> tuple[bool, Any]:
        """A worker's answer to a task: whether there is a batch, and the batch."""
        while True:
            kind, found, value = self._expect(number, self.timeout or None)
            if found == ticket:  # others are answers to an iteration that was left early
                if kind == worker.ERROR:
                    _raise(number, *value)
                return kind == worker.BATCH, value

    def _expect(self, number: int, patience: float | None) -> tuple[bytes, int, Any]:
        """The next message of a worker."""
        channel, process = self.channels[number], self.processes[number]
        ready = wait([channel.socket, process.sentinel], patience)
        if not ready:
            raise WorkerError(
                f"worker {number} did not answer within {patience:g} s",
                help="raise timeout=, or look for what blocks in the dataset",
            )
        if channel.socket not in ready:
            self._gone(number)
        try:
            return channel.receive(self.copies)
        except EOFError:
            self._gone(number)

    def _gone(self, number: int) -> NoReturn:
        process = self.processes[number]
        process.join(GRACE)
        code = process.exitcode
        how = f"ended with code {code}"
        if code is not None and code < 0:
            how = f"was killed by {signal.Signals(-code).name}"
        self.close()
        raise WorkerError(
            f"worker {number} of the loader {how}",
            note="its own messages, if there are any, are on standard error",
            help="SIGKILL often means a lack of memory; in a script, start loaders with workers "
            'under: if __name__ == "__main__":',
        )

    def close(self) -> None:
        """End the workers and wait until they are gone."""
        _shut_down(self.processes, self.channels, GRACE)


_running: WeakSet[WorkerPool] = WeakSet()
abandoned: deque[list[Any]] = deque()  # processes of pools that were let go


def _end_abandoned() -> None:
    """Wait for the workers of pools that were let go."""
    while abandoned:
        try:
            processes = abandoned.popleft()
        except IndexError:  # another thread took it
            return
        _shut_down(processes, [], GRACE)


@atexit.register
def _end_all() -> None:
    for pool in _running:
        pool.close()
    _end_abandoned()


def _raise(number: int, error: Exception | None, message: str, text: str) -> NoReturn:
    """Raise what a worker raised, with the worker's traceback as the cause."""
    cause = WorkerTraceback(number, text)
    if error is None:
        raise WorkerError(f"worker {number} failed: {message}", note=text) from cause
    raise error from cause


def _written(value: Any) -> Message:
    """What every worker is sent, as one message."""
    try:
        return Message(value)
    except (pickle.PicklingError, AttributeError, TypeError) as error:
        raise WorkerError(
            f"the dataset or a function of the loader cannot be sent to worker processes: {error}",
            help="define it at the top of a module (no lambda, no open file), or use num_workers=0",
        ) from error


def _shut_down(processes: list[Any], channels: list[Channel], grace: float) -> None:
    for channel in channels:
        channel.close()
    deadline = time.monotonic() + grace
    while processes:  # each is taken out when it is gone: an interrupt may end this before
        with suppress(ValueError):  # it is closed already
            _end(processes[-1], max(0.0, deadline - time.monotonic()))
        processes.pop()
    channels.clear()


def _end(process: Any, patience: float) -> None:
    """Wait for a process, kill it where it does not end, and let go of it."""
    process.join(patience)
    if process.is_alive():
        process.kill()
        process.join()
    process.close()
