"""Which entry of a tape stands for a call: the function, its arguments, the modes and the line."""

from __future__ import annotations

from collections.abc import Sequence
from math import isfinite
from types import FrameType
from typing import Any

from ridgeline.execution import flush_log
from ridgeline.graph.origins import here, running
from ridgeline.record.modes import modes
from ridgeline.tape.entries import MADE, Entry, Ref, Varying, is_line, numbers_in
from ridgeline.tape.learning import accumulates, is_settled
from ridgeline.tape.openings import OpenTape
from ridgeline.tape.run import Run
from ridgeline.tensors.tensor import Tensor


def is_promising(entry: Entry) -> bool:
    """True where the calls that begin with this one may be the known ones."""
    place = entry.after
    if place.rest:
        place.rest -= 1
        flush_log.unmatched(f"recorded for a while, since before {place.why}")
        return False
    if any(program.ready() for program in place.programs):
        return True
    if place.last is None:
        flush_log.unmatched(place.why or "it is being learnt")
    elif not place.last.known.ready():
        flush_log.unmatched("its program is not compiled yet")
    else:
        return True
    return False


def known_entry(
    run: Run, function: Any, args: tuple[Any, ...], named: Any, frame: FrameType
) -> Entry | None:
    """The entry of a call at this place of the tape, if there is one."""
    place = run.at
    entries: Sequence[Entry] = place.next.get(function, ())
    found = first_entry(run, entries, args, named, frame)
    if found is None and place.crowded:
        at_line = place.at_line(function, (frame.f_code, frame.f_lasti), here())
        for numbers in (numbers_in((*args, *named.values())), None):
            if found is None:
                found = first_entry(run, at_line.get(numbers, ()), args, named, frame)
        if found is not None:
            place.try_first(found)
    return found


def first_entry(
    run: Run, entries: Sequence[Entry], args: tuple[Any, ...], named: Any,
    frame: FrameType,
) -> Entry | None:  # fmt: skip
    """The first of some entries that stands for a call."""
    gradients, autocast = modes.gradients, modes.autocast
    for entry in entries:
        if run.trial:
            run.forget_trial()
        if entry.gradients is not gradients or entry.autocast != autocast:
            continue
        if entry.transparent:
            if entry.exact and entry.seen != numbers_in((*args, *named.values())):
                continue
            settled = all(map(is_settled, args)) and all(map(is_settled, named.values()))
            if settled and is_line(entry, frame):
                return entry
            continue
        values = (*args, *named.values()) if named else args
        kept = entry.args
        if len(values) != len(kept) or (tuple(named) if named else ()) != entry.names:
            continue
        for value, wanted in zip(values, kept):
            if value is wanted:
                continue
            if type(wanted) is Ref and wanted.kind == MADE:
                # most operands are: what `run.fits` says of them, without its calls
                if not isinstance(value, Tensor):
                    break
                cell, track = value._cell, value._track
                if cell.run is not run or cell.slot != wanted.number:
                    break
                if track.mode != wanted.mode or (track is cell) is not wanted.own:
                    break
                if value._steps is not wanted.steps and value._steps != wanted.steps:
                    break
            elif type(wanted) is Varying:
                if type(value) is not float or not isfinite(value):
                    break
            elif not run.fits(value, wanted):
                break
        else:
            if entry.grads and not accumulates(run, entry):
                continue
            if entry.looks and not all(map(run.sees, entry.looks)):
                continue
            if entry.rules and not all(rule.holds() for rule in entry.rules):
                continue
            caller, instruction = entry.caller
            if caller is frame.f_code and instruction == frame.f_lasti:
                mark = entry.mark  # most calls are made by users' own code
                if mark is not None and mark[0] is caller:
                    if running.module_path == mark[2]:
                        return entry
                elif is_line(entry, frame):
                    return entry
    return None


def at_sizes(
    run: Run, function: Any, args: tuple[Any, ...], named: Any, frame: FrameType,
    ready: bool = False,
) -> tuple[Entry, OpenTape, dict[str, int]] | None:  # fmt: skip
    """The entry of a call at its sizes, with the values of unknowns that it stands for."""
    values = (*args, *named.values()) if named else args
    for opening in run.at.openings:
        fits = not ready or opening.tape.program.ready()
        entry = opening.entry
        if fits and entry.function is function and (entry.transparent or is_line(entry, frame)):
            found = opening.at(run.opened, run.values, values)
            if found and first_entry(run, (found[0],), args, named, frame) is not None:
                return found[0], opening.tape, found[1]
    return None
