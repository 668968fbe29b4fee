"""The closing table of a run: where the time of one step went, against the machine's limit.

The rows come from the compiled step (exact FLOPs and compulsory bytes, measured seconds); the
limit of a kernel is the larger of FLOPs over peak FLOP/s and bytes over memory bandwidth.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from rich.table import Table

from ridgeline.compiler.kernel_profile import duration, percent

SHOWN = 12  # kernels that get a row of their own; the rest share one


@dataclass(frozen=True, slots=True)
class StepKernel:
    """One kernel of a step: seconds are measured, FLOPs and bytes exact, the bound modelled.

    `bound` is the least time that the machine's ceilings allow.
    """

    name: str
    seconds: float
    flops: int
    bytes: int
    bound: float | None  # None where the machine's limits are not known
    layers: str = ""  # the layers of the model that the kernel computes a part of

    @property
    def share_of_limit(self) -> float | None:
        """How close the kernel comes to the machine's limit; above 1 for data in caches."""
        return self.bound / self.seconds if self.bound is not None and self.seconds > 0 else None


def summed(name: str, rows: Sequence[StepKernel]) -> StepKernel:
    """Several rows as one."""
    bounds = [row.bound for row in rows if row.bound is not None]
    return StepKernel(
        name,
        sum(row.seconds for row in rows),
        sum(row.flops for row in rows),
        sum(row.bytes for row in rows),
        sum(bounds) if len(bounds) == len(rows) else None,
    )


def time_table(rows: Sequence[StepKernel], wall: float, title: str) -> Table:
    """The kernels of a step, dearest first, and what the step spent outside them.

    `wall` is the measured time of the whole step, in seconds.
    """
    table = Table(title=title, title_justify="left", box=None, pad_edge=False, padding=(0, 1, 0, 0))
    table.add_column("kernel", overflow="ellipsis", no_wrap=True, max_width=22)  # 80 in all
    table.add_column("layers", overflow="ellipsis", no_wrap=True, max_width=20)
    for heading, width in (("time", 7), ("share", 5), ("FLOPs", 6), ("bytes", 6), ("of limit", 8)):
        table.add_column(heading, justify="right", no_wrap=True, min_width=width)
    ordered = sorted(rows, key=lambda row: -row.seconds)
    shown = list(ordered[:SHOWN])
    if len(ordered) > SHOWN:
        shown.append(summed(f"{len(ordered) - SHOWN} more", ordered[SHOWN:]))
    for row in shown:
        table.add_row(*_cells(row, wall))
    inside = summed("kernels together", ordered)
    if wall > inside.seconds:
        outside = wall - inside.seconds
        table.add_row("outside kernels", "", duration(outside), f"{outside / wall:.0%}")
    whole = StepKernel("step", wall, inside.flops, inside.bytes, inside.bound)
    table.add_section()
    table.add_row(*_cells(whole, wall), style="bold")
    return table


def _cells(row: StepKernel, wall: float) -> tuple[str, ...]:
    share = f"{row.seconds / wall:.0%}" if wall > 0 else ""
    counts = (quantity(row.flops), quantity(row.bytes))
    times = (duration(row.seconds), share)
    return (row.name, row.layers, *times, *counts, percent(row.share_of_limit))


def quantity(count: float) -> str:
    """A count with three digits and a decimal prefix."""
    for scale, prefix in ((1e12, "T"), (1e9, "G"), (1e6, "M"), (1e3, "k")):
        if count >= scale:
            return f"{count / scale:.3g} {prefix}"
    return f"{count:.3g}"
