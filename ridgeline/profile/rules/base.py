"""What a rule is, what it says when it fires, and the ledger that stops double counting.

A rule is a row of data with a predicate. The predicate returns a `Hit` with the microseconds
at stake in the whole steady window: an upper bound on what the fix can save. Idle time of the
device and each kernel can be claimed once; rules of higher precedence claim first.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

import numpy as np

from ridgeline.profile import intervals as iv
from ridgeline.profile.analysis.facts import Facts
from ridgeline.profile.trace.model import Ints

Value = float | int | str
NO_ROWS: Ints = np.zeros(0, dtype=np.int64)

EXACT, MEASURED, MODELLED = "exact", "measured", "modelled"


@dataclass(frozen=True)
class Evidence:
    """One number behind a finding, and how it was come by."""

    label: str
    value: str
    tag: str = MEASURED


@dataclass(frozen=True)
class Fix:
    """What to change, in words and as an edit."""

    text: str
    diff: str = ""


@dataclass(frozen=True)
class Hit:
    """A rule that fired: what is at stake, what it claims, and why."""

    stake: float
    evidence: tuple[Evidence, ...]
    values: Mapping[str, Value] = field(default_factory=dict)
    idle: float = 0.0
    rows: Ints = field(default_factory=lambda: NO_ROWS)
    places: tuple[str, ...] = ()
    confidence: str = "high"
    fix: str = "default"
    spans: iv.Intervals = field(default_factory=lambda: iv.EMPTY)


class Ledger:
    """What is still unclaimed: idle microseconds of the device, and device events."""

    def __init__(self, facts: Facts) -> None:
        # Without a device all time is the host's, and host rules draw on all of it.
        self.idle = iv.measure(facts.idle)
        self._claimed = np.zeros(len(facts.trace.gpu), dtype=np.bool_)

    def free(self, rows: Ints) -> Ints:
        """The rows no rule has claimed yet."""
        return rows[~self._claimed[rows]]

    def take_idle(self, wanted: float) -> float:
        """How much of the wanted idle time is left to claim."""
        return max(0.0, min(wanted, self.idle))

    def take_profiler(self, cost: float) -> float:
        """Set aside the idle time that recording itself may have caused."""
        taken = self.take_idle(cost)
        self.idle -= taken
        return taken

    def settle(self, match: Hit) -> None:
        """Book a match."""
        self.idle -= match.idle
        self._claimed[match.rows] = True


Check = Callable[[Facts, Ledger, Mapping[str, float]], Hit | None]


@dataclass(frozen=True)
class TraceRule:
    """One row of the rule table."""

    id: str
    title: str
    threshold: str
    message: str
    check: Check
    fixes: Mapping[str, Fix]
    source: str
    disproof: str
    meaning: str
    order: int
    limits: Mapping[str, float] = field(default_factory=dict)
    needs: frozenset[str] = frozenset()
    severity: str = "time"
    """`time`, `stops` (the run will fail), or `note` (nothing to save, but worth knowing)."""
    folds_into: tuple[str, ...] = ()
    """Rules that, once they fired, already tell this story: then it is only mentioned there."""
    case_of: str = ""
    """The wider rule of which this is one case; a limit on that one holds for this one too."""


def ms(microseconds: float) -> str:
    """A duration for a person."""
    if microseconds < 1:
        return f"{microseconds * 1e3:.0f} ns"
    if microseconds < 1e3:
        return f"{microseconds:.1f} µs"
    if microseconds < 1e6:
        return f"{microseconds / 1e3:.2f} ms"
    return f"{microseconds / 1e6:.2f} s"


def percent(share: float) -> str:
    return f"{share * 100:.1f}%"


def gib(size: float) -> str:
    """Bytes for a person."""
    for unit, scale in (("GiB", 1 << 30), ("MiB", 1 << 20), ("KiB", 1 << 10)):
        if size >= scale:
            return f"{size / scale:.1f} {unit}"
    return f"{size:.0f} B"


def per_step(facts: Facts, total: float) -> str:
    """A window total as time per step."""
    return ms(total / facts.steps.count)
