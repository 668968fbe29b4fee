"""Counters of communication: calls, bytes and waiting time, by axis and kind of call.

Of the time that a program's collectives take, what passes while the program computes is *hidden*,
and what it waits is *exposed*.
"""

from __future__ import annotations

import threading
from collections import defaultdict
from collections.abc import Callable
from dataclasses import dataclass


@dataclass(slots=True)
class AxisTraffic:
    """How many calls there were, and the bytes of what they were given or gave."""

    calls: int = 0
    bytes: int = 0


@dataclass(slots=True)
class AxisTimes:
    """Seconds of collectives that programs waited for, and that passed while they computed."""

    exposed: float = 0.0
    hidden: float = 0.0


class TrafficCounters:
    """What one rank sent, by (axis, kind of call); groups split from one another share it."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self.traffic: dict[tuple[str, str], AxisTraffic] = defaultdict(AxisTraffic)
        self._times: dict[str, AxisTimes] = defaultdict(AxisTimes)
        # who adds what was not counted yet, before times are read
        self.sources: list[Callable[[], None]] = []

    @property
    def times(self) -> dict[str, AxisTimes]:
        """Exposed and hidden time by axis."""
        for source in self.sources:
            source()
        return self._times

    def count(self, axis: str, kind: str, nbytes: int) -> None:
        """One more call."""
        with self._lock:
            entry = self.traffic[axis, kind]
            entry.calls += 1
            entry.bytes += nbytes

    def waited(self, axis: str, exposed: float, hidden: float) -> None:
        """A program has waited for a collective that it had started."""
        with self._lock:
            entry = self._times[axis]
            entry.exposed += exposed
            entry.hidden += hidden

    def calls(self, axis: str | None = None, kind: str | None = None) -> int:
        """The calls along an axis and of a kind, or of all."""
        return sum(entry.calls for entry in self._chosen(axis, kind))

    def bytes(self, axis: str | None = None, kind: str | None = None) -> int:
        """The bytes along an axis and of a kind, or of all."""
        return sum(entry.bytes for entry in self._chosen(axis, kind))

    def _chosen(self, axis: str | None, kind: str | None) -> list[AxisTraffic]:
        with self._lock:
            return [
                entry
                for (known_axis, known_kind), entry in self.traffic.items()
                if axis in (None, known_axis) and kind in (None, known_kind)
            ]

    def clear(self) -> None:
        """Start from nothing."""
        for source in self.sources:
            source()
        with self._lock:
            self.traffic.clear()
            self._times.clear()

    def __str__(self) -> str:
        rows = [
            f"{axis:10} {kind:16} {entry.calls:8} calls {entry.bytes:14} bytes"
            for (axis, kind), entry in sorted(self.traffic.items())
        ]
        rows += [
            f"{axis:10} exposed {each.exposed * 1e3:10.3f} ms, hidden {each.hidden * 1e3:10.3f} ms"
            for axis, each in sorted(self.times.items())
        ]
        return "\n".join(rows) or "nothing was sent"
