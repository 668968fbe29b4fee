"""Iterations that run again: what `Split` needs for filling up a last piece, and who may not.

The last place of such a piece is `min(piece + place, last)`. Running it again writes what it wrote,
which is right one after the other, and a race where iterations are concurrent.
"""

from __future__ import annotations

from collections.abc import Iterator

from ridgeline.loops import ir
from ridgeline.loops.build import affine, free_vars
from ridgeline.loops.ir import Alloc, Const, Expr, For, Load, Op, Reduce, Store, Var
from ridgeline.loops.steps.regions import loop_ranges, memory, read_memory, written_memory
from ridgeline.loops.steps.step import ScheduleError, known_extent


def check_repeatable(loop: For) -> None:
    """An iteration may run twice if it reads nothing that it leaves behind, and adds to nothing."""
    inside = list(ir.statements(loop.body))
    own = {memory(s.buffer) for s in inside if isinstance(s, Alloc)}
    left = written_memory(loop.body) - own
    read = read_memory(*(e for s in inside for e in ir.expressions(s)))
    joined = {memory(b) for s in inside if isinstance(s, Reduce) for b in s.buffers}
    if loop.axis != "spatial" or left & (read | joined):
        raise ScheduleError(f"running an iteration of loop {loop.name!r} again changes the result")
    if loop.kind not in ("serial", "unroll"):
        raise ScheduleError(f"loop {loop.name!r} would store to one place at once")


def check_apart(loop: For) -> None:
    """Refuse to run iterations at once of which one is another one again."""
    inside = list(ir.statements(loop.body))
    own = {s.buffer for s in inside if isinstance(s, Alloc)}
    for store in (s for s in inside if isinstance(s, Store) and s.buffer not in own):
        held = [h for place in store.index for h in _held(place, loop.name)]
        filled = [h for h in held if isinstance(h, Op)]
        # filling up puts a minimum in the place of every variable: another minimum is the user's
        if len(filled) == len(held) and not all(_apart(loop, *ir.children(h)) for h in filled):
            raise ScheduleError(f"the last iteration of loop {loop.name!r} runs again")


def _held(place: Expr, name: str) -> Iterator[Expr]:
    """Where a variable stands in a place: minima that may fill up a piece, or it by itself."""
    if isinstance(place, Load):  # what is loaded can be the same for all iterations anyway
        return
    minimum = isinstance(place, Op) and place.name == "min" and not read_memory(place)
    if (isinstance(place, Var) and place.name == name) or (minimum and name in free_vars(place)):
        yield place
    else:
        for child in ir.children(place):
            yield from _held(child, name)


def _apart(loop: For, place: Expr, last: Expr) -> bool:
    """True when only the last iteration of a loop can reach the last place."""
    form, spans = affine(place), loop_ranges(loop.body)
    if form is None or not isinstance(last, Const):
        return False
    step = form[0].pop(loop.name)
    if step < 0 or not form[0].keys() <= spans.keys():
        return False
    reach = [sorted((c * spans[n][0], c * spans[n][1])) for n, c in form[0].items()]
    low, high = (form[1] + sum(span[end] for span in reach) for end in (0, 1))
    count = known_extent(loop)
    return step * (count - 2) + high < min(step * (count - 1) + low, int(last.value))
