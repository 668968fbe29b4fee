"""Backward passes through runs that were computed, each by a program of its own.

A flush leaves results that keep a graph: leaves that know their run (`GraphJoint`). A backward pass
from there on needs no nodes: the program of the pass takes what the run read, what the flush kept
for it, and the gradients of the results, and gives those of variables and of results of runs
before it, to which it adds what these have already. `autograd/joints.py` goes
from one run to the next. So episodes of any length, loops that values end and experts that get
other tokens in every step are made of a few programs.

A pass is learnt like a flush: the calls are made once more, out of everybody's sight, and
differentiated (`pass_graph.py`); the program is found by its structure.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, TypeAlias

from ridgeline.graph.node import Node
from ridgeline.record.cells import LetGo, filled_leaf
from ridgeline.record.graph_recorder import GraphRecorder
from ridgeline.record.recorder import RanRule, record_with
from ridgeline.record.upcalls import Known, upcalls
from ridgeline.runtime.buffer import space
from ridgeline.tape.earnest import Earnest
from ridgeline.tape.entries import NotTaped
from ridgeline.tape.memory import is_closed, is_joint
from ridgeline.tape.operands import Learning, Operands
from ridgeline.tape.pass_graph import RESULT, PassGraph, Sources
from ridgeline.tensors.tensor import Tensor

if TYPE_CHECKING:
    from ridgeline.tape.run import Past, Run

Buffer: TypeAlias = Any
Target: TypeAlias = Tensor | Node  # a variable, or a result of a run before
Numbers: TypeAlias = tuple[int, ...]


@dataclass(frozen=True, slots=True)
class Pass:
    """The program of a backward pass."""

    known: Known
    operands: Operands
    sources: Sources
    rules: tuple[RanRule, ...] = ()  # of users, that it stands for

    def run(
        self, run: Run, past: Past, given: Sequence[Buffer], totals: Mapping[int, Buffer]
    ) -> list[Buffer] | None:
        """The gradients of targets; None where there is no program for them any more."""
        inputs, sources = self.operands.of(run), self.sources
        if inputs is None or not all(rule.holds() for rule in self.rules):
            return None
        for place, result in sources.results:
            inputs[place] = past.results[result]
        for place, number in sources.given:
            inputs[place] = given[number]
        for place, number in sources.totals:
            inputs[place] = totals[number]
        results = self.known.run(inputs, "a backward pass") if sources.roots else []
        if results is None:
            return None
        found = [results[n] if kind == RESULT else given[n] for kind, n in sources.gradients]
        return apart(found, given)


@dataclass(slots=True)
class Start:
    """Passes that start from the same results of a run."""

    targets: Numbers  # memory from outside
    lost: frozenset[int]  # results from which no other pass may start
    programs: dict[frozenset[int], Pass] = field(default_factory=dict)  # by what is added to


class RuleListener(GraphRecorder):
    """Notes which rules of users a pass runs, and whether it does more than they say."""

    __slots__ = ("rules", "why")

    def __init__(self) -> None:
        super().__init__()
        self.rules: list[RanRule] = []
        self.why = ""

    def ran_rule(self, rule: RanRule) -> None:
        """A rule of a user's ran."""
        self.rules.append(rule)

    def lose(self, why: str) -> None:
        """It must run every time."""
        self.why = why

    def check(self) -> None:
        """Raise where the pass is no program that could run again."""
        if self.why or self.drawn:
            raise NotTaped(self.why or "a gradient rule that draws random numbers")


class Passes:
    """The passes through runs that came to one flush."""

    def __init__(self) -> None:
        self.starts: dict[Numbers, Start] = {}  # by the results that have gradients

    def start(self, numbers: Numbers) -> Start | None:
        """What is known of passes from some results."""
        return self.starts.get(numbers)

    def begin(self, numbers: Numbers, start: Start) -> None:
        """A pass from some results comes for the first time."""
        self.starts[numbers] = start

    def program(self, numbers: Numbers, totals: frozenset[int]) -> Pass | None:
        """The program of a pass, if there is one."""
        return self.starts[numbers].programs.get(totals)

    def learnt(self, run: Run, numbers: Numbers, totals: frozenset[int], made: Pass) -> None:
        """A program was found."""
        self.starts[numbers].programs[totals] = made


def targets_of(run: Run) -> Iterator[Target]:
    """The variables and the results of runs before that gradients may flow to."""
    for number, found in run.outside.items():
        if found.variable is not None and (owner := run.owner(number)) is not None:
            yield owner
        elif is_joint(found.node):
            yield found.node


def pass_through(
    run: Run, given: Mapping[int, Buffer], total: Callable[[Target], Buffer]
) -> tuple[list[tuple[Target, Buffer]], frozenset[int]]:
    """The gradients of targets, for those of some results; raises where there is no program.

    `total` is what a target has so far, or None. The other result is those of the run from which
    no pass may start from now on, unless the graph is retained.
    """
    past = run.past
    if past is None:
        raise NotTaped("a graph that was let go")
    if not all(_is_known(run.outside[number].node) for number in past.ending.ways):
        raise NotTaped("an operand with a graph of nodes")
    numbers, passes = tuple(sorted(given)), past.ending.passes
    gradients = [given[number] for number in numbers]
    start, again = passes.start(numbers), None
    if start is None:
        again = _Again(run, past, numbers)
        start = Start(tuple(again.graph.targets), again.graph.lost())
        passes.begin(numbers, start)
    targets = [_target(run, number) for number in start.targets]
    totals = {
        number: buffer
        for number, target in zip(start.targets, targets)
        if target is not None and (buffer := total(target)) is not None
    }
    program = passes.program(numbers, frozenset(totals))
    results = None if program is None else program.run(run, past, gradients, totals)
    if results is None:
        again = _Again(run, past, numbers) if again is None else again
        made, results = again.learnt(gradients, totals)
        passes.learnt(run, numbers, frozenset(totals), made)
    found = zip(targets, results, strict=True)
    return [(target, buffer) for target, buffer in found if target is not None], start.lost


def _is_known(node: Node) -> bool:
    """True where gradients end at an operand of before, or go on to its segment."""
    return is_joint(node) or is_closed(node)


def _target(run: Run, number: int) -> Target | None:
    """The variable or the result that memory from outside is; None where nobody holds it."""
    found = run.outside[number]
    if is_joint(found.node):
        return found.node
    if isinstance(found.node.attrs, LetGo):
        raise NotTaped("a graph that was let go")
    return run.owner(number)


class _Again:
    """The graph of a run, made once more."""

    def __init__(self, run: Run, past: Past, numbers: Numbers) -> None:
        self._run = run
        earnest = self._earnest = Earnest(run)
        earnest.calls()
        self._wanted = earnest.fill(past)
        joints = {id(found.node): n for n, found in run.outside.items() if is_joint(found.node)}
        outputs = [earnest.cells[number].node for number in numbers]
        self.graph = PassGraph(outputs, earnest.kept(past.ending), earnest.target_of(joints))

    def learnt(
        self, given: Sequence[Buffer], totals: Mapping[int, Buffer]
    ) -> tuple[Pass, list[Buffer]]:
        """Make a pass by its nodes, and learn how."""
        graph = self.graph
        cotangents = [filled_leaf(kind, buffer) for kind, buffer in zip(graph.types, given)]
        before = {n: filled_leaf(graph.type_of(n), buffer) for n, buffer in totals.items()}
        listening = RuleListener()
        with record_with(listening):
            gradients, roots = graph.differentiated(cotangents, before)
        listening.check()
        match = upcalls.match(roots, [], "a backward pass")
        if roots:
            match.run()
        sources = graph.sources(match.inputs, self._wanted, cotangents, before, gradients, roots)
        earnest = self._earnest
        learning = Learning(self._run, earnest.drawn, earnest.variables_as_nodes())
        operands = learning.operands(match.inputs, sources.known)
        buffers = apart([node.buffer for node in gradients], given)
        return Pass(match.again(), operands, sources, tuple(listening.rules)), buffers


def apart(buffers: list[Buffer], given: Sequence[Buffer]) -> list[Buffer]:
    """Gradients in memory of their own: what was given, or is found twice, is copied."""
    taken = {id(buffer) for buffer in given}
    for place, buffer in enumerate(buffers):
        if id(buffer) in taken:
            buffers[place] = space(buffer.device).copy(buffer)
        taken.add(id(buffer))
    return buffers
