"""Measured kernels as a table: time, share of the whole, exact work, share of the limit."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from html import escape

SHOWN = 16  # kernels that get a row of their own; the rest share one
_HASH = re.compile(r"_[0-9a-f]{16}$")  # keeps equal kernels apart, says nothing to a reader


@dataclass(frozen=True, slots=True)
class KernelTime:
    """A kernel's exact work, its measured time, and the least time that the machine allows."""

    name: str
    seconds: float
    flops: int
    nbytes: int
    lines: tuple[str, ...]
    least_seconds: float | None = None  # None where the machine's limits are not known

    @property
    def of_limit(self) -> float | None:
        """The share of the limit; above 1 if data stayed in caches or the limit is too low."""
        if self.least_seconds is None or self.seconds <= 0:
            return None
        return self.least_seconds / self.seconds


class Profile(list[KernelTime]):
    """The kernels of one call in order; prints as a table, slowest first."""

    def __init__(self, kernels: Iterable[KernelTime], limit: str) -> None:
        super().__init__(kernels)
        self.limit = limit  # what the share of the limit refers to, or why there is none

    @property
    def total(self) -> KernelTime:
        """All kernels as one."""
        return summed("total", self)

    def __str__(self) -> str:
        rows = list(self.rows())
        widths = [max(len(row[index]) for row in rows) for index in range(len(rows[0]))]
        lines = [
            "  ".join(
                cell.ljust(width) if index in (0, len(row) - 1) else cell.rjust(width)
                for index, (cell, width) in enumerate(zip(row, widths))
            ).rstrip()
            for row in rows
        ]
        return "\n".join([*lines, f"limit: {self.limit}"])

    __repr__ = __str__

    def _repr_html_(self) -> str:
        head, *rows = self.rows()
        top = "".join(f"<th>{escape(cell)}</th>" for cell in head)
        body = ("".join(f"<td>{escape(cell)}</td>" for cell in row) for row in rows)
        table = "".join(f"<tr>{row}</tr>" for row in (top, *body))
        return f"<table>{table}</table><p>limit: {escape(self.limit)}</p>"

    def rows(self) -> Iterable[tuple[str, ...]]:
        """The cells of the table, its head first and the total last."""
        total = self.total
        yield ("kernel", "time", "share", "FLOPs", "bytes", "of limit", "from")
        ordered = sorted(self, key=lambda kernel: -kernel.seconds)
        shown = ordered[:SHOWN]
        if len(ordered) > SHOWN:
            shown.append(summed(f"{len(ordered) - SHOWN} more", ordered[SHOWN:]))
        for kernel in (*shown, total):
            yield (
                short_name(kernel.name),
                duration(kernel.seconds),
                percent(kernel.seconds / total.seconds if total.seconds else None),
                quantity(kernel.flops, "FLOP"),
                quantity(kernel.nbytes, "B"),
                percent(kernel.of_limit),
                kernel.lines[0] if kernel.lines else "",
            )


def summed(name: str, kernels: Sequence[KernelTime]) -> KernelTime:
    """Several kernels as one."""
    least = [kernel.least_seconds for kernel in kernels]
    known = [seconds for seconds in least if seconds is not None]
    return KernelTime(
        name,
        sum(kernel.seconds for kernel in kernels),
        sum(kernel.flops for kernel in kernels),
        sum(kernel.nbytes for kernel in kernels),
        (),
        sum(known) if len(known) == len(least) else None,
    )


def limited(
    kernels: Iterable[KernelTime], least: Callable[[float, float], float]
) -> list[KernelTime]:
    """Kernels with the least time that a machine allows for each."""
    return [
        KernelTime(k.name, k.seconds, k.flops, k.nbytes, k.lines, least(k.flops, k.nbytes))
        for k in kernels
    ]


def short_name(name: str) -> str:
    """A kernel's name without its hash."""
    return _HASH.sub("", name)


def percent(share: float | None) -> str:
    """A share as text; empty if it is unknown."""
    return "" if share is None else f"{share:.0%}"


def duration(seconds: float) -> str:
    """A time with three digits and a fitting unit."""
    for limit, scale, unit in ((1e-3, 1e6, "µs"), (1.0, 1e3, "ms")):
        if seconds < limit:
            return f"{seconds * scale:.3g} {unit}"
    return f"{seconds:.3g} s" if seconds < 100 else f"{seconds:.0f} s"


def quantity(amount: float, unit: str) -> str:
    """A number with a metric prefix: 12.3 MFLOP."""
    for factor, prefix in ((1e12, "T"), (1e9, "G"), (1e6, "M"), (1e3, "k")):
        if amount >= factor:
            return f"{amount / factor:.3g} {prefix}{unit}"
    return f"{amount:.3g} {unit}"
