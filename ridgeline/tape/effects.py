"""Calls that are matched and write, draw, leave gradients or give several tensors.

`native.py` compiles what is here, but for draws: other threads may have to be waited for.
"""

from __future__ import annotations

import weakref
from typing import Any

from ridgeline.atomic import Change
from ridgeline.record.cells import Cell, Rare
from ridgeline.record.recorder import MISS
from ridgeline.tape.entries import Entry, Place
from ridgeline.tape.handles import cell_of, handed_out, whole
from ridgeline.tape.learning import collect
from ridgeline.tape.primitives import commit
from ridgeline.tape.run import Draws, Run
from ridgeline.tensors.tensor import Tensor

_GONE = weakref.ref(Place())  # of a variable that nobody holds any more


def matched_with_effects(run: Run, at: Place, entry: Entry, args: tuple[Any, ...]) -> Any:
    """The result of a call that is the known one; MISS where its results cannot be handed out.

    The run is at the place from where it is known.
    """
    tensors: list[Tensor] = []
    collect(args, tensors)
    fresh: list[Cell] = []
    made = handed_out(run, entry.result, tensors, fresh)
    if made is MISS:
        return MISS
    changes: list[Change] = []
    removed: list[tuple[Any, str]] = []
    _note_writes(run, entry, changes, removed)
    for place, mode in entry.tracks:
        tensor: Tensor = tensors[place]
        changes.append((tensor._track, "mode", mode))
    _note_gradients(run, entry, changes, fresh)
    if entry.spent:
        _note_spent(run, entry, changes)
    changes += [(run, "at", entry.after), (run, "count", entry.count)]
    added: list[tuple[list[Any], Any]] = [(run.handed, fresh), (run.log, (entry,))]
    if entry.draws:
        added += drawn(run, entry)
    run.take_over_memory()
    return made if commit(run, at, changes, removed, added) else MISS


def _note_writes(
    run: Run, entry: Entry, changes: list[Change], removed: list[tuple[Any, str]]
) -> None:
    """What a call that writes changes of the cells that it writes to."""
    for write in entry.writes:
        cell = _cell(run, write.number)
        if cell is None:
            continue
        changes += [(cell, "version", cell.version + write.times), (cell, "mode", write.mode)]
        outside = run.trial.get(write.number) or run.outside.get(write.number)
        if outside is not None and not outside.written:
            if cell.types is None:
                removed.append((cell, "node"))
            changes += [(cell, "run", run), (cell, "slot", write.number)]
            changes += [(cell, "types", outside.node.types), (outside, "written", True)]


def _note_gradients(run: Run, entry: Entry, changes: list[Change], fresh: list[Cell]) -> None:
    """The gradients that a backward pass leaves where there were none."""
    for gradient in entry.grads:
        owner = run.owner(gradient.owner)
        if gradient.before is None and owner is not None:
            cell = cell_of(run, gradient.number, gradient.type, gradient.mode)
            fresh.append(cell)
            changes.append((owner._details(), "grad", whole(cell)))


def _note_spent(run: Run, entry: Entry, changes: list[Change]) -> None:
    """What a backward pass that lets its graph go changes."""
    behind: list[Any] = []
    for number in entry.spent[0].variables:
        owner = run.owner(number)
        behind.append(_GONE if owner is None else weakref.ref(owner))
    for spent in entry.spent:
        cell = _cell(run, spent.number)
        if cell is not None:
            details = Rare() if cell.rare is None else cell.rare
            changes += [(details, "spent", True), (details, "behind", (behind, spent.lost))]
            changes.append((cell, "rare", details))


def _cell(run: Run, number: int) -> Cell | None:
    """The cell of a number, which may be of memory that this call is the first to use."""
    tried = run.trial.get(number)
    return run.cell(number) if tried is None else tried.cell


def drawn(run: Run, entry: Entry) -> list[tuple[list[Any], Any]]:
    """The draws of random numbers of a call, whose streams move on."""
    draws: Draws = tuple([(stream._seed, stream.skip(count)) for stream, count in entry.draws])
    return [(run.drawn, draws), (run.draws, ((len(run.log), draws),))]
