"""The frontier of a program, bytes against time, as a table and as a drawing."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from ridgeline.compiler.budget.fit import FrontierPoint, frontier
from ridgeline.compiler.memory_plan import bytes_text
from ridgeline.compiler.pipeline import lower, merged_again, optimize, planned
from ridgeline.errors import ArgumentError
from ridgeline.files import write_atomic

if TYPE_CHECKING:
    from ridgeline.compiler.program import Program

_WIDTH, _HEIGHT, _MARGIN = 560, 320, 60


class Frontier(list[FrontierPoint]):
    """What a call holds in each of the ways to run it, from the quickest to the smallest.

    It prints as a table, notebooks draw it, and `save` writes the drawing as SVG. Times are
    reckoned by the roofline, relative to the program without a budget.
    """

    def __init__(self, points: Iterable[FrontierPoint]) -> None:
        super().__init__(points)

    def _relative(self) -> list[tuple[float, float]]:
        first = self[0]
        return [(p.nbytes / first.nbytes, p.seconds / first.seconds) for p in self]

    def __str__(self) -> str:
        lines = ["      bytes held  share  time  kernels that run again"]
        for point, (share, time) in zip(self, self._relative()):
            held = bytes_text(point.nbytes)
            lines.append(f"{held:>16}  {share:5.2f}  {time:4.2f}  {point.repeats}")
        return "\n".join(lines)

    __repr__ = __str__

    def _repr_svg_(self) -> str:
        return self.svg()

    def svg(self) -> str:
        """The drawing: bytes to the right, time upwards."""
        relative = self._relative()
        least = min(share for share, _ in relative)
        most = max(time for _, time in relative)

        def place(share: float, time: float) -> tuple[float, float]:
            right = (share - least) / ((1 - least) or 1)
            up = (time - 1) / ((most - 1) or 1)
            return _MARGIN + right * (_WIDTH - 2 * _MARGIN), _HEIGHT - _MARGIN - up * (
                _HEIGHT - 2 * _MARGIN
            )

        dots = [place(*pair) for pair in relative]
        way = " ".join(f"{x:.1f},{y:.1f}" for x, y in dots)
        marks = "".join(
            f'<circle cx="{x:.1f}" cy="{y:.1f}" r="3"><title>{bytes_text(p.nbytes)}, '
            f"{time:.2f} of the time</title></circle>"
            for p, (x, y), (_, time) in zip(self, dots, relative)
        )
        bottom = _HEIGHT - _MARGIN / 2
        return (
            f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {_WIDTH} {_HEIGHT}" '
            'font-family="sans-serif" font-size="12">'
            f'<polyline points="{way}" fill="none" stroke="steelblue" stroke-width="2"/>'
            f'<g fill="steelblue">{marks}</g>'
            f'<text x="{_MARGIN}" y="{bottom}">{bytes_text(self[-1].nbytes)}</text>'
            f'<text x="{_WIDTH - _MARGIN}" y="{bottom}" text-anchor="end">'
            f"{bytes_text(self[0].nbytes)} held by a call</text>"
            f'<text x="8" y="{_MARGIN - 16}">{most:.2f} of the time</text>'
            f'<text x="8" y="{_HEIGHT - _MARGIN}">1.00</text></svg>'
        )

    def save(self, path: str | Path) -> None:
        """Write the drawing to a file."""
        write_atomic(Path(path), self.svg().encode())


def frontier_of(program: Program) -> Frontier:
    """The frontier of a program whose sizes are known."""
    if program.layout.sizes:
        raise ArgumentError(
            "the frontier is that of one set of sizes",
            help="ask for it without dynamic=, or explain a call of a function without it",
        )
    to = replace(program.compilation, ahead=False, budget=0)
    stages = lower(optimize(program.graph, to), to)
    again = partial(merged_again, stages, to)
    return Frontier(frontier(stages, to, lambda made: planned(made, to), again))
