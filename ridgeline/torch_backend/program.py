"""Graphs of ours as programs over memory of torch's, for known sizes or for unknown ones."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from threading import Lock
from typing import Any

from ridgeline.collector import paused
from ridgeline.compiler.passes import Recorded
from ridgeline.compiler.pipeline import prepare
from ridgeline.config import config
from ridgeline.devices import CPU, device
from ridgeline.errors import RidgelineError
from ridgeline.execution.tiers import is_library_call, program_for
from ridgeline.graph.facts import SizeFacts
from ridgeline.graph.graph import Graph
from ridgeline.graph.node import Node
from ridgeline.graph.passes.legalize.specialize_sizes import Settled
from ridgeline.graph.sizes import Sym
from ridgeline.torch_backend.forms import UnsupportedTensorError
from ridgeline.torch_backend.gpu import on_torch_stream
from ridgeline.torch_backend.state import TorchState

MOST_PROGRAMS = 8  # for sizes of different kinds: what compiling one has decided does not hold


@dataclass(frozen=True, slots=True)
class Places:
    """Where the inputs of a program come from: by node, a place among tensors, or among memory."""

    tensors: Mapping[Node, int]
    held: Mapping[Node, int]

    @property
    def nodes(self) -> set[Node]:
        """All that a call brings."""
        return {*self.tensors, *self.held}

    def at(self, settled: Settled) -> Places:
        """The same for a graph whose sizes are settled."""
        tensors = {settled.node(node): place for node, place in self.tensors.items()}
        return Places(tensors, {settled.node(node): place for node, place in self.held.items()})


@dataclass(frozen=True, slots=True, eq=False)
class Compiled:
    """A program, and what it reads: for each of its inputs a node, or memory that stays."""

    program: Any  # a Runnable, or for unknown sizes what gives one `at` their values
    inputs: list[Node]
    fixed: list[Any]  # the memory of constants, by input; None for what a call brings
    places: Places
    gpu: int | None  # where it computes, if that is a GPU

    def at(self, values: Mapping[str, int]) -> Compiled:
        """The program at some values of the unknown sizes that it was compiled for."""
        return replace(self, program=self.program.at(values))

    @property
    def run(self) -> Callable[[Sequence[Any]], list[Any]]:
        """What runs it over memory, on a GPU in the order of torch's stream there."""
        run: Callable[[Sequence[Any]], list[Any]] = self.program.run
        return run if self.gpu is None else self._run_on_gpu

    def _run_on_gpu(self, inputs: Sequence[Any]) -> list[Any]:
        assert self.gpu is not None
        with on_torch_stream(self.gpu):
            found: list[Any] = self.program.run(inputs)
        return found


def compiled(
    outputs: Sequence[Node], places: Places, state: TorchState, unknowns: Sequence[Sym] = ()
) -> Compiled:
    """The program that computes some nodes over what a call brings.

    It uses as many threads as torch does, and shortens float32 in products where torch may. With
    `unknowns` it is for all their values, as far as whoever is deciding about sizes writes down.
    """
    given = places.nodes
    recorded = Graph.below(outputs, lambda node: node in given or node.buffer is not None)
    settings = config.override(
        threads=state.threads,
        allow_tf32=state.may_shorten,
        allow_tf32_convolutions=state.may_shorten_convolutions,
    )
    with paused, settings:
        prepared = prepare(recorded, Recorded("jit", is_library_call))
        read = [node for node in prepared.order if recorded.is_input(node)]
        graph = Graph(prepared.outputs, read)
        program = _open_program(graph, unknowns) if unknowns else program_for(graph)
    fixed = [None if n in given else n.buffer for n in read]
    return Compiled(program, read, fixed, places, _gpu(graph))


def _open_program(graph: Graph, unknowns: Sequence[Sym]) -> Any:
    from ridgeline.runtime.cpu.symbolic import SymbolicProgram  # loads LLVM

    return SymbolicProgram(graph, unknowns)


def _gpu(graph: Graph) -> int | None:
    """The GPU whose memory a program reads or writes."""
    homes = {kind.device for node in graph.order for kind in node.types} - {CPU}
    if len(homes) > 1:
        raise UnsupportedTensorError("a graph computes on several GPUs")
    return next((device(home).index for home in homes), None)


class NodesToCompute:
    """Some nodes, and programs for them: one for all values of unknown sizes, as far as it goes.

    What was decided while that was compiled is checked for other values, and another one is made
    for those of another kind. What cannot be compiled so is compiled for each set of values.
    """

    def __init__(
        self,
        outputs: Sequence[Node],
        places: Places,
        state: TorchState,
        unknowns: Sequence[Sym] = (),
    ) -> None:
        self._outputs, self._places = outputs, places
        self._state, self._unknowns = state, unknowns
        self._whole: Compiled | None = None  # where there are no unknowns
        self._open: list[tuple[SizeFacts, Compiled]] = []
        self._refused = config.tier == "interpreter"
        self._lock = Lock()

    @property
    def is_open(self) -> bool:
        """True where one program serves several sizes."""
        return bool(self._open)

    def program(self, settled: Settled | None = None) -> Compiled:
        """The program at some values of the unknowns; without unknowns it is one."""
        with self._lock:
            if settled is not None:
                return self._at(settled)
            if self._whole is None:
                self._whole = compiled(self._outputs, self._places, self._state)
            return self._whole

    def own(self, settled: Settled) -> Compiled:
        """A program for these values alone, which may be faster."""
        stop = self._places.nodes
        outputs = settled.nodes(self._outputs, lambda n: n in stop or n.buffer is not None)
        return compiled(outputs, self._places.at(settled), self._state)

    def _at(self, settled: Settled) -> Compiled:
        values = settled.sizes
        found = next((made for facts, made in self._open if facts.broken(values) is None), None)
        if found is None and not self._refused and len(self._open) < MOST_PROGRAMS:
            found = self._opened(values)
            self._refused = found is None
        return self.own(settled) if found is None else found.at(values)

    def _opened(self, values: Mapping[str, int]) -> Compiled | None:
        """A program for all values like these; None where there can be none."""
        facts = SizeFacts(values)
        try:
            with facts.deciding():
                made = compiled(self._outputs, self._places, self._state, self._unknowns)
        except RidgelineError:  # an op without unknown sizes
            return None
        if facts.pinned:
            return None
        self._open.append((facts, made))
        return made
