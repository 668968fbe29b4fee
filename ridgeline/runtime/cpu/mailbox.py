"""A rank's mailbox: what its plans post for other ranks, and the thread that sees to it.

Plans post collectives and wait for them in machine code (`mailbox_ir.py`). Here is the other side:
a thread of the rank takes what was posted, starts it on the communicator of its group in the order
in which it was posted, and settles it when it is over. Where MPI has a thread of its own, that one
does it (`communicators/mpi_engine.py`).
"""

from __future__ import annotations

import ctypes
import threading
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

import numpy as np

from ridgeline.communicators.agreements import Agreement, GroupCalls, ProgramRun
from ridgeline.communicators.current import Rank, acting_as, current_rank, simulated_rank
from ridgeline.communicators.interface import Work
from ridgeline.compiler.backend import known
from ridgeline.compiler.posted_calls import CONTEXT_BYTES
from ridgeline.dtypes import int64
from ridgeline.graph.node import Node
from ridgeline.ops.started import WaitAttrs, announced, begun, operands, result_of
from ridgeline.runtime.buffer import HostBuffer, array_at
from ridgeline.runtime.cpu.executor import machine_code
from ridgeline.runtime.cpu.mailbox_ir import (
    AXES,
    CALL,
    CONTEXT,
    ENTRIES,
    ENTRY_BYTES,
    FAILED,
    FAILED_TICKET,
    FREE,
    HAS_FAILED,
    MAILBOX,
    MAILBOX_BYTES,
    MOST_AXES,
    OPERANDS,
    OVER,
    RESULT,
    RING,
    STATE,
    UNDER_WAY,
    WAITING,
)
from ridgeline.runtime.cpu.support_ir import prepare
from ridgeline.runtime.memory import map_pages
from ridgeline.scalars import Array


@dataclass(frozen=True)
class PostedCall:
    """A collective of a program: the nodes that start it and wait for it."""

    start: Node
    wait: Node

    @property
    def group(self) -> str:
        """The key of its group."""
        key: str = self.start.attrs.group.key
        return key


class PostedProgram:
    """The collectives of a program, in the order in which they are started."""

    def __init__(self, calls: Sequence[PostedCall]) -> None:
        self.calls = tuple(calls)
        self.words: list[str] = []  # for the rank's record
        found: dict[str, list[tuple[str, str]]] = {}
        for call in calls:
            each = announced(call.start)
            self.words.append(call.start.op.name if each is None else each[0])
            if each is not None:
                found.setdefault(call.group, []).append(each)
        self._along = {
            group: GroupCalls(
                tuple(words for words, _ in each), tuple(agreed for _, agreed in each)
            )
            for group, each in found.items()
        }

    def agreements(self, run: ProgramRun) -> dict[str, Agreement]:
        """What a run is going to do along each group."""
        return {group: Agreement(calls, run) for group, calls in self._along.items()}


class PostedRun:
    """One run of a program, and the memory that must outlive its calls.

    It is freed when nobody has it any more, and so is the memory: it is in no cycle.
    """

    def __init__(self, program: PostedProgram, context: HostBuffer, held: Sequence[Any]) -> None:
        self.program, self.context, self.kept = program, context, list(held)
        self.state = ProgramRun()
        self.agreements = program.agreements(self.state)
        self.first = 0  # ticket that it can have

    def failed(self) -> int | None:
        """The ticket of the call that ended it."""
        words = _words_at(self.context.address, CONTEXT_BYTES)
        return int(words[FAILED_TICKET // 8]) if words[HAS_FAILED // 8] else None


class PostedEntry:
    """One call that a plan has posted."""

    def __init__(self, mailbox: Mailbox, ticket: int, run: PostedRun, words: Array) -> None:
        self._mailbox, self.ticket, self._run, self._words = mailbox, ticket, run, words
        self._number = int(words[CALL // 8])
        self._call = run.program.calls[self._number]
        self._out: Array | None = None
        self._work: Work | None = None
        self.is_known_to_wait = False

    @property
    def is_awaited(self) -> bool:
        """True where the plan can do nothing else."""
        return bool(self._words[WAITING // 8])

    def begin(self) -> None:
        """Start it on the communicator of its group."""
        call, place = self._call, OPERANDS // 8
        given = [
            array_at(int(address), node.dtype, known(node.shape))
            for address, node in zip(self._words[place:], operands(call.start))
        ]
        result = int(self._words[RESULT // 8])
        kind = call.wait.type
        self._out = array_at(result, kind.dtype, known(kind.shape)) if result else None
        agreement = self._run.agreements.get(call.group)
        self._work = begun(call.start, given, self._out, agreement)

    def expect(self) -> None:
        """Tell the communicator that the plan waits."""
        if self._work is not None:
            self._work.expected()

    @property
    def words(self) -> str:
        """What it is, for the rank's record."""
        return self._run.program.words[self._number]

    def is_over(self) -> bool:
        """True where finishing takes no time."""
        return self._work is not None and self._work.done()

    def finish(self) -> None:
        """Put the result where it belongs, and let the plan go on."""
        try:
            assert self._work is not None
            attrs: WaitAttrs = self._call.wait.attrs
            rank = self._mailbox.rank.group(self._call.group).rank
            found = result_of(attrs, rank, self._work.wait())
            if self._out is not None and found is not self._out:
                np.copyto(self._out, found, casting="no")
        except BaseException as error:
            self.fail(error)
        else:
            self._mailbox.settle(self.ticket, self._run, OVER)

    def fail(self, error: BaseException) -> None:
        """End the run with an error."""
        self._mailbox.errors[self.ticket] = error
        self._mailbox.settle(self.ticket, self._run, FAILED)


class Mailbox:
    """The memory of a mailbox, from the side of the rank that empties it."""

    def __init__(self) -> None:
        self.address = _free.pop() if _free else map_pages(MAILBOX_BYTES)[0]
        prepare(self.address)
        self._memory = _words_at(self.address, MAILBOX_BYTES)
        self._next, self._heard = 0, 0
        self._runs: dict[int, PostedRun] = {}  # by the addresses of their contexts
        self._lock = threading.Lock()
        self.errors: dict[int, BaseException] = {}
        self.rank: Rank = current_rank()
        self.is_closed = False

    # ---- what a program does ---------------------------------------------------------------------

    def begin(self, run: PostedRun) -> None:
        """A run is about to post."""
        if any(each.state.is_left for each in list(self._runs.values())):
            self._forget_left()
        words = _words_at(run.context.address, CONTEXT_BYTES)
        words[:] = 0
        words[MAILBOX // 8] = self.address
        run.first = _native().head(self.address)
        self._runs[run.context.address] = run

    def end(self, run: PostedRun) -> None:
        """A run has waited for everything that it posted."""
        del self._runs[run.context.address]

    def _forget_left(self) -> None:
        """Let go of runs that ended early, as far as nothing of theirs is under way any more."""
        with self._lock:
            for run in [each for each in self._runs.values() if each.state.is_left]:
                under_way = False
                for ticket in range(run.first, _native().head(self.address)):
                    words = self._entry(ticket)
                    if int(words[CONTEXT // 8]) != run.context.address:
                        continue
                    under_way |= words[STATE // 8] == UNDER_WAY
                    if words[STATE // 8] in (OVER, FAILED):
                        words[STATE // 8] = FREE
                if not under_way:
                    del self._runs[run.context.address]

    def raise_failure(self, run: PostedRun) -> None:
        """Raise what has ended a run."""
        ticket = run.failed()
        if ticket is not None:
            raise self.errors.pop(ticket)

    def settle(self, ticket: int, run: PostedRun, state: int) -> None:
        """Say that a call is over, or has failed."""
        with self._lock:
            _native().settle(self.address, ticket, FREE if run.state.is_left else state)

    # ---- what the thread beside it does ----------------------------------------------------------

    def taken(self) -> list[PostedEntry]:
        """What was posted since it was asked last, in order."""
        found = []
        while (words := self._entry(self._next))[STATE // 8] == UNDER_WAY:
            run = self._runs[int(words[CONTEXT // 8])]
            found.append(PostedEntry(self, self._next, run, words))
            self._next += 1
        return found

    def sleep(self, seconds: float) -> None:
        """Until something is posted or awaited since one slept last, or time is over."""
        self._heard = _native().sleep(self.address, self._heard, int(seconds * 1e9))

    def ring(self) -> None:
        """Wake the thread that sleeps."""
        _native().ring(self.address)

    def close(self) -> None:
        """Nobody posts any more."""
        self.is_closed = True
        self.ring()

    def give_back(self) -> None:
        """Let another rank have the memory: the thread is through with it."""
        if not self._runs:  # of a run that was left a call may still be under way
            used = min(_native().head(self.address), ENTRIES)
            self._memory[RING // 8 : (RING + used * ENTRY_BYTES) // 8] = 0
            _free.append(self.address)

    def take_times(self) -> None:
        """Add what plans waited, and what passed while they computed, to the rank's counters."""
        for name, number in list(_axes.items()):
            place = AXES // 8 + 2 * number
            with self._lock:
                exposed, hidden = map(int, self._memory[place : place + 2])
                self._memory[place : place + 2] -= (exposed, hidden)
            if exposed or hidden:
                self.rank.world.counters.waited(name, exposed * 1e-9, hidden * 1e-9)

    def _entry(self, ticket: int) -> Array:
        place = (RING + (ticket % ENTRIES) * ENTRY_BYTES) // 8
        return self._memory[place : place + ENTRY_BYTES // 8]


def mailbox_of(rank: Rank) -> Mailbox:
    """The mailbox of the calling rank, and somebody who empties it."""
    if rank.mailbox is None:
        with _making:
            if rank.mailbox is None:
                made = Mailbox()
                if not rank.world.serve(made):
                    _Servant(made, simulated_rank()).start()
                rank.world.counters.sources.append(made.take_times)
                rank.mailbox = made
    mailbox: Mailbox = rank.mailbox
    return mailbox


def axis_number(name: str) -> int:
    """The number under which times along an axis are counted; the last is shared."""
    with _making:
        return _axes.setdefault(name, min(len(_axes), MOST_AXES - 1))


_free: list[int] = []  # memory of mailboxes that were given back
_making = threading.Lock()
_axes: dict[str, int] = {}
# seconds between two looks at calls under way, and where the communicator rings when one is over
_PAUSE, _LONGEST_PAUSE, _LONG = 2e-5, 1e-3, 0.05


class _Servant(threading.Thread):
    """A thread that empties the mailbox of a rank whose communicators have none."""

    def __init__(self, mailbox: Mailbox, simulated: Rank | None) -> None:
        super().__init__(name=f"mailbox of rank {mailbox.rank.world.rank}", daemon=True)
        self._mailbox, self._simulated = mailbox, simulated
        self._open: list[PostedEntry] = []

    def run(self) -> None:
        """Take what comes until the mailbox is closed."""
        if self._simulated is None:
            self._serve()
            return
        with acting_as(self._simulated):
            self._serve()
        self._mailbox.give_back()

    def _serve(self) -> None:
        mailbox, pause = self._mailbox, _PAUSE
        rings = mailbox.rank.world.rings(mailbox.ring)
        while not mailbox.is_closed:
            moved = self._begin() or self._finish()
            if moved:
                pause = _PAUSE
                continue
            mailbox.sleep(_LONG if rings or not self._open else pause)
            pause = min(pause * 1.5, _LONGEST_PAUSE)

    def _begin(self) -> bool:
        new = self._mailbox.taken()
        for entry in new:
            try:
                entry.begin()
            except BaseException as error:
                entry.fail(error)
            else:
                self._open.append(entry)
        return bool(new)

    def _finish(self) -> bool:
        over = [entry for entry in self._open if entry.is_over()]
        for entry in over:
            self._open.remove(entry)
            entry.finish()
        for entry in self._open:
            if entry.is_awaited and not entry.is_known_to_wait:
                entry.is_known_to_wait = True
                entry.expect()
        return bool(over)


# ---- native code ---------------------------------------------------------------------------------


class _Native:
    """The thread's functions of `mailbox_ir.py`; the GIL is free while they run."""

    def __init__(self) -> None:
        self.sleep = _function("sleep", ctypes.c_int32, ctypes.c_void_p, ctypes.c_int32,
                               ctypes.c_int64)  # fmt: skip
        self.ring = _function("ring", None, ctypes.c_void_p)
        self.settle = _function("settle", None, ctypes.c_void_p, ctypes.c_int64, ctypes.c_int64)
        self.head = _function("head", ctypes.c_int64, ctypes.c_void_p)


def _function(name: str, result: Any, *arguments: Any) -> Callable[..., Any]:
    address = machine_code().address(f"ridgeline_mailbox_{name}")
    made: Callable[..., Any] = ctypes.CFUNCTYPE(result, *arguments)(address)
    return made


@lru_cache(maxsize=1)
def _native() -> _Native:
    return _Native()


def _words_at(address: int, nbytes: int) -> Array:
    return array_at(address, int64, (nbytes // 8,))
