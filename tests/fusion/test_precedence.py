"""Which kernels come before which, while they merge: against a search of the graph."""

from __future__ import annotations

import random

import pytest

from ridgeline.fusion.in_place import Precedence


def reachable(sources: dict[int, set[int]], start: int) -> set[int]:
    found: set[int] = set()
    stack = [start]
    while stack:
        for source in sources[stack.pop()] - found:
            found.add(source)
            stack.append(source)
    return found


@pytest.mark.parametrize("seed", range(30))
def test_merges_keep_the_order(seed: int) -> None:
    rng = random.Random(seed)
    size = rng.randint(2, 14)
    names = rng.sample(range(size), size)  # an order in which numbers do not rise
    sources = {
        name: set(rng.sample(names[:place], rng.randint(0, min(place, 3))))
        for place, name in enumerate(names)
    }
    shuffled = dict(sorted(sources.items()))
    order = Precedence(shuffled)
    fresh = size
    while True:
        for b in sources:
            before = reachable(sources, b)
            assert {a for a in sources if order.comes_before(a, b)} == before
        pairs = [(a, b) for a in sources for b in sources if a < b and not between(sources, a, b)]
        if not pairs:
            return
        a, b = rng.choice(pairs)
        order.merge(a, b, fresh)
        joined = (sources.pop(a) | sources.pop(b)) - {a, b}
        for held in sources.values():
            if held & {a, b}:
                held -= {a, b}
                held.add(fresh)
        sources[fresh] = joined
        fresh += 1


def between(sources: dict[int, set[int]], a: int, b: int) -> bool:
    """True where a third one would have to come both before and after the two together."""
    return any(
        first in reachable(sources, middle)
        for first, last in ((a, b), (b, a))
        for middle in sources[last] - {first}
    )
