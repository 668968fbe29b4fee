"""Steps of matched calls that have to be made by C code alone."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from itertools import chain, starmap
from sys import getrefcount
from typing import TYPE_CHECKING, Any

from ridgeline.atomic import Change, apply
from ridgeline.record.cells import Cell
from ridgeline.tape.entries import Entry, Place

if TYPE_CHECKING:
    from ridgeline.tape.run import Run

_extend: Any = list.extend

# references to what a list alone refers to, as both functions count them
(_ALONE,) = [getrefcount(items[0]) for items in ([object()],)]
(_MAPPED,) = map(getrefcount, [object()])


def is_shared(items: list[Any], place: int) -> bool:
    """True where somebody else than a list refers to an item of it."""
    return getrefcount(items[place]) > _ALONE


def are_shared(items: list[Any]) -> bytes:
    """The same for all of its items, as bytes that are 0 or 1."""
    return bytes(map(_MAPPED.__lt__, map(getrefcount, items)))


def tuple_of(kind: Any, parts: list[Any]) -> Any:
    """A tuple, or one of a class of named tuples, or a list."""
    return kind(*parts) if hasattr(kind, "_fields") else kind(parts)


def goes_on(run: Run, at: Place, entry: Entry, fresh: list[Cell]) -> bool:
    """A matched call that only hands out cells is the next one of its run.

    False where it is not any more: a collection of garbage ran finalizers that made calls too.
    """
    lists = map(_extend, (run.handed, run.log), (fresh, (entry,)))
    if run.at is not at or not run.deferred:
        return False
    run.at, run.count = entry.after, entry.count
    apply(lists)
    return True


def commit(
    run: Run, at: Place, changes: Iterable[Change], removed: Iterable[tuple[Any, str]],
    added: Iterable[tuple[list[Any], Sequence[Any]]],
) -> bool:  # fmt: skip
    """The same for one that sets attributes, removes some, and extends lists, all in one step."""
    steps = chain(starmap(setattr, changes), starmap(delattr, removed), starmap(_extend, added))
    if run.at is not at or not run.deferred:
        return False
    apply(steps)
    return True
