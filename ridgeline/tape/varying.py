"""Python floats among the arguments of matched calls: inputs of programs, and not structure.

`x * 0.3` records the number as a leaf with its value, so the program of a step is the same for any
number. A tape therefore takes any finite float where a call lifted one. Which input of the program
is which argument is told by identity: while a call is recorded, a number that stands for nothing
else takes the place of its argument.
"""

from __future__ import annotations

from math import copysign, isfinite
from typing import TYPE_CHECKING, Any

from ridgeline.record.numbers import lifted_since_flush
from ridgeline.tape.entries import Entry, Varying

if TYPE_CHECKING:
    from ridgeline.tape.run import Run

_ARITHMETIC = frozenset(("add", "add_", "sub", "sub_", "mul", "mul_", "div", "div_"))


class Fresh:
    """A float of its own for each float object of a run."""

    __slots__ = ("_known",)

    def __init__(self) -> None:
        self._known: dict[int, tuple[float, float]] = {}  # by identity; the first keeps it alive

    def __call__(self, number: float) -> float:
        known = self._known.get(id(number))
        if known is None:
            known = self._known[id(number)] = (number, copysign(number, number))
        return known[1]


def may_vary(function: Any, value: Any, named: Any) -> bool:
    """True for an argument that a function of arithmetic lifts, whatever its value."""
    lifts = type(value) is float and function.__name__ in _ARITHMETIC
    return lifts and not named and isfinite(value)


def given_to(run: Run, entry: Entry, args: tuple[Any, ...]) -> tuple[Any, ...]:
    """The arguments of a call that is recorded: its numbers are noted, and have stand-ins."""
    if not entry.numbers:
        return args
    values = list(args)
    for place, index in entry.numbers:
        run.given[index] = args[place]
        values[place] = run.fresh(args[place])
    return tuple(values)


def note_lifted(run: Run, entry: Entry) -> None:
    """Numbers that a new call did not lift after all are constants of its entry."""
    for _, index in entry.numbers:
        number = run.fresh(run.given[index])
        made = lifted_since_flush.nodes.get(id(number))
        if made is None or made.buffer.value is not number:
            args = list(entry.args)
            for where, which in entry.numbers:
                args[where] = run.given.pop(which)
            entry.args, entry.numbers = tuple(args), ()
            return


def sources(run: Run) -> dict[int, list[int]]:
    """The numbers of a run, by the identity of their stand-ins."""
    found: dict[int, list[int]] = {}
    for index, number in run.given.items():
        found.setdefault(id(run.fresh(number)), []).append(index)
    return found


def described(run: Run, function: Any, args: tuple[Any, ...], named: Any) -> dict[int, Varying]:
    """The numbers among arguments that may be others the next time, by place."""
    places = [place for place, value in enumerate(args) if may_vary(function, value, named)]
    first = len(run.given)
    return {place: Varying(first + count) for count, place in enumerate(places)}
