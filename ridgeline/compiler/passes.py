"""What a compiler pass is, what it knows besides the graph, and how a list of them runs.

The list itself is `pipeline.py`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence, Set
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, Generic, Literal, TypeVar

from ridgeline.compiler.backend import Backend, Libraries
from ridgeline.compiler.background import background
from ridgeline.compiler.verify import verify
from ridgeline.config import config
from ridgeline.fusion.groups import Roofline
from ridgeline.fusion.kept_memory import Crossing
from ridgeline.graph.graph import Graph
from ridgeline.graph.node import Node, Op
from ridgeline.loops.lowering.iteration_space import Lowered
from ridgeline.ops.strides import View

State = TypeVar("State")
Setting = TypeVar("Setting")
Observer = Callable[["Pass[Any, Any]", Any], None]  # shown each pass that ran, and what it gave


def _always(setting: object) -> bool:
    return True


@dataclass(frozen=True, slots=True)
class Pass(Generic[State, Setting]):
    """A named step of the compiler, from one state to the next.

    `when` says for which targets and recordings it is part of the list. A `required` pass runs even
    if `config.passes_until` leaves out later ones; `otherwise` runs in place of a pass that is left
    out. The rest saves time: a pass with `since` has work only if something changed after the pass
    of that name, one with `ops` only if the graph has one of these, and one with `kinds` only if
    some element type is of these kinds.
    """

    name: str
    doc: str
    run: Callable[[State, Setting], State]
    when: Callable[[Setting], bool] = _always
    required: bool = False
    otherwise: Callable[[State, Setting], State] | None = None
    since: str = ""
    ops: Set[Op] = frozenset()
    kinds: Set[str] = frozenset()

    def has_work(self, state: State) -> bool:
        """False if the graph has nothing for this pass."""
        graph = state if isinstance(state, Graph) else getattr(state, "graph", None)
        if graph is None:
            return True
        without = self.ops and self.ops.isdisjoint(graph.ops)
        return not (without or (self.kinds and self.kinds.isdisjoint(graph.kinds)))


def run_passes(
    passes: Sequence[Pass[State, Setting]],
    state: State,
    setting: Setting,
    left_out: Set[str],
    observe: Observer | None = None,
) -> State:
    """Run a list of passes over a graph or a program."""
    after: dict[str, State] = {}
    for each in passes:
        background.checkpoint()
        has_work = each.has_work(state)
        if not has_work and observe is None:
            after[each.name] = state
            continue
        if not each.when(setting) or (each.since and after.get(each.since) is state):
            continue
        runs = each.required or each.name not in left_out
        step = each.run if runs else each.otherwise
        if step is not None:
            if has_work:
                before, state = state, step(state, setting)
                if config.verify:
                    verify(each.name, before, state)
            if observe is not None:
                observe(each, state)
        after[each.name] = state
    return state


# ---- what passes are told: how a graph was recorded, and for whom --------------------------------

Mode = Literal["deferred", "jit", "loops", "body"]


@dataclass(frozen=True, slots=True)
class Recorded:
    """How a graph was recorded: by a flush, by jit, by `rl.loops`, or as a body."""

    mode: Mode
    # nodes that are one call on their device, such as attention: they are not written out
    is_library_call: Callable[[Node], bool] = lambda node: False
    # inputs that stay from call to call, with their elements; numbers count for nothing
    steady: Mapping[Node, int] = field(default_factory=dict)
    packed: set[Node] = field(default_factory=set)  # filled by passes: views that are worth keeping


@dataclass(frozen=True)
class Compilation:
    """What a graph is compiled for: a device, and which of its features are used.

    `pairs` are outputs and the inputs that they may overwrite (see `Replacing.of`). `checked` says
    that the last output is the index flag, and `ahead` that code will be wanted, so that kernels
    are compiled while others are scheduled. With `own`, for `rl.loops`, everything becomes as few
    kernels of our own as possible.
    """

    target: Backend
    facts: Any
    pairs: Sequence[tuple[int, int]] = ()
    checked: bool = False
    ahead: bool = False
    own: bool = False
    left_out: Set[str] = frozenset()  # passes that `config.passes_until` leaves out
    budget: int = 0  # bytes that a call may hold; 0: any number
    crossing: Crossing | None = None  # where most is held, for kernels that are merged again

    @cached_property
    def libraries(self) -> Libraries:
        """What libraries compute."""
        return Libraries() if self.own else self.target.libraries()

    @cached_property
    def roofline(self) -> Roofline:
        """The cost model of fusion."""
        return self.target.roofline(self.facts)

    @property
    def has_blocks(self) -> bool:
        """True for a GPU, whose threads come in blocks."""
        return self.target.shared_memory_bytes() > 0

    def reads_narrow_operands(self, node: Node) -> bool:
        """True for a contraction that reads narrow operands although the graph widens them."""
        return self.target.reads_narrow_operands(node, self.facts)

    def library_views(self, node: Node, graph: Graph) -> Sequence[View] | None:
        """The views through which a library call reads its operands; None for other nodes."""
        library_op = None if self.own else self.target.library_op(node)
        return None if library_op is None else library_op.operands(node, graph)

    def reason_to_split(self, lowered: Lowered) -> str:
        """Why a kernel that could be one should be several; empty if it should not."""
        return "" if self.own else self.target.reason_to_split(lowered, self.facts)
