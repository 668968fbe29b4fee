"""All-reduce as the textbooks write it, over messages: parameter server, ring, halving-doubling,
double binary tree, hierarchical.

An algorithm is a list of rounds; a round is a list of transfers, of which each moves a part of the
array from one rank to another, to be added there or to take the place of what is there. The same
list is run over any communicator, counted (messages and bytes of each rank) and drawn.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import TypeAlias

import numpy as np

from ridgeline.communicators.calls import even_counts
from ridgeline.communicators.interface import Communicator
from ridgeline.communicators.reducing import starts
from ridgeline.errors import BadValueError


@dataclass(frozen=True, slots=True)
class PartTransfer:
    """A part of the array on its way: elements `start` to `stop`, to be added or to be copied."""

    source: int
    target: int
    start: int
    stop: int
    adds: bool


Round: TypeAlias = tuple[PartTransfer, ...]


@dataclass(frozen=True, slots=True)
class AllReduce:
    """The rounds of an all-reduce of some elements over some ranks."""

    name: str
    ranks: int
    elements: int
    rounds: tuple[Round, ...]

    def messages(self, rank: int) -> int:
        """How many messages a rank sends."""
        return sum(each.source == rank for step in self.rounds for each in step)

    def elements_sent(self, rank: int) -> int:
        """How many elements a rank sends."""
        return sum(t.stop - t.start for step in self.rounds for t in step if t.source == rank)

    def run(self, group: Communicator, array: np.ndarray) -> np.ndarray:
        """The sum over the ranks of a group, by these transfers."""
        if (group.size, array.size) != (self.ranks, self.elements):
            raise BadValueError(
                f"{self.name} for {self.elements} elements on {self.ranks} ranks was given "
                f"{array.size} on {group.size}"
            )
        total = np.array(array).reshape(-1)
        for step in self.rounds:
            sent = [
                group.send(total[t.start : t.stop].copy(), t.target)
                for t in step
                if t.source == group.rank
            ]
            for transfer in (t for t in step if t.target == group.rank):
                part = total[transfer.start : transfer.stop]
                came = group.recv(np.empty_like(part), transfer.source).wait()
                part[...] = part + came if transfer.adds else came
            for work in sent:
                work.wait()
        return total.reshape(array.shape)


def _parts(elements: int, ranks: int) -> list[tuple[int, int]]:
    """The array in one part for each rank, without those that are empty."""
    places = starts(even_counts(elements, ranks))
    return list(pairwise(places))


def _round(transfers: Sequence[PartTransfer]) -> Round:
    return tuple(each for each in transfers if each.stop > each.start)


def parameter_server(ranks: int, elements: int, servers: int = 1) -> AllReduce:
    """Every rank sends each server its part, which adds them up and sends the sum to all."""
    if not 1 <= servers <= ranks:
        raise BadValueError(f"{servers} servers on {ranks} ranks", help=f"1 to {ranks} of them")
    shares = list(enumerate(_parts(elements, servers)))
    pairs = [(s, r, part) for s, part in shares for r in range(ranks) if r != s]
    up = _round([PartTransfer(rank, server, *part, True) for server, rank, part in pairs])
    down = _round([PartTransfer(server, rank, *part, False) for server, rank, part in pairs])
    return AllReduce("parameter server", ranks, elements, (up, down))


def ring(ranks: int, elements: int) -> AllReduce:
    """Parts go around a ring: once to be added up, once more as sums."""
    parts = _parts(elements, ranks)

    def step(number: int, adds: bool) -> Round:
        shift = number if adds else number - 1
        return _round(
            [
                PartTransfer(rank, (rank + 1) % ranks, *parts[(rank - shift) % ranks], adds)
                for rank in range(ranks)
            ]
        )

    rounds = [step(number, adds) for adds in (True, False) for number in range(ranks - 1)]
    return AllReduce("ring", ranks, elements, tuple(rounds))


def halving_doubling(ranks: int, elements: int) -> AllReduce:
    """Pairs of ranks swap halves of halves, to be added up, and then give them back.

    Where ranks are no power of two, those beyond it first give all they have to a partner.
    """
    inner = 1 << (ranks.bit_length() - 1)
    extra = range(inner, ranks)
    before = _round([PartTransfer(rank, rank - inner, 0, elements, True) for rank in extra])
    after = _round([PartTransfer(rank - inner, rank, 0, elements, False) for rank in extra])
    held = dict.fromkeys(range(inner), (0, elements))
    halving: list[Round] = []
    doubling: list[Round] = []
    distance = inner // 2
    while distance:
        down: list[PartTransfer] = []
        up: list[PartTransfer] = []
        kept = {}
        for rank, (start, stop) in held.items():
            middle, partner = (start + stop) // 2, rank ^ distance
            low, high = (start, middle), (middle, stop)
            mine, theirs = (low, high) if rank < partner else (high, low)
            down.append(PartTransfer(rank, partner, *theirs, True))
            up.append(PartTransfer(rank, partner, *mine, False))
            kept[rank] = mine
        halving.append(_round(down))
        doubling.insert(0, _round(up))
        held, distance = kept, distance // 2
    rounds = [step for step in (before, *halving, *doubling, after) if step]
    return AllReduce("halving-doubling", ranks, elements, tuple(rounds))


def _tree_rounds(
    parents: dict[int, int], part: tuple[int, int]
) -> tuple[list[list[PartTransfer]], list[list[PartTransfer]]]:
    """Rounds up and down one tree: a rank sends up when its children have."""
    children: dict[int, list[int]] = {}
    for rank, parent in parents.items():
        children.setdefault(parent, []).append(rank)

    def height(rank: int) -> int:
        return 1 + max(map(height, children.get(rank, ())), default=-1)

    levels = max((height(rank) for rank in parents), default=-1) + 1
    up: list[list[PartTransfer]] = [[] for _ in range(levels)]
    for rank, parent in parents.items():
        up[height(rank)].append(PartTransfer(rank, parent, *part, True))
    down = [[PartTransfer(t.target, t.source, *part, False) for t in step] for step in reversed(up)]
    return up, down


def _binary_tree(ranks: int) -> dict[int, int]:
    """A binary tree in which odd ranks are leaves and 0 is the root: who is above whom."""
    parents = {}
    for rank in range(1, ranks):
        lowest = rank & -rank
        above = (rank ^ lowest) | (lowest << 1)
        parents[rank] = above if above < ranks else rank ^ lowest
    return parents


def double_binary_tree(ranks: int, elements: int) -> AllReduce:
    """Two trees, each for one half of the array: a leaf of one is inside the other.

    The second is the first in a mirror, or shifted by one where the number of ranks is odd.
    """
    first = _binary_tree(ranks)
    names = [(ranks - 1 - rank) if ranks % 2 == 0 else (rank + 1) % ranks for rank in range(ranks)]
    second = {names[rank]: names[parent] for rank, parent in first.items()}
    trees = [
        _tree_rounds(parents, part)
        for parents, part in zip((first, second), _parts(elements, 2), strict=True)
    ]
    rounds: list[Round] = []
    for both in zip(*trees, strict=True):  # up, then down
        for steps in zip(*both, strict=True):
            rounds.append(_round([transfer for step in steps for transfer in step]))
    return AllReduce("double binary tree", ranks, elements, tuple(filter(None, rounds)))


def hierarchical(ranks: int, elements: int, node: int = 0) -> AllReduce:
    """A ring inside every node of so many ranks, rings across nodes for parts, and back."""
    divisors = [size for size in range(1, ranks + 1) if ranks % size == 0 and size**2 <= ranks]
    inside = node or divisors[-1]
    if ranks % inside:
        raise BadValueError(f"nodes of {inside} ranks do not divide {ranks} ranks")
    parts, rounds = _parts(elements, inside), []
    nodes = ranks // inside
    whole = ring(inside, elements).rounds

    def everywhere(steps: Sequence[Round]) -> list[Round]:
        return [
            tuple(
                PartTransfer(n * inside + t.source, n * inside + t.target, t.start, t.stop, t.adds)
                for n in range(nodes)
                for t in step
            )
            for step in steps
        ]

    rounds += everywhere(whole[: inside - 1])
    across: list[list[PartTransfer]] = [[] for _ in range(2 * (nodes - 1))]
    for place in range(inside):
        start, stop = parts[(place + 1) % inside]  # what a rank of a ring has the sum of
        for number, step in enumerate(ring(nodes, stop - start).rounds):
            across[number] += [
                PartTransfer(
                    t.source * inside + place,
                    t.target * inside + place,
                    start + t.start,
                    start + t.stop,
                    t.adds,
                )
                for t in step
            ]
    rounds += [_round(step) for step in across]
    rounds += everywhere(whole[inside - 1 :])
    return AllReduce("hierarchical", ranks, elements, tuple(filter(None, rounds)))


ALGORITHMS: dict[str, Callable[..., AllReduce]] = {
    "parameter-server": parameter_server,
    "ring": ring,
    "halving-doubling": halving_doubling,
    "double-tree": double_binary_tree,
    "hierarchical": hierarchical,
}


def all_reduce_by(name: str, ranks: int, elements: int, **options: int) -> AllReduce:
    """An algorithm by its name."""
    if name not in ALGORITHMS:
        raise BadValueError(
            f"there is no all-reduce called {name!r}", help=f"one of {', '.join(ALGORITHMS)}"
        )
    if ranks < 1 or elements < 0:
        raise BadValueError(f"an all-reduce of {elements} elements on {ranks} ranks")
    return ALGORITHMS[name](ranks, elements, **options)
