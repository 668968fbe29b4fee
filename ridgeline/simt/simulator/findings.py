"""What the simulator found: a kind, the user's line, the thread, and the remedy.

Errors are mistakes that a GPU may punish in some schedule. Warnings (writes of one value by several
threads, a barrier that threads left before, a copy that nothing waits for) are harmless on today's
GPUs, and no reports; nor is that a launch takes longer than the simulator was given.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Literal

import numpy as np

from ridgeline.errors import RidgelineError
from ridgeline.simt.ir import SourcePlace, SourceText
from ridgeline.simt.launch import ThreadLaunch

FindingKind = Literal[
    "shared race", "global race", "same-value race", "out of bounds", "uninitialised",
    "divergent barrier", "barrier after exit", "warp mask", "shuffle", "assertion",
    "misaligned vector", "never ends", "blocks exchange", "step",
    "copy not waited for", "not finished",
]  # fmt: skip
WARNINGS = ("same-value race", "barrier after exit", "copy not waited for", "not finished")


@dataclass(frozen=True)
class ThreadName:
    """A thread by its block and its place in it."""

    block: tuple[int, int, int]
    thread: tuple[int, int, int]

    def __str__(self) -> str:
        return f"thread {_short(self.thread)} of block {_short(self.block)}"


def _short(place: tuple[int, int, int]) -> str:
    parts = list(place)
    while len(parts) > 1 and parts[-1] == 0:
        parts.pop()
    return str(parts[0]) if len(parts) == 1 else f"({', '.join(map(str, parts))})"


@dataclass(frozen=True)
class KernelFinding:
    """One mistake, with the first place and thread it was seen at, and how often it was seen."""

    kind: FindingKind
    message: str
    place: SourcePlace
    thread: ThreadName | None
    help: str
    other_place: SourcePlace | None = None
    other_thread: ThreadName | None = None
    count: int = 1

    @property
    def is_warning(self) -> bool:
        """True for what does not count as a report."""
        return self.kind in WARNINGS

    def text(self, source: SourceText | None = None) -> str:
        """The finding as a few lines."""
        level = "warning" if self.is_warning else "error"
        lines = [f"{level}: {self.kind}: {self.message}"]
        for place in (self.place, self.other_place):
            if place is not None:
                lines.append(f"  {place.path}:{place.line}:{place.column}{_quoted(place, source)}")
        if self.count > 1:
            lines.append(f"  seen {self.count} times")
        lines.append(f"  help: {self.help}")
        return "\n".join(lines)

    def as_dict(self) -> dict[str, Any]:
        """The finding for other programs, as JSON can hold it."""
        found: dict[str, Any] = {
            "level": "warning" if self.is_warning else "error", "kind": self.kind,
            "message": self.message, "help": self.help, "count": self.count, **_placed(self.place),
        }  # fmt: skip
        if self.thread is not None:
            found |= {"block": self.thread.block, "thread": self.thread.thread}
        if self.other_place is not None:
            found["other"] = _placed(self.other_place)
            if self.other_thread is not None:
                other = self.other_thread
                found["other"] |= {"block": other.block, "thread": other.thread}
        return found


def _placed(place: SourcePlace) -> dict[str, Any]:
    return {"path": place.path, "line": place.line, "column": place.column}


def _quoted(place: SourcePlace, source: SourceText | None) -> str:
    if source is None or place.path != source.path:
        return ""
    number = place.line - source.first
    return f"    {source.lines[number].strip()}" if 0 <= number < len(source.lines) else ""


class KernelFault(RidgelineError):
    """A kernel in which the simulator found mistakes; `findings` has them all."""

    code = "RL0842"

    def __init__(self, name: str, findings: Sequence[KernelFinding], source: SourceText) -> None:
        self.findings = tuple(findings)
        shown = "\n".join(finding.text(source) for finding in self.findings[:8])
        what = "a mistake" if len(self.findings) == 1 else f"{len(self.findings)} mistakes"
        super().__init__(f"the simulator found {what} in {name}", note=shown)


@dataclass
class FindingLog:
    """Findings so far, one for each kind and pair of lines."""

    launch: ThreadLaunch
    padded: int  # threads of a block, filled up to whole warps
    found: dict[Any, KernelFinding] = field(default_factory=dict)

    def name(self, thread: int) -> ThreadName:
        """The name of a thread by its number in the padded grid."""
        block, inner = divmod(int(thread), self.padded)
        return ThreadName(_split(block, self.launch.grid), _split(inner, self.launch.block))

    def add(self, key: Any, finding: KernelFinding, count: int = 1) -> None:
        """Note a finding, or that a known one was seen again."""
        known = self.found.get(key)
        if known is None:
            self.found[key] = replace(finding, count=count)
        else:
            self.found[key] = replace(known, count=known.count + count)

    @property
    def ordered(self) -> tuple[KernelFinding, ...]:
        """Errors first, each in the order of the lines."""
        return tuple(
            sorted(self.found.values(), key=lambda f: (f.is_warning, f.place.line, f.place.column))
        )


def _split(number: int, sizes: tuple[int, int, int]) -> tuple[int, int, int]:
    x, rest = number % sizes[0], number // sizes[0]
    return (x, rest % sizes[1], rest // sizes[1])


@dataclass(frozen=True)
class Simulation:
    """The result of a launch in the simulator."""

    outputs: dict[str, np.ndarray[Any, Any]]
    findings: tuple[KernelFinding, ...]
    printed: tuple[str, ...]
    lane_operations: int
    counts: Any = None

    @property
    def errors(self) -> tuple[KernelFinding, ...]:
        """Findings that are no warnings."""
        return tuple(finding for finding in self.findings if not finding.is_warning)

    @property
    def verdict(self) -> str:
        """The kinds of the errors, by the alphabet; without any `clean`, or `not finished`."""
        unfinished = any(finding.kind == "not finished" for finding in self.findings)
        kinds = ", ".join(sorted({error.kind for error in self.errors}))
        return kinds or ("not finished" if unfinished else "clean")

    @property
    def warnings(self) -> tuple[KernelFinding, ...]:
        """Findings that do not count as reports."""
        return tuple(finding for finding in self.findings if finding.is_warning)
