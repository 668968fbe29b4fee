"""The log of flushes: why each one happened, how it was computed, and how long it took.

`rl.explain_last()` tells of the last flushes of this thread, and `with rl.record_flushes() as log:`
of a block. Both say where time went: into finding or compiling programs, into running them, and
outside of flushes, which is Python: recording, and whatever else the program does.
"""

from __future__ import annotations

import sys
import threading
from collections import deque
from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from itertools import repeat
from operator import call, itemgetter
from statistics import fmean
from time import perf_counter
from types import CodeType, FrameType
from typing import Literal, NamedTuple

from ridgeline.atomic import Block, Switch
from ridgeline.graph.origins import is_inside, line_of, short_path

Program = Literal["interpreted", "new", "found", "matched"]
MOST_KEPT = 256  # flushes of a thread that `explain_last` can tell of
_MEANINGS = {
    "interpreted": "interpreted by NumPy",
    "new": "compiled, or loaded from the disk cache",
    "found": "found, compiled before",
    "matched": "matched by a tape, nothing recorded",
}
_UNITS = ((1.0, "s"), (1e-3, "ms"), (1e-6, "µs"))


@dataclass(frozen=True, slots=True)
class Caller:
    """The public function that asked for values, and the user's line that called it."""

    function: str
    code: CodeType | None  # None where no code of a user's is running
    offset: int

    def __str__(self) -> str:
        if self.code is None:
            return self.function
        line = f"{short_path(self.code.co_filename)}:{line_of(self.code, self.offset)}"
        return f"{self.function} at {line}" if self.function else line


@dataclass(frozen=True, slots=True)
class Flush:
    """Recorded work that was computed together."""

    caller: Caller
    reason: str  # where it was not asked for: what had piled up
    device: str
    ops: int
    program: Program
    began: float  # by the clock of `time.perf_counter`
    preparing: float  # seconds until there was a program: it was looked up, loaded or compiled
    running: float  # seconds of the program; on a GPU until everything was started
    unmatched: str = ""  # why its calls were recorded, and not matched by a tape

    @property
    def ended(self) -> float:
        """When its results were ready, or on a GPU enqueued."""
        return self.began + self.preparing + self.running

    @property
    def why(self) -> str:
        """What made the flush happen."""
        return f"{self.reason}, {self.caller}" if self.reason else str(self.caller)


@dataclass
class FlushLog:
    """Flushes in order, as data and as a table."""

    flushes: list[Flush] = field(default_factory=list)
    began: float = 0.0
    ended: float = 0.0

    @property
    def preparing(self) -> float:
        """Seconds in which programs were looked up or made."""
        return sum(flush.preparing for flush in self.flushes)

    @property
    def running(self) -> float:
        """Seconds in which programs ran."""
        return sum(flush.running for flush in self.flushes)

    @property
    def outside(self) -> float:
        """Seconds outside of flushes: recording, the program's own Python, jitted functions."""
        return max(self.ended - self.began - self.preparing - self.running, 0.0)

    def count(self, program: Program) -> int:
        """The number of flushes that were computed in one way."""
        return sum(flush.program == program for flush in self.flushes)

    def __str__(self) -> str:
        if not self.flushes:
            return "nothing was flushed: no recorded work was computed"
        total = max(self.ended - self.began, 1e-12)
        parts = (
            ("finding or compiling", self.preparing), ("running", self.running),
            ("outside, in Python", self.outside),
        )  # fmt: skip
        shares = ", ".join(f"{name} {_time(s)} ({s / total:.0%})" for name, s in parts)
        lines = [f"{_flushes(len(self.flushes))} in {_time(total)}: {shares}"]
        for program, meaning in _MEANINGS.items():
            alike = [flush for flush in self.flushes if flush.program == program]
            if alike:
                how = (
                    f" (in Python: {_matching.why})"
                    if program == "matched" and _matching.why
                    else ""
                )
                lines += ["", f"{meaning}{how}: {_flushes(len(alike))}", *_rows(alike)]
        return "\n".join(lines)

    __repr__ = __str__


def _flushes(count: int) -> str:
    return "1 flush" if count == 1 else f"{count} flushes"


def _rows(flushes: Sequence[Flush]) -> Iterator[str]:
    """A line for all flushes of one kind and reason."""
    alike: dict[tuple[str, int, str, str], list[float]] = {}
    for flush in flushes:
        key = flush.why, flush.ops, flush.device, flush.unmatched
        alike.setdefault(key, []).append(flush.preparing + flush.running)
    for (why, ops, device, unmatched), seconds in alike.items():
        spent = _time(fmean(seconds)) + (" each" if len(seconds) > 1 else "")
        yield f"  {len(seconds):>5} × {ops:>5} ops on {device}, {spent:<14} {why}"
        if unmatched:
            yield f"          recorded, not matched: {unmatched}"


def _time(seconds: float) -> str:
    unit, name = next((u for u in _UNITS if seconds >= u[0]), _UNITS[-1])
    return f"{seconds / unit:.3g} {name}"


class _Matching:
    """How known calls are matched."""

    def __init__(self) -> None:
        self.why = ""  # Python does it, where it is not machine code's


_matching = _Matching()


def matched_in_python(why: str) -> None:
    """Known calls are matched in Python from now on, for some reason; '' where they are not."""
    _matching.why = why


class _Kept(threading.local):
    """The last flushes of a thread, and the logs of the blocks that it is in."""

    def __init__(self) -> None:
        self.last: deque[_Noted] = deque(maxlen=MOST_KEPT)
        self.logs: tuple[FlushLog, ...] = ()
        self.unmatched: _Unmatched | None = None  # of the calls since the last flush


class _Unmatched(NamedTuple):
    """Why calls are recorded that might have been matched, and the line that found it."""

    reason: str
    instruction: _Instruction

    def __str__(self) -> str:
        return f"{self.reason}, {Caller('', *self.instruction)}"


_Instruction = tuple[CodeType | None, int]
_kept = _Kept()


def unmatched(reason: str) -> None:
    """Calls until the next flush are recorded and not matched; the first reason counts."""
    if _kept.unmatched is None:
        frame: FrameType | None = sys._getframe(1)
        while frame is not None and is_inside(frame.f_code.co_filename):
            frame = frame.f_back
        instruction = (None, 0) if frame is None else (frame.f_code, frame.f_lasti)
        _kept.unmatched = _Unmatched(reason, instruction)


def forget_unmatched() -> None:
    """Nothing is recorded any more."""
    _kept.unmatched = None


def note(
    reason: str, device: str, ops: int, program: Program, began: float, started: float
) -> None:
    """Log a flush, with the times when it began, its program started, and it ended."""
    frame: FrameType | None = sys._getframe(1)
    passed = []  # the package's functions on the way up to the user's code
    while frame is not None and is_inside(frame.f_code.co_filename):
        passed.append(frame.f_code)
        frame = frame.f_back
    instruction = (None, 0) if frame is None else (frame.f_code, frame.f_lasti)
    times = began, started, perf_counter()
    recorded, _kept.unmatched = _kept.unmatched, None
    noted = _Noted(passed, instruction, reason, device, ops, program, times, recorded)
    _kept.last.append(noted)
    for log in _kept.logs:
        log.flushes.append(noted.flush())


class _Noted(NamedTuple):
    """The raw data of a flush, which is formatted only if somebody asks."""

    passed: list[CodeType]
    instruction: tuple[CodeType | None, int]
    reason: str
    device: str
    ops: int
    program: Program
    times: tuple[float, float, float]
    unmatched: _Unmatched | None

    def flush(self) -> Flush:
        """The flush for readers; its caller is the last public function on the stack."""
        public = [
            code.co_qualname
            for code in self.passed
            if "<" not in code.co_name and "<locals>" not in code.co_qualname
        ]
        caller = Caller(public[-1] if public else "", *self.instruction)
        began, started, ended = self.times
        return Flush(
            caller, self.reason, self.device, self.ops, self.program, began, started - began,
            ended - started, "" if self.unmatched is None else str(self.unmatched),
        )  # fmt: skip


def explain_last(most: int = MOST_KEPT) -> FlushLog:
    """Print the last flushes of this thread: what they were, why they came, where time went."""
    flushes = [noted.flush() for noted in list(_kept.last)[-most:]] if most > 0 else []
    if not flushes:
        return FlushLog()
    return FlushLog(flushes, flushes[0].began, flushes[-1].ended)


def record_flushes() -> AbstractContextManager[FlushLog]:
    """The flushes of a block, as data and as a table: `with record_flushes() as log: …`."""
    log = FlushLog(began=perf_counter())
    block = Switch(_kept, logs=(*_kept.logs, log))
    ended = map(setattr, repeat(log), repeat("ended"), map(call, repeat(perf_counter)))
    entering = map(itemgetter(-1), zip(block.entering, repeat(log)))
    return Block(entering, zip(block.leaving, ended))
