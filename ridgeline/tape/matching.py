"""Which entry of a tape stands for a call: the function, its arguments, the modes and the line."""

from __future__ import annotations

from collections.abc import Sequence
from types import FrameType
from typing import Any

from ridgeline.execution import flush_log
from ridgeline.graph.origins import here, running
from ridgeline.record.modes import modes
from ridgeline.tape.entries import Entry, is_line, numbers_in
from ridgeline.tape.learning import is_settled
from ridgeline.tape.openings import OpenTape, whole_numbers
from ridgeline.tape.quick import stands_for
from ridgeline.tape.run import Run


def is_promising(entry: Entry) -> bool:
    """True where the calls that begin with this one may be the known ones."""
    place = entry.after
    if place.rest:
        place.rest -= 1
        flush_log.unmatched(f"recorded for a while, since before {place.why}")
        return False
    if place.is_ready():
        return True
    learnt = place.last is not None
    flush_log.unmatched(
        "its program is not compiled yet" if learnt else place.why or "it is being learnt"
    )
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
            if settled and is_line(entry, frame, vars(running)):
                return entry
            continue
        values = (*args, *named.values()) if named else args
        if not stands_for(run, entry, values, named, frame, vars(running)):
            continue
        if all(rule.holds() for rule in entry.rules):
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
        if not fits or entry.function is not function:
            continue
        if entry.transparent or is_line(entry, frame, vars(running)):
            found = opening.at(run.opened, run.values, values)
            if found and first_entry(run, (found[0],), args, named, frame) is not None:
                if ready and not run.values:
                    opening.note(whole_numbers(values), *found)
                return found[0], opening.tape, found[1]
    return None
