"""Structures: what recorded graphs have in common where only leaves differ, and tables by them."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Sequence
from typing import Any, Generic, TypeVar

from ridgeline.graph.node import Node
from ridgeline.ops.tracking import ERASED

T = TypeVar("T")


class Structure:
    """Ops, attributes and wiring of an order, not which leaves; and the places of some nodes."""

    __slots__ = ("_hash", "_rows")

    def __init__(self, order: Sequence[Node], *chosen: Sequence[Node]) -> None:
        number = {node: place for place, node in enumerate(order)}
        at = number.__getitem__
        rows: list[Any] = []
        for node in order:
            if node.buffer is not None:
                rows.append(node.types[0])
            else:
                # tags have numbers that never come again; what they stand for does
                attrs = getattr(node.attrs, "outputs", None) if node.op in ERASED else node.attrs
                rows += (node.op, attrs)
                rows += map(at, node.inputs)
        for nodes in chosen:
            rows.append(len(nodes))
            rows += map(at, nodes)
        self._rows = tuple(rows)
        self._hash = hash(self._rows)

    def __hash__(self) -> int:
        return self._hash

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Structure) and self._rows == other._rows


class Table(Generic[T]):
    """What is known of the structures that were seen last."""

    def __init__(self, most: int) -> None:
        self.most = most
        # a key leads to itself as it is kept, which is found again without comparing
        self._entries: OrderedDict[Structure, tuple[Structure, T]] = OrderedDict()

    def get(self, key: Structure) -> T | None:
        """What is kept of a structure, if it was seen."""
        found = self._entries.get(key)
        if found is None:
            return None
        self._entries.move_to_end(found[0])
        return found[1]

    def keep(self, key: Structure, value: T) -> T:
        """Remember a structure, and forget the ones that were not seen for longest."""
        self._entries[key] = key, value
        while len(self._entries) > self.most:
            self._entries.popitem(last=False)
        return value

    def clear(self) -> None:
        """Forget all."""
        self._entries.clear()

    def __len__(self) -> int:
        return len(self._entries)
