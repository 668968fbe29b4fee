"""The order in which a product of several operands is contracted: the cheapest one.

The cost of contracting two operands is exact: one multiplication for every index of all labels that
either has. Up to `MOST_EXACT` operands every tree of pairs is weighed, by dynamic programming over
sets of operands; beyond, the pair that makes the least new memory is taken again and again. Among
orders of equal cost the one with smaller intermediate results wins.

Sets of operands and sets of labels are bits of whole numbers.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache
from math import prod

MOST_EXACT = 8

Pair = tuple[int, int]


@lru_cache(maxsize=1024)
def contraction_order(
    operands: tuple[tuple[str, ...], ...], output: tuple[str, ...], sizes: tuple[int, ...]
) -> tuple[Pair, ...]:
    """Which two operands are contracted next, by position; the result comes last.

    `sizes` are those of the labels in the order in which they first occur in the operands.
    """
    labels = list(dict.fromkeys(label for each in operands for label in each))
    bit = {label: 1 << position for position, label in enumerate(labels)}
    network = _Network(
        [sum({bit[label] for label in each}) for each in operands],
        sum(bit[label] for label in output),
        sizes,
    )
    exact = len(operands) <= MOST_EXACT
    return tuple(_optimal(network) if exact else _greedy(network))


class _Network:
    """The labels of all operands as bits, and what products over them cost."""

    def __init__(self, operands: Sequence[int], output: int, sizes: Sequence[int]) -> None:
        self.operands, self.output, self._sizes = operands, output, sizes
        self._volumes: dict[int, int] = {}

    def volume(self, labels: int) -> int:
        """The number of indices that some labels have between them."""
        found = self._volumes.get(labels)
        if found is None:
            found = prod(size for bit, size in enumerate(self._sizes) if labels >> bit & 1)
            self._volumes[labels] = found
        return found


def _optimal(network: _Network) -> list[Pair]:
    """The cheapest tree over all operands."""
    count, whole = len(network.operands), (1 << len(network.operands)) - 1
    union = [0] * (whole + 1)  # of the labels of a set of operands
    for members in range(1, whole + 1):
        first = members & -members
        union[members] = union[members ^ first] | network.operands[first.bit_length() - 1]
    kept = [union[s] & (network.output | union[whole ^ s]) for s in range(whole + 1)]
    best: list[tuple[int, int, int]] = [(0, 0, 0)] * (whole + 1)  # cost, memory, one side
    for members in range(1, whole + 1):
        if members & (members - 1):
            best[members] = min(
                (
                    best[side][0] + best[members ^ side][0]
                    + network.volume(kept[side] | kept[members ^ side]),
                    best[side][1] + best[members ^ side][1] + network.volume(kept[members]),
                    side,
                )
                for side in _sides(members)
            )  # fmt: skip
    order: list[Pair] = []
    _place(whole, best, count, order)
    return order


def _place(
    members: int, best: Sequence[tuple[int, int, int]], count: int, order: list[Pair]
) -> int:
    """The position of the product of some operands, whose pairs are put in order."""
    if not members & (members - 1):
        return members.bit_length() - 1
    side = best[members][2]
    left = _place(side, best, count, order)
    order.append((left, _place(members ^ side, best, count, order)))
    return count + len(order) - 1


def _sides(members: int) -> list[int]:
    """One side of every way to part a set in two: the one with its first member."""
    first = members & -members
    rest = members ^ first
    found, part = [], rest
    while part:
        part = (part - 1) & rest
        found.append(first | part)
    return found


def _greedy(network: _Network) -> list[Pair]:
    """Pair after pair, each the one whose result takes least more memory than what it replaces."""
    alive = dict(enumerate(network.operands))
    order: list[Pair] = []
    while len(alive) > 1:
        pairs = [(a, b) for a in alive for b in alive if a < b]
        first, second = min(pairs, key=lambda pair: _growth(network, alive, pair))
        made = alive[first] | alive[second]
        del alive[first], alive[second]
        needed = network.output
        for labels in alive.values():
            needed |= labels
        order.append((first, second))
        alive[len(network.operands) + len(order) - 1] = made & needed
    return order


def _growth(network: _Network, alive: dict[int, int], pair: Pair) -> tuple[int, int, Pair]:
    """How much memory a contraction adds, and what it costs."""
    left, right = (alive[position] for position in pair)
    needed = network.output
    for position, labels in alive.items():
        if position not in pair:
            needed |= labels
    together = left | right
    added = network.volume(together & needed) - network.volume(left) - network.volume(right)
    return added, network.volume(together), pair
