"""The printed table of a benchmark run, and the JSON file that keeps it."""

from __future__ import annotations

import datetime
import json
import math
import platform
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.table import Table

from benchmarks.measure import Outcome, Timing
from benchmarks.workload import OURS, OWN
from benchmarks.workloads import WORKLOADS

HEADINGS = (
    "median ms", "min ms", "ratio", "of minima", "of ceiling", "first call s", "again s",
    "peak MiB", "error",
)  # fmt: skip
RESULTS = Path(__file__).parent / "results"


def best_peer(outcome: Outcome) -> str:
    """The fastest candidate that is not ours, by its median; empty if none ran."""
    ran = {n: t.median for n, t in outcome.timings.items() if n not in OWN and t.rounds}
    return min(ran, key=lambda name: ran[name]) if ran else ""


def ratio(outcome: Outcome, candidate: str = OURS) -> float | None:
    """A candidate's median over the best peer's, both from the same rounds."""
    peer, own = best_peer(outcome), outcome.timings.get(candidate)
    if not peer or own is None or not own.rounds:
        return None
    return own.median / outcome.timings[peer].median


def ratio_of_minima(outcome: Outcome, candidate: str = OURS) -> float | None:
    """A candidate's fastest call over the fastest of any peer: steadier on a busy machine."""
    peers = [t.best for n, t in outcome.timings.items() if n not in OWN and t.rounds]
    own = outcome.timings.get(candidate)
    if not peers or own is None or not own.rounds:
        return None
    return own.best / min(peers)


def share_of_ceiling(workload: str, seconds: float, ceilings: dict[str, float]) -> float | None:
    """The least time this machine could need, by its measured ceilings, over the time taken."""
    work = WORKLOADS[workload]
    least = max(
        work.flops / ceilings["flops"] if ceilings else 0.0,
        work.bytes / ceilings["bytes_per_second"] if ceilings else 0.0,
    )
    return least / seconds if least and seconds else None


def geometric_mean(outcomes: Sequence[Outcome], candidate: str = OURS) -> float | None:
    """The geometric mean of the ratios of one of ours to the best peers."""
    ratios = [r for o in outcomes if (r := ratio(o, candidate)) is not None]
    return math.exp(sum(map(math.log, ratios)) / len(ratios)) if ratios else None


def table(outcomes: Sequence[Outcome], ceilings: dict[str, float]) -> Table:
    """All workloads, a row per candidate; the ratio is to the best peer of the workload."""
    shown = Table(box=None, pad_edge=False)
    shown.add_column("workload", no_wrap=True)
    shown.add_column("candidate", no_wrap=True)
    for heading in HEADINGS:
        shown.add_column(heading, justify="right", no_wrap=True)
    for outcome in outcomes:
        title = WORKLOADS[outcome.workload].title
        for name, timing in outcome.timings.items():
            shown.add_row(title, name, *_cells(outcome, name, timing, ceilings))
            title = ""
        shown.add_section()
    return shown


def _cells(outcome: Outcome, name: str, timing: Timing, ceilings: dict[str, float]) -> list[str]:
    if timing.error:
        return ["[red]failed[/]", *[""] * (len(HEADINGS) - 1)]
    relative = ratio(outcome, name)
    best = name == best_peer(outcome)
    least = ratio_of_minima(outcome, name)
    share = share_of_ceiling(outcome.workload, timing.median, ceilings)
    return [
        f"{timing.median * 1e3:.4g}",
        f"{timing.best * 1e3:.4g}",
        "" if relative is None else f"[bold]{relative:.2f}[/]" if best else f"{relative:.2f}",
        "" if least is None else f"{least:.2f}",
        "" if share is None else f"{share:.0%}",
        f"{timing.first_call_cold:.2f}",
        f"{timing.first_call_warm:.2f}" if timing.first_call_warm else "",
        f"{timing.peak_memory / 2**20:.0f}",
        f"{timing.difference:.1e}",
    ]


def print_report(outcomes: Sequence[Outcome], machine: dict[str, Any], console: Console) -> None:
    """The table, what stands beside it, and what went wrong in full."""
    versions = ", ".join(f"{name} {version}" for name, version in machine["versions"].items())
    console.print(f"{machine['cpu']}, {machine['cores']} cores; {versions}", highlight=False)
    console.print(table(outcomes, machine.get("ceilings", {})))
    for candidate in OWN if len(outcomes) > 1 else ():
        mean = geometric_mean(outcomes, candidate)
        if mean is not None:
            console.print(f"geometric mean of ratios, {candidate}: {mean:.2f}", highlight=False)
    console.print(
        "ratio: median over the best peer's median in the same rounds, and the same of the "
        "fastest calls; of ceiling: the least time by the measured rates of arithmetic and of a "
        "copy, over the median; first call in a fresh "
        "process with an empty cache, again in another with that cache filled; error: largest "
        "deviation from float64, relative to the largest element",
        style="dim",
        highlight=False,
    )
    for outcome in outcomes:
        if outcome.disturbed:
            console.print(
                f"{outcome.workload}: the machine was not quiet; all {outcome.rejected} disturbed "
                "rounds are counted, so trust the minima more than the medians",
                style="yellow",
            )
        elif outcome.rejected:
            console.print(
                f"{outcome.workload}: {outcome.rejected} rounds thrown away, in which a candidate "
                "was far slower than its own median"
            )
        for name, timing in outcome.timings.items():
            if timing.error:
                console.print(f"{outcome.workload}, {name} failed: {timing.error}", markup=False)


def as_json(outcomes: Sequence[Outcome], machine: dict[str, Any]) -> dict[str, Any]:
    """Everything that was measured, as plain data."""
    return {
        "date": datetime.datetime.now(datetime.UTC).isoformat(timespec="seconds"),
        "machine": machine,
        "geometric_mean": geometric_mean(outcomes),
        "workloads": {
            outcome.workload: {
                "title": WORKLOADS[outcome.workload].title,
                "rejected_rounds": outcome.rejected,
                "disturbed": outcome.disturbed,
                "best_peer": best_peer(outcome),
                "ratio": ratio(outcome),
                "ratio_of_minima": ratio_of_minima(outcome),
                "candidates": {
                    name: {
                        **asdict(timing),
                        "median": timing.median,
                        "share_of_ceiling": share_of_ceiling(
                            outcome.workload, timing.median, machine.get("ceilings", {})
                        ),
                    }
                    for name, timing in outcome.timings.items()
                },
            }
            for outcome in outcomes
        },
    }


def write_json(
    data: dict[str, Any], folder: Path = RESULTS, over: Path | None = None, subject: str = ""
) -> Path:
    """Store a run under its date and machine, or over its own beginning; earlier runs are kept."""
    path = over or _unused(data, folder, subject)
    beside = path.with_suffix(".part")
    beside.write_text(json.dumps(data, indent=1) + "\n")
    return beside.replace(path)


def _unused(data: dict[str, Any], folder: Path, subject: str) -> Path:
    folder.mkdir(exist_ok=True)
    kind = f"{platform.machine()}-{data['machine']['cores']}cores"
    stem = "-".join(filter(None, (data["date"][:10], kind, subject)))
    path, number = folder / f"{stem}.json", 2
    while path.exists():
        path, number = folder / f"{stem}-{number}.json", number + 1
    return path
