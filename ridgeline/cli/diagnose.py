"""Say what is slow in a recorded PyTorch program, and what to change.

Reads torch.profiler traces (.json, .json.gz, or a directory of them, one file a rank).
Exit codes: 0 done; 1 a finding named by --fail-on reaches its share of the step; 2 wrong usage or
a file that cannot be read; 130 interrupted.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ridgeline.errors import RidgelineError
from ridgeline.files import write_whole

if TYPE_CHECKING:
    from ridgeline.profile.report import Finding, Report

NAME = "diagnose"
HELP = "what is slow in a PyTorch trace, and what to change"


class DiagnoseUsageError(RidgelineError):
    """Options that do not go together, or a threshold that is not one."""

    code = "RL0710"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """The options of `ridgeline diagnose`."""
    add = parser.add_argument
    add(
        "traces",
        nargs="*",
        type=Path,
        metavar="TRACE",
        help="trace file or directory; ranks may follow",
    )
    add("--before", type=Path, metavar="TRACE", help="with --after: compare two recordings")
    add("--after", type=Path, metavar="TRACE", help="the recording after a change")
    add("--html", type=Path, metavar="FILE", help="write the report as one self-contained page")
    add("--json", action="store_true", help="print the report as JSON")
    add("--top", type=int, default=8, metavar="N", help="findings to print; 0 for all (default 8)")
    add(
        "--fail-on",
        action="append",
        default=[],
        metavar="RULE[:SHARE]",
        help="exit with 1 if RULE (or `any`) is at stake for SHARE of the step, as in D1:0.05",
    )
    add("--quiet", action="store_true", help="no progress bar")


def run(arguments: argparse.Namespace) -> int:
    """Diagnose, print, write, and judge."""
    limits = [parse_limit(text) for text in arguments.fail_on]
    comparing = arguments.before is not None or arguments.after is not None
    if comparing and (arguments.before is None or arguments.after is None or arguments.traces):
        raise DiagnoseUsageError(
            "--before and --after go together, without other traces",
            help="ridgeline diagnose --before a.json --after b.json",
        )
    if not comparing and not arguments.traces:
        raise DiagnoseUsageError("name a trace", help="ridgeline diagnose trace.json")
    return _compare(arguments, limits) if comparing else _single(arguments, limits)


def parse_limit(text: str) -> tuple[str, float]:
    """`D1:0.05` as a rule and a share; a bare rule means any share at all."""
    from ridgeline.profile.rules.table import BY_ID

    rule, _, share = text.partition(":")
    rule = rule if rule == "any" else rule.upper()
    if rule != "any" and rule not in BY_ID:
        raise DiagnoseUsageError(
            f"--fail-on {text}: there is no rule {rule!r}", help="ridgeline explain lists the rules"
        )
    try:
        value = float(share) if share else 0.0
    except ValueError:
        value = -1.0
    if not 0 <= value <= 1:
        raise DiagnoseUsageError(f"--fail-on {text}: the share must lie between 0 and 1")
    return rule, value


def _failed(report: Report, limits: Sequence[tuple[str, float]]) -> bool:
    """Whether a finding reaches a limit; says which, and which rules could not be checked."""
    unchecked = {item.rule: item.reason for item in report.main.unchecked}
    hit = False
    for rule, share in limits:
        for finding in _meant(report, rule):
            if finding.share >= share:
                hit = True
                _complain(
                    f"{finding.rule} is at stake for {finding.share:.1%} of the step "
                    f"(limit {share:.1%})"
                )
        if rule in unchecked:
            _complain(f"{rule} was not checked: {unchecked[rule]}")
    return hit


def _meant(report: Report, rule: str) -> list[Finding]:
    """The findings a limit is about: the rule's own, its cases, and those that mention it."""
    from ridgeline.profile.rules.table import BY_ID

    if rule == "any":
        return list(report.findings)
    spoken = [*report.findings, *(note for rank in report.ranks for note in rank.notes)]
    return [f for f in spoken if rule in (f.rule, BY_ID[f.rule].case_of, *f.also)]


def _complain(line: str) -> None:
    print(f"fail-on: {line}", file=sys.stderr)


def _single(arguments: argparse.Namespace, limits: Sequence[tuple[str, float]]) -> int:
    report = _read(arguments.traces, arguments.quiet)
    if arguments.html is not None:
        from ridgeline.profile.page.build import report_page

        _write(arguments.html, report_page(report))
    if arguments.json:
        _print_json(report.as_dict())
    else:
        from ridgeline.profile.terminal import console, render

        console().print(render(report, arguments.top if arguments.top > 0 else 10**6))
        _name_page(arguments.html)
    return 1 if _failed(report, limits) else 0


def _compare(arguments: argparse.Namespace, limits: Sequence[tuple[str, float]]) -> int:
    from ridgeline.profile.comparison import compare

    before = _read([arguments.before], arguments.quiet)
    after = _read([arguments.after], arguments.quiet)
    result = compare(before, after)
    if arguments.html is not None:
        from ridgeline.profile.page.build import report_page

        _write(arguments.html, report_page(after, before=before, comparison=result))
    if arguments.json:
        _print_json(
            {**result.as_dict(), "reports": {"before": before.as_dict(), "after": after.as_dict()}}
        )
    else:
        from ridgeline.profile.terminal import console, render_comparison

        console().print(render_comparison(result))
        _name_page(arguments.html)
    return 1 if _failed(after, limits) else 0


def _name_page(path: Path | None) -> None:
    """Say where the page is, if one was asked for."""
    if path is not None:
        print(f"report: {path} ({path.stat().st_size / 1e3:.0f} KB)")


def _print_json(content: dict[str, Any]) -> None:
    json.dump(content, sys.stdout, indent=1)
    print(flush=True)


def _read(paths: Sequence[Path], quiet: bool) -> Report:
    from ridgeline.profile.diagnosis import diagnose
    from ridgeline.profile.trace.files import trace_files

    files = trace_files(paths)
    total = sum(path.stat().st_size for path in files if path.is_file())
    with _progress(total, quiet) as advance:
        return diagnose(paths, advance)


# A bar for a file that is read in a blink would only flicker.
_BAR_FROM_BYTES = 20_000_000


@contextmanager
def _progress(total: int, quiet: bool) -> Iterator[Callable[[int], None] | None]:
    """A bar on standard error while large files are read, if a person is watching."""
    if quiet or total < _BAR_FROM_BYTES or not sys.stderr.isatty():
        yield None
        return
    from rich.console import Console
    from rich.progress import BarColumn, DownloadColumn, Progress, TextColumn, TimeRemainingColumn

    columns = (TextColumn("reading"), BarColumn(), DownloadColumn(), TimeRemainingColumn())
    with Progress(*columns, console=Console(stderr=True), transient=True) as bar:
        task = bar.add_task("reading", total=total)
        yield lambda count: bar.update(task, advance=count)


def _write(path: Path, text: str) -> None:
    """Write a page whole."""
    try:
        write_whole(path, text.encode())
    except OSError as error:
        raise DiagnoseUsageError(f"cannot write {path}: {error.strerror}") from None
