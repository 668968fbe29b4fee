"""In-place results: outputs that reuse the memory of the inputs they replace (buffer donation).

The new value may take the old one's memory if every kernel that reads the old value runs before
the one that writes, or reads element by element in the same kernel. Here kernels, and the stores
inside one, are put in an order that allows it; where two such wishes contradict, the later one
is given up. Nothing is overwritten before the index flag of the program is known, so that an index
out of range leaves everything as it was.
"""

from __future__ import annotations

import heapq
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field

from ridgeline.graph.graph import Graph
from ridgeline.graph.node import Node


@dataclass(frozen=True, slots=True)
class Replacing:
    """Which outputs may overwrite which inputs (buffer donation)."""

    inputs: Mapping[Node, Node] = field(default_factory=dict)  # result: the input it replaces
    others: frozenset[Node] = frozenset()  # results that replace what is no input
    flag: Node | None = None

    @classmethod
    def of(cls, graph: Graph, pairs: Sequence[tuple[int, int]], checked: bool) -> Replacing:
        """Build from numbers of outputs and inputs (-1: none); each buffer is reused once.

        An input that is itself a result, perhaps in another shape, is still read after the run.
        """
        results, inputs, given = graph.outputs, graph.inputs, set(graph.inputs)
        read_later = given.intersection(results)
        # a report of an index out of range shows the inputs that it came from
        shown = set(graph.giving(results[-1:]).order) if checked else set()
        replaced: dict[Node, Node] = {}
        others: set[Node] = set()
        for output, number in pairs:
            result = results[output]
            if result in given or result in replaced or result in others:
                continue
            if number < 0:
                others.add(result)
                continue
            source = inputs[number]
            taken = {*replaced.values(), *shown, *read_later}
            if source.types == result.types and source not in taken:
                replaced[result] = source
        wanted = bool(replaced or others)
        return cls(replaced, frozenset(others), results[-1] if checked and wanted else None)


def store_order(graph: Graph, replacing: Replacing) -> list[Node]:
    """The outputs of a kernel, each after those that read what it overwrites."""
    stored = graph.outputs
    over = {replacing.inputs[v]: v for v in stored if v in replacing.inputs}
    if len(stored) < 2 or not over:
        return list(stored)
    waiting: dict[Node, set[Node]] = {value: set() for value in stored}
    for value in stored:
        for source in _reads(value, graph):
            if source in over and over[source] is not value:
                waiting[over[source]].add(value)
    order: list[Node] = []
    left = list(stored)
    while left:
        ready = [v for v in left if not waiting[v].intersection(left)]
        order.append(ready[0] if ready else left[0])
        left.remove(order[-1])
    return order


def _reads(value: Node, graph: Graph) -> set[Node]:
    """The values in memory that a value is computed from."""
    found: set[Node] = set()
    stack, seen = [value], {value}
    while stack:
        current = stack.pop()
        if graph.is_input(current):
            found.add(current)
            continue
        fresh = [i for i in current.inputs if i not in seen]
        seen.update(fresh)
        stack += fresh
    return found


def kernel_order(
    sources: Mapping[int, Collection[int]],
    writer: Mapping[Node, int],
    readers: Mapping[Node, Collection[int]],
    replacing: Replacing,
    late: Collection[int] = (),
) -> tuple[list[int], dict[Node, Node], dict[int, frozenset[int]]]:
    """An order of kernels that lets results overwrite inputs, those results, all dependencies.

    `sources` are the kernels that each one reads from, `readers` those that read a value. `late`
    kernels run only when nothing else is ready.
    """
    waiting = {number: set(needs) for number, needs in sources.items()}
    users: dict[int, set[int]] = {number: set() for number in sources}
    for number, needs in waiting.items():
        for needed in needs:
            users[needed].add(number)
    first = None if replacing.flag is None else writer.get(replacing.flag)
    kept: dict[Node, Node] = {}
    for result, source in replacing.inputs.items():
        own = writer.get(result)
        if own is None:
            continue
        before = {*readers.get(source, ()), *(() if first is None else (first,))} - {own}
        if _behind(own, users).isdisjoint(before):
            kept[result] = source
            waiting[own] |= before
            for number in before:
                users[number].add(own)
    early = set() if first is None else _behind(first, waiting) | {first}
    after = {number: frozenset(needed) for number, needed in waiting.items()}
    return _topological(waiting, users, early, late), kept, after


def _behind(start: int, following: Mapping[int, Collection[int]]) -> set[int]:
    """Everything reachable from a kernel."""
    found: set[int] = set()
    stack = [start]
    while stack:
        fresh = set(following[stack.pop()]) - found
        found |= fresh
        stack += fresh
    return found


def _topological(
    waiting: dict[int, set[int]],
    users: Mapping[int, Collection[int]],
    early: Collection[int],
    late: Collection[int],
) -> list[int]:
    """A topological order of kernels, those that the index flag depends on first."""
    ready: list[tuple[bool, int]] = []
    held: set[int] = set()  # late ones that could run

    def push(number: int) -> None:
        held.discard(number)
        heapq.heappush(ready, (number not in early, number))

    def free(number: int) -> None:
        if number not in late:
            push(number)
            return
        held.add(number)
        if any(waiting[user] <= held for user in users[number]):
            push(number)

    for number, needs in waiting.items():
        if not needs:
            free(number)
    order: list[int] = []
    while ready or held:
        if not ready:
            push(min(held))
        _, number = heapq.heappop(ready)
        order.append(number)
        for user in users[number]:
            waiting[user].discard(number)
            if not waiting[user]:
                free(user)
            elif waiting[user] <= held:
                for needed in waiting[user]:
                    push(needed)
    return order


# ---- which kernels must run before which, kept while kernels merge -------------------------------
# Every kernel has the set of all that come before it, as the bits of one number: whether a third
# kernel stands between two is then a few operations on bits, however large the program.


class Precedence:
    """The transitive dependencies between kernels."""

    def __init__(self, sources: Mapping[int, Collection[int]]) -> None:
        """`sources` are the kernels that each one reads from."""
        self._before: dict[int, int] = {}
        for number in sources:
            stack = [number]
            while stack:
                waiting = [s for s in sources[stack[-1]] if s not in self._before]
                if waiting:
                    stack += waiting
                    continue
                current = stack.pop()
                before = 0
                for source in sources[current]:
                    before |= self._before[source] | 1 << source
                self._before[current] = before

    def comes_before(self, a: int, b: int) -> bool:
        """True if kernel b depends on kernel a, directly or not."""
        return bool(self._before[b] >> a & 1)

    def merge(self, a: int, b: int, merged: int) -> None:
        """Treat kernels a and b as one from now on."""
        before = (self._before.pop(a) | self._before.pop(b)) & ~(1 << a | 1 << b)
        either = 1 << a | 1 << b
        for number, held in self._before.items():
            if held & either:
                self._before[number] = held | before | 1 << merged
        self._before[merged] = before
