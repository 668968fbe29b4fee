"""One program of the search: made from its seed, judged, and shrunk if it shows a fault."""

from __future__ import annotations

from collections.abc import Callable

from tests.fuzz import train
from tests.fuzz.agree import judge
from tests.fuzz.generate import generate
from tests.fuzz.shrink import fails_like, shrink
from tests.fuzz.ways import Rejected, torch

_TRAINING = 8  # one program in so many is a training step
_TURNS = 8  # one program in so many also has every op compiled alone, one its arguments donated


def ways_for(seed: int, place: str = "cpu") -> tuple[str, ...]:
    """The ways in which the program of a seed is run."""
    if place == "loops":
        return ("GPU loops",)
    plain = ("deferred", "matched", "jit")
    plain = plain if place == "cuda" else (*plain, "deferred, interpreted", "matched, interpreted")
    turn = seed % _TURNS
    return (*plain, "eager") if turn == 0 else (*plain, "donated") if turn == 1 else plain


def find(seed: int, size: int = 8, place: str = "cpu") -> tuple[str, Callable[[], str]] | None:
    """What is wrong with the program of a seed, and how to get a short one that shows it."""
    if seed % _TRAINING == 3 and place != "loops" and torch is not None:
        said = train.find(seed, place)
        return None if said is None else (said, lambda: "")
    try:
        program = generate(seed, size)
        finding = judge(program, ways_for(seed, place), place)
    except Rejected:
        return None
    except AssertionError as error:  # the interpreter refuses a statement
        refused = f"{error}\n{error.__cause__!r}"
        return refused, lambda: ""
    if finding is None:
        return None
    fails = fails_like(finding, place)
    device = "cuda" if place == "cuda" else "cpu"
    return str(finding), lambda: shrink(program, fails).text(device)


def examine(seed: int, size: int = 8, place: str = "cpu") -> str | None:
    """What is wrong with the program of a seed and a short program that shows it, or None."""
    found = find(seed, size, place)
    return None if found is None else f"{found[0]}\n{found[1]()}"
