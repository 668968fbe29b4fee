"""The calls that most programs are made of, matched by one function.

What is looked at is what `matching.py` looks at; whatever is not as simple as that is left to it.
`native.py` compiles this function and all that it calls: they use what `codegen/cpython` knows.
"""

from __future__ import annotations

from math import isfinite
from types import FrameType, FunctionType
from typing import TYPE_CHECKING, Any

from ridgeline.functions.operands import defaults
from ridgeline.record.cells import Cell
from ridgeline.record.recorder import MISS
from ridgeline.tape.effects import matched_with_effects
from ridgeline.tape.entries import MADE, Entry, Many, Ref, Shown, Varying, is_line
from ridgeline.tape.handles import shown_of, whole
from ridgeline.tape.learning import accumulates
from ridgeline.tape.openings import whole_numbers
from ridgeline.tape.primitives import goes_on
from ridgeline.tape.run import Run
from ridgeline.tape.ways import EFFECTS, NEW, SHOWN, VIEW
from ridgeline.tensors.tensor import Tensor

if TYPE_CHECKING:
    from ridgeline.tape.tape_recorder import TapeRecorder

FREE, LOST, INSIDE, ASIDE = range(4)  # states of a recorder, see `tape_recorder.py`
_new = object.__new__


def quickly(
    recorder: TapeRecorder, function: FunctionType, args: tuple[Any, ...], named: dict[str, Any],
    frame: FrameType,
) -> Any:  # fmt: skip
    """The result of a call that came at this point before, under the same modes; else MISS."""
    run = recorder.run
    if recorder.state != FREE or not run.deferred or run.lock.leaving or recorder.graph.meshes:
        return MISS
    values = (*args, *named.values()) if named else args
    at = run.at
    entries = at.next.get(function)
    if entries is not None:
        for entry in entries:
            made = _matched(recorder, run, entry, values, named, frame)
            if made is not MISS:
                return made
    line = run.line
    if line is not None and at.index >= 0:
        known = line[at.index]
        if known is not None and known.function is function:
            return _matched(recorder, run, known, values, named, frame)
    elif at.openings and not run.values:
        return _at_sizes(recorder, run, function, values, named, frame)
    return MISS


def _at_sizes(
    recorder: TapeRecorder, run: Run, function: FunctionType, values: tuple[Any, ...],
    named: dict[str, Any], frame: FrameType,
) -> Any:  # fmt: skip
    """The result of the first call of a run that depends on whole numbers, if these came before."""
    if recorder.modes.get("capture") is not None:  # lengths may be unknowns
        return MISS
    key = whole_numbers(values)
    if key is None:
        return MISS
    for opening in run.at.openings:
        if opening.entry.function is function and not opening.tape.rest:
            found = opening.known.get(key)
            if found is not None:
                made = _matched(recorder, run, found.entry, values, named, frame)
                if made is not MISS:
                    run.opened, run.values, run.line = opening.tape, found.values, found.line
                    return made
    return MISS


def _matched(
    recorder: TapeRecorder, run: Run, entry: Entry, values: tuple[Any, ...],
    named: dict[str, Any], frame: FrameType,
) -> Any:  # fmt: skip
    """The result of a call if it is the one of an entry, under the same modes; else MISS."""
    if not entry.way or entry.modes is None or entry.modes != recorder.modes:
        return MISS
    if entry.way == SHOWN:
        return _shown_again(run, entry, values, named, frame, recorder.running)
    at = run.at
    if run.trial:
        run.forget_trial()
    if not stands_for(run, entry, values, named, frame, recorder.running):
        return MISS
    dtype, device = run.defaults
    if defaults.dtype is not dtype or defaults.device is not device:
        return MISS
    for place, index in entry.numbers:
        run.given[index] = values[place]
    if entry.way == EFFECTS:
        return matched_with_effects(run, at, entry, values)
    fresh: list[Cell] = []
    made = _handed_out(run, entry, values, fresh)
    if run.trial:
        run.take_over_memory()
    return made if goes_on(run, at, entry, fresh) else MISS


def stands_for(
    run: Run, entry: Entry, values: tuple[Any, ...], named: dict[str, Any], frame: FrameType,
    running: dict[str, Any],
) -> bool:  # fmt: skip
    """True for the call of an entry, but for its modes; memory from outside is kept in `trial`."""
    kept = entry.args
    if len(values) != len(kept) or not is_line(entry, frame, running):
        return False
    if (named or entry.names) and tuple(named) != entry.names:
        return False
    for value, wanted in zip(values, kept):
        if value is wanted:
            continue
        kind = type(wanted)
        if kind is Ref and wanted.kind == MADE:
            # most operands are: what `run.fits` says of them, without its calls
            if not isinstance(value, Tensor):
                return False
            cell, track = value._cell, value._track
            if cell.run is not run or cell.slot != wanted.number or track.mode != wanted.mode:
                return False
            if (track is cell) is not wanted.own:
                return False
            if value._steps is not wanted.steps and value._steps != wanted.steps:
                return False
        elif kind is Varying:
            if type(value) is not float or not isfinite(value):
                return False
        elif not run.fits(value, wanted):
            return False
    if entry.grads and not accumulates(run, entry):
        return False
    for look in entry.looks:  # noqa: SIM110
        if not run.sees(look):
            return False
    return True


def _handed_out(
    run: Run, entry: Entry, args: tuple[Any, ...], fresh: list[Cell]
) -> Any:  # fmt: skip
    """The result of a call that is matched."""
    if entry.way == NEW:
        shown: Shown = entry.result
        cell = _new(Cell)
        cell.run, cell.slot, cell.types = run, shown.number, shown.types
        cell.version, cell.mode, cell.rare, cell.capture = 0, shown.mode, None, None
        fresh.append(cell)
        return whole(cell)
    if entry.way == VIEW:
        return _view(args[0], entry.result, entry.lines)
    parts: list[Tensor] = []
    several: Many = entry.result
    for view, seen in zip(several.parts, entry.lines):
        parts.append(_view(args[0], view, seen))
    return parts if several.kind is list else tuple(parts)


def _view(base: Tensor, shown: Shown, seen: Any) -> Tensor:
    """A view of a tensor."""
    return shown_of(base._cell, shown, base._track, seen)


def _shown_again(
    run: Run, entry: Entry, args: tuple[Any, ...], named: dict[str, Any], frame: FrameType,
    running: dict[str, Any],
) -> Any:  # fmt: skip
    """The view of memory from outside that a call gave, and gives again; else MISS."""
    views = entry.views
    if named or views is None or not is_line(entry, frame, running):
        return MISS
    made = views.again(args)
    if made is not MISS:
        run.aside.append((len(run.log), entry))
        run.at = entry.after
        run.calls += 1
    return made
