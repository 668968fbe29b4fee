"""The locks that a replay takes before it writes state: see `record/turns.py`."""

from __future__ import annotations

from collections.abc import Sequence, Set
from dataclasses import dataclass
from typing import Any
from weakref import ref

from ridgeline.record.cells import Cell
from ridgeline.record.turns import Turn, claimed, in_order, turn_of
from ridgeline.tracing.capture import ArgumentInput, CellInput, GradientInput
from ridgeline.tracing.side_effects import Effects, live_cell


@dataclass(frozen=True, slots=True)
class Turned:
    """State whose lock depends on the call: that of arguments, and of gradients by their owners."""

    arguments: tuple[int, ...]
    gradients: tuple[GradientInput, ...]


def turns_for(effects: Effects, donated: Set[int]) -> tuple[tuple[Turn, ...], Turned | None]:
    """The turns that every call takes, in order, and where to look for more of them."""
    state: list[Any] = [generator for generator, _ in effects.drawn]
    state += [track for track, _ in effects.modes]
    indices, gradients = set(donated), list[GradientInput]()
    for write in effects.writes:
        source = write.source() if isinstance(write.source, ref) else write.source
        if isinstance(source, ArgumentInput):
            indices.add(source.index)
        elif isinstance(source, GradientInput):
            gradients.append(source)
        elif isinstance(source, CellInput | Cell):
            state.append(source.cell if isinstance(source, CellInput) else source)
    for change in effects.gradients:
        if change.argument is not None:
            indices.add(change.argument)
        else:
            state.append(change.owner._cell)
    more = Turned(tuple(sorted(indices)), tuple(gradients)) if indices or gradients else None
    return claimed(state), more


def turns_of(fixed: tuple[Turn, ...], more: Turned, leaves: Sequence[Any]) -> tuple[Turn, ...]:
    """The turns that a call takes, in order."""
    cells = [leaves[index]._cell for index in more.arguments]
    cells += [live_cell(source, leaves) for source in more.gradients]
    return in_order((*fixed, *map(turn_of, cells)))
