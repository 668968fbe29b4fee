"""Before and after: did a fix help, and how much of what was promised came true."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Any

from ridgeline.profile.report import Finding, Report


@dataclass(frozen=True)
class Change:
    """One rule in both recordings; seconds are per step and 0 where it did not fire."""

    rule: str
    title: str
    before: float
    after: float

    @property
    def state(self) -> str:
        """`gone`, `new`, `smaller`, `larger` or `same`, within a tenth."""
        if self.before > 0 >= self.after:
            return "gone"
        if self.after > 0 >= self.before:
            return "new"
        if abs(self.after - self.before) <= 0.1 * self.before:
            return "same"
        return "smaller" if self.after < self.before else "larger"


@dataclass(frozen=True)
class Comparison:
    """Step times of both recordings and what became of each finding."""

    before: float
    after: float
    spread: float
    changes: tuple[Change, ...]
    unrecorded: tuple[float, float]
    """Step times before and after without the profiler's own cost (modelled)."""
    promised: float
    """Seconds a step at stake in findings that are gone or smaller, by how much they shrank."""

    @property
    def saved(self) -> float:
        return self.before - self.after

    @property
    def speedup(self) -> float:
        return self.before / self.after if self.after > 0 else float("inf")

    @property
    def kept(self) -> float:
        """Part of the promise that came true; a promise is an upper bound, so at most about 1."""
        return self.saved / self.promised if self.promised > 0 else 0.0

    @property
    def verdict(self) -> str:
        """`faster`, `slower` or `no change`, judged against the spread of the steps."""
        if abs(self.saved) <= max(2 * self.spread, 0.01 * self.before):
            return "no change"
        return "faster" if self.saved > 0 else "slower"

    def as_dict(self) -> dict[str, Any]:
        """JSON-ready."""
        return {
            **asdict(self),
            "changes": [{**asdict(change), "state": change.state} for change in self.changes],
            "saved": self.saved,
            "speedup": self.speedup,
            "kept": self.kept,
            "verdict": self.verdict,
        }


def compare(before: Report, after: Report) -> Comparison:
    """Set two diagnoses of the same program side by side."""
    first = {finding.rule: finding for finding in before.findings}
    second = {finding.rule: finding for finding in after.findings}
    changes = []
    for rule in dict.fromkeys((*first, *second)):
        one, other = first.get(rule), second.get(rule)
        title = (one or other).title  # type: ignore[union-attr]
        changes.append(Change(rule, title, _seconds(one), _seconds(other)))
    old, new = before.main.verdict, after.main.verdict
    # Standard error of the two means.
    spread = (old.spread**2 / old.steps + new.spread**2 / new.steps) ** 0.5
    shrunk = sum(max(0.0, c.before - c.after) for c in changes if c.state in ("gone", "smaller"))
    promised = min(shrunk, old.step)
    unrecorded = (old.step - old.profiler, new.step - new.profiler)
    return Comparison(old.step, new.step, spread, tuple(changes), unrecorded, promised)


def _seconds(finding: Finding | None) -> float:
    if finding is None:
        return 0.0
    # A finding without lost time, such as growing memory, still has to count as present.
    return max(finding.seconds, 1e-12)
