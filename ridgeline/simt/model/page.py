"""The report of a launch as one self-contained HTML page, complete without scripts."""

from __future__ import annotations

from html import escape
from typing import TYPE_CHECKING

from ridgeline.simt.model.remarks import remarks
from ridgeline.simt.model.text import amount, duration

if TYPE_CHECKING:
    from ridgeline.simt.model.explanation import LaunchExplanation, SourceLine
    from ridgeline.simt.model.timing import WarpStretch, WarpTimeline

_POLICY = "default-src 'none'; style-src 'unsafe-inline'; img-src data:"
_COLOURS = {
    "issue": "#2f855a", "memory": "#c53030", "shared": "#b7791f", "barrier": "#553c9a",
    "scheduler": "#4a5568", "arithmetic": "#2b6cb0", "tensor": "#b83280",
}  # fmt: skip
_STYLE = """
:root{color-scheme:light dark;--line:#8884;--hot:255,80,40}
body{font:15px/1.5 system-ui,sans-serif;max-width:70rem;margin:2rem auto;padding:0 1rem}
h1{font-size:1.4rem}h2{font-size:1.1rem;margin-top:2rem}
pre,code,td{font-family:ui-monospace,monospace;font-size:13px}
table{border-collapse:collapse;width:100%}td,th{padding:1px 8px;text-align:right}
td.code{text-align:left;white-space:pre}th{border-bottom:1px solid var(--line);font-weight:600}
.error{border-left:4px solid #c53030;padding-left:.8rem}
.warning{border-left:4px solid #b7791f;padding-left:.8rem}
.legend span{display:inline-block;width:.9em;height:.9em;margin:0 .3em 0 1em}
svg{width:100%;height:auto;border:1px solid var(--line)}
"""
_WIDTH, _ROW, _MOST_WARPS, _MOST_STRETCHES = 1000, 12, 32, 400


def report_page(found: LaunchExplanation) -> str:
    """The whole page as text."""
    title = f"{found.name} on {found.gpu.name}"
    body = "".join((_summary(found), _findings(found), _source(found), _timeline(found)))
    return (
        f'<!doctype html><html lang="en"><meta charset="utf-8">'
        f'<meta http-equiv="Content-Security-Policy" content="{_POLICY}">'
        f'<meta name="viewport" content="width=device-width">'
        f"<title>{escape(title)}</title><style>{_STYLE}</style><body><h1>{escape(title)}</h1>"
        f"{body}</body></html>"
    )


def _summary(found: LaunchExplanation) -> str:
    prediction, fits = found.prediction, found.occupancy
    units = "".join(
        f"<tr><td>{escape(name)}</td><td>{duration(time)}</td></tr>"
        for name, time in sorted(prediction.units.items(), key=lambda pair: -pair[1])
        if time
    )
    notes = "".join(f"<li>{escape(note)}</li>" for note in remarks(found))
    return (
        f"<p><b>{duration(prediction.seconds)}</b> predicted, bound by "
        f"<b>{escape(prediction.bound)}</b>. Occupancy {fits.share:.0%}, limited by "
        f"{escape(fits.limiter)}: {fits.blocks} blocks and {fits.warps} warps a multiprocessor. "
        f"In flight {amount(prediction.bytes_in_flight)} of the "
        f"{amount(prediction.bytes_needed)} that Little's law asks for.</p>"
        f"<table><tr><th>unit</th><th>alone it needs</th></tr>{units}</table><ul>{notes}</ul>"
    )


def _findings(found: LaunchExplanation) -> str:
    if not found.simulation.findings:
        return "<h2>Findings</h2><p>None.</p>"
    shown = "".join(
        f'<pre class="{"warning" if finding.is_warning else "error"}">'
        f"{escape(finding.text(found.source))}</pre>"
        for finding in found.simulation.findings
    )
    return f"<h2>Findings</h2>{shown}"


def _source(found: LaunchExplanation) -> str:
    heat = {line.number: sum(line.stalls.values()) for line in found.lines}
    most = max([*heat.values(), 1e-9])
    faulty = {finding.place.line for finding in found.simulation.errors}
    rows = "".join(
        _row(line, heat[line.number] / most, line.number in faulty) for line in found.lines
    )
    return (
        "<h2>Source</h2><p>Redder lines keep warps waiting longer.</p><table><tr><th>line</th>"
        "<th>lanes</th><th>sectors a request</th><th>ideal</th><th>wavefronts</th><th>diverge</th>"
        f"<th></th></tr>{rows}</table>"
    )


def _row(line: SourceLine, heat: float, faulty: bool) -> str:
    counts = line.counts
    cells = [
        f"{counts.active:.1f}" if counts.warps else "",
        f"{counts.sectors / counts.requests:.2f}" if counts.requests else "",
        f"{counts.ideal_sectors / counts.requests:.2f}" if counts.requests else "",
        f"{counts.wavefronts / counts.ideal_wavefronts:.1f}" if counts.shared_requests else "",
        f"{counts.divergent / counts.branches:.0%}" if counts.branches else "",
    ]
    marks = "".join(f"<td>{cell}</td>" for cell in cells)
    sign = "⚠ " if faulty else ""
    return (
        f'<tr style="background:rgba(var(--hot),{0.55 * heat:.2f})"><td>{line.number}</td>{marks}'
        f'<td class="code">{sign}{escape(line.text)}</td></tr>'
    )


def _timeline(found: LaunchExplanation) -> str:
    timeline = found.prediction.timeline
    warps = sorted(timeline.warps)[:_MOST_WARPS]
    height = _ROW * len(warps) + 4
    end = _shown_end(timeline, warps)
    bars = "".join(
        _bar(stretch, row, end, found)
        for row, warp in enumerate(warps)
        for stretch in timeline.warps[warp][:_MOST_STRETCHES]
        if stretch.start < end
    )
    legend = "".join(
        f'<span style="background:{colour}"></span>{name}' for name, colour in _COLOURS.items()
    )
    return (
        f"<h2>Timeline</h2><p>Warps of the first blocks on one multiprocessor, "
        f"{end:.0f} of {timeline.cycles:.0f} cycles.</p>"
        f'<svg viewBox="0 0 {_WIDTH} {height}" role="img" aria-label="timeline of warps">'
        f"{bars}</svg>"
        f'<p class="legend">{legend}</p>'
    )


def _shown_end(timeline: WarpTimeline, warps: list[int]) -> float:
    ends = [timeline.warps[w][:_MOST_STRETCHES][-1].end for w in warps if timeline.warps[w]]
    return max([*ends, 1.0])


def _bar(stretch: WarpStretch, row: int, end: float, found: LaunchExplanation) -> str:
    left = stretch.start / end * _WIDTH
    width = max(0.3, (stretch.end - stretch.start) / end * _WIDTH)
    return (
        f'<rect x="{left:.1f}" y="{row * _ROW + 2}" width="{width:.1f}" height="{_ROW - 2}" '
        f'fill="{_COLOURS[stretch.what]}"><title>{stretch.what}, {stretch.end - stretch.start:.0f} '
        f"cycles</title></rect>"
    )
