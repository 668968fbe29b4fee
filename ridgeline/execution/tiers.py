"""Tiers: whether a flush runs in the NumPy interpreter or as compiled code.

A piece is known by its structure. The interpreter's cost is reckoned (not measured, so that runs
are reproducible) and added up per structure. A piece that comes again, or has cost enough, is
compiled in a thread beside the program and interpreted until its code is there. A piece so large
that waiting is quicker is compiled when it is first seen. jit never uses the interpreter unless
`config.tier` pins it.
"""

from __future__ import annotations

import threading
from collections.abc import Collection, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from operator import attrgetter
from time import perf_counter
from typing import Any, Protocol

from ridgeline import compiler
from ridgeline.compiler.backend import backend
from ridgeline.compiler.background import Announced, background
from ridgeline.compiler.passes import Observer, Recorded
from ridgeline.compiler.pipeline import prepare
from ridgeline.config import config
from ridgeline.devices import CPU, is_mesh
from ridgeline.errors import ComputeError, MemoryBudgetError, RidgelineError
from ridgeline.execution import flush_log
from ridgeline.execution.device_copies import Brought, OwnedResults, ProgramChain, reaches
from ridgeline.execution.generalize import Came, Form, came
from ridgeline.execution.interpreter_cost import count, interpreter_seconds, nodes_within
from ridgeline.graph.graph import Graph, structure_of
from ridgeline.graph.interpreter import evaluate
from ridgeline.graph.node import (
    DEVICE,
    PROJ,
    Node,
    has_value,
    keep_output,
    proj,
    topological,
)
from ridgeline.graph.origins import describe
from ridgeline.graph.passes.autodiff.backward_pass import (
    is_whole,
    to_write_out,
    waiting,
    written_out,
)
from ridgeline.graph.passes.autodiff.saved_values import saved_for_backward
from ridgeline.graph.passes.contractions.precise_moments import precise_moments
from ridgeline.graph.passes.legalize.decompose import strip_autograd
from ridgeline.graph.passes.legalize.partition import partition
from ridgeline.graph.passes.libraries.collectives import split_collectives
from ridgeline.graph.printer import format_graph
from ridgeline.graph.sizes import product
from ridgeline.ops.tracking import CUSTOM, ERASED
from ridgeline.record.modes import modes
from ridgeline.record.upcalls import upcalls
from ridgeline.runtime.buffer import space
from ridgeline.scalars import Array
from ridgeline.weak import Recent, Structure

MOST_STRUCTURES = 4096
# What the tiers reckon with, in seconds: round figures from this kind of machine.
_COMPILE, _COMPILE_PER_NODE = 0.15, 0.01
_ADDRESSES = 1 << 62
_PATIENCE = 0.3  # the share of the cost of compiling after which a piece is compiled
# the same where that is done beside the program, and what a piece that comes again must cost
_EARLY, _AGAIN, _WORTHWHILE = 0.02, 3, 1e-4
_WORTHWHILE_ELSEWHERE = 5e-5  # the same where values must come to the host to be interpreted
_OFTEN = 50  # runs of a program made for many sizes, after which a piece gets one of its own,
_SHARE = 4  # if at least one in so many runs of that program is the piece's


class Runnable(Protocol):
    """A graph ready to run: one call from input buffers to result buffers."""

    @property
    def exclusive(self) -> AbstractContextManager[Any] | None: ...

    def run(self, inputs: Sequence[Any]) -> list[Any]: ...

    def begin(self, inputs: list[Any], given: Collection[int]) -> Any: ...

    def replaceable(self, output: int, replaced: int) -> int | None: ...

    def walk(self, observe: Observer) -> None: ...

    def explain(self, detail: str = ...) -> str: ...


class Interpreted(OwnedResults):
    """A graph that the NumPy interpreter runs, behind the interface of a compiled program.

    Means and variances are as precise as in compiled code, so that both tiers agree.
    """

    def __init__(self, graph: Graph) -> None:
        self.graph = graph
        self._precise = precise_moments(split_collectives(graph))

    def run(self, inputs: Sequence[Any]) -> list[Any]:
        """The results, each with memory of its own."""
        graph = self._precise
        given = {
            node: buffer.array(node.dtype, node.shape) for node, buffer in zip(graph.inputs, inputs)
        }
        arrays = evaluate(graph.outputs, given, order=graph.order)
        return [as_buffer(array, n.type.device) for n, array in zip(graph.outputs, arrays)]

    def walk(self, observe: Observer) -> None:
        """Nothing is compiled."""

    def explain(self, detail: str = "summary") -> str:
        """The graph, which is all there is."""
        return "interpreted by NumPy (config.tier)\n" + format_graph(self.graph.outputs)


def on_mesh(graph: Graph) -> bool:
    """True if ranks share part of a graph."""
    return any(map(is_mesh, map(DEVICE, graph.order)))


def program_for(graph: Graph, pairs: Sequence[tuple[int, int]] = (), budget: int = 0) -> Runnable:
    """Compiled code for a graph, or the interpreter if `config.tier` pins it.

    `pairs` are outputs that may overwrite inputs, and `budget` the bytes that a call may hold, see
    `compile_graph`.
    """
    if config.tier == "interpreter" and not on_mesh(graph):
        if budget:
            raise MemoryBudgetError(
                "a memory budget is kept by compiled code, and config.tier pins the interpreter",
                help='set config.tier to "auto" or "compiled"',
            )
        return Interpreted(graph)
    _check_sizes(graph.outputs)
    try:
        with Announced(graph):
            return _compiled(graph, pairs, budget)
    except RidgelineError:
        raise
    except (MemoryError, OverflowError) as error:
        sizes = max((node.types[0] for node in graph.outputs), key=lambda t: count(t.shape))
        raise ComputeError(
            f"a program that gives {sizes} cannot be made: {error or type(error).__name__}",
            help="a size or a number in it is beyond what memory or 64 bits hold",
        ) from error


def is_library_call(node: Node) -> bool:
    """True for an op, such as attention, that is one call on its device."""
    return config.tier != "interpreter" and backend(node.type.device).library_op(node) is not None


def _check_sizes(outputs: Sequence[Node]) -> None:
    """Raise if a value has more bytes than addresses can count."""
    for node in topological(outputs):
        elements = product(node.shape)
        if isinstance(elements, int) and elements * node.dtype.itemsize >= _ADDRESSES:
            line = describe(node)
            raise ComputeError(
                f"{node.op.name} giving {node.types[0]} cannot be computed: it is too large",
                note=f"made at {line}" if line else "",
            )


def _compiled(graph: Graph, pairs: Sequence[tuple[int, int]], budget: int) -> Runnable:
    parts = partition(graph)
    one = len(parts) == 1 and set(graph.outputs) <= set(parts[0].outputs)
    # of several results of one node, some may be copied to another device
    if not one or {n.type.device for n in graph.outputs} - {parts[0].device}:
        if budget:
            devices = ", ".join(dict.fromkeys(part.device for part in parts))
            raise MemoryBudgetError(
                f"a memory budget is for one device, and this function computes on {devices}",
                help="give each device a function of its own",
            )
        beside = _beside_mesh if on_mesh(graph) else compiler.compile_graph
        return ProgramChain(graph, parts, beside)
    (part,) = parts
    as_they_lie = all(reaches(part.device, node) for node in graph.inputs)
    if as_they_lie and all(node is source for node, source in part.inputs.items()):
        return compiler.compile_graph(graph, pairs, budget)
    brought = Brought(graph, part, pairs, budget)
    return brought if brought.moves else brought.program


def _beside_mesh(graph: Graph) -> Runnable:
    """The program of a part of work that ranks share: what is on no mesh is not prepared yet."""
    if on_mesh(graph):
        return compiler.compile_graph(graph)
    return program_for(prepared(graph.on_fresh_leaves()))


# ---- pieces: structures that were seen -----------------------------------------------------------

_BUFFER = attrgetter("buffer")
_Settings = tuple[
    bool, bool, bool, str, int, bool, bool, str
]  # of `config`, on which programs depend


def settings_of_programs() -> _Settings:
    """The present values of the settings that programs depend on."""
    return (
        config.tier == "interpreter", config.allow_tf32, config.allow_tf32_convolutions,
        config.products, config.threads, config.calibrate, config.deterministic,
        config.passes_until,
    )  # fmt: skip


class _Piece:
    """A structure that was seen: its interpreting cost so far, and its programs by settings."""

    __slots__ = (
        "begun", "failed", "form", "general", "once", "programs", "seen", "served", "spent",
        "written",
    )  # fmt: skip

    def __init__(self) -> None:
        self.seen, self.spent = 0, 0.0
        self.once = 0.0  # what interpreting it costs
        self.written: Interpreted | None = None  # over leaves of its own, until it is compiled
        self.form: Form | None = None  # of all that differ in numbers, and may share a program
        self.general: dict[_Settings, Runnable] = {}  # made for pieces with other numbers too
        self.programs: dict[_Settings, Runnable] = {}
        self.begun: set[_Settings] = set()  # being compiled beside the program
        self.served = False  # meanwhile one for all sizes is coming
        self.failed: set[_Settings] = set()  # not compiled there: whoever waits sees the error


_pieces: Recent[Structure, _Piece] = Recent(MOST_STRUCTURES)
MOST_COMPILED, MOST_NODES = 128, 1 << 14  # pieces that keep their programs, as the compiler does
_compiled_pieces: Recent[int, _Piece] = Recent(MOST_COMPILED, MOST_NODES)  # by identity
_written_pieces: Recent[int, _Piece] = Recent(MOST_COMPILED, MOST_NODES)  # the same
_lock = threading.Lock()
_Place = tuple[int, int | None]  # a node of an order, or an output of one
# what is saved for backward
_kept: Recent[Structure, tuple[_Place, ...]] = Recent(MOST_STRUCTURES)


@dataclass(frozen=True, slots=True)
class KnownPiece:
    """A piece that was seen before, for work that is known to be the same."""

    piece: _Piece
    devices: tuple[str, ...]  # of the results
    ops: int

    def leave(self) -> None:
        """A program for all sizes is coming: it needs none of its own."""
        self.piece.served = True

    def ready(self) -> bool:
        """True if there is a program for it, or it is interpreted as before."""
        return self._program(settings_of_programs()) is not None or self._interpreted() is not None

    def _program(self, settings: _Settings) -> Runnable | None:
        return self.piece.programs.get(settings) or self.piece.general.get(settings)

    def run(self, inputs: Sequence[Any], reason: str) -> list[Any] | None:
        """The buffers of its results, given those of its inputs; None if there is no program."""
        began, settings = perf_counter(), settings_of_programs()
        program = self._program(settings)
        if program is None:
            return self._interpret(inputs, settings, reason, began)
        if not self._counted(settings):
            return None  # it is recorded, and gets one of its own
        results = program.run(inputs)
        return self._taken(results, "matched", reason, began)

    def _counted(self, settings: _Settings) -> bool:
        """Count a run; False if its calls must be recorded, for a program of its own."""
        piece = self.piece
        if settings in piece.programs or not _is_often(piece, piece.seen + 1):
            piece.seen += 1
        elif piece.written is None:
            return False
        else:
            piece.seen += 1
            _compile_beside(piece, settings, piece.written.graph)
        if piece.form is not None:
            piece.form.runs += 1
        return True

    def _interpreted(self) -> Interpreted | None:
        return None if config.tier == "compiled" else self.piece.written

    def _interpret(
        self, inputs: Sequence[Any], settings: _Settings, reason: str, began: float
    ) -> list[Any] | None:
        """Interpret while there is no code; None when it is time to wait for code."""
        written = self._interpreted()
        if written is None:
            return None
        came_as = _came(self.piece, settings, written.graph)
        general = None if came_as is None else _general(self.piece, settings, came_as)
        if general is not None:
            return self._taken(general.run(inputs), "matched", reason, began)
        if not _to_interpret(self.piece, settings, written.graph):
            return None
        try:
            results = written.run(inputs)
        except RidgelineError:
            return None  # who records the calls is told of it, with their lines
        return self._taken(results, "interpreted", reason, began)

    def _taken(
        self, results: list[Any], kind: flush_log.Program, reason: str, began: float
    ) -> list[Any]:
        """Results in memory of their own."""
        for index, (device, buffer) in enumerate(zip(self.devices, results)):
            if buffer.borrowed:
                results[index] = space(device).copy(buffer)
        flush_log.note(reason, self.devices[0], self.ops, kind, began, began)
        return results


class Matched:
    """Recorded work, what is known of its structure, and its program if it was seen before."""

    __slots__ = (
        "began", "graph", "inputs", "order", "other_sizes", "piece", "reason", "settings",
        "wanted",
    )  # fmt: skip

    def __init__(self, roots: Sequence[Node], tracked: Sequence[Node], reason: str) -> None:
        self.began, self.reason = perf_counter(), reason
        wanted = list(roots)
        if tracked:
            wanted += _saved(roots, tracked)
        order = topological(wanted, has_value)
        graph = wanted  # the same with backward passes written out, where need be
        if waiting and not is_whole(order):
            graph = written_out(wanted, whole=False)
            order = topological(graph, has_value)
        self.wanted, self.graph, self.order = wanted, graph, order
        self.inputs = [node for node in order if node.buffer is not None]
        self.piece, self.settings = _piece(order, graph), settings_of_programs()
        self.other_sizes: tuple[Came, Graph] | None = None  # came too

    def run(self, served: bool = False) -> None:
        """Give every root its value, and what a backward pass will read.

        Where it is `served`, a program is coming for its calls, and none is made besides.
        """
        piece, settings = self.piece, self.settings
        program = piece.programs.get(settings) or self._shared()
        kind: flush_log.Program = "found"
        if program is None and any(map(is_mesh, map(DEVICE, self.order))):
            # of leaves of its own, or a program would keep values of the rank that comes first
            kind, program = "new", _program(self._whole().on_fresh_leaves())
            piece.programs[settings] = program
        elif program is None:
            whole = self._whole() if piece.written is None else piece.written.graph
            came_as = _came(piece, settings, whole)
            program = None if came_as is None else _general(piece, settings, came_as)
            if program is None and came_as is not None and not served and came_as.again():
                self.other_sizes = came_as, whole
            if program is None and _to_interpret(piece, settings, whole, served):
                kind, program = "interpreted", _interpreted(piece, whole)
            elif program is None:
                program = _program(whole)
                kind, piece.programs[settings] = "new", program
                _remember(piece, len(self.order))
        started = self.began if kind == "interpreted" else perf_counter()
        results = program.run([node.buffer for node in self.inputs])
        for node, buffer in zip(self.wanted, results):
            node.buffer = space(node.type.device).copy(buffer) if buffer.borrowed else buffer
            if node.op is PROJ:
                keep_output(node)
        self._note(kind, started)

    def generalize(self) -> None:
        """Have a program made for all work that differs only in numbers, if such came."""
        if self.other_sizes is not None:
            _generalize_beside(*self.other_sizes, self.settings)
            self.other_sizes = None

    def again(self) -> KnownPiece:
        """The work as it may come again, over other memory."""
        devices = tuple([node.type.device for node in self.wanted])
        return KnownPiece(self.piece, devices, len(self.order))

    def _whole(self) -> Graph:
        """The graph with backward passes and calls expanded."""
        if to_write_out():
            return Graph(written_out(self.graph), self.inputs)
        whole = Graph(self.graph, self.inputs)
        whole.order = tuple(self.order)
        return whole

    def _shared(self) -> Runnable | None:
        """A program that it shares with other numbers; if it comes often, it gets its own."""
        piece, settings = self.piece, self.settings
        program = piece.general.get(settings)
        if program is not None:
            piece.seen += 1
            if piece.form is not None:
                piece.form.runs += 1
            if _is_often(piece, piece.seen):
                _compile_beside(piece, settings, self._whole())
        return program

    def _note(self, kind: flush_log.Program, started: float) -> None:
        device = self.wanted[0].type.device
        flush_log.note(self.reason, device, len(self.order), kind, self.began, started)


def match(roots: Sequence[Node], tracked: Sequence[Node], reason: str = "") -> Matched:
    """Look up recorded work by its structure: every root, and what a backward pass reads.

    `reason` is for reports: what had piled up, if nobody asked for a value.
    """
    if modes.anomaly is not None:
        modes.anomaly.check(roots)
    return Matched(roots, tracked, reason)


upcalls.match = match


def _is_often(piece: _Piece, seen: int) -> bool:
    """True where a piece with a program for many sizes should get its own: it comes very often.

    Where many sizes come in turns, one program serves them all.
    """
    form = piece.form
    return seen % _OFTEN == 0 and (form is None or _SHARE * seen >= form.runs)


def _remember(piece: _Piece, nodes: int) -> None:
    """Keep the programs of a piece; drop those of the least recently compiled pieces."""
    with _lock:
        for old in _compiled_pieces.keep(id(piece), piece, nodes):
            old.programs.clear()
            old.general.clear()


def _interpreted(piece: _Piece, whole: Graph) -> Interpreted:
    """A piece to be interpreted; one that came before is kept, so that nothing is derived again."""
    if piece.written is not None:
        return piece.written
    if piece.seen < 2:
        return Interpreted(whole)
    made = piece.written = Interpreted(strip_autograd(whole).on_fresh_leaves())
    with _lock:
        for old in _written_pieces.keep(id(piece), piece, len(whole.order)):
            old.written = None
    return made


def prepared(graph: Graph) -> Graph:
    """Recorded work as it goes into the compiler."""
    return prepare(graph, Recorded("deferred", is_library_call))


def _program(graph: Graph) -> Runnable:
    return program_for(prepared(graph))


def _to_interpret(piece: _Piece, settings: _Settings, graph: Graph, served: bool = False) -> bool:
    """True if a piece without a program is not worth one yet, or is being compiled."""
    piece.seen += 1
    if config.tier != "auto":
        return config.tier == "interpreter"
    if not piece.once:
        piece.once = interpreter_seconds(graph)
    once, compiling = piece.once, _COMPILE + _COMPILE_PER_NODE * nodes_within(graph.order)
    piece.spent += once
    beside = config.background and not config.deterministic and settings not in piece.failed
    form, seldom = piece.form, piece.seen < _AGAIN
    if beside and seldom and form is not None and form.changes:  # it may never come again
        return interpreter_seconds(graph, alone=True) < _PATIENCE * compiling
    if not beside or once > _PATIENCE * compiling:  # interpreting takes longer than to wait
        return piece.spent < _PATIENCE * compiling
    if served or (form is not None and form.making):
        return True  # a program is coming that it may share
    again = not seldom and _is_worthwhile(graph, once)
    if again or (piece.spent > _EARLY * compiling and not (form is not None and form.changes)):
        _compile_beside(piece, settings, graph)
    return True


def _came(piece: _Piece, settings: _Settings, graph: Graph) -> Came | None:
    """A piece by its form, if it may share a program with pieces of other numbers."""
    if config.tier != "auto" or not config.background or config.deterministic:
        return None
    shared = piece.form is not None and bool(piece.form.programs)
    once = interpreter_seconds(graph)
    if (piece.seen >= _AGAIN and not shared) or not _is_worthwhile(graph, once):
        return None
    found = came(graph, settings)
    if found is not None:
        piece.form = found.form
    return found


def _general(piece: _Piece, settings: _Settings, came_as: Came) -> Runnable | None:
    """A program for a piece and others that differ from it in numbers, if it exists yet."""
    found: Runnable | None = came_as.program()
    if found is not None:
        piece.general[settings] = found
        _remember(piece, 1)  # the program belongs to all of its form, and is kept there
    return found


def _is_worthwhile(graph: Graph, once: float) -> bool:
    """True if compiling a piece that comes again is cheaper than interpreting it."""
    on_host = all(node.types[0].device == CPU for node in graph.outputs)
    return once > (_WORTHWHILE if on_host else _WORTHWHILE_ELSEWHERE)


def _generalize_beside(piece_came: Came, graph: Graph, settings: _Settings) -> None:
    """Compile, in the background, a program for all pieces that differ only in numbers."""
    apart = graph.on_fresh_leaves()  # the program's own nodes get values meanwhile
    form = piece_came.form

    def generalize() -> None:
        if settings_of_programs() == settings:
            piece_came.make(apart, prepared)
        else:
            form.making = False

    form.making = True
    if not background.submit(generalize):
        form.making = False


def _compile_beside(piece: _Piece, settings: _Settings, graph: Graph) -> None:
    """Compile a piece in the background while it is interpreted."""
    if settings in piece.begun:
        return
    apart = graph.on_fresh_leaves()  # the program's own nodes get values meanwhile

    def compile_piece() -> None:
        made = None
        try:
            if settings_of_programs() == settings and not piece.served:
                made = _program(apart)
        except Exception:
            piece.failed.add(settings)
        if made is not None and settings_of_programs() == settings:
            piece.programs[settings] = made
            piece.written = None
            _remember(piece, len(apart.order))
        piece.begun.discard(settings)

    piece.begun.add(settings)
    piece.served = False
    if not background.submit(compile_piece):
        piece.begun.discard(settings)


def _saved(roots: Sequence[Node], tracked: Sequence[Node]) -> list[Node]:
    """What the backward pass will read, decided once for each structure."""
    known = set(roots)

    def decide() -> list[Node]:
        return saved_for_backward(tracked, lambda n: n.buffer is not None or n in known)

    order = topological([*roots, *tracked], has_value)
    if any(node.op is CUSTOM for node in order):
        return decide()  # a user's rule belongs to one call, and must not be kept alive
    key = structure_of(order, _BUFFER, roots, tracked, erased=ERASED)
    slots = _kept.get(key)
    if slots is None:
        number = {node: index for index, node in enumerate(order)}
        slots = tuple([_place(node, number) for node in decide()])
        _kept.keep(key, slots)
    return [order[at] if output is None else proj(order[at], output) for at, output in slots]


def _place(node: Node, number: Mapping[Node, int]) -> _Place:
    """The node's index, or that of the node of which it is an output that nothing has read yet."""
    at = number.get(node)
    return (at, None) if at is not None else (number[node.inputs[0]], node.attrs.output)


def _piece(order: Sequence[Node], wanted: Sequence[Node]) -> _Piece:
    """The record of a structure."""
    key = structure_of(order, _BUFFER, wanted, erased=ERASED)
    piece = _pieces.get(key)
    if piece is None:
        piece = _Piece()
        _pieces.keep(key, piece)
    return piece


def as_buffer(array: Array, device: str) -> Any:
    """An interpreter's result in memory of a device."""
    return space(device).take_in(array)
