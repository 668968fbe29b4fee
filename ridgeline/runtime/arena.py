"""The arena: offsets for temporaries, so that values alive at different times share memory."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

ALIGNMENT = 256


@dataclass(frozen=True, slots=True)
class LiveRange:
    """A value's size in bytes, and the first and last step at which it must exist."""

    nbytes: int
    first: int
    last: int


@dataclass(frozen=True, slots=True)
class ArenaPlan:
    """Where each value lies, how large the arena is, and the least it could have been."""

    offsets: tuple[int, ...]
    nbytes: int
    peak_live: int


def plan_arena(ranges: Sequence[LiveRange]) -> ArenaPlan:
    """Place the largest values first, each at the lowest offset free during its life."""
    sizes = [-(-r.nbytes // ALIGNMENT) * ALIGNMENT for r in ranges]
    order = sorted(range(len(ranges)), key=lambda i: (-sizes[i], ranges[i].first))
    offsets = [0] * len(ranges)
    placed: list[int] = []
    for current in order:
        own = ranges[current]
        taken = sorted(
            (offsets[i], offsets[i] + sizes[i])
            for i in placed
            if ranges[i].first <= own.last and own.first <= ranges[i].last
        )
        offset = 0
        for start, end in taken:
            if start - offset >= sizes[current]:
                break
            offset = max(offset, end)
        offsets[current] = offset
        placed.append(current)
    total = max((offsets[i] + sizes[i] for i in placed), default=0)
    return ArenaPlan(tuple(offsets), total, _peak_live(ranges, sizes))


def _peak_live(ranges: Sequence[LiveRange], sizes: Sequence[int]) -> int:
    steps = range(max((r.last for r in ranges), default=-1) + 1)
    live = [0] * (len(steps) + 1)
    for own, size in zip(ranges, sizes):
        live[own.first] += size
        live[own.last + 1] -= size
    peak = running = 0
    for change in live:
        running += change
        peak = max(peak, running)
    return peak
