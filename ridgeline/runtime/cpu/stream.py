"""An asynchronous stream: plans run in order on a native thread while Python goes on.

`enqueue` hands over a plan and returns a `Ticket`. What the work needs is kept alive until it is
done. A short plan that finds the stream empty runs at once on the calling thread, since waking
another one would cost more. A job may have a `check`, called by Python after it has run: what it
raises comes out of the ticket's `wait`, or else of `synchronize`, or else is printed at exit.
"""

from __future__ import annotations

import atexit
import ctypes
import sys
import threading
import traceback
from collections import deque
from collections.abc import Callable, Sequence
from functools import lru_cache
from time import perf_counter_ns
from typing import Any

from ridgeline.atomic import at_fork
from ridgeline.codegen.llvm.machine_code import Library, compile_cached
from ridgeline.runtime.buffer import HostBuffer
from ridgeline.runtime.cpu import executor
from ridgeline.runtime.cpu.executor import NativePlan
from ridgeline.runtime.cpu.stream_ir import (
    BORN,
    CAPACITY,
    COMPLETED,
    EXECUTE,
    STATE_BYTES,
    stream_ir,
)
from ridgeline.runtime.cpu.support_ir import python_function

_SHORT_NS = 20_000  # handing a plan over and back costs about as much as this
_SLICE_NS = 100_000_000  # how long a wait ignores Python's signals

Check = Callable[[], None]


class LostWorkError(RuntimeError):
    """Work that a fork left behind: it was enqueued by the parent and runs there only."""


class Ticket:
    """One enqueued plan: wait for it, or ask whether it is done."""

    __slots__ = ("_check", "_kept", "_stream", "error", "number", "reported", "settled")

    def __init__(self, stream: HostStream, number: int, kept: object, check: Check | None) -> None:
        self._stream, self._kept, self._check = stream, kept, check
        self.number = number  # done once this many jobs of the stream are completed
        self.error: BaseException | None = None
        self.settled = self.reported = False

    @property
    def done(self) -> bool:
        """True once the plan has run and its check was made."""
        self._stream.collect()
        return self.settled

    def wait(self) -> None:
        """Return when the plan has run; raise what its check raised."""
        if not self.settled:
            self._stream.finish(self.number)
        if self.error is not None:
            self.reported = True
            raise self.error

    def settle(self, lost: bool = False) -> None:
        """Make the check and let go of what was kept; the stream calls this once, in order."""
        if lost:
            self.error = LostWorkError("this work was enqueued before a fork, in the parent")
        elif self._check is not None:
            try:
                self._check()
            except BaseException as error:  # whatever it is, it belongs to whoever waits
                self.error = error
        self._kept = self._check = None
        self.settled = True


class HostStream:
    """Plans in order, on a thread of their own that starts with the first one and never ends."""

    def __init__(self) -> None:
        self._state = executor.map_state(STATE_BYTES)
        execute = executor.machine_code().address("ridgeline_execute")
        ctypes.c_int64.from_address(self._state + EXECUTE).value = execute
        self._completed = ctypes.c_int64.from_address(self._state + COMPLETED)
        self._born = ctypes.c_int32.from_address(self._state + BORN)
        self._lock = threading.RLock()
        self._submitted = 0
        self._closed = False
        self._pending: deque[Ticket] = deque()
        self._failed: list[Ticket] = []
        at_fork(
            before=self._before_fork,
            after_in_parent=self._lock.release,
            after_in_child=self._lock.release,
        )
        atexit.register(self._at_exit)

    def enqueue(
        self,
        plan: NativePlan,
        addresses: Sequence[int],
        keep_alive: object = (),
        check: Check | None = None,
    ) -> Ticket:
        """Run a plan after all that was enqueued before. Addresses are checked at once."""
        executor.follow_settings()
        with self._lock:
            self.collect()
            short = 0 < plan.stream_nanoseconds < _SHORT_NS
            if (short and not self._pending) or self._closed:
                return self._run_here(plan, addresses, keep_alive, check)
            if len(self._pending) >= CAPACITY:
                self.finish(self._submitted - CAPACITY // 2)
            slot_bytes = -(-8 * plan.slots // 64) * 64
            memory = HostBuffer.allocate(slot_bytes + plan.arena_bytes)
            slots, arena = memory.address, memory.address + slot_bytes
            if not _native().enqueue(plan.address, arena, self._state, slots, *addresses):
                raise RuntimeError("the system refuses to start another thread")
            self._submitted += 1
            ticket = Ticket(self, self._submitted, (plan, memory, keep_alive), check)
            self._pending.append(ticket)
            return ticket

    def _run_here(
        self, plan: NativePlan, addresses: Sequence[int], keep_alive: object, check: Check | None
    ) -> Ticket:
        """Run a plan on this thread, after all the others, and see whether it still is short."""
        self.finish(self._submitted)
        start = perf_counter_ns()
        plan.run(addresses)
        plan.stream_nanoseconds = perf_counter_ns() - start
        ticket = Ticket(self, self._submitted, keep_alive, check)
        self._settle(ticket)
        return ticket

    def synchronize(self) -> None:
        """Wait for everything enqueued so far; raise what nobody has been told of yet."""
        self.finish(self._submitted)
        with self._lock:
            errors = [t.error for t in self._failed if t.error is not None and not t.reported]
            self._failed.clear()
        if len(errors) == 1:
            raise errors[0]
        if errors:
            raise BaseExceptionGroup("several pieces of work failed", errors)

    def collect(self) -> None:
        """Settle what has been completed: checks are made, memory is let go of."""
        with self._lock:
            lost = self._submitted > 0 and not self._born.value
            completed = self._completed.value
            while self._pending and (lost or self._pending[0].number <= completed):
                self._settle(self._pending.popleft(), lost)
            if lost:  # this is a forked child, with a new and empty stream
                self._submitted = 0

    def finish(self, number: int) -> None:
        """Wait until `number` jobs are completed and settled."""
        while self._completed.value < number and self._born.value:
            _native().wait(self._state, number, _SLICE_NS)
        self.collect()

    def _settle(self, ticket: Ticket, lost: bool = False) -> None:
        ticket.settle(lost)
        if ticket.error is not None:
            self._failed = [known for known in self._failed if not known.reported]
            self._failed.append(ticket)

    def _before_fork(self) -> None:
        """A child gets finished results, not memory that only its parent goes on filling."""
        self._lock.acquire()
        self.finish(self._submitted)

    def _at_exit(self) -> None:
        """Finish, and from here on run what still comes at once: memory is about to go."""
        self._closed = True
        try:
            self.synchronize()
        except BaseException:
            print("work on a stream failed, and nobody waited for it:", file=sys.stderr)
            traceback.print_exc()


class _Native:
    """The stream's machine code, as Python calls it."""

    def __init__(self) -> None:
        library = Library.load(compile_cached(stream_ir()))
        self.enqueue = python_function("enqueue", library.address("ridgeline_enqueue"))
        kinds = (ctypes.c_void_p, ctypes.c_int64, ctypes.c_int64)
        self.wait: Any = ctypes.CFUNCTYPE(ctypes.c_bool, *kinds)(library.address("ridgeline_wait"))


@lru_cache(maxsize=1)
def _native() -> _Native:
    return _Native()


@lru_cache(maxsize=1)
def default_stream() -> HostStream:
    """The CPU's own stream."""
    return HostStream()
