"""Backward passes through calls over unknown sizes: programs for all sizes of a family.

A pass that was learnt at some sizes is traced over the unknowns of the calls, and compiled beside.
Until it is there each new size learns a program of its own.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from ridgeline.atomic import Switch
from ridgeline.execution.open_programs import KnownAtSizes, OpenProgram, open_graph
from ridgeline.graph.facts import SizeFacts
from ridgeline.graph.graph import substitute
from ridgeline.graph.node import leaf
from ridgeline.record.numbers import lifted_since_flush
from ridgeline.record.recorder import RanRule, record_with
from ridgeline.tape.entries import Entry, NotTaped
from ridgeline.tape.memory import is_joint
from ridgeline.tape.open_trace import OpenTrace
from ridgeline.tape.operands import Learning, Operands
from ridgeline.tape.pass_graph import PassGraph, Sources
from ridgeline.tape.segments import Numbers, Pass, Passes, RuleListener, Start

if TYPE_CHECKING:
    from ridgeline.tape.endings import Ending
    from ridgeline.tape.run import Run


@dataclass(frozen=True, slots=True)
class OpenPass:
    """The program of a pass over unknown sizes, and what was decided about these."""

    facts: SizeFacts
    program: OpenProgram
    operands: Operands
    sources: Sources
    rules: tuple[RanRule, ...]

    def at(self, values: Mapping[str, int]) -> Pass | None:
        """The pass at some sizes; None where it stands for others, or is not compiled yet."""
        ready = self.program.ready() and self.program.stands_for(values)
        if not ready or self.facts.broken(values) is not None:
            return None
        return Pass(KnownAtSizes(self.program, values), self.operands, self.sources, self.rules)


class OpenPasses:
    """The passes through calls of a family that came to one flush."""

    def __init__(self, calls: Sequence[Entry], ending: Ending) -> None:
        self._calls, self._ending = calls, ending
        self._made: dict[tuple[Numbers, frozenset[int]], OpenPass | None] = {}
        self.starts: dict[Numbers, Start] = {}

    def at(self, values: Mapping[str, int]) -> Passes:
        """The passes at some sizes."""
        return PassesAtSizes(self, values)

    def program(
        self, numbers: Numbers, totals: frozenset[int], values: Mapping[str, int]
    ) -> Pass | None:
        """The program of a pass at some sizes, if there is one."""
        made = self._made.get((numbers, totals))
        return None if made is None else made.at(values)

    def learn(
        self, run: Run, numbers: Numbers, totals: frozenset[int], values: Mapping[str, int]
    ) -> None:
        """A pass was learnt at some sizes: have a program made for all of them."""
        if (numbers, totals) in self._made:
            return
        self._made[numbers, totals] = None
        try:
            self._made[numbers, totals] = self._opened(run, numbers, totals, values)
        except Exception as error:  # sizes that are no numbers fail in many ways
            run.not_learnt(f"a backward pass over unknown sizes: {error}")

    def _opened(
        self, run: Run, numbers: Numbers, totals: frozenset[int], values: Mapping[str, int]
    ) -> OpenPass:
        facts, trace = SizeFacts(values), OpenTrace(run, self._calls)
        with facts.deciding(), Switch(lifted_since_flush, nodes={}):
            trace.calls()
            wanted = trace.wanted(self._ending)
            if [node.types[0] for node in wanted] != self._ending.types:
                raise NotTaped("results that are other ones than before")
            joints = {
                id(node): number
                for number, node in trace.leaves.items()
                if is_joint(run.outside[number].node)
            }
            outputs = [trace.cells[number].node for number in numbers]
            pass_graph = PassGraph(outputs, trace.kept(self._ending), trace.target_of(joints))
            cotangents = [leaf(kind) for kind in pass_graph.types]
            before = {number: leaf(pass_graph.type_of(number)) for number in totals}
            listening = RuleListener()
            with record_with(listening):
                gradients, roots = pass_graph.differentiated(cotangents, before)
            listening.check()
            kept = self._ending.needed(wanted)
            known = {node: leaf(node.types[0]) for node in kept if node is not None}
            graph = open_graph(substitute(roots, known))
            sources = pass_graph.sources(
                graph.inputs, [known.get(n) for n in kept], cotangents, before, gradients, roots
            )
            learning = Learning(run, trace.drawn, trace.keys(), memory=False)
            operands = learning.operands(graph.inputs, sources.known)
        if facts.pinned:
            raise NotTaped("a size is used as a number")
        rules = tuple(listening.rules)
        return OpenPass(facts, OpenProgram(graph, values), operands, sources, rules)


class PassesAtSizes(Passes):
    """The passes of a family at some sizes."""

    def __init__(self, opened: OpenPasses, values: Mapping[str, int]) -> None:
        super().__init__()
        self._opened, self._values = opened, dict(values)

    def start(self, numbers: Numbers) -> Start | None:
        """What is known of passes from some results, whichever sizes they had."""
        found = self.starts.get(numbers)
        known = self._opened.starts.get(numbers) if found is None else None
        if known is not None:
            found = self.starts[numbers] = Start(known.targets, known.lost)
        return found

    def begin(self, numbers: Numbers, start: Start) -> None:
        """A pass from some results comes for the first time."""
        super().begin(numbers, start)
        self._opened.starts.setdefault(numbers, start)

    def program(self, numbers: Numbers, totals: frozenset[int]) -> Pass | None:
        """That for all sizes, where it stands for these."""
        own = self.starts[numbers].programs
        made = self._opened.program(numbers, totals, self._values)
        if made is not None:
            own[totals] = made
        return own.get(totals)

    def learnt(self, run: Run, numbers: Numbers, totals: frozenset[int], made: Pass) -> None:
        """Have one made for all sizes, too."""
        super().learnt(run, numbers, totals, made)
        self._opened.learn(run, numbers, totals, self._values)
