"""Trade time for memory: choose which kernels to run again, one choice after the other.

Where most memory is in use, every piece that is kept for later costs its bytes, and every run that
makes some of them again costs its time. At a price of bytes in seconds the cheapest choice for all
of them together is a minimum cut. The lowest price at which anything comes again is where most
bytes are saved for the time (found as Dinkelbach does, by the price of the best choice so far).
That choice is made, of layers that are alike for the first ones only, which are due last; then the
next fullest moment is looked for. So one way leads from the program as it is to the least memory,
whatever the budget: the first point on it that fits is taken, and the last one is the least that
can be asked for.
"""

from __future__ import annotations

from collections.abc import Iterator, Set
from typing import NamedTuple

from ridgeline.compiler.budget.timeline import Overwritten, Timeline
from ridgeline.graph.passes.autodiff.rematerialize import FlowNetwork

_STEPS = 48  # parts of the memory that are saved one after the other, where they can be
_PATIENCE = 24  # choices in a row that save nothing
_PICOSECONDS = 1e12  # capacities are whole numbers
_NEVER = 1 << 120  # more than all bytes at any price
_NEAR = 1.05  # the price of a part of a choice may be so much above that of the whole


def points(timeline: Timeline) -> Iterator[Timeline]:
    """The program as it is, in a better order, and then with less and less memory."""
    yield timeline
    sooner = timeline.sooner()
    if sooner.peak < timeline.peak:
        timeline = sooner
        yield timeline
    least, chunk = timeline.peak, timeline.peak // _STEPS
    tried = 0
    while tried < _PATIENCE and timeline.peak:
        found = _relieved(timeline, chunk)
        if found is None:
            return
        timeline, tried = found, tried + 1
        if timeline.peak < least:
            least, tried = timeline.peak, 0
            yield timeline


def _relieved(timeline: Timeline, chunk: int) -> Timeline | None:
    """The timeline with a lower memory peak; None if nothing is left to do."""
    banned: set[int] = set()  # kernels that would read what is overwritten by then
    while True:
        choice = _Cut(timeline, banned).cheapest(chunk)
        if choice is None:
            return None
        try:
            return timeline.without(timeline.fullest, choice)
        except Overwritten as error:
            banned.add(error.kernel)


class _Choice(NamedTuple):
    """A set of runs to repeat: its cost in time, and the bytes that it frees."""

    again: frozenset[int]
    seconds: float
    saved: int

    @property
    def price(self) -> float:
        return self.seconds / self.saved


class _Cut:
    """Keep or recompute, for everything that is live at the memory peak."""

    def __init__(self, timeline: Timeline, banned: Set[int]) -> None:
        self._timeline, self._at = timeline, timeline.fullest
        self._banned = banned
        self._here = {*timeline.runs[self._at].reads, *timeline.runs[self._at].writes}
        self._early = {p for run in timeline.runs[: self._at + 1] for p in run.reads}
        late = {piece for run in timeline.runs[self._at + 1 :] for piece in run.reads}
        self._needed = [piece for piece in late if self._has_choice(piece)]
        self._runs = self._reach()

    def cheapest(self, chunk: int) -> frozenset[int] | None:
        """The repeats with the best ratio of bytes to time, for about as many bytes as asked."""
        best: _Choice | None = None
        price = self._timeline.seconds  # of one byte: all runs may come again
        while True:
            found = self._judged(self._solved(price))
            if found.saved <= 0 or found.seconds >= price * found.saved * (1 - 1e-9):
                break
            best, price = found, found.price
            if not price:
                break
        return None if best is None else self._first_part(best, chunk)

    def _has_choice(self, piece: int) -> bool:
        """True for a piece that was written earlier and need not be kept."""
        timeline = self._timeline
        before = timeline.writer.get(piece, self._at) < self._at
        return before and timeline.sizes[piece] > 0 and piece not in self._here

    def _reach(self) -> list[int]:
        """The runs that could be repeated for what is needed later, in order."""
        timeline = self._timeline
        found: set[int] = set()
        stack = list(self._needed)
        while stack:
            step = timeline.writer[stack.pop()]
            if step not in found:
                found.add(step)
                stack += [p for p in timeline.runs[step].reads if self._has_choice(p)]
        return sorted(found)

    def _cost(self, step: int) -> float:
        """Seconds to repeat a run; zero for one that would only be delayed."""
        run = self._timeline.runs[step]
        first = self._early.isdisjoint(run.writes) and all(
            self._timeline.sizes[piece] for piece in run.writes
        )
        return 0.0 if first else self._timeline.costs.seconds[run.kernel]

    def _solved(self, price: float) -> frozenset[int]:
        """The runs to repeat at a price, in seconds for a byte that is kept."""
        timeline, network = self._timeline, FlowNetwork()
        runs = {step: network.vertex() for step in self._runs}
        pieces: dict[int, int] = {}
        for step in self._runs:
            for piece in timeline.runs[step].writes:
                if self._has_choice(piece):
                    pieces[piece] = network.vertex()
        for step, vertex in runs.items():
            run = timeline.runs[step]
            fixed = run.kernel in self._banned or not timeline.costs.repeatable[run.kernel]
            again = _NEVER if fixed else int(self._cost(step) * _PICOSECONDS)
            network.edge(0, vertex, again)
            for piece in run.writes:
                if piece in pieces:
                    kept = timeline.sizes[piece] * price * _PICOSECONDS
                    network.edge(vertex, pieces[piece], int(kept))
            for piece in run.reads:
                if piece in pieces:
                    network.edge(pieces[piece], vertex, _NEVER)
        for piece in self._needed:
            network.edge(pieces[piece], 1, _NEVER)
        before = network.source_side()
        return frozenset(step for step, vertex in runs.items() if vertex not in before)

    def _judged(self, again: frozenset[int]) -> _Choice:
        """The cost and gain of a choice."""
        timeline = self._timeline
        kept = {p for p in self._needed if timeline.writer[p] not in again}
        for step in again:
            reads = timeline.runs[step].reads
            kept |= {p for p in reads if self._has_choice(p) and timeline.writer[p] not in again}
        held = sum(timeline.sizes[piece] for piece in kept)
        saved = sum(timeline.sizes[piece] for piece in self._needed) - held
        return _Choice(again, sum(map(self._cost, again)), saved)

    def _first_part(self, whole: _Choice, chunk: int) -> frozenset[int]:
        """The runs of a choice that are needed last, if they alone are about as cheap."""
        order = sorted(whole.again)
        most = whole.price * _NEAR
        for count in range(1, len(order)):
            part = self._judged(frozenset(order[:count]))
            if part.saved >= chunk and part.seconds <= most * part.saved:
                return part.again
        return whole.again
