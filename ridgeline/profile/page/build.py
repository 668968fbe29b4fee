"""Puts the page together: text escaped here, drawing done by `page.js`, nothing fetched.

The static part (verdict, findings, tables, roofline) is complete without scripts and prints; the
script adds the timeline, keys and the theme switch. Data for it travels as JSON in an inert
script element, with every `<` written as an escape.
"""

from __future__ import annotations

import json
from html import escape
from pathlib import Path
from typing import Any

from ridgeline import __version__
from ridgeline.profile.analysis.tables import Line, by_kernel, by_line, by_op, roofline_dots
from ridgeline.profile.comparison import Comparison
from ridgeline.profile.page.roofline import roofline_svg
from ridgeline.profile.page.timeline import facts_of, timeline
from ridgeline.profile.report import Finding, RankReport, Report, Verdict
from ridgeline.profile.rules.table import BY_ID
from ridgeline.profile.terminal import duration, share, unrecorded

_HERE = Path(__file__).parent
# Nothing may be loaded or sent, whatever a trace holds.
_POLICY = "default-src 'none'; style-src 'unsafe-inline'; script-src 'unsafe-inline'; img-src data:"


def embedded_json(content: Any) -> str:
    """JSON that cannot end the script element it stands in."""
    text = json.dumps(content, separators=(",", ":"), ensure_ascii=True)
    return text.replace("<", "\\u003c").replace(">", "\\u003e").replace("&", "\\u0026")


def report_page(
    report: Report, before: Report | None = None, comparison: Comparison | None = None
) -> str:
    """The whole page as text."""
    main = report.main
    body = [
        _header(report, main),
        _warnings(report),
        _verdict_section(main.verdict, "Where a step goes"),
    ]
    if before is not None and comparison is not None:
        body.append(_comparison_section(before.main.verdict, main.verdict, comparison))
    body += [
        _findings_section(report),
        '<section id="timeline-section"><h2>Timeline <small>first steady steps</small></h2>'
        '<p class="hint">Wheel or + − to zoom, drag or arrow keys to move, 0 for all, '
        "hover for names. Selecting a finding marks its time.</p>"
        '<div class="timeline"><canvas id="timeline" tabindex="0" '
        'aria-label="timeline of the first steady steps"></canvas>'
        '<ul class="legend"><li><i class="f-D"></i>kernel</li><li><i class="f-N"></i>copy or fill'
        '</li><li><i class="f-S"></i>collective</li><li><i class="f-K"></i>op on the host</li>'
        '<li><i class="f-C"></i>host waits for the device</li>'
        '<li><i class="f-L"></i>host waits for data</li></ul>'
        '<div id="tip" role="status"></div></div></section>',
        _roofline_section(main),
        _tables_section(main),
        _ranks_section(report),
        _notes_section(main),
    ]
    data = {"timeline": timeline(main)}
    css = (_HERE / "style.css").read_text(encoding="utf-8")
    script = (_HERE / "page.js").read_text(encoding="utf-8")
    title = escape(f"{Path(main.path).name} · Ridgeline diagnosis")
    return (
        '<!doctype html>\n<html lang="en"><head><meta charset="utf-8">'
        '<meta name="viewport" content="width=device-width, initial-scale=1">'
        f'<meta http-equiv="Content-Security-Policy" content="{_POLICY}">'
        f"<title>{title}</title><style>{css}</style></head><body>"
        f"<main>{''.join(body)}</main>"
        f'<script type="application/json" id="data">{embedded_json(data)}</script>'
        f"<script>{script}</script></body></html>\n"
    )


def _header(report: Report, main: RankReport) -> str:
    v = main.verdict
    busy = f'<div class="figure"><b>{share(v.busy)}</b><span>device busy</span></div>'
    lost = sum(seconds for _, seconds in v.lost)
    spread = f" ± {duration(v.spread)}" if v.steps > 1 else ""
    plural = "s" * (v.steps != 1)
    return (
        '<header><div class="brand"><svg viewBox="0 0 32 20" aria-hidden="true">'
        '<polyline points="1,19 14,3 31,3"/></svg><span>Ridgeline</span>'
        '<button id="theme" title="light or dark (t)">◐</button></div>'
        f"<h1>{escape(Path(main.path).name)}</h1>"
        f'<p class="sub">{escape(main.device)} · {v.steps} steady step{plural} '
        f"({escape(v.source)}, {v.dropped} dropped as warm-up) · {main.events:,} events · "
        f"version {__version__}</p>"
        '<div class="figures">'
        f'<div class="figure"><b>{duration(v.step)}</b><span>a step{spread}</span>'
        f"</div>{busy if v.has_gpu else ''}"
        f'<div class="figure"><b>{duration(lost)}</b><span>lost to findings, at most</span></div>'
        f'<div class="figure"><b>{len(report.findings)}</b><span>findings</span></div>'
        "</div></header>"
    )


def _warnings(report: Report) -> str:
    lines = [escape(line) for rank in report.ranks for line in rank.warnings]
    lines += [escape(line) for line in report.skipped]
    return "".join(f'<p class="warning">{line}</p>' for line in lines)


def _segments(v: Verdict) -> list[tuple[str, str, float]]:
    """(class, label, seconds) of the parts of a step."""
    parts = [("limit", "at the machine's limit (modelled)", v.limit)] if v.limit > 0 else []
    parts += [(f"f-{rule[0]}", f"{rule} {BY_ID[rule].title}", seconds) for rule, seconds in v.lost]
    if v.profiler > 0:
        parts.append(("profiler", "the profiler itself (modelled)", v.profiler))
    return [*parts, ("unexplained", "unexplained", v.unexplained)]


def _strip(v: Verdict, longest: float) -> str:
    """One bar; its length is relative to the longest of those compared."""
    cells = "".join(
        f'<i class="{css}" style="width:{seconds / longest * 100:.3f}%" '
        f'title="{escape(label)}: {duration(seconds)}"></i>'
        for css, label, seconds in _segments(v)
    )
    return f'<div class="strip">{cells}</div>'


def _verdict_section(v: Verdict, title: str) -> str:
    legend = "".join(
        f'<li><i class="{css}"></i>{escape(label)} <b>{duration(seconds)}</b> '
        f"{share(seconds / v.step)}</li>"
        for css, label, seconds in _segments(v)
        if seconds > 0 or css == "unexplained"
    )
    idle = ""
    if v.has_gpu:
        busy = v.unexplained - v.unexplained_idle
        idle = (
            f'<p class="hint">Unexplained: device idle {duration(v.unexplained_idle)}, kernels '
            f"above their modelled limit or without a model {duration(busy)}.</p>"
        )
    return (
        f"<section><h2>{title}</h2>{_strip(v, v.step)}"
        f'<ul class="legend">{legend}</ul>{idle}</section>'
    )


def _comparison_section(before: Verdict, after: Verdict, result: Comparison) -> str:
    longest = max(before.step, after.step)
    rows = "".join(
        f'<tr><td><b class="badge f-{c.rule[0]}">{c.rule}</b></td><td>{escape(c.title)}</td>'
        f'<td class="n">{duration(c.before) if c.before > 1e-9 else "–"}</td>'
        f'<td class="n">{duration(c.after) if c.after > 1e-9 else "–"}</td>'
        f'<td class="state {c.state}">{c.state}</td></tr>'
        for c in result.changes
    )
    line = unrecorded(result)
    kept = f'<p class="hint">{escape(line)}</p>' if line else ""
    if result.promised > 1e-9:
        kept += (
            f"<p>At stake in what changed: at most {duration(result.promised)} a step; came true: "
            f"<b>{duration(max(0.0, result.saved))}</b> ({share(max(0.0, result.kept))}).</p>"
        )
    return (
        f'<section id="comparison"><h2>Before and after: <span class="state {result.verdict}">'
        f"{escape(result.verdict)}</span>, {result.speedup:.2f}×</h2>"
        f'<div class="pair"><span>before {duration(result.before)}</span>{_strip(before, longest)}'
        f"<span>after {duration(result.after)}</span>{_strip(after, longest)}</div>{kept}"
        f"{_grid(('rule', 'finding', '#before', '#after', ''), rows)}</section>"
    )


def _grid(columns: tuple[str, ...], rows: str) -> str:
    """A table; a column whose name begins with # holds numbers."""
    heads = "".join(
        f'<th class="n">{name[1:]}</th>' if name.startswith("#") else f"<th>{name}</th>"
        for name in columns
    )
    return (
        f'<div class="scroll"><table><thead><tr>{heads}</tr></thead><tbody>{rows}</tbody>'
        "</table></div>"
    )


def _diff(text: str) -> str:
    kinds = {"+": "add", "-": "del"}
    lines = "".join(
        f'<span class="{kinds.get(line[:1], "same")}">{escape(line)}</span>\n'
        for line in text.splitlines()
    )
    return f"<pre>{lines}</pre>" if text else ""


def _finding(number: int, f: Finding, longest: float) -> str:
    rule = BY_ID[f.rule]
    stake = duration(f.seconds) if f.seconds > 1e-9 else "the run"
    lines = "".join(f"<code>{escape(line)}</code>" for line in f.places)
    evidence = "".join(
        f"<li><span>{escape(e.label)}</span><b>{escape(e.value)}</b>"
        f'<em class="tag {escape(e.tag)}">{escape(e.tag)}</em></li>'
        for e in f.evidence
    )
    also = f"<p class=hint>Also seen: {escape(', '.join(f.also))}.</p>" if f.also else ""
    ranks = ""
    if f.ranks:
        listed = ", ".join(f"{rank}: {duration(seconds)}" for rank, seconds in f.ranks)
        ranks = f'<p class="hint">By rank: {escape(listed)}.</p>'
    stops = '<em class="stops">will end the run</em>' if f.severity == "stops" else ""
    width = f.seconds / longest * 100 if longest > 0 else 0
    return (
        f'<article class="finding f-{f.rule[0]}" id="{f.rule}" tabindex="0" data-rule="{f.rule}">'
        f'<div class="top"><span class="number">{number}</span>'
        f'<b class="badge f-{f.rule[0]}">{f.rule}</b><h3>{escape(f.title)}</h3>{stops}'
        f'<span class="stake"><b>{stake}</b> a step at most · {share(f.share)}</span></div>'
        f'<div class="weight"><i style="width:{width:.2f}%"></i></div>'
        f'<p>{escape(f.message)}.</p><p class="places">{lines}</p>'
        f'<ul class="evidence">{evidence}</ul>'
        f'<p class="fix"><b>Fix</b> {escape(f.fix)}.</p>{_diff(f.diff)}{also}{ranks}'
        f"<details><summary>Why, and what would disprove it</summary><p>{escape(rule.meaning)}</p>"
        f"<p><b>Fires when</b> {escape(rule.threshold)}.</p>"
        f"<p><b>Disproved by</b> {escape(rule.disproof)}.</p>"
        f"<p><b>Source</b> {escape(rule.source)} · confidence {escape(f.confidence)}</p>"
        "</details></article>"
    )


def _findings_section(report: Report) -> str:
    longest = max((f.seconds for f in report.findings), default=0.0)
    cards = "".join(_finding(n, f, longest) for n, f in enumerate(report.findings, 1))
    if not cards:
        cards = '<p class="good">No finding above half a percent of the step.</p>'
    return (
        '<section id="findings"><h2>Findings <small>by time at stake; j and k to step through, '
        f"Enter for more, ? for keys</small></h2>{cards}</section>"
    )


def _roofline_section(rank: RankReport) -> str:
    facts = facts_of(rank)
    gpu = facts.gpu_model
    svg = roofline_svg(roofline_dots(facts), gpu) if gpu is not None else ""
    if gpu is None or not svg:
        return ""
    return (
        '<section id="roofline"><h2>Roofline <small>area is time; FLOPs and bytes modelled from '
        f'shapes</small></h2><div class="chart">{svg}</div>'
        f'<p class="hint">{escape(gpu.name)}: dense peaks and {gpu.bandwidth:g} GB/s from '
        f"{escape(gpu.source)}. Kernels without shapes are not shown.</p></section>"
    )


def _table(title: str, lines: list[Line]) -> str:
    if not lines:
        return ""
    rows = "".join(
        f'<tr><td class="name" title="{escape(line.name)}">{escape(line.name)}</td>'
        f'<td class="n">{duration(line.seconds)}</td><td class="n">{share(line.share)}</td>'
        f'<td class="n">{line.calls:.4g}</td>'
        f'<td class="bar"><i style="width:{min(100.0, line.share * 100):.2f}%"></i></td></tr>'
        for line in lines
    )
    return (
        f"<details open><summary><h3>{escape(title)}</h3></summary>"
        f"{_grid(('name', '#a step', '#share', '#calls', ''), rows)}</details>"
    )


def _tables_section(rank: RankReport) -> str:
    facts = facts_of(rank)
    where = "device" if facts.has_gpu else "host"
    tables = (
        _table("By your code", by_line(facts))
        + _table("By op", by_op(facts))
        + _table("By kernel", by_kernel(facts))
    )
    return (
        f'<section id="tables"><h2>Where {where} time goes</h2><div class="columns">{tables}</div>'
        "</section>"
    )


def _ranks_section(report: Report) -> str:
    if len(report.ranks) < 2:
        return ""
    rows = "".join(
        f'<tr><td class="n">{rank.rank}</td><td class="name">{escape(Path(rank.path).name)}</td>'
        f'<td class="n">{duration(rank.verdict.step)}</td>'
        f'<td class="n">{share(rank.verdict.busy)}</td>'
        f"<td>{escape(rank.findings[0].rule) if rank.findings else '–'}</td></tr>"
        for rank in sorted(report.ranks, key=lambda r: -r.verdict.step)
    )
    return (
        '<section id="ranks"><h2>Ranks</h2>'
        f"{_grid(('#rank', 'file', '#step', '#busy', 'first finding'), rows)}</section>"
    )


def _notes_section(rank: RankReport) -> str:
    notes = "".join(
        f"<li><b>{f.rule}</b> {escape(f.message)}"
        + (f" ({duration(f.seconds)} a step)" if f.seconds > 1e-9 else "")
        + "</li>"
        for f in rank.notes
    )
    unchecked = "".join(f"<li>{escape(line)}</li>" for line in rank.unchecked_lines())
    return f'<section id="notes"><h2>Notes</h2><ul class="notes">{notes}{unchecked}</ul></section>'
