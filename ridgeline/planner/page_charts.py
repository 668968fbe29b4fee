"""Charts of a plan as SVG: bars of a step, a pipeline over time, curves, and points of layouts."""

from __future__ import annotations

import html
import math
from collections.abc import Iterable, Iterator, Sequence
from typing import NamedTuple

from ridgeline.distributed.schedules import BACKWARD, FORWARD, INPUT_GRADIENT, WEIGHT_GRADIENT
from ridgeline.planner.step import StepTime

WIDTH = 1100
_ROW, _LEFT, _BELOW = 18, 52, 32
COLOURS = ("#4c78a8", "#9ecae9", "#f58518", "#ffbf79", "#54a24b", "#88d27a", "#b79a20", "#f2cf5b",
           "#439894", "#83bcb6", "#e45756", "#ff9d98", "#79706e")  # fmt: skip
_ACTIONS = {
    FORWARD: ("forward", "#4c78a8"), BACKWARD: ("backward", "#f58518"),
    INPUT_GRADIENT: ("gradients of inputs", "#e45756"),
    WEIGHT_GRADIENT: ("gradients of weights", "#72b7b2"),
}  # fmt: skip


class Curve(NamedTuple):
    """Points over time, with a name and a colour."""

    name: str
    colour: str
    points: list[tuple[float, float]]


class LayoutPoint(NamedTuple):
    """A layout: what it holds, how fast it is, what it is called, whether it was simulated."""

    held: float
    speed: float
    name: str
    simulated: bool


def svg(height: float, marks: Iterable[str]) -> str:
    """A drawing of such a height."""
    return f'<svg viewBox="0 0 {WIDTH} {height:.0f}" width="100%" role="img">{"".join(marks)}</svg>'


def key(names: Iterable[tuple[str, str]]) -> str:
    """What colours mean."""
    spans = "".join(
        f'<span><i style="background:{colour}"></i>{html.escape(name)}</span>'
        for name, colour in names
    )
    return f'<p class="key">{spans}</p>'


def ticks(most: float, count: int = 5) -> list[float]:
    """Round numbers from 0 up to the most there is."""
    if most <= 0:
        return [0.0]
    step = most / count
    scale = 10 ** math.floor(math.log10(step))
    step = next(nice * scale for nice in (1, 2, 5, 10) if nice * scale >= step * 0.999)
    return [step * index for index in range(int(most / step + 1e-9) + 1)]


class Axes:
    """Across and up from a corner, with ticks, and where a pair of values is between them."""

    def __init__(self, across: float, up: float, high: float, names: tuple[str, str]) -> None:
        self.across, self.up, self.high, self.names = across or 1.0, up or 1.0, high, names
        self.bottom = high - _BELOW

    def x(self, value: float) -> float:
        """Where a value lies across."""
        return _LEFT + value / self.across * (WIDTH - _LEFT - 8)

    def y(self, value: float) -> float:
        """Where a value lies up."""
        return self.bottom - value / self.up * (self.bottom - 16)

    def marks(self) -> Iterator[str]:
        """Lines, ticks and names."""
        for value in ticks(self.across):
            yield f'<line class="grid" x1="{self.x(value):.1f}" x2="{self.x(value):.1f}" '
            yield f'y1="16" y2="{self.bottom}"/>'
            yield f'<text x="{self.x(value):.1f}" y="{self.bottom + 14}" '
            yield f'text-anchor="middle">{value:g}</text>'
        for value in ticks(self.up):
            yield f'<line class="grid" x1="{_LEFT}" x2="{WIDTH - 8}" y1="{self.y(value):.1f}" '
            yield f'y2="{self.y(value):.1f}"/>'
            yield f'<text x="{_LEFT - 6}" y="{self.y(value) + 4:.1f}" '
            yield f'text-anchor="end">{value:,g}</text>'
        yield f'<text x="{_LEFT}" y="10">{html.escape(self.names[1])}</text>'
        yield f'<text x="{WIDTH - 8}" y="{self.high - 1:.0f}" text-anchor="end">'
        yield f"{html.escape(self.names[0])}</text>"


def breakdown(step: StepTime) -> str:
    """One bar of a step, by what it is spent on."""
    rows = [(name, seconds) for name, seconds in step.parts.items() if seconds > 0]

    def marks() -> Iterator[str]:
        left = 0.0
        for (name, seconds), colour in zip(rows, COLOURS):
            wide = seconds / step.seconds * WIDTH
            yield (
                f'<rect x="{left:.1f}" y="0" width="{wide:.1f}" height="34" fill="{colour}">'
                f"<title>{html.escape(name)}: {seconds:.4f} s</title></rect>"
            )
            left += wide

    labels = [
        (f"{name} {seconds / step.seconds:.1%}", colour)
        for (name, seconds), colour in zip(rows, COLOURS)
    ]
    return svg(36, marks()) + key(labels)


def timeline(step: StepTime) -> str:
    """Every action of each stage, over the seconds of a step."""
    if step.schedule is None or step.schedule.stages == 1:
        return "<p>There is one stage.</p>"
    schedule, spans = step.schedule, step.spans
    total = max(row[-1].end for row in spans)
    high = schedule.stages * _ROW + 20
    kinds = {action.kind for row in schedule.table for action in row}

    def across(seconds: float) -> float:
        return _LEFT + seconds / total * (WIDTH - _LEFT - 8)

    def marks() -> Iterator[str]:
        for stage, (row, times) in enumerate(zip(schedule.table, spans)):
            top = stage * _ROW
            yield f'<text x="{_LEFT - 6}" y="{top + 12}" text-anchor="end">{stage}</text>'
            for action, span in zip(row, times):
                wide = max(0.4, across(span.end) - across(span.start) - 0.2)
                shade = 1 - 0.5 * action.chunk / max(1, schedule.chunks)
                yield (
                    f'<rect x="{across(span.start):.1f}" y="{top}" width="{wide:.1f}" '
                    f'height="{_ROW - 3}" fill="{_ACTIONS[action.kind][1]}" '
                    f'opacity="{shade:.2f}"/>'
                )
        for value in ticks(total):
            yield f'<text x="{across(value):.1f}" y="{high - 6}" text-anchor="middle">'
            yield f"{value:g} s</text>"

    idle = ", ".join(f"{share:.0%}" for share in step.idle)
    named = [_ACTIONS[kind] for kind in _ACTIONS if kind in kinds]
    return (
        svg(high, marks())
        + key(named)
        + f"<p>{schedule.name}, {schedule.microbatches} microbatches; idle, by stage: {idle}. "
        "Later chunks of a stage are paler.</p>"
    )


def curves(some: Sequence[Curve], limit: float, names: tuple[str, str], high: float = 230) -> str:
    """Curves below a limit."""
    end = max(points[-1][0] for _, _, points in some)
    axes = Axes(end, 1.1 * limit, high, names)

    def marks() -> Iterator[str]:
        yield from axes.marks()
        yield f'<line x1="{_LEFT}" x2="{WIDTH - 8}" y1="{axes.y(limit):.1f}" '
        yield f'y2="{axes.y(limit):.1f}" stroke="#c00"/>'
        yield f'<text x="{WIDTH - 10}" y="{axes.y(limit) - 4:.1f}" text-anchor="end">'
        yield f"{limit:,.0f} a GPU has</text>"
        for _, colour, points in some:
            path = " ".join(f"{axes.x(t):.1f},{axes.y(value):.1f}" for t, value in points)
            yield f'<polyline points="{path}" fill="none" stroke="{colour}" stroke-width="1.5"/>'

    return svg(high, marks()) + key((name, colour) for name, colour, _ in some)


def frontier(points: Sequence[LayoutPoint], names: tuple[str, str], high: float = 300) -> str:
    """Layouts by what they hold and how fast they are, and those that none beats in both."""
    most = max(point.held for point in points)
    axes = Axes(1.05 * most, 1.05 * max(point.speed for point in points), high, names)

    def marks() -> Iterator[str]:
        yield from axes.marks()
        for one in points:
            colour, radius = ("#e45756", 4) if one.simulated else ("#999", 2.5)
            yield (
                f'<circle cx="{axes.x(one.held):.1f}" cy="{axes.y(one.speed):.1f}" r="{radius}" '
                f'fill="{colour}" opacity="0.7"><title>{html.escape(one.name)}</title></circle>'
            )
        edge = unbeaten(points)
        path = " ".join(f"{axes.x(one.held):.1f},{axes.y(one.speed):.1f}" for one in edge)
        yield f'<polyline points="{path}" fill="none" stroke="#4c78a8" stroke-width="1.5"/>'

    named = [("simulated", "#e45756"), ("by formula", "#999"), ("none beats", "#4c78a8")]
    return svg(high, marks()) + key(named)


def unbeaten(points: Sequence[LayoutPoint]) -> list[LayoutPoint]:
    """Layouts than which none is faster that holds as little, least held first."""
    edge: list[LayoutPoint] = []
    for one in sorted(points, key=lambda point: (point.held, -point.speed)):
        if not edge or one.speed > edge[-1].speed:
            edge.append(one)
    return edge
