"""A plan as one HTML file: the pipeline over time, memory by stage, the step, and the frontier."""

from __future__ import annotations

import html
from collections.abc import Iterator, Sequence

from ridgeline.distributed.schedules import BACKWARD, FORWARD, INPUT_GRADIENT, WEIGHT_GRADIENT
from ridgeline.planner.layouts import Job
from ridgeline.planner.memory import part_bytes, rank_memory, working_bytes
from ridgeline.planner.parts import stage_parts
from ridgeline.planner.report import binding, conventions, heading, memory_table
from ridgeline.planner.search import Candidate, Search
from ridgeline.planner.software import Software
from ridgeline.planner.step import StepTime
from ridgeline.planner.work import TimedCluster

_WIDTH, _ROW = 1100, 18
_COLOURS = {
    FORWARD: "#4c78a8", BACKWARD: "#f58518", INPUT_GRADIENT: "#e45756", WEIGHT_GRADIENT: "#72b7b2",
}  # fmt: skip
_NAMES = {
    FORWARD: "forward", BACKWARD: "backward", INPUT_GRADIENT: "gradients of inputs",
    WEIGHT_GRADIENT: "gradients of weights",
}  # fmt: skip
_PARTS = ("#4c78a8", "#9ecae9", "#f58518", "#ffbf79", "#54a24b", "#88d27a", "#b79a20", "#f2cf5b",
          "#439894", "#83bcb6", "#e45756", "#ff9d98")  # fmt: skip
_STYLE = """
body { font: 14px/1.5 system-ui, sans-serif; margin: 2em auto; max-width: 1140px; color: #222; }
pre { background: #f6f6f6; padding: 0.8em; overflow-x: auto; } svg { display: block; }
h2 { margin-top: 1.6em; } .key span { display: inline-block; margin-right: 1.2em; }
.key i { display: inline-block; width: 0.9em; height: 0.9em; margin-right: 0.3em; }
text { font: 11px system-ui, sans-serif; fill: #444; }
@media (prefers-color-scheme: dark) {
  body { background: #181818; color: #ddd; } pre { background: #242424; } text { fill: #bbb; }
}
"""


def page(job: Job, gpus: int, found: Search, software: Software, machine: TimedCluster) -> str:
    """The whole file."""
    best = found.found[0]
    sections = [
        f"<h1>{html.escape(job.shape.name)} on {gpus:,} x "
        f"{html.escape(machine.cluster.gpu.name)}</h1>",
        _text(heading(job, gpus, software, machine)),
        f"<p><b>{html.escape(str(best.layout))}</b>: {best.tokens:,.1f} {job.shape.unit}/s/GPU, "
        f"{best.step.seconds:.3f} s a step; {html.escape(binding(best))}. "
        f"{html.escape(conventions(job, best))}. All times and bytes are modelled.</p>",
        "<h2>The step, by what it is spent on</h2>",
        _breakdown(best.step),
        "<h2>The pipeline over time</h2>",
        _timeline(best.step),
        "<h2>Memory by stage over time</h2>",
        _memory_over_time(job, best, software, machine),
        _text(memory_table(job, best, software, machine)),
        "<h2>All layouts that fit: memory against speed</h2>",
        _frontier(found.found, machine.cluster.capacity, job.shape.unit),
    ]
    body = "\n".join(sections)
    return (
        "<!doctype html>\n<html lang=en><meta charset=utf-8>"
        f"<title>A plan for {html.escape(job.shape.name)}</title><style>{_STYLE}</style>\n"
        f"{body}\n</html>\n"
    )


def _text(text: str) -> str:
    return f"<pre>{html.escape(text)}</pre>"


def _svg(height: float, marks: Iterator[str]) -> str:
    return (
        f'<svg viewBox="0 0 {_WIDTH} {height:.0f}" width="100%" role="img">{"".join(marks)}</svg>'
    )


def _key(names: Sequence[tuple[str, str]]) -> str:
    spans = "".join(
        f'<span><i style="background:{colour}"></i>{html.escape(name)}</span>'
        for name, colour in names
    )
    return f'<p class="key">{spans}</p>'


def _breakdown(step: StepTime) -> str:
    rows = [(name, seconds) for name, seconds in step.parts.items() if seconds > 0]

    def marks() -> Iterator[str]:
        left = 0.0
        for (name, seconds), colour in zip(rows, _PARTS):
            wide = seconds / step.seconds * _WIDTH
            yield (
                f'<rect x="{left:.1f}" y="0" width="{wide:.1f}" height="34" fill="{colour}">'
                f"<title>{html.escape(name)}: {seconds:.4f} s</title></rect>"
            )
            left += wide

    labels = [
        (f"{name} {seconds / step.seconds:.1%}", colour)
        for (name, seconds), colour in zip(rows, _PARTS)
    ]
    return _svg(36, marks()) + _key(labels)


def _timeline(step: StepTime) -> str:
    if step.schedule is None or step.schedule.stages == 1:
        return "<p>There is one stage.</p>"
    schedule, total = step.schedule, max(row[-1].end for row in step.spans)
    kinds = {action.kind for row in schedule.table for action in row}

    def marks() -> Iterator[str]:
        for stage, (row, spans) in enumerate(zip(schedule.table, step.spans)):
            top = stage * _ROW
            yield f'<text x="0" y="{top + 12}">{stage}</text>'
            for action, span in zip(row, spans):
                left = 24 + span.start / total * (_WIDTH - 24)
                wide = max(0.4, (span.end - span.start) / total * (_WIDTH - 24) - 0.2)
                shade = 1 - 0.5 * action.chunk / max(1, schedule.chunks)
                yield (
                    f'<rect x="{left:.1f}" y="{top}" width="{wide:.1f}" height="{_ROW - 3}" '
                    f'fill="{_COLOURS[action.kind]}" opacity="{shade:.2f}"/>'
                )

    idle = ", ".join(f"{share:.0%}" for share in step.idle)
    return (
        _svg(schedule.stages * _ROW, marks())
        + _key([(_NAMES[kind], _COLOURS[kind]) for kind in _COLOURS if kind in kinds])
        + f"<p>{html.escape(schedule.name)}, {schedule.microbatches} microbatches; idle, by stage: "
        f"{idle}. Later chunks of a stage are paler.</p>"
    )


def memory_over_time(
    job: Job, one: Candidate, software: Software, stage: int
) -> list[tuple[float, float]]:
    """Seconds and bytes of a stage, after each of its actions."""
    step, layout = one.step, one.layout
    assert step.schedule is not None
    held = rank_memory(job, layout, software, stage)
    now = held.total - held.activations + working_bytes(job, layout, software, stage)
    parts = stage_parts(job.shape, layout, stage)
    sizes = [part_bytes(job, layout, software, part) for part in parts]
    points = [(0.0, now)]
    for action, span in zip(step.schedule.table[stage], step.spans[stage]):
        size = sizes[action.chunk]
        if action.kind == FORWARD:
            now += size
        elif action.kind != INPUT_GRADIENT:
            now -= size
        points.append((span.end, now))
    return points


def _memory_over_time(job: Job, one: Candidate, software: Software, machine: TimedCluster) -> str:
    if one.step.schedule is None:
        return "<p>This layout was not simulated.</p>"
    capacity = machine.cluster.capacity
    stages = sorted({0, one.layout.pipeline // 2, one.layout.pipeline - 1})
    curves = {stage: memory_over_time(job, one, software, stage) for stage in stages}
    end = max(points[-1][0] for points in curves.values()) or 1.0
    high = 200

    def marks() -> Iterator[str]:
        limit = high - capacity / (1.1 * capacity) * high
        yield f'<line x1="0" x2="{_WIDTH}" y1="{limit:.1f}" y2="{limit:.1f}" stroke="#c00"/>'
        yield f'<text x="4" y="{limit - 4:.1f}">{capacity / 1e9:.0f} GB</text>'
        for points, colour in zip(curves.values(), _PARTS[::2]):
            path = " ".join(
                f"{t / end * _WIDTH:.1f},{high - held / (1.1 * capacity) * high:.1f}"
                for t, held in points
            )
            yield f'<polyline points="{path}" fill="none" stroke="{colour}" stroke-width="1.5"/>'

    return _svg(high, marks()) + _key(
        [(f"stage {stage}", colour) for stage, colour in zip(stages, _PARTS[::2])]
    )


def _frontier(found: Sequence[Candidate], capacity: float, unit: str) -> str:
    fastest, high = max(one.tokens for one in found), 260

    def marks() -> Iterator[str]:
        for one in found:
            left = one.memory.total / capacity * (_WIDTH - 40) + 20
            top = high - 12 - one.tokens / fastest * (high - 30)
            colour = "#e45756" if one.simulated else "#999"
            yield (
                f'<circle cx="{left:.1f}" cy="{top:.1f}" r="{4 if one.simulated else 2.5}" '
                f'fill="{colour}" opacity="0.7"><title>{html.escape(str(one.layout))}: '
                f"{one.tokens:,.1f} {unit}/s/GPU, {one.memory.total / 1e9:.1f} GB</title></circle>"
            )
        yield f'<text x="20" y="{high - 1}">0 GB</text>'
        yield f'<text x="{_WIDTH - 70}" y="{high - 1}">{capacity / 1e9:.0f} GB</text>'
        yield f'<text x="0" y="12">{fastest:,.0f} {unit}/s/GPU</text>'

    return _svg(high, marks()) + _key([("simulated", "#e45756"), ("by formula", "#999")])
