"""What a diagnosis says, as plain data; everything a program may want is in `as_dict`."""

from __future__ import annotations

from dataclasses import asdict, dataclass, field
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from ridgeline.profile.analysis.facts import Facts
    from ridgeline.profile.rules.base import Evidence, Hit

SCHEMA = 1


@dataclass(frozen=True)
class Finding:
    """One fired rule; `seconds` are per step and an upper bound on what the fix saves."""

    rule: str
    title: str
    severity: str
    seconds: float
    share: float
    message: str
    evidence: tuple[Evidence, ...]
    places: tuple[str, ...]
    confidence: str
    fix: str
    diff: str
    also: tuple[str, ...] = ()
    ranks: tuple[tuple[int, float], ...] = ()
    """Seconds by rank, where several ranks were read."""


@dataclass(frozen=True)
class Unchecked:
    """A rule that could not be evaluated, and what it would need."""

    rule: str
    reason: str


@dataclass(frozen=True)
class Verdict:
    """A step split into the modelled limit, losses by cause and the unexplained rest (seconds)."""

    step: float
    spread: float
    steps: int
    dropped: int
    source: str
    busy: float
    has_gpu: bool
    limit: float
    lost: tuple[tuple[str, float], ...]
    profiler: float
    """Idle time that recording itself may have caused (modelled)."""
    unexplained: float
    unexplained_idle: float


@dataclass(frozen=True)
class RankReport:
    """One trace."""

    path: str
    rank: int
    device: str
    verdict: Verdict
    findings: tuple[Finding, ...]
    notes: tuple[Finding, ...]
    unchecked: tuple[Unchecked, ...]
    warnings: tuple[str, ...]
    partial: bool
    """Whether part of the file could not be read."""
    events: int
    facts: Facts | None = field(repr=False, compare=False)
    """The trace itself, kept for the slowest rank only."""
    matches: dict[str, Hit] = field(repr=False, compare=False)

    def unchecked_lines(self) -> list[str]:
        """One sentence for each reason why rules could not be evaluated."""
        by_reason: dict[str, list[str]] = {}
        for item in self.unchecked:
            by_reason.setdefault(item.reason, []).append(item.rule)
        return [f"not checked: {' '.join(rules)} ({why})" for why, rules in by_reason.items()]


@dataclass(frozen=True)
class Report:
    """All ranks; `findings` holds each rule once, with the rank where it costs most."""

    ranks: tuple[RankReport, ...]
    findings: tuple[Finding, ...]
    skipped: tuple[str, ...] = ()
    """Files of a directory that are no traces, and why."""

    @property
    def main(self) -> RankReport:
        """The slowest rank: what the others wait for."""
        return max(self.ranks, key=lambda rank: rank.verdict.step)

    @property
    def partial(self) -> bool:
        """Whether part of some file could not be read."""
        return any(rank.partial for rank in self.ranks)

    def finding(self, rule: str) -> Finding | None:
        """The finding of one rule, or None."""
        return next((f for f in self.findings if f.rule == rule), None)

    def as_dict(self) -> dict[str, Any]:
        """JSON-ready; the layout carries a version number."""
        return {
            "schema": SCHEMA,
            "partial": self.partial,
            "skipped": list(self.skipped),
            "findings": [asdict(finding) for finding in self.findings],
            "ranks": [_rank_dict(rank) for rank in self.ranks],
        }


def _rank_dict(rank: RankReport) -> dict[str, Any]:
    return {
        "path": rank.path,
        "rank": rank.rank,
        "device": rank.device,
        "events": rank.events,
        "partial": rank.partial,
        "warnings": list(rank.warnings),
        "verdict": asdict(rank.verdict),
        "findings": [asdict(finding) for finding in rank.findings],
        "notes": [asdict(finding) for finding in rank.notes],
        "unchecked": [asdict(item) for item in rank.unchecked],
    }
