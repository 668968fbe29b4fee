"""Scenarios in a fixed order in which all places come before any comes again; a seed is a place."""

from __future__ import annotations

from collections.abc import Iterator
from functools import cache
from random import Random

from tests.attacks.mutation.cases import CASES
from tests.attacks.mutation.kinds import ADVANCING, CALLABLE, DATA, PLAIN
from tests.attacks.mutation.places import PLACES
from tests.attacks.mutation.scenario import SHAPES, Case, Kind, Place, compose

_OF = {
    "any": PLAIN + DATA + CALLABLE + ADVANCING,
    "data": PLAIN + DATA,
    "plain": PLAIN,
    "int": PLAIN[:1],
}
_ROUNDS = 40  # scenarios of a place


@cache
def scenarios() -> tuple[Case, ...]:
    """All scenarios, each once: first one of every place, kind and case, then mixtures."""
    rng = Random(16)
    rounds: list[list[Case]] = [[] for _ in range(_ROUNDS)]
    seen: set[str] = set()
    kinds = {place.name: _kinds(place, rng) for place in PLACES}
    for number in range(_ROUNDS):
        for place in PLACES:
            case = _drawn(place, next(kinds[place.name]), rng)
            if case.name not in seen:
                seen.add(case.name)
                rounds[number].append(case)
        rng.shuffle(rounds[number])
    cases = list(CASES)
    rng.shuffle(cases)
    first = rounds[0] + cases + _one_of_each_kind(rng, seen)
    rng.shuffle(first)
    return (*first, *(case for part in rounds[1:] for case in part))


def _kinds(place: Place, rng: Random) -> Iterator[Kind]:
    """Plain values about half of the time, and every kind that the place takes now and then."""
    wide = _OF[place.kinds]
    while True:
        yield rng.choice(PLAIN if place.kinds != "int" and rng.random() < 0.4 else wide)


def _one_of_each_kind(rng: Random, seen: set[str]) -> list[Case]:
    """Every kind of value in a place that takes anything, changed inside where it can be."""
    found = []
    anywhere = [place for place in PLACES if place.kinds == "any" and place.target]
    for kind in DATA + CALLABLE + ADVANCING:
        case = _drawn(rng.choice(anywhere), kind, rng, inside=True)
        if case.name not in seen:
            seen.add(case.name)
            found.append(case)
    return found


def _drawn(place: Place, kind: Kind, rng: Random, inside: bool = False) -> Case:
    changes = list(place.changes)
    if kind.inside and place.target is not None:
        within = list(kind.inside)
        changes = within if inside else changes + within
    return compose(
        place,
        kind,
        rng.choice(place.reads),
        rng.choice(kind.uses),
        rng.choice(changes),
        rng.choice(SHAPES),
    )
