"""Views of memory from outside, which calls give again and again without recording anything."""

from __future__ import annotations

from typing import Any

from ridgeline.record.cells import PLAIN
from ridgeline.record.recorder import MISS
from ridgeline.tape.copies import is_foreign
from ridgeline.tape.entries import Entry
from ridgeline.tape.memory import resident
from ridgeline.tape.ways import SHOWN
from ridgeline.tensors.tensor import Tensor

MOST_VIEWS = 1 << 9  # that are known of one call
_new = object.__new__


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

    __slots__ = ("known",)
    known: dict[Any, tuple[Any, Any, Any, Any]]

    def __init__(self) -> None:
        self.known = {}

    def again(self, args: tuple[Any, ...]) -> Any:
        """The view that such a call gave; MISS where it is not known."""
        base = args[0]
        if type(base) is not Tensor or not _is_plain(base) or base._cell.types is not None:
            return MISS
        cell, steps = base._cell, base._steps
        found = self.known.get((id(steps), _key(args[1:])))
        if found is None:
            return MISS
        known, kind, shown, seen = found
        if known is not steps:
            return MISS
        if not is_foreign(cell, cell) and resident(cell, cell) is None:
            return MISS
        if cell.node.types[0] != kind:
            return MISS
        made = _new(Tensor)
        made._cell, made._track, made._extra = cell, base._track, None
        made._steps, made._seen = shown, seen
        return made

    def note(self, args: tuple[Any, ...], made: Any) -> None:
        """Note a view of the first argument that a call gave."""
        base, key = args[0], _key(args[1:])
        if key is None or type(base) is not Tensor or not _is_plain(base):
            return
        if type(made) is not Tensor:
            return
        cell, steps, seen = base._cell, base._steps, made._seen
        if made._cell is not cell or made._track is not cell or made._extra is not None:
            return
        if seen is not None and seen[0] is None and seen[1] is None:
            if len(self.known) >= MOST_VIEWS:
                self.known.clear()
            self.known[id(steps), key] = steps, cell.node.types[0], made._steps, seen


def _is_plain(base: Tensor) -> bool:
    """True for a tensor that has nothing to do with gradients or with memory of others."""
    cell = base._cell
    if base._track is not cell:
        return False
    return cell.mode == PLAIN and (cell.rare is None or is_foreign(cell, cell))


def _key(values: tuple[Any, ...]) -> Any:
    """Whole numbers, slices and None as a key; None where there is anything else."""
    key: list[Any] = []
    for value in values:
        kind = type(value)
        if kind is slice:
            for end in (value.start, value.stop, value.step):
                if end is not None and type(end) is not int:
                    return None
            key.append((value.start, value.stop, value.step))
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
