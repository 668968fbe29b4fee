"""The calls that most programs are made of, matched in one function.

Nothing happens in them but that they give one new tensor, or views of one that the tape made, or of
memory from outside. What is looked at is what `matching.py` looks at; whatever is not as simple as
that is left to it.
"""

from __future__ import annotations

from collections.abc import Mapping
from math import isfinite
from types import FrameType
from typing import Any
from weakref import ref

from ridgeline.functions.operands import defaults
from ridgeline.record.cells import PLAIN, Cell, Track
from ridgeline.tape.copies import is_foreign
from ridgeline.tape.entries import MADE, Entry, Many, Ref, Shown, Varying, is_line
from ridgeline.tape.memory import resident
from ridgeline.tape.outside import stand_in
from ridgeline.tape.run import MISS, Run
from ridgeline.tensors.tensor import Tensor

NO, NEW, VIEW, VIEWS, SHOWN = range(5)  # ways in which a call is matched here
MOST_VIEWS = 1 << 9  # that are known of one call
_new = object.__new__


def note_way(entry: Entry) -> None:
    """Note whether a call may be matched here."""
    entry.way, result = NO, entry.result
    if not entry.plain or entry.looks or entry.rules or entry.transparent:
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


def quickly(
    run: Run, entry: Entry, args: tuple[Any, ...], named: Any, frame: FrameType,
    running: Mapping[str, Any],
) -> Any:  # fmt: skip
    """The result of a call that is the one of an entry, under the same modes; else MISS."""
    if entry.way == SHOWN:
        return _shown_again(run, entry, args, named, frame)
    kept = entry.args
    if named or entry.names:
        if tuple(named) != entry.names:
            return MISS
        args = (*args, *named.values())
    caller, instruction = entry.caller
    if len(args) != len(kept) or caller is not frame.f_code or instruction != frame.f_lasti:
        return MISS
    mark = entry.mark
    if mark is not None:
        if mark[0] is caller:
            if running.get("module_path", "") != mark[2]:
                return MISS
        elif not is_line(entry, frame):
            return MISS
    if run.trial:
        run.forget_trial()
    for value, wanted in zip(args, kept):
        if value is wanted:
            continue
        kind = type(wanted)
        if kind is Ref:
            if not isinstance(value, Tensor):
                return MISS
            if wanted.kind != MADE:
                if not run.is_at(value, wanted):
                    return MISS
                continue
            cell, track = value._cell, value._track
            if cell.run is not run or cell.slot != wanted.number or track.mode != wanted.mode:
                return MISS
            if (track is cell) is not wanted.own:
                return MISS
            if value._steps is not wanted.steps and value._steps != wanted.steps:
                return MISS
        elif kind is Varying:
            if type(value) is not float or not isfinite(value):
                return MISS
        elif not run.fits(value, wanted):
            return MISS
    dtype, device = run.defaults
    if defaults.dtype is not dtype or defaults.device != device:
        return MISS
    for place, index in entry.numbers:
        run.given[index] = args[place]
    made: Any = _new(Tensor)
    made._extra = None
    shown = entry.result
    if entry.way == NEW:
        cell = _new(Cell)
        cell.run, cell.slot, cell.types = run, shown.number, shown.types
        cell.version, cell.mode = 0, shown.mode
        cell.rare = cell.capture = None
        made._cell = made._track = cell
        made._steps, made._seen = (), None
        run.made[shown.number] = ref(cell)
    elif entry.way == VIEW:
        _show(made, args[0], shown, entry.lines)
    else:
        parts = [made, *[_new(Tensor) for _ in shown.parts[1:]]]
        for part, view, seen in zip(parts, shown.parts, entry.lines):
            part._extra = None
            _show(part, args[0], view, seen)
        made = parts if shown.kind is list else tuple(parts)
    if run.trial:
        run.take_over(entry.count)
    else:
        run.count = entry.count
    run.log.append((entry, ()))
    run.at = entry.after
    return made


def _show(made: Tensor, base: Tensor, shown: Shown, seen: Any) -> None:
    """Make a tensor a view of another."""
    made._cell = cell = base._cell
    made._steps, made._seen = shown.steps, seen
    if shown.track == -1:
        made._track = cell
    else:
        made._track = Track(shown.mode, None) if shown.track < 0 else base._track


# ---- views of memory from outside ----------------------------------------------------------------


def _shown_again(
    run: Run, entry: Entry, args: tuple[Any, ...], named: Any, frame: FrameType
) -> Any:
    """The view of memory from outside that a call gave, and gives again; else MISS."""
    views = entry.views
    if named or views is None or not is_line(entry, frame):
        return MISS
    made = views.again(args)
    if made is not MISS:
        run.aside.append((len(run.log), entry))
        run.at, run.calls = entry.after, run.calls + 1
    return made


def note_shown(entry: Entry, args: tuple[Any, ...], made: Any) -> None:
    """Note what a call gave that showed memory from outside, or copied it."""
    if entry.views is None:
        entry.views = Views()
    entry.views.note(args, made)
    entry.way = SHOWN


class Views:
    """Views of memory from outside that one call gave, by what it was given.

    Such a call records nothing and is made in earnest, again and again: to parse a subscript takes
    long. What steps it adds depends on what shows the memory, and on whole numbers.
    """

    __slots__ = ("_known",)

    def __init__(self) -> None:
        self._known: dict[Any, tuple[Any, Any, Any, Any]] = {}

    def again(self, args: tuple[Any, ...]) -> Any:
        """The view that such a call gave; MISS where it is not known."""
        base = args[0]
        if not _is_plain(base) or base._cell.types is not None:
            return MISS
        cell, steps = base._cell, base._steps
        known = self._known.get((id(steps), _key(args[1:])))
        if known is None or known[0] is not steps:
            return MISS
        if not is_foreign(cell, cell) and resident(cell, cell) is None:
            return MISS
        if cell.node.types[0] != known[1]:
            return MISS
        made = _new(Tensor)
        made._cell, made._track, made._extra = cell, base._track, None
        made._steps, made._seen = known[2], known[3]
        return made

    def note(self, args: tuple[Any, ...], made: Any) -> None:
        """Note a view of the first argument that a call gave."""
        base, key = args[0], _key(args[1:])
        if key is None or not _is_plain(base) or type(made) is not Tensor:
            return
        cell, steps, seen = base._cell, base._steps, made._seen
        if made._cell is not cell or made._track is not cell or made._extra is not None:
            return
        if seen is not None and seen[0] is None and seen[1] is None:
            if len(self._known) >= MOST_VIEWS:
                self._known.clear()
            self._known[id(steps), key] = steps, cell.node.types[0], made._steps, seen


def _is_plain(base: Any) -> bool:
    """True for a tensor that has nothing to do with gradients or with memory of others."""
    if type(base) is not Tensor or base._track is not base._cell:
        return False
    cell = base._cell
    return cell.mode == PLAIN and (cell.rare is None or is_foreign(cell, cell))


def _key(values: tuple[Any, ...]) -> Any:
    """Whole numbers, slices and None as a key; None where there is anything else."""
    key: list[Any] = []
    for value in values:
        kind = type(value)
        if kind is slice:
            ends = value.start, value.stop, value.step
            if not all(end is None or type(end) is int for end in ends):
                return None
            key.append(ends)
        elif kind is tuple:
            part = _key(value)
            if part is None:
                return None
            key.append((kind, part))
        elif value is None or value is Ellipsis or kind is int:
            key.append(value)
        else:
            return None
    return tuple(key)
