"""What a pass of the compiler is, what it is told besides the graph, and how a list of them runs.

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
    """A named step: what there is so far in, the next out.

    `when` says for which targets and ways of recording it is part of the list. A pass that is
    `required` runs also where `config.passes_until` leaves later ones out; in the place of another
    that is left out runs `otherwise`, if there is one. A pass with `since` has work only where one
    behind the pass of that name changed something, a pass with `ops` only in a graph with one of
    these, one with `kinds` only where there are elements of such types.
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
        """False where nothing in a graph, or in that of a program, is for this pass."""
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
    """What a list of passes makes of a graph or a program."""
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
    """How a graph was recorded: by a flush, by jit, by `rl.loops`, or as a body of control flow."""

    mode: Mode
    # nodes that are one call on their device, such as attention: they are not written out
    is_library_call: Callable[[Node], bool] = lambda node: False
    # inputs that stay from call to call, with their elements; numbers count for nothing
    steady: Mapping[Node, int] = field(default_factory=dict)
    packed: set[Node] = field(default_factory=set)  # filled by passes: views that are worth keeping


@dataclass(frozen=True)
class Compilation:
    """For what a graph is compiled: a device, and how much of its machinery is used.

    `pairs` are outputs and the inputs whose memory they may take (see `Replacing.of`); `checked`
    says that the last output is the index flag, `ahead` that code will be wanted, so that its
    compilation begins while other kernels are scheduled. With `own` all is kernels of our own,
    as few as loops allow: for `rl.loops`.
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
        """What fusion reckons with."""
        return self.target.roofline(self.facts)

    @property
    def has_blocks(self) -> bool:
        """True for a GPU, whose threads come in blocks."""
        return self.target.shared_memory_bytes() > 0

    def reads_narrow_operands(self, node: Node) -> bool:
        """True for a contraction that reads narrow operands where the graph has them widened."""
        return self.target.reads_narrow_operands(node, self.facts)

    def library_views(self, node: Node, graph: Graph) -> Sequence[View] | None:
        """The views through which a library call reads its operands; None for what is none."""
        library_op = None if self.own else self.target.library_op(node)
        return None if library_op is None else library_op.operands(node, graph)

    def reason_to_split(self, lowered: Lowered) -> str:
        """Why a kernel that could be one should be several; empty where it should not."""
        return "" if self.own else self.target.reason_to_split(lowered, self.facts)
