"""What goes into the program of a known sequence of calls: memory, draws, numbers, constants.

Learnt where the program ran for the first time: each of its inputs is memory from outside of the
tape, a draw of random numbers, a Python number among arguments, or memory that the calls themselves
made of constants.
"""

from __future__ import annotations

from collections.abc import Container, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from ridgeline.dtypes import DType
from ridgeline.graph.node import LEAF, Node, is_constant_expression
from ridgeline.record.graph_recorder import Drawn
from ridgeline.record.numbers import Number0d
from ridgeline.runtime.buffer import HostBuffer
from ridgeline.tape import varying
from ridgeline.tape.entries import NotTaped, same

if TYPE_CHECKING:
    from ridgeline.tape.run import Run

MOST_CONSTANT = 1 << 16  # bytes of memory that calls made and that an ending keeps
_MASK = (1 << 64) - 1


@dataclass(frozen=True, slots=True)
class Operands:
    """The inputs of a program, by place."""

    constants: tuple[Any, ...]  # None for all others
    outside: tuple[tuple[int, int], ...]  # memory, by its number on the tape
    parts: tuple[tuple[int, int, int, int], ...]  # the same, of which from a byte on so many
    draws: tuple[tuple[int, int, int], ...]  # which draw, and its seed or offset
    numbers: tuple[tuple[int, int, DType], ...]  # which number among arguments
    equal: tuple[tuple[int, int], ...]  # arguments that were one number

    def of(self, run: Run) -> list[Any] | None:
        """The inputs for another run; None where it is not one of those that were learnt."""
        if not self.fit(run):
            return None
        inputs = list(self.constants)
        for place, number in self.outside:
            inputs[place] = run.outside[number].node.buffer
        for place, number, start, nbytes in self.parts:
            inputs[place] = run.outside[number].node.buffer.part(start, nbytes)
        for place, draw, part in self.draws:
            inputs[place] = _word(run.drawn[draw][part])
        for place, index, dtype in self.numbers:
            inputs[place] = Number0d(run.given[index], dtype)
        return inputs

    def fit(self, run: Run) -> bool:
        """True where the numbers among arguments are alike as they were.

        A run that is recorded may be asked, too, which keeps no list of what it draws.
        """
        alike = self.equal
        return not alike or all(same(run.given[one], run.given[other]) for one, other in alike)


def _word(number: int) -> HostBuffer:
    """A seed or an offset as a program takes it."""
    return HostBuffer.borrow(np.array(number & _MASK, np.uint64))


class Learning:
    """What the inputs of a program of a run may be."""

    def __init__(
        self, run: Run, words: Drawn, nodes: Mapping[int, int], memory: bool = True
    ) -> None:
        """`words` has the memory of the seeds and offsets that were drawn.

        `nodes` has numbers of memory from outside by the identity of nodes that stand for it. With
        `memory` it stands for itself, too.
        """
        self._run, self._memory = run, memory
        self._given = varying.sources(run)
        self._drawn = {
            id(buffer): (draw, part)
            for draw, pair in enumerate(words)
            for part, buffer in enumerate(pair)
        }
        self._numbers = dict(nodes)
        self._buffers: dict[int, int] = {}  # of memory; of two tensors with one nobody knows which
        for number, found in run.outside.items() if memory else ():
            self._numbers.setdefault(id(found.node), number)
            key = id(found.node.buffer)
            self._buffers[key] = -1 if key in self._buffers else number

    def operands(self, inputs: Sequence[Node], known: Container[int] = ()) -> Operands:
        """Where inputs come from, but those at `known` places; raises where nobody knows."""
        outside: list[tuple[int, int]] = []
        parts: list[tuple[int, int, int, int]] = []
        draws: list[tuple[int, int, int]] = []
        numbers: list[tuple[int, int, DType]] = []
        equal: list[tuple[int, int]] = []
        constants: list[Any] = [None] * len(inputs)
        for place, node in enumerate(inputs):
            if place in known:
                continue
            buffer = node.buffer
            number = self._numbers.get(id(node), self._buffers.get(id(buffer)))
            if type(buffer) is Number0d and (alike := self._given.get(id(buffer.value))):
                numbers.append((place, alike[0], buffer.dtype))
                equal += [(alike[0], other) for other in alike[1:]]
            elif id(buffer) in self._drawn:
                draws.append((place, *self._drawn[id(buffer)]))
            elif number is not None:
                if number < 0:
                    raise NotTaped(f"{shown(node)} that two of its tensors share")
                outside.append((place, number))
            elif (part := self._part(buffer)) is not None:
                parts.append((place, *part))
            elif buffer is not None and is_constant(node, self._run):
                constants[place] = buffer
            else:
                raise NotTaped(
                    f"{shown(node)} that is neither an operand of its calls nor a constant"
                )
        return Operands(
            tuple(constants), tuple(outside), tuple(parts), tuple(draws), tuple(numbers),
            tuple(equal),
        )  # fmt: skip

    def _part(self, buffer: Any) -> tuple[int, int, int] | None:
        """Memory from outside of which a buffer is a part, by its number, and which part.

        A call that shows a part of what it is given has another buffer for it each time.
        """
        if not self._memory or not isinstance(buffer, HostBuffer):
            return None
        found: list[tuple[int, int, int]] = []
        for number, outside in self._run.outside.items():
            whole = outside.node.buffer
            if isinstance(whole, HostBuffer):
                start = buffer.address - whole.address
                if start >= 0 and start + buffer.nbytes <= whole.nbytes:
                    found.append((number, start, buffer.nbytes))
        return found[0] if len(found) == 1 else None


def variables_in(run: Run) -> dict[int, int]:
    """The numbers of variables, by the identity of the nodes that stand for them in graphs."""
    found: dict[int, int] = {}
    for number, outside in run.outside.items():
        details = None if outside.variable is None else outside.variable.rare
        if details is not None and details.key is not None:
            found[id(details.key)] = number
    return found


def shown(node: Node) -> str:
    """A value, for a reason that people read."""
    return f"a value {node.types[0]} of {node.op.name}"


def is_constant(node: Node, run: Run) -> bool:
    """True for memory that the calls made of constants: calls that look at values are on no tape.

    A variable's memory has other values the next time, and so has what was computed before, unless
    it was computed of constants alone.
    """
    buffer = node.buffer
    if type(buffer) is Number0d:
        return node.op is LEAF
    small = isinstance(buffer, HostBuffer) and buffer.nbytes <= MOST_CONSTANT
    if node.op is not LEAF:
        return small and is_constant_expression(node)
    return small and node.owner is None and run.made_of_constants(buffer)
