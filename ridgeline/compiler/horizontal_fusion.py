"""Kernels that wait for none of each other become one launch: the updates of all parameters.

Starting a kernel takes longer than a small one runs. In the order of the program, a kernel that may
be joined is put off until something needs it; those that are put off together, and that the
backend can start as one, are. What a kernel reads stays in memory while it is put off, so one that
would keep much of it runs at once: no more than could be moved in the time of a start.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Mapping, Sequence, Set
from dataclasses import dataclass, field

from ridgeline.fusion.groups import Group, Roofline
from ridgeline.graph.costs import nbytes
from ridgeline.graph.node import Node


@dataclass(slots=True)
class Joiner:
    """Puts the kernels of a program in order, and says which are started as one.

    `key` tells kernels that can be joined apart from others, `fits` whether some still fit into
    one launch.
    """

    needs: Mapping[int, Set[int]]  # the kernels that must have run before each, by number
    key: Callable[[Group], Hashable | None]
    fits: Callable[[Sequence[Group]], bool]
    most_bytes: float
    order: list[Group] = field(default_factory=list)
    joined: list[tuple[int, ...]] = field(default_factory=list)  # places in the order
    _waiting: dict[Hashable, list[Group]] = field(default_factory=dict)

    def run(self, groups: Sequence[Group], results: Set[Node]) -> None:
        """Fill `order` and `joined`."""
        made = temporaries(groups, results)
        for group in groups:
            needed = self.needs[group.number]
            for key, members in list(self._waiting.items()):
                if any(member.number in needed for member in members):
                    self._start(key)
            own = self.key(group) if kept(group, made) <= self.most_bytes else None
            if own is None:
                self.order.append(group)
                continue
            if not self.fits([*self._waiting.get(own, ()), group]):
                self._start(own)
            self._waiting.setdefault(own, []).append(group)
        for key in list(self._waiting):
            self._start(key)

    def _start(self, key: Hashable) -> None:
        members = self._waiting.pop(key, [])
        places = range(len(self.order), len(self.order) + len(members))
        self.order += members
        if len(members) > 1:
            self.joined.append(tuple(places))


def temporaries(groups: Sequence[Group], results: Set[Node]) -> Set[Node]:
    """What kernels make for each other alone."""
    return {value for group in groups for value in group.values} - results


def kept(group: Group, made: Set[Node]) -> int:
    """The bytes that stay in memory while a kernel is put off."""
    return sum(nbytes(value) for value in group.reads if value in made)


def most_bytes(roofline: Roofline) -> float:
    """What could be moved in the time of a start."""
    return roofline.launch_seconds * roofline.bytes_per_second
