"""Calls that the main thread waits for in Python, so that signals are handled meanwhile.

Machine code of a kernel that never ends holds its thread for ever, and Python handles signals in
the main thread alone. There such a call runs in a thread that is kept for it; what a handler raises
stops the call.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from queue import SimpleQueue

Call = Callable[[], object]


class _Helper:
    """A thread that makes one call after another."""

    def __init__(self) -> None:
        self.calls: SimpleQueue[tuple[Call, threading.Lock, list[BaseException]]] = SimpleQueue()
        self.busy = False
        self.thread = threading.Thread(target=self._serve, name="kernels", daemon=True)
        self.thread.start()

    def _serve(self) -> None:
        while True:
            call, done, failed = self.calls.get()
            try:
                call()
            except BaseException as error:
                failed.append(error)
            finally:
                del call
                done.release()

    def run(self, call: Call, stop: Call) -> None:
        """Wait for a call; `stop` makes it end early."""
        done, failed = threading.Lock(), list[BaseException]()
        done.acquire()
        self.busy = True
        self.calls.put((call, done, failed))
        try:
            done.acquire()
        except BaseException:
            stop()
            done.acquire()
            raise
        finally:
            self.busy = False
        if failed:
            raise failed[0]


_helper: _Helper | None = None


def run_apart(call: Call, stop: Call) -> None:
    """Make a call in another thread and wait; for the main thread, which handles signals."""
    global _helper
    helper = _helper
    if helper is None or helper.busy or not helper.thread.is_alive():
        helper = _helper = _Helper()  # the first, in a handler during a call, or after a fork
    helper.run(call, stop)
