"""The status record of a rank, which its launcher reads even after the rank has died.

The record is a file that is mapped into memory, so that a rank writes it without a system call, and
what it wrote last stays when it is killed.
"""

from __future__ import annotations

import mmap
import os
import struct
import time
from dataclasses import dataclass
from pathlib import Path

FOLDER = "RIDGELINE_STATUS"  # the variable that names the folder of the records
RUNNING, WAITING, COMPILING, FAILED, ENDED = range(5)
_HEAD = struct.Struct("<BqqdH")  # state, process, calls so far, since when, length of the text
_BYTES = 2048


@dataclass(frozen=True, slots=True)
class Status:
    """What a rank was doing when its record was read."""

    rank: int
    state: int
    process: int
    calls: int  # how many collectives it has come to
    since: float  # seconds, as `time.time()`
    text: str  # the collective it waits in or came to last, or what it failed with

    def __str__(self) -> str:
        doing = {
            RUNNING: f"computes, after {self.text}" if self.text else "computes",
            WAITING: f"waits in {self.text}",
            COMPILING: f"compiles, after {self.text}" if self.text else "compiles",
            FAILED: f"failed: {self.text}",
            ENDED: "has ended",
        }[self.state]
        return f"rank {self.rank} {doing}"


class CompileState:
    """How many programs are being compiled now; the compiler counts, the record is told."""

    depth = 0


compile_state = CompileState()


class StatusRecord:
    """The record of this rank; without a launcher that asked for one, it is kept nowhere."""

    def __init__(self, rank: int) -> None:
        folder = os.environ.get(FOLDER, "")
        self._state, self._text, self._calls = RUNNING, "", 0
        self._memory: mmap.mmap | None = None
        if folder and os.path.isdir(folder):
            path = Path(folder, f"rank-{rank}")
            with open(path, "w+b") as file:
                file.truncate(_BYTES)
                self._memory = mmap.mmap(file.fileno(), _BYTES)
        self._write()

    def came_to(self, text: str) -> None:
        """One more collective was started; a rank that waits in another goes on waiting."""
        self._calls += 1
        if self._state != WAITING:
            self.become(RUNNING, text)

    def become(self, state: int, text: str | None = None) -> None:
        """What the rank does from now on; what has failed stays so."""
        if self._state == FAILED:
            return
        self._state = state
        self._text = self._text if text is None else text
        self._write()

    def beat(self) -> None:
        """Say whether a program is being compiled; called from time to time."""
        if self._state in (RUNNING, COMPILING):
            state = COMPILING if compile_state.depth else RUNNING
            if state != self._state:
                self.become(state)

    def _write(self) -> None:
        if self._memory is not None:
            text = self._text.encode()[: _BYTES - _HEAD.size]
            head = (self._state, os.getpid(), self._calls, time.time(), len(text))
            self._memory[: _HEAD.size + len(text)] = _HEAD.pack(*head) + text


def read_records(folder: Path) -> list[Status]:
    """The records of all ranks that have one, in order."""
    found = []
    for path in folder.glob("rank-*"):
        data = path.read_bytes()
        if len(data) < _HEAD.size:  # it is being made
            continue
        state, process, calls, since, length = _HEAD.unpack_from(data)
        text = data[_HEAD.size : _HEAD.size + length].decode(errors="replace")
        found.append(Status(int(path.name[5:]), state, process, calls, since, text))
    return sorted(found, key=lambda status: status.rank)
