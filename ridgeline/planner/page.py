"""A plan as one HTML file: the pipeline over time, memory by stage, the step, and the frontier."""

from __future__ import annotations

import html
from collections.abc import Sequence

from ridgeline.distributed.schedules import FORWARD, INPUT_GRADIENT
from ridgeline.planner.layouts import Job
from ridgeline.planner.memory import FRAGMENTATION, part_bytes, rank_memory, working_bytes
from ridgeline.planner.page_charts import (
    COLOURS,
    Curve,
    LayoutPoint,
    breakdown,
    curves,
    frontier,
    timeline,
)
from ridgeline.planner.parts import stage_parts
from ridgeline.planner.report import (
    binding,
    conventions,
    heading,
    layouts,
    memory_table,
    traffic_table,
)
from ridgeline.planner.search import Candidate, Search
from ridgeline.planner.software import Software
from ridgeline.planner.work import TimedCluster

_SHOWN = 8
"""Of the layouts, how many a page lists."""
_STYLE = """
body { font: 14px/1.5 system-ui, sans-serif; margin: 2em auto; max-width: 1140px; color: #222; }
pre { background: #f6f6f6; padding: 0.8em; overflow-x: auto; } svg { display: block; }
h2 { margin-top: 1.6em; } .key span { display: inline-block; margin-right: 1.2em; }
.key i { display: inline-block; width: 0.9em; height: 0.9em; margin-right: 0.3em; }
text { font: 11px system-ui, sans-serif; fill: #444; } .grid { stroke: #ddd; }
@media (prefers-color-scheme: dark) {
  body { background: #181818; color: #ddd; } pre { background: #242424; } text { fill: #bbb; }
  .grid { stroke: #333; }
}
"""


def page(job: Job, gpus: int, found: Search, software: Software, machine: TimedCluster) -> str:
    """The whole file."""
    best, name = found.found[0], html.escape(job.shape.name.rpartition("/")[2])
    sections = [
        f"<h1>{name} on {gpus:,} x {html.escape(machine.cluster.gpu.name)}</h1>",
        _text(heading(job, gpus, software, machine)),
        f"<p><b>{html.escape(str(best.layout))}</b>: {best.tokens:,.1f} {job.shape.unit}/s/GPU, "
        f"{best.step.seconds:.3f} s a step; {html.escape(binding(best))}. "
        f"{html.escape(conventions(job, best, software))}. All times and bytes are modelled.</p>",
        "<h2>The step, by what it is spent on</h2>",
        breakdown(best.step),
        _text(traffic_table(job, best, software, machine)),
        "<h2>The pipeline over time</h2>",
        timeline(best.step),
        "<h2>Memory by stage over time</h2>",
        _memory_curves(job, best, software, machine),
        _text(memory_table(job, best, software, machine)),
        "<h2>All layouts that fit: memory against speed</h2>",
        _frontier(found.found, job.shape.unit),
        _text(layouts(job, found, machine, _SHOWN)),
    ]
    body = "\n".join(sections)
    return (
        "<!doctype html>\n<html lang=en><meta charset=utf-8>"
        f"<title>A plan for {name}</title><style>{_STYLE}</style>\n"
        f"{body}\n</html>\n"
    )


def _text(text: str) -> str:
    return f"<pre>{html.escape(text)}</pre>"


def memory_over_time(
    job: Job, one: Candidate, software: Software, stage: int
) -> list[tuple[float, float]]:
    """Seconds and bytes of a stage, after each of its actions."""
    step, layout = one.step, one.layout
    assert step.schedule is not None
    held = rank_memory(job, layout, software, stage)
    working = FRAGMENTATION * working_bytes(job, layout, software, stage)
    now = held.total - held.activations + working
    parts = stage_parts(job.shape, layout, stage)
    sizes = [FRAGMENTATION * part_bytes(job, layout, software, part) for part in parts]
    points = [(0.0, now)]
    for action, span in zip(step.schedule.table[stage], step.spans[stage]):
        size = sizes[action.chunk]
        if action.kind == FORWARD:
            now += size
        elif action.kind != INPUT_GRADIENT:
            now -= size
        points.append((span.end, now))
    return points


def _memory_curves(job: Job, one: Candidate, software: Software, machine: TimedCluster) -> str:
    if one.step.schedule is None:
        return "<p>This layout was not simulated.</p>"
    last = one.layout.pipeline - 1
    stages = sorted({0, one.memory.stage, last // 2, last})
    found = [
        Curve(
            f"stage {stage}" + (", the fullest" if stage == one.memory.stage and last else ""),
            colour,
            [(t, held / 1e9) for t, held in memory_over_time(job, one, software, stage)],
        )
        for stage, colour in zip(stages, COLOURS[::2])
    ]
    return curves(found, machine.cluster.capacity / 1e9, ("seconds", "GB of a rank"))


def _frontier(found: Sequence[Candidate], unit: str) -> str:
    points = [
        LayoutPoint(
            one.memory.total / 1e9, one.tokens,
            f"{one.layout}: {one.tokens:,.1f} {unit}/s/GPU, {one.memory.total / 1e9:.1f} GB",
            one.simulated,
        )
        for one in found
    ]  # fmt: skip
    return frontier(points, ("GB of the fullest rank", f"{unit}/s/GPU"))
