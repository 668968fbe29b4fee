"""`diagnose(path)`: from trace files to a report."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from os import PathLike
from pathlib import Path

from ridgeline.errors import RidgelineError
from ridgeline.profile.analysis.facts import Facts
from ridgeline.profile.analysis.focus import focused
from ridgeline.profile.report import Finding, RankReport, Report
from ridgeline.profile.rules.engine import run_rules
from ridgeline.profile.rules.table import standing
from ridgeline.profile.trace.errors import (
    EmptyTraceError,
    ForeignTraceError,
    TraceFileError,
    TraceFormatError,
)
from ridgeline.profile.trace.files import trace_files
from ridgeline.profile.trace.model import TorchTrace
from ridgeline.profile.trace.reader import printable, read_trace

Source = str | PathLike[str]


def diagnose(
    paths: Source | Sequence[Source], progress: Callable[[int], None] | None = None
) -> Report:
    """Diagnose one trace, a directory of traces, or several ranks' traces.

    `progress` is called with the number of bytes read since the last call.
    """
    given = [paths] if isinstance(paths, (str, PathLike)) else list(paths)
    if not given:
        raise TraceFileError("no trace was named")
    named = [Path(path) for path in given]
    ranks: list[RankReport] = []
    skipped: list[str] = []
    failure: RidgelineError | None = None
    for path in trace_files(named):
        try:
            rank = examine(read_trace(path, progress))
        except (TraceFormatError, ForeignTraceError, EmptyTraceError) as error:
            # What merely lies in a directory need not be a trace; what was named must be.
            if path in named:
                raise
            skipped.append(f"{printable(path.name)} skipped: {error.message}")
            failure = failure or error
            continue
        ranks = _keep_slowest(ranks, rank)
    if failure is not None and not ranks:
        raise failure
    return replace(combine(ranks), skipped=tuple(skipped))


def _keep_slowest(ranks: list[RankReport], rank: RankReport) -> list[RankReport]:
    """Add a rank; only the slowest keeps its events, so that memory does not grow with ranks."""
    if all(rank.verdict.step > other.verdict.step for other in ranks):
        return [*(replace(other, facts=None, matches={}) for other in ranks), rank]
    return [*ranks, replace(rank, facts=None, matches={})]


def examine(trace: TorchTrace) -> RankReport:
    """Diagnose one trace in memory."""
    trace, narrowed = focused(trace)
    facts = Facts(trace)
    outcome = run_rules(facts)
    warnings = list(trace.completeness.warnings())
    if narrowed:
        warnings.append(narrowed)
    if facts.steps.count < 3:
        warnings.append(
            f"only {facts.steps.count} steady step{'s' * (facts.steps.count != 1)} recorded "
            f"({facts.steps.source}): call "
            "prof.step() in the loop and record ten or more"
        )
    return RankReport(
        path=trace.path,
        rank=trace.rank,
        device=trace.device.name or ("GPU" if facts.has_gpu else "CPU only"),
        verdict=outcome.verdict,
        findings=outcome.findings,
        notes=outcome.notes,
        unchecked=outcome.unchecked,
        warnings=tuple(warnings),
        partial=bool(trace.completeness.warnings()),
        events=trace.events,
        facts=facts,
        matches=outcome.matches,
    )


def _numbered(ranks: Sequence[RankReport]) -> list[RankReport]:
    """Ranks under the numbers their files give; in order where these are missing or not unique."""
    given = [rank.rank for rank in ranks]
    if min(given) >= 0 and len(set(given)) == len(given):
        return list(ranks)
    first, *others = (replace(rank, rank=index) for index, rank in enumerate(ranks))
    if max(given) >= 0:
        note = "the files do not give each rank once: numbered in the order read"
        first = replace(first, warnings=(*first.warnings, note))
    return [first, *others]


def combine(ranks: Sequence[RankReport]) -> Report:
    """Merge ranks: each rule once, as it stands on the rank where it costs most."""
    numbered = _numbered(ranks)
    if len(numbered) == 1:
        return Report(tuple(numbered), numbered[0].findings)
    by_rule: dict[str, list[tuple[int, Finding]]] = {}
    for rank in numbered:
        for finding in rank.findings:
            by_rule.setdefault(finding.rule, []).append((rank.rank, finding))
    merged = []
    for found in by_rule.values():
        worst = max((finding for _, finding in found), key=lambda finding: finding.seconds)
        seconds = tuple((rank, finding.seconds) for rank, finding in found)
        merged.append(replace(worst, ranks=seconds))
    merged.sort(key=lambda f: (f.severity != "stops", -f.seconds, standing(f.rule)))
    return Report(tuple(numbered), tuple(merged))
