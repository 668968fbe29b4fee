"""What ran where: the calls of compiled graphs that torch made, and why."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field
from threading import Lock


@dataclass(slots=True, eq=False)
class GraphReport:
    """One graph: how many calls it has, and which of them torch makes."""

    calls: int
    by_torch: list[tuple[str, str]] = field(default_factory=list)  # names, and reasons


_reports: list[GraphReport] = []
_lock = Lock()


def add_report(report: GraphReport) -> None:
    """Take note of a graph."""
    with _lock:
        _reports.append(report)


def reports() -> tuple[GraphReport, ...]:
    """The graphs that were compiled since `reset()`."""
    with _lock:
        return tuple(_reports)


def reset() -> None:
    """Forget what was compiled."""
    with _lock:
        _reports.clear()


def by_torch() -> Counter[str]:
    """The calls that torch makes in compiled graphs, by name."""
    return Counter(name for report in reports() for name, _ in report.by_torch)


def explain() -> str:
    """In words, how many graphs and calls were compiled, and what torch runs of them and why."""
    graphs = reports()
    total = sum(report.calls for report in graphs)
    found = Counter(entry for report in graphs for entry in report.by_torch)
    lines = [f"{len(graphs)} graphs, {total} calls, {found.total()} of them run by torch"]
    lines += [f"  {name} ({count} times): {why}" for (name, why), count in sorted(found.items())]
    return "\n".join(lines)
