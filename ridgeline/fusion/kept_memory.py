"""Merges to avoid under a memory budget, because the merged kernel would keep more memory live.

A kernel runs again as a whole. So what is kept for long and could be made again in no time, such as
the transpose of a product's operand, is not made by the kernel of a product; and a product whose
operands are kept for it is not put off until another kernel, with which it would be one, has all
that it needs.
"""

from __future__ import annotations

from collections.abc import Callable, Collection
from dataclasses import dataclass
from typing import TYPE_CHECKING

from ridgeline.graph.graph import nbytes
from ridgeline.graph.node import Node
from ridgeline.ops.contract import CONTRACT

if TYPE_CHECKING:
    from ridgeline.fusion.groups import FusionGroup

_CHEAP = 4  # a kernel that takes so much less time than another would be made again with it


@dataclass(frozen=True, slots=True)
class Crossing:
    """The memory peak of a program: what is live across it, and what is computed after it."""

    kept: frozenset[Node]
    later: frozenset[Node]

    def reason_to_part(
        self, a: FusionGroup, b: FusionGroup, leaving: Callable[[Collection[Node]], list[Node]]
    ) -> str:
        """Why two kernels should not merge; empty if merging costs no memory."""
        for one, other in ((a, b), (b, a)):
            if not self.later.isdisjoint(one.reads):
                continue
            left = leaving(one.values)
            if self._is_cheap_to_repeat(one, other, left):
                return "what is kept would be made again with a product"
            if self._would_wait(one, other, left):
                return "what a product reads would be kept for longer than its result"
        return ""

    def _is_cheap_to_repeat(
        self, one: FusionGroup, other: FusionGroup, left: Collection[Node]
    ) -> bool:
        """True for a kernel of live values that can be repeated without a product."""
        return (
            not self.kept.isdisjoint(left)
            and _multiplies(other) and not _multiplies(one)
            and one.reads.isdisjoint(other.values)
            and one.seconds * _CHEAP < other.seconds
        )  # fmt: skip

    def _would_wait(self, one: FusionGroup, other: FusionGroup, left: Collection[Node]) -> bool:
        """True for a product that could run early and free more than it writes."""
        if not _multiplies(one) or self.later.isdisjoint(other.reads.difference(one.values)):
            return False
        held = sum(map(nbytes, self.kept.intersection(one.reads)))
        return sum(map(nbytes, left)) < held


def _multiplies(group: FusionGroup) -> bool:
    return any(value.op is CONTRACT for value in group.values)
