"""Overlap collectives with kernels: start each as early as possible, wait as late as possible.

Communication goes on between the two, hidden behind the kernels that run meanwhile. Only what
overwrites the program's inputs comes later still: it may do so when nothing can fail any more.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence, Set
from heapq import heappop, heappush

from ridgeline.fusion.groups import FusionGroup
from ridgeline.graph.node import Node
from ridgeline.ops.started import WAIT, is_start


def _urgency(group: FusionGroup, overwriting: Set[Node]) -> int:
    node = group.apart
    if node is None:
        return 1 if overwriting.isdisjoint(group.values) else 3
    return 0 if is_start(node) else 2 if node.op is WAIT else 1


def overlapped(
    groups: Sequence[FusionGroup], needs: Mapping[int, frozenset[int]], overwriting: Set[Node]
) -> list[FusionGroup]:
    """The kernels in such an order; each after those that it depends on."""
    urgency = [_urgency(group, overwriting) for group in groups]
    position = {group.number: index for index, group in enumerate(groups)}
    missing = {g.number: set(needs.get(g.number, ())) & position.keys() for g in groups}
    readers: dict[int, list[int]] = {}
    for number, needed in missing.items():
        for other in needed:
            readers.setdefault(other, []).append(number)
    ready: list[tuple[int, int]] = []  # by urgency, then by the position they had
    for group in groups:
        if not missing[group.number]:
            heappush(ready, (urgency[position[group.number]], position[group.number]))
    order: list[FusionGroup] = []
    while ready:
        group = groups[heappop(ready)[1]]
        order.append(group)
        for number in readers.get(group.number, ()):
            missing[number].discard(group.number)
            if not missing[number]:
                heappush(ready, (urgency[position[number]], position[number]))
    return order
