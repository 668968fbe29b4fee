"""A report on the terminal: at most 80 columns, colours only where they are welcome."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence

from rich.console import Console, ConsoleOptions, Group, RenderableType
from rich.table import Table
from rich.text import Text

from ridgeline.profile.comparison import Comparison
from ridgeline.profile.output import tolerate_unknown_letters
from ridgeline.profile.report import Finding, RankReport, Report, Verdict
from ridgeline.profile.rules.base import Evidence

WIDTH = 80
_BAR = 76
_FAMILY_STYLES = {
    "D": "blue",
    "S": "magenta",
    "L": "yellow",
    "N": "cyan",
    "C": "red",
    "K": "green",
    "M": "red",
}
_STATE_STYLES = {"gone": "green", "smaller": "green", "new": "red", "larger": "red", "same": ""}


def duration(seconds: float) -> str:
    """A time with three figures and a unit."""
    for unit, scale in (("s", 1.0), ("ms", 1e-3), ("µs", 1e-6)):
        if abs(seconds) >= scale:
            figures = seconds / scale
            return f"{figures:.0f} {unit}" if abs(figures) >= 99.95 else f"{figures:.3g} {unit}"
    return f"{seconds / 1e-9:.0f} ns"


def share(part: float) -> str:
    """A percentage with at most one decimal."""
    return f"{part * 100:.1f}%" if part < 0.0995 else f"{part * 100:.0f}%"


def console() -> Console:
    """Standard output, no wider than 80 columns; honours NO_COLOR and pipes."""
    tolerate_unknown_letters()
    out = Console(highlight=False, soft_wrap=False)
    return Console(highlight=False, width=min(WIDTH, out.width))


def render(report: Report, top: int) -> RenderableType:
    """The whole report."""
    main = report.main
    parts: list[RenderableType] = [_headline(main)]
    parts += [Text(f"warning: {line}", style="bold yellow") for line in _warnings(report)]
    parts += [Text(), *(_Indented(line, 2) for line in _verdict(main.verdict)), Text()]
    shown = report.findings[:top]
    for number, finding in enumerate(shown, 1):
        parts += [*_finding(number, finding), Text()]
    if not report.findings:
        parts += [Text("no finding above half a percent of the step", style="green"), Text()]
    hidden = len(report.findings) - top
    if hidden > 0:
        parts.append(Text(f"… {hidden} smaller finding{'s' * (hidden > 1)}: --top 0 shows all"))
    if len(report.ranks) > 1:
        parts += [_ranks(report), Text()]
    parts += _closing(report, main)
    return Group(*parts)


class _Indented:
    """A paragraph with a margin on its left and, unlike rich's own, no blanks on its right."""

    def __init__(self, text: Text, columns: int) -> None:
        self._text, self._columns = text, columns

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> Iterator[Text]:
        for line in self._text.wrap(console, options.max_width - self._columns):
            line.rstrip()
            line.pad_left(self._columns)
            yield line


def _warnings(report: Report) -> Iterable[str]:
    for rank in report.ranks:
        prefix = f"rank {rank.rank}: " if len(report.ranks) > 1 else ""
        yield from (prefix + line for line in rank.warnings)
    yield from report.skipped


def _headline(rank: RankReport) -> Text:
    v = rank.verdict
    line = Text()
    line.append(f"step {duration(v.step)}", style="bold")
    spread = f" ± {duration(v.spread)}" if v.steps > 1 else ""
    line.append(f"{spread} · {v.steps} steady step{'s' * (v.steps != 1)} ({v.source}")
    line.append(f", {v.dropped} dropped as warm-up)" if v.dropped else ")")
    busy = f" · busy {share(v.busy)}" if v.has_gpu else ""
    line.append(f"\n{rank.device}{busy} · {rank.path}", style="dim")
    return line


def _parts(v: Verdict) -> list[tuple[str, float, str]]:
    """(label, seconds, style) of the split of a step."""
    parts = []
    if v.limit > 0:
        parts.append(("at the machine's limit (modelled)", v.limit, "green"))
    parts += [(rule, seconds, _FAMILY_STYLES[rule[0]]) for rule, seconds in v.lost]
    if v.profiler > 0:
        parts.append(("the profiler itself (modelled)", v.profiler, "bright_black"))
    parts.append(("unexplained", v.unexplained, "white"))
    return parts


def _strip(v: Verdict) -> Text:
    """One bar whose pieces are the parts of a step."""
    line, used, total = Text(), 0, 0.0
    for label, seconds, style in _parts(v):
        total += seconds
        cells = round(_BAR * total / v.step) - used
        used += max(0, cells)
        letter = "░" if label == "unexplained" else "█"
        line.append(letter * max(0, cells), style=style)
    return line


def _verdict(v: Verdict) -> list[Text]:
    """The bar, and two lines that say what its pieces are."""
    lost = sum(seconds for _, seconds in v.lost)
    first = Text()
    if v.limit > 0:
        first.append(f"limit {duration(v.limit)} {share(v.limit / v.step)}", style="green")
        first.append(" (modelled) · ")
    first.append(f"lost {duration(lost)} {share(lost / v.step)}", style="bold")
    if v.profiler / v.step >= 0.01:
        first.append(f" · profiler {duration(v.profiler)} (modelled)", style="dim")
    second = Text(f"unexplained {duration(v.unexplained)} {share(v.unexplained / v.step)}")
    if v.has_gpu:
        busy = v.unexplained - v.unexplained_idle
        second.append(
            f": device idle {duration(v.unexplained_idle)}, kernels above their "
            f"modelled limit or without a model {duration(busy)}",
            style="dim",
        )
    else:
        second.append(": work on the host that no rule questions", style="dim")
    return [_strip(v), first, second]


def _finding(number: int, finding: Finding) -> list[RenderableType]:
    style = _FAMILY_STYLES[finding.rule[0]]
    head = Text(f"{number:2}  ")
    head.append(f"{finding.rule:4}", style=f"bold {style}")
    stake = duration(finding.seconds) if finding.seconds > 1e-9 else "the run"
    head.append(f"{stake:>9} {share(finding.share):>6}  ", style="bold")
    head.append(finding.title, style="bold")
    if finding.severity == "stops":
        head.append("  will end the run", style="bold red")
    body: list[Text] = []
    if finding.places:
        body.append(Text(" · ".join(finding.places[:2]), style="cyan"))
    body.append(Text(finding.message))
    body.append(Text(_evidence(finding.evidence), style="dim"))
    body.append(Text("fix: ", style="green").append(finding.fix, style=""))
    body += [
        Text(line, style="green" if line[:1] == "+" else "red" if line[:1] == "-" else "dim")
        for line in finding.diff.splitlines()
    ]
    if finding.also:
        body.append(Text("also seen: " + ", ".join(finding.also), style="dim"))
    if finding.confidence != "high":
        body.append(Text(f"confidence: {finding.confidence}", style="dim"))
    if finding.ranks:
        listed = ", ".join(f"{rank}: {duration(seconds)}" for rank, seconds in finding.ranks[:8])
        body.append(Text(f"by rank {listed}", style="dim"))
    return [head, *(_Indented(line, 8) for line in body)]


def _evidence(found: Sequence[Evidence]) -> str:
    """The numbers behind a finding, those that were come by alike under one tag."""
    by_tag: dict[str, list[str]] = {}
    for item in found:
        by_tag.setdefault(item.tag, []).append(f"{item.label} {item.value}")
    return "; ".join(f"{'; '.join(items)} [{tag}]" for tag, items in by_tag.items())


def _ranks(report: Report) -> Table:
    table = Table(box=None, pad_edge=False, title="ranks", title_justify="left")
    for name in ("rank", "step", "busy", "lost", "first finding"):
        table.add_column(name, justify="left" if name == "first finding" else "right")
    for rank in sorted(report.ranks, key=lambda r: -r.verdict.step)[:16]:
        v = rank.verdict
        first = rank.findings[0].rule if rank.findings else "–"
        lost = duration(sum(seconds for _, seconds in v.lost))
        table.add_row(str(rank.rank), duration(v.step), share(v.busy), lost, first)
    return table


def _closing(report: Report, main: RankReport) -> list[RenderableType]:
    lines: list[RenderableType] = []
    if main.notes:
        listed = "; ".join(f"{n.rule} {n.message}" for n in main.notes[:4])
        lines.append(Text(f"notes: {listed}", style="dim"))
    lines += [Text(line, style="dim") for line in main.unchecked_lines()]
    first = report.findings[0].rule if report.findings else "D1"
    lines.append(
        Text(f"next: ridgeline explain {first} · --html report.html · --json", style="dim")
    )
    return lines


def _gain(seconds: float) -> str:
    return f"saved {duration(seconds)}" if seconds >= 0 else f"lost {duration(-seconds)}"


def unrecorded(result: Comparison) -> str:
    """The step times without the profiler's own cost, where that differs by a hundredth."""
    first, second = result.unrecorded
    if abs(first - result.before) + abs(second - result.after) < 0.01 * result.before:
        return ""
    return (
        f"without the profiler's own cost (modelled): {duration(first)} → {duration(second)}, "
        f"{_gain(first - second)}"
    )


def _unrecorded(result: Comparison) -> list[Text]:
    line = unrecorded(result)
    return [Text(line, style="dim")] if line else []


def render_comparison(result: Comparison) -> RenderableType:
    """Step times, what became of each finding, and how much of the promise came true."""
    style = {"faster": "bold green", "slower": "bold red"}.get(result.verdict, "bold")
    head = Text()
    head.append(f"{result.verdict}", style=style)
    head.append(
        f": step {duration(result.before)} → {duration(result.after)} "
        f"({result.speedup:.2f}×, {_gain(result.saved)})"
    )
    table = Table(box=None, pad_edge=False)
    for name in ("rule", "before", "after", "", "finding"):
        table.add_column(name, justify="right" if name in ("before", "after") else "left")
    for change in result.changes:
        table.add_row(
            change.rule,
            duration(change.before) if change.before > 1e-9 else "–",
            duration(change.after) if change.after > 1e-9 else "–",
            Text(change.state, style=_STATE_STYLES[change.state]),
            Text(change.title),
        )
    lines: list[RenderableType] = [head, *_unrecorded(result), Text(), table, Text()]
    if result.promised > 1e-9:
        lines.append(
            Text(
                f"at stake in what changed: at most {duration(result.promised)} a step; "
                f"came true: {duration(max(0.0, result.saved))} ({share(max(0.0, result.kept))})"
            )
        )
    return Group(*lines)
