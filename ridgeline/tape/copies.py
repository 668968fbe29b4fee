"""Operands over memory that others may write to, such as `from_numpy`: copies of what it holds.

A call reads its operands once, when it is made. So a matched one has a copy of such memory, which
is a block like any other to the tape; each call that reads the memory has its own.
"""

from __future__ import annotations

from collections.abc import Sequence

from ridgeline.graph.node import Node
from ridgeline.record.cells import PLAIN, Cell, Step, Track, apply_steps
from ridgeline.record.values import MOST_COPIED, copied_operand
from ridgeline.tensors.tensor import Tensor


def is_foreign(cell: Cell, track: Track) -> bool:
    """True for memory that others may write to, which no gradient flows to."""
    return track.mode == PLAIN and cell.rare is not None and cell.rare.shared is not None


class Copies:
    """The copies for one call, with the numbers that they have on the tape."""

    __slots__ = ("_known",)
    _known: list[tuple[Cell, tuple[Step, ...], Node, int]]

    def __init__(self) -> None:
        self._known = []

    def number(self, value: Tensor) -> int | None:
        """The number of an operand that shows what one before it shows."""
        for cell, steps, _, number in self._known:
            if cell is value._cell and steps == value._steps:
                return number
        return None

    def take(self, value: Tensor, node: Node, steps: tuple[Step, ...], number: int) -> None:
        """An operand has a copy, which is seen through some steps."""
        self._known.append((value._cell, value._steps, apply_steps(node, steps), number))

    def clear(self) -> None:
        """The next call has its own."""
        if self._known:
            self._known = []

    def of_call(self) -> Sequence[tuple[Cell, tuple[Step, ...], Node]]:
        """What the operands of the call read as, by cell and steps."""
        return [(cell, steps, node) for cell, steps, node, _ in self._known]


def copied(value: Tensor) -> tuple[Node, tuple[Step, ...]] | None:
    """A copy for an operand, and the steps that show it; None where there is no need of one."""
    return copied_operand(value, MOST_COPIED)
