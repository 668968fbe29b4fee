"""Tensors without nodes, which matched calls hand out."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from ridgeline.graph.node import TensorType
from ridgeline.record.cells import Cell, Track
from ridgeline.record.recorder import MISS
from ridgeline.tape.entries import Many, Same, Shown
from ridgeline.tape.outside import stand_in
from ridgeline.tape.primitives import tuple_of
from ridgeline.tensors.tensor import Tensor

if TYPE_CHECKING:
    from ridgeline.tape.run import Run

_new = object.__new__


def handed_out(run: Run, shown: Any, tensors: list[Tensor], fresh: list[Cell]) -> Any:
    """The result of a call that is not made; MISS where it shows what nobody holds any more."""
    kind = type(shown)
    if kind is Shown:
        cell: Cell | None = None
        for known in fresh:
            if known.slot == shown.number:
                cell = known
        if cell is None:
            cell = run.cell(shown.number)
        if cell is None:
            if not shown.new:
                return MISS
            cell = cell_of(run, shown.number, shown.type, shown.mode)
            fresh.append(cell)
        seen = (None, stand_in(shown.shown), shown.marks) if shown.steps else None
        if shown.track < 0:
            return shown_of(cell, shown, cell, seen)
        base: Tensor = tensors[shown.track]
        return shown_of(cell, shown, base._track, seen)
    if kind is Same:
        return tensors[shown.place]
    if kind is Many:
        parts: list[Any] = []
        for part in shown.parts:
            made = handed_out(run, part, tensors, fresh)
            if made is MISS:
                return MISS
            parts.append(made)
        return tuple_of(shown.kind, parts)
    return shown


def cell_of(run: Run, number: int, kind: TensorType, mode: int) -> Cell:
    """A new cell without a node."""
    cell: Cell = _new(Cell)
    cell.run, cell.slot, cell.types = run, number, (kind,)
    cell.version, cell.mode, cell.rare, cell.capture = 0, mode, None, None
    return cell


def shown_of(cell: Cell, shown: Shown, followed: Track, seen: Any) -> Tensor:
    """A new handle on a cell, which shows it as a result did; it may follow another handle."""
    made = _new(Tensor)
    made._cell, made._steps, made._seen, made._extra = cell, shown.steps, seen, None
    if shown.track == -1:
        made._track = cell
    elif shown.track < 0:
        track = _new(Track)
        track.mode, track.rare, track.capture = shown.mode, None, None
        made._track = track
    else:
        made._track = followed
    return made


def whole(cell: Cell) -> Tensor:
    """A new handle on all of a cell."""
    made = _new(Tensor)
    made._cell = made._track = cell
    made._steps, made._seen, made._extra = (), None, None
    return made
