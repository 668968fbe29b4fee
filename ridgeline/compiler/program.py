"""Compiled programs: layout, executable, and how they were made; cached by structure."""

from __future__ import annotations

import threading
from collections.abc import Callable, Collection, Sequence
from dataclasses import replace
from typing import Any, NamedTuple

from ridgeline.codegen.caches import ObjectCache
from ridgeline.collector import paused
from ridgeline.compiler.backend import Backend, LoadedProgram, NumpyCalls, PausedRun, backend
from ridgeline.compiler.background import background
from ridgeline.compiler.kernel_profile import Profile
from ridgeline.compiler.memory_plan import HeldBytes, Layout, from_text, lay_out, to_text
from ridgeline.compiler.passes import Compilation, Observer
from ridgeline.compiler.pipeline import (
    CHECK,
    check,
    compilation,
    held,
    lower,
    optimize,
    write_out,
)
from ridgeline.compiler.stages import Stages
from ridgeline.devices import is_mesh
from ridgeline.graph.graph import Graph, structure
from ridgeline.graph.node import Node
from ridgeline.weak import Recent, Structure, fingerprint

# Kept in the process, the last used ones: a node of a program takes some 5 KB with all that is
# known of it. The others come back from disk.
MOST_PROGRAMS, MOST_NODES = 128, 1 << 14


class Program:
    """A graph ready to run on one device; results are new buffers, or buffers given for them."""

    def __init__(
        self,
        layout: Layout,
        to: Compilation,
        calls: NumpyCalls,
        stages: Stages | None = None,
    ) -> None:
        self.layout, self.compilation, self._calls, self._stages = layout, to, calls, stages
        self.executable: LoadedProgram = to.target.executable(layout, calls)
        # run on the inputs' memory; every output is memory that nobody else has
        self.run: Callable[[Sequence[Any]], list[Any]] = self.executable.run
        # the same over memory for some outputs, by the numbers that `replaceable` gives them
        self.begin: Callable[[list[Any], Collection[int]], PausedRun] = self.executable.begin
        self.exclusive = self.executable.exclusive
        self.measured: Profile | None = None  # the times of its kernels, once somebody asked

    def replaceable(self, output: int, replaced: int) -> int | None:
        """The number of an output's buffer if a run may be given that of an input for it.

        No other input may share that buffer. If the output replaces no input (-1), any buffer may
        be given that is not an input's.
        """
        layout = self.layout
        number = layout.returns[output] - layout.inputs - len(layout.sizes)
        slots = layout.reusable if replaced < 0 else ()
        allowed = number in slots or (number, replaced) in layout.in_place
        return number if allowed else None

    @property
    def held(self) -> HeldBytes:
        """The bytes that a call holds."""
        return held(self.layout, self.graph, self.backend)

    def profile(self, inputs: Sequence[Any]) -> list[float]:
        """Run once and give the seconds of every kernel and library call, in order."""
        return self.executable.profile(inputs)

    @property
    def backend(self) -> Backend:
        """The backend that compiled it."""
        return self.compilation.target

    @property
    def graph(self) -> Graph:
        """What it computes; the last output may be an index flag."""
        return self._calls.graph

    @property
    def order(self) -> Sequence[Node]:
        """The nodes of the program, which number its library calls."""
        return self._calls.order

    def forget_stages(self) -> None:
        """Drop the stages; `stages` makes them again."""
        self._stages = None

    @property
    def stages(self) -> Stages:
        """Every stage of the compilation; compiled again if the program came from the cache."""
        if self._stages is None:
            to = replace(self.compilation, ahead=False)
            self._stages = lower(optimize(self.graph, to), to)
        return self._stages

    def walk(self, observe: Observer) -> None:
        """Run the passes that made this program again and show the state after each."""
        to = replace(self.compilation, ahead=False)
        if self.layout.checked:
            observe(CHECK[0], self.graph)
        write_out(lower(optimize(self.graph, to, observe), to, observe), to, observe)

    def explain(self, detail: str = "summary") -> str:
        """The program as text; `detail` is summary, kernels, loops, code or memory."""
        from ridgeline.compiler.explain import explain_program

        if detail != "memory":
            return explain_program(self, detail)
        from ridgeline.compiler.budget.plot import frontier_of

        return f"{explain_program(self)}\n\n{frontier_of(self)}"


_programs: Recent[Structure, Program] = Recent(MOST_PROGRAMS, MOST_NODES)
# Those that keep how they were made, which is most of their memory; others make it again if asked.
_shown: Recent[Structure, Program] = Recent(32, 1 << 12)
_lock = threading.Lock()  # over these tables
_compiling = threading.RLock()


def compile_graph(graph: Graph, pairs: Sequence[tuple[int, int]] = (), budget: int = 0) -> Program:
    """The program of a graph on one device, compiled once for each structure and machine.

    `pairs` are numbers of outputs and the inputs that they replace (-1: any memory that a run is
    given). A call holds at most `budget` bytes, if there is one.
    """
    if is_mesh(graph.device):
        return backend(graph.device).program(graph, pairs)  # type: ignore[no-any-return]
    to = compilation(graph, pairs=tuple(pairs), ahead=True, budget=budget)
    kept = (f"within {budget}",) if budget else ()
    key = Structure((structure(graph), to.target.key(), to.pairs, *sorted(to.left_out), *kept))
    program = _known(key)
    if program is None:
        with background.needed(), _compiling:
            program = _known(key)  # compiled by another thread in the meantime?
            if program is None:
                with paused:
                    made = machine_form(key, graph.on_fresh_leaves(), to)
                    if made.stages is None:
                        to.target.load(made.code, list(made.layout.symbols()))
                    calls = NumpyCalls(lambda: made.graph, lambda: optimize(*made[2:4]).order)
                    program = Program(made.layout, made.compilation, calls, made.stages)
                _keep(key, program, len(graph.order))
    return program


def _known(key: Structure) -> Program | None:
    with _lock:
        return _programs.get(key)


def _keep(key: Structure, program: Program, nodes: int) -> None:
    with _lock:
        _programs.keep(key, program, nodes)
        for old in _shown.keep(key, program, nodes):
            old.forget_stages()


class MachineForm(NamedTuple):
    """A graph as code and layout, and its stages if it was not loaded from disk."""

    layout: Layout
    code: bytes
    graph: Graph
    compilation: Compilation
    stages: Stages | None


def machine_form(key: Structure, graph: Graph, to: Compilation) -> MachineForm:
    """Load the code and layout of a graph from the disk cache, or compile them."""
    graph, checked = check(graph, to)
    to = replace(to, checked=checked)
    cache, target = ObjectCache("programs"), to.target
    digest = fingerprint(f"{target.fingerprint()}{key!r}", 20)
    stored = cache.get(digest)
    stages = None
    if stored is not None:
        head, _, code = stored.partition(b"\n")
        layout = from_text(head, target.launch_types)
    else:
        stages = lower(optimize(graph, to), to)
        layout = replace(lay_out(stages, target), checked=checked, exact=to.budget > 0)
        everywhere = list(stages.everywhere())
        calls = [group for part in everywhere for group in part.library_calls]
        joined = [members for part in everywhere for members in part.together]
        code = target.compile(list(stages.all_kernels()), calls, joined, stages.begun)
        cache.put(digest, to_text(layout).encode() + b"\n" + code)
    return MachineForm(layout, code, graph, to, stages)
