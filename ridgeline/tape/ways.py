"""In which way a call may be matched by `quick.py`, by what came of it when it was recorded."""

from __future__ import annotations

from typing import Any

from ridgeline.tape.entries import MADE, Entry, Many, Ref, Shown
from ridgeline.tape.outside import stand_in

# not at all; it gives a new tensor; a view of one that the tape made, or several; it shows memory
# from outside; it does something else besides
NO, NEW, VIEW, VIEWS, SHOWN, EFFECTS = range(6)


def note_way(entry: Entry) -> None:
    """Note whether a call may be matched here."""
    entry.way, result = NO, entry.result
    if entry.rules or entry.draws or entry.transparent:
        return
    entry.way = EFFECTS
    if not entry.plain:
        return
    if entry.single is not None:
        entry.way = NEW
    elif type(result) is Shown:
        if _is_view(entry, result):
            entry.way, entry.lines = VIEW, _seen(result)
    elif type(result) is Many and result.kind in (list, tuple) and _are_views(entry, result.parts):
        entry.way, entry.lines = VIEWS, tuple([_seen(part) for part in result.parts])


def _are_views(entry: Entry, parts: tuple[Any, ...]) -> bool:
    return bool(parts) and all(type(part) is Shown and _is_view(entry, part) for part in parts)


def _is_view(entry: Entry, shown: Shown) -> bool:
    """True for a result that is a view of the first argument, which the tape made."""
    base = entry.args[0] if entry.args else None
    if shown.new or not shown.steps or shown.track > 0 or type(base) is not Ref:
        return False
    return base.kind == MADE and base.number == shown.number


def _seen(shown: Shown) -> Any:
    """What a view knows of itself, before somebody reads it."""
    return None, stand_in(shown.shown), shown.marks
