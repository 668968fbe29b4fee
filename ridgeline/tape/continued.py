"""Runs that go on where the run before a flush ended: a loss is read, and then goes backward.

A flush leaves results that keep a graph without nodes, with their values (`Past`). A call that
leads further through such a graph takes over the run that made it: its results that are held become
tensors of the run that goes on, with numbers there, and its variables have numbers there too. What
goes into the program of the next flush may then be a result, an operand or a draw of the run that
was taken over. Its calls are made in earnest together with those of the run that goes on.
"""

from __future__ import annotations

import weakref
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from itertools import chain, starmap
from typing import TYPE_CHECKING, Any, TypeAlias

from ridgeline.atomic import Change, apply
from ridgeline.record.cells import GRAPH, LEAF, Cell
from ridgeline.record.modes import modes
from ridgeline.tape.entries import NotTaped, Place

if TYPE_CHECKING:
    from ridgeline.record.cells import Track
    from ridgeline.tape.earnest import Earnest
    from ridgeline.tape.endings import Ending
    from ridgeline.tape.run import Run

RESULT, OUTSIDE, DRAW, GIVEN = range(4)  # what of a run that was taken over goes into a program
# which of the runs that were taken over, one after the other, then what of it, by two numbers
Source: TypeAlias = tuple[tuple[int, ...], int, int, int]
# memory and what it is, by the identity of that memory, which is no other's while it is held here
Sources: TypeAlias = dict[int, tuple[Any, Source]]
_GONE: weakref.ref[Any] = weakref.ref(Place())  # of a cell that nobody holds


@dataclass(frozen=True, slots=True, eq=False)
class Taken:
    """What is the same every time that a run takes over the one before a flush."""

    ending: Ending  # of that run: it stands for all of its calls
    numbers: Mapping[int, int]  # of its results that keep a graph: here, by those there
    # of its variables: there, here, and whether they have other memory since
    variables: tuple[tuple[int, int, bool], ...]


def leads_on(cell: Cell, track: Track) -> bool:
    """True for what a flush left with a graph and without a node, where gradients may follow."""
    if cell.types is None or track.mode != GRAPH or not modes.gradients:
        return False
    run: Any = cell.run
    return run is not None and run.past is not None


def learn(run: Run, other: Run) -> Taken:
    """Take over a run for the first time: numbers are given here."""
    past = other.past
    assert past is not None
    numbers: dict[int, int] = {}
    for there in past.values:
        numbers[there] = run.count
        run.count += 1
    variables: list[tuple[int, int, bool]] = []
    for there, found in other.outside.items():
        if found.variable is not None:
            node = run.memory(found.cell, found.variable)
            if node is None or found.variable.mode != LEAF:
                raise NotTaped("a graph that leads to something else")
            here = run.numbers.get(id(found.cell))
            if here is None:
                here = run.take(found.cell, node, False)
            bound = run.outside[here]
            if bound.node is not node or not bound.stands_for(found.variable):
                raise NotTaped("memory that something else wrote to")
            changed = past.ending.keeps_graphs and node is not found.node
            variables.append((there, here, changed))
    taken = Taken(past.ending, numbers, tuple(variables))
    take_over(run, {taken: other})
    return taken


def fits(run: Run, taken: Taken, other: Run) -> bool:
    """True where a run is of the kind that was taken over before; its variables are tried."""
    past = other.past
    if past is None or past.ending is not taken.ending:
        return False
    for there, here, changed in taken.variables:
        found = other.outside[there]
        track = found.variable
        node = None if track is None or track.mode != LEAF else run.memory(found.cell, track)
        if node is None or track is None:
            return False
        if (past.ending.keeps_graphs and node is not found.node) is not changed:
            return False
        bound = run.trial.get(here) or run.outside.get(here)
        if bound is None:
            if run.numbers.get(id(found.cell), here) != here:
                return False
            if any(each.cell is found.cell for each in run.trial.values()):
                return False
            run.try_memory(here, found.cell, node, track)
        elif bound.cell is not found.cell or bound.node is not node or not bound.stands_for(track):
            return False
    return True


def take_over(run: Run, taking: Mapping[Taken, Run]) -> None:
    """Results of runs before are tensors of this run from now on, in one step."""
    changes: list[Change] = [(run, "unmade", True)]
    tables: list[tuple[dict[int, Any], int, Any]] = []
    for taken, other in taking.items():
        assert other.past is not None
        changes.append((other, "taker", weakref.ref(run)))
        if other.start is not None:
            changes.append((other.start.after, "needed", 0))
        for there, here in taken.numbers.items():
            cell = other.cell(there)
            held = cell is not None and cell.run is other
            if held:
                changes += [(cell, "run", run), (cell, "slot", here)]
            tables.append((run.made, here, weakref.ref(cell) if held else _GONE))
            tables.append((run.known, here, other.past.values[there]))
    apply(
        chain(
            starmap(dict.__setitem__, tables),
            map(run.before.append, tuple(taking.items())),
            starmap(setattr, changes),
        )
    )


def resolved(run: Run, source: Source) -> Any:
    """What goes into a program, of a run that was taken over; None where it is not there."""
    path, kind, number, part = source
    for place in path:
        run = run.before[place][1]
    if kind == OUTSIDE:
        return run.outside[number].node.buffer
    if kind == DRAW:
        return run.drawn[number][part]
    if kind == GIVEN:
        return run.given[number]
    return None if run.past is None else run.past.results[number]


def sources(earnest: Earnest) -> Sources:
    """Memory that runs which were taken over may give to a program, by its identity.

    Of memory that is several operands nobody knows which: it is none of these.
    """
    found: Sources = {}
    several: set[int] = set()

    def add(buffer: Any, source: Source) -> None:
        if id(buffer) in found:
            several.add(id(buffer))
        found[id(buffer)] = buffer, source

    for place, (_, before) in enumerate(earnest.before):
        run = before.run
        for key, (buffer, (path, *what)) in sources(before).items():
            found[key] = buffer, ((place, *path), *what)  # type: ignore[assignment]
        for number, outside in run.outside.items():
            add(outside.node.buffer, ((place,), OUTSIDE, number, 0))
        for number, words in enumerate(before.drawn):
            for part, buffer in enumerate(words):
                add(buffer, ((place,), DRAW, number, part))
        for number, buffer in enumerate(() if run.past is None else run.past.results):
            if buffer is not None:
                found[id(buffer)] = buffer, ((place,), RESULT, number, 0)
    return {key: source for key, source in found.items() if key not in several}


def memory_of(run: Run) -> Iterator[Any]:
    """All memory of runs that were taken over: nothing in it is a constant."""
    for _, other in run.before:
        yield from (found.node.buffer for found in other.outside.values())
        if other.past is not None:
            yield from other.past.results
        yield from memory_of(other)
