"""Calls that are matched and write, draw, leave gradients or give several tensors."""

from __future__ import annotations

from itertools import chain, starmap
from typing import Any
from weakref import ref as _ref

from ridgeline.atomic import Change, apply
from ridgeline.record.cells import Cell
from ridgeline.tape.entries import Entry
from ridgeline.tape.learning import collect, spent_by
from ridgeline.tape.run import MISS, Run, whole
from ridgeline.tensors.tensor import Tensor


def matched_with_effects(run: Run, entry: Entry, args: Any, named: Any) -> Any:
    """The result of a call that is the known one; MISS where its results cannot be handed out."""
    tensors: list[Tensor] = []
    collect((*args, *named.values()) if named else args, tensors)
    fresh: dict[int, Cell] = {}
    run.take_over(entry.count)
    made = run.handed_out(entry.result, tensors, fresh)
    if made is MISS:
        return MISS
    if entry.plain:
        run.made.update([(new.slot, _ref(new)) for new in fresh.values()])
        run.log.append((entry, ()))
        run.at = entry.after
        return made
    changes: list[Change] = []
    for write in entry.writes:
        cell = run.cell(write.number)
        if cell is None:
            continue
        changes += [(cell, "version", cell.version + write.times), (cell, "mode", write.mode)]
        outside = run.outside.get(write.number)
        if outside is not None and not outside.written:
            types = outside.node.types
            changes += [(cell, "run", run), (cell, "slot", write.number)]
            changes += [(cell, "types", types), (outside, "written", True)]
    for place, mode in entry.tracks:
        changes.append((tensors[place]._track, "mode", mode))
    gradients: list[Cell] = []
    for gradient in entry.grads:
        owner = run.owner(gradient.owner)
        if gradient.before is None and owner is not None:
            cell = run.cell_of(gradient)
            gradients.append(cell)
            changes.append((owner._details(), "grad", whole(cell)))
    changes += spent_by(run, entry)
    draws = tuple([(g._seed, g.skip(count)) for g, count in entry.draws])
    for cell in (*fresh.values(), *gradients):
        run.made[cell.slot] = _ref(cell)
    written = [w.number for w in entry.writes if w.number in run.outside]
    gone = [run.outside[n].cell for n in written if run.outside[n].cell.types is None]
    apply(
        chain(
            starmap(setattr, changes),
            starmap(delattr, [(cell, "node") for cell in gone]),
            map(run.drawn.extend, (draws,)),
            map(run.log.append, ((entry, draws),)),
            starmap(setattr, ((run, "at", entry.after),)),
        )
    )
    return made
