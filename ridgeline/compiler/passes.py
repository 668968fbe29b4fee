"""What a pass of the compiler is, and how a list of them runs.

The list itself is `pipeline.py`.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence, Set
from dataclasses import dataclass
from typing import Any, Generic, TypeVar

from ridgeline.compiler.background import background
from ridgeline.compiler.verify import verify
from ridgeline.config import config
from ridgeline.graph.graph import Graph
from ridgeline.graph.node import Op

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
    these.
    """

    name: str
    doc: str
    run: Callable[[State, Setting], State]
    when: Callable[[Setting], bool] = _always
    required: bool = False
    otherwise: Callable[[State, Setting], State] | None = None
    since: str = ""
    ops: Set[Op] = frozenset()

    def has_work(self, state: State) -> bool:
        """False where nothing in a graph is for this pass."""
        return not (self.ops and isinstance(state, Graph) and self.ops.isdisjoint(state.ops))


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
        if not each.when(setting) or (each.since and after.get(each.since) is state):
            continue
        runs = each.required or each.name not in left_out
        step = each.run if runs else each.otherwise
        if step is not None:
            if each.has_work(state):
                before, state = state, step(state, setting)
                if config.verify:
                    verify(each.name, before, state)
            if observe is not None:
                observe(each, state)
        after[each.name] = state
    return state
