"""The recorder that records work as graph nodes; `recorder.py` has the interface.

A flush computes every cell that is recorded and still held, so that work they share runs once. It
happens when somebody reads a value, at `optimizer.step()`, or when much has piled up.

Work on a mesh takes all ranks, so it waits apart, for points that all of them come to whatever
their memory, and whatever one of them reads: a number on the mesh, which is computed on the line
that makes it, `optimizer.step()`, or somebody who asks for a value of it.
"""

from __future__ import annotations

import threading
import weakref
from collections.abc import Callable, Iterable, Mapping, Sequence
from itertools import compress, starmap
from operator import attrgetter, is_
from types import FrameType
from typing import Any, TypeAlias

from ridgeline.atomic import Change, apply, at_fork
from ridgeline.devices import is_mesh
from ridgeline.errors import RidgelineError
from ridgeline.graph.node import LEAF as LEAF_OP, Node, shows_constant, twin
from ridgeline.ops.collectives import recorded
from ridgeline.record.captures import Donated
from ridgeline.record.cells import CUT, GRAPH, PLAIN, Cell, LetGo, filled_leaf, graph_track
from ridgeline.record.mesh_work import is_of_numbers, takes_ranks
from ridgeline.record.modes import modes
from ridgeline.record.numbers import lifted_since_flush
from ridgeline.record.upcalls import Match, upcalls

MOST_PENDING = 8192  # recorded ops after which a flush happens by itself
MOST_HELD = 1 << 30  # bytes of new data kept alive by recorded work after which it happens too

Drawn: TypeAlias = Sequence[tuple[Any, Any]]
_lock = threading.RLock()


def _after_fork() -> None:
    """In a child the lock is free, whoever held it in the parent."""
    global _lock
    _lock = threading.RLock()


at_fork(after_in_child=_after_fork)


class GraphRecorder:
    """The work of one thread: cells whose nodes are not computed yet, in program order."""

    __slots__ = (
        "_held_bytes", "_most_listed", "_most_tracked", "_on_mesh", "_recorded", "drawn", "flushes",
        "joined", "meshes", "on_mesh", "pending", "piled_up", "ran", "served", "with_graphs",
    )  # fmt: skip
    meshes: bool  # there was work that takes all ranks

    def __init__(self) -> None:
        self.pending: list[weakref.ref[Cell]] = []
        self.on_mesh: list[weakref.ref[Cell]] = []  # those that take all ranks
        self.meshes = False
        # and cells computed with their graph, for a backward pass to let go of it
        self.with_graphs: list[weakref.ref[Cell]] = []
        self._most_tracked = 1 << 8
        # how much has piled up since the last flush
        self._held_bytes = self._recorded = self._on_mesh = 0
        self.flushes = 0  # that there were
        self._most_listed = 1 << 14
        # the memory of seeds and offsets of random numbers that were drawn since then
        self.drawn: list[tuple[Any, Any]] = []
        # of whoever records through this recorder: much has piled up, and a flush ran a match
        self.piled_up: Callable[[str], None] = self.flush
        self.ran: Callable[[Match, Mapping[Cell, Node], Sequence[Node], Drawn], None] | None = None
        # gives results that keep a graph segments of their own; the rest is left as it is
        self.joined: Callable[[GraphRecorder, list[Cell]], list[Cell]] | None = None
        self.served = False  # a program is coming for what is recorded: none is made besides

    def call(
        self, function: Callable[..., Any], args: tuple[Any, ...], named: dict[str, Any],
        frame: FrameType,
    ) -> Any:  # fmt: skip
        """A public function is called."""
        return function(*args, **named)

    def drew(self, generator: object, count: int, key: Node, offset: Node) -> None:
        """Random numbers were drawn: some blocks of a stream, from an offset on."""
        self.drawn.append((key.buffer, offset.buffer))

    def accumulating(self, owner: Any, before: Any) -> None:
        """A backward pass is about to add to the gradient of a variable."""

    def starts_from(self, root: Any) -> None:
        """A backward pass starts from a tensor."""

    def ran_rule(self, rule: Any) -> None:
        """A backward pass ran a gradient rule that a user wrote."""

    def settle(self, cell: Cell) -> None:
        """A cell's relation to differentiation, or its memory, is about to change."""

    def lend(self, cell: Cell) -> None:
        """Others are about to get access to the memory of a cell."""

    def lose(self, why: str) -> None:
        """What happens until the next flush cannot be predicted, for instance after a hook."""

    def taking_back(self) -> Iterable[Any]:
        """Nothing to do: nodes are values, whatever becomes of the cells that held them."""
        return ()

    def record(self, cell: Cell) -> None:
        """A cell was given a value that is not computed yet."""
        if modes.on_read:
            return
        if is_mesh(cell.node.types[0].device):
            self._record_on_mesh(cell)
            return
        if modes.eager:
            self.compute([cell])
            return
        pending = self.pending
        pending.append(weakref.ref(cell))
        if cell.mode != GRAPH:  # tracked work keeps its history anyway: a flush would free nothing
            self._recorded += 1
            if self._recorded >= MOST_PENDING:
                self.piled_up(f"{MOST_PENDING} ops had been recorded")
        if len(pending) > self._most_listed:
            self.pending = [r for r in pending if r() is not None]
            self._most_listed = MOST_PENDING + 2 * len(self.pending)

    def _record_on_mesh(self, cell: Cell) -> None:
        """`record` for work on a mesh; numbers are computed at once."""
        self.meshes = True
        if modes.eager:
            self.compute([cell])
            return
        self.on_mesh.append(weakref.ref(cell))
        self._on_mesh += cell.mode != GRAPH
        if modes.capture is not None:
            return
        if not cell.node.types[0].shape:
            if is_of_numbers(cell.node):  # perhaps on one rank alone
                self._compute_shared([cell], False, "")
            else:
                self.flush_mesh("a number on a mesh is computed on all ranks at once")
        elif self._on_mesh >= MOST_PENDING:  # as many on every rank
            self.flush_mesh(f"{MOST_PENDING} ops had been recorded on a mesh")

    def hold(self, nbytes: int) -> None:
        """New data came in that recorded work may keep alive; flush when it is much."""
        self._held_bytes += nbytes
        if self._held_bytes > MOST_HELD:
            self.piled_up(f"{MOST_HELD >> 20} MiB of new data were held")

    def nothing_piled_up(self) -> None:
        """Another recorder computed everything; reset the count of held bytes."""
        self._held_bytes = self._recorded = 0
        self.flushes += 1
        lifted_since_flush.literals.clear()

    def live(self) -> list[Cell]:
        """The cells that are recorded and that somebody still holds, in program order."""
        return _alive(self.pending) + _alive(self.on_mesh)

    def has_own(self) -> bool:
        """True if live work is recorded that needs no other ranks."""
        return bool(_alive(self.pending))

    def flush(self, reason: str = "") -> None:
        """Compute everything that is live."""
        if modes.capture is None:
            self.compute((), reason)

    def flush_mesh(self, reason: str = "") -> None:
        """Compute what is live on meshes; all ranks call this."""
        if modes.capture is None:
            self._sort_out(())
            self._compute_shared((), True, reason)

    def compute_shared(self, cells: Sequence[Cell], reason: str = "") -> None:
        """Compute cells on meshes, with everything that is live there.

        A read may be one rank's alone: it computes no more than what is read.
        """
        self._compute_shared(cells, not modes.reading, reason)

    def compute(self, cells: Sequence[Cell], reason: str = "") -> None:
        """Compute some cells, together with everything that is live.

        Work on meshes is only computed where it is asked for. Where that fails, the cells alone:
        whoever reads what cannot be computed is told, and other work goes on without it.
        """
        if self.meshes and (shared := self._sort_out(cells)):
            own = [cell for cell in cells if cell not in shared]
            if own or self.pending:
                self.compute(own, reason)
            self.ran = None
            self.compute_shared(shared, reason)
            return
        waiting, self.pending = self.pending, []
        self._held_bytes = self._recorded = 0
        self.flushes += 1
        try:
            self._compute(cells, waiting, reason)
            return
        except BaseException as error:
            if not _is_our_own(error):
                self.pending = waiting + self.pending  # what is computed by then does no harm
                raise
            if not cells or set(_alive(waiting)) <= set(cells):
                raise
        self.ran = None  # what runs now is not all that was recorded
        self._compute(cells, (), reason)

    def _sort_out(self, cells: Sequence[Cell]) -> list[Cell]:
        """Those cells that need all ranks; live work that needs them waits with its like."""
        live = _alive(self.pending)
        taken = takes_ranks([*live, *cells])
        if not taken.isdisjoint(live):
            self.on_mesh += [weakref.ref(cell) for cell in live if cell in taken]
            self.pending = [weakref.ref(cell) for cell in live if cell not in taken]
        return [cell for cell in cells if cell in taken]

    def _compute_shared(self, cells: Sequence[Cell], everything: bool, reason: str) -> None:
        """Compute cells that need all ranks, with everything live on meshes, or alone."""
        waiting: list[weakref.ref[Cell]] = []
        if everything:
            waiting, self.on_mesh, self._on_mesh = self.on_mesh, [], 0
        drawn = self.drawn  # of other work, too, which is not computed now
        try:
            self._compute(cells, waiting, reason)
        except BaseException as error:
            if not _is_our_own(error):
                self.on_mesh = waiting + self.on_mesh
            raise
        finally:
            self.drawn = drawn

    def _compute(
        self, cells: Sequence[Cell], waiting: Sequence[weakref.ref[Cell]], reason: str
    ) -> None:
        lifted_since_flush.nodes.clear()  # numbers that come now are new inputs
        lifted_since_flush.literals.clear()
        live = dict.fromkeys(_alive(waiting))
        live.update(dict.fromkeys(cells))
        with _lock if modes.rank is None else modes.rank.flushing:
            before = {cell: cell.node for cell in live}
            nodes: dict[Cell, Node] = {}
            wanted: dict[Node, None] = {}
            tracked: list[Node] = []
            twins: dict[Node, Node] = {}
            for cell, node in before.items():
                if cell.mode != GRAPH and shows_constant(node):
                    # a constant is one node for all who use it, and stays structure for them
                    if node not in twins:
                        twins[node] = twin(node)
                    node = twins[node]
                nodes[cell] = node
                if node.buffer is None:
                    wanted[node] = None
                    if _keeps_graph(cell):
                        tracked.append(node)
            drawn, self.drawn = self.drawn, []
            if wanted:
                match = upcalls.match(list(wanted), tracked, reason)
                match.run(self.served)
                if self.ran is not None:
                    self.ran(match, nodes, tracked, drawn)
                elif match.other_sizes is not None:
                    match.generalize()
            _settle(before, nodes)
            recorded.count = 0 if modes.capture is None else recorded.count
            graphs = [c for c in live if graph_track(c).mode == GRAPH and c.node.inputs]
            if graphs and self.joined is not None:
                graphs = self.joined(self, graphs)
            self._track(graphs)

    def _track(self, cells: Iterable[Cell]) -> None:
        """Remember cells that are computed with their graph, until a backward pass is through."""
        tracked = self.with_graphs
        tracked += [weakref.ref(cell) for cell in cells]
        if len(tracked) > self._most_tracked:
            self.with_graphs = [r for r in tracked if (c := r()) is not None and c.node.inputs]
            self._most_tracked = (1 << 8) + 2 * len(self.with_graphs)

    def tracked(self) -> list[Cell]:
        """The cells with a graph that somebody still holds, computed or not."""
        references = (*self.pending, *self.on_mesh, *self.with_graphs)
        return [c for r in references if (c := r()) is not None and graph_track(c).mode == GRAPH]


def _is_our_own(error: BaseException) -> bool:
    """True for errors of computing, and not those of a signal's handler."""
    if isinstance(error, RidgelineError) or not isinstance(error, Exception):
        return isinstance(error, RidgelineError)
    trace = error.__traceback__
    while trace is not None and trace.tb_next is not None:
        trace = trace.tb_next
    name = "" if trace is None else str(trace.tb_frame.f_globals.get("__name__"))
    return name.partition(".")[0] in _OWN


_OWN = ("ridgeline", "numpy", "llvmlite", "cuda")


def _alive(waiting: Sequence[weakref.ref[Cell]]) -> list[Cell]:
    held = [cell for ref in waiting if (cell := ref()) is not None]
    return [cell for cell in held if not isinstance(cell.capture, Donated)]


def _settle(before: Mapping[Cell, Node], nodes: Mapping[Cell, Node]) -> None:
    """Forget how values were computed, unless gradients may still flow through them.

    A cell that another thread wrote to since it held the node `before` is left as it is.
    """
    made: list[Change] = []
    for cell, node in nodes.items():
        if node.op is not LEAF_OP and not _keeps_graph(cell):
            made.append((cell, "node", _computed(cell, node)))
    cells = [change[0] for change in made]
    held = map(is_, map(_node_of, cells), map(before.__getitem__, cells))
    apply(starmap(setattr, compress(made, held)))
    for cell, _, node in made:
        if cell.node is node:
            if cell.mode == CUT:
                cell.mode = PLAIN
            if cell.rare is not None:
                cell.rare.key = None
            details = graph_track(cell).rare
            if node.inputs and details is not None:  # what is lost of its graph is said there
                details.spent, details.rest = False, None


_node_of = attrgetter("node")


def settle(cell: Cell) -> None:
    """Free the graph of a computed cell that backward() ran through."""
    _settle({cell: cell.node}, {cell: cell.node})


def _computed(cell: Cell, node: Node) -> Node:
    """A leaf with the value of a node, or with what is left of its graph."""
    made = filled_leaf(node.types[0], node.buffer)
    made.origins = node.origins
    track = graph_track(cell)
    if track.mode == GRAPH and track.rare is not None:
        if track.rare.rest is not None:
            made = track.rare.rest
            made.buffer, made.origins = node.buffer, node.origins
        else:
            made.attrs = LetGo(node.types[0], track.rare.behind)
    return made


def _keeps_graph(cell: Cell) -> bool:
    """True if gradients may still flow through the contents of a cell."""
    track = graph_track(cell)
    return track.mode == GRAPH and not (track.rare is not None and track.rare.spent)
