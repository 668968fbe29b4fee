"""A trace: a recorded call, the conditions under which it stands for others, and its program."""

from __future__ import annotations

from collections.abc import Callable, Sequence, Set
from functools import partial
from typing import Any

from ridgeline.collector import paused
from ridgeline.execution.tiers import program_for
from ridgeline.record.cells import Cell
from ridgeline.record.modes import modes
from ridgeline.tensors.pytree import flatten
from ridgeline.tensors.tensor import Tensor
from ridgeline.tracing.conditions import Conditions
from ridgeline.tracing.executable import Executable
from ridgeline.tracing.moving_views import MovingViews
from ridgeline.tracing.recording import Recording, record
from ridgeline.tracing.signatures import Signature, difference
from ridgeline.tracing.staged import StagedExecutable


class Trace:
    """A compiled call and the conditions under which it stands for the function."""

    def __init__(
        self,
        recording: Recording,
        conditions: Conditions,
        executable: Executable | StagedExecutable,
    ) -> None:
        self.recording, self.conditions, self.executable = recording, conditions, executable
        self.signature, self.simple = recording.signature, recording.simple
        self._calls = 1

    @property
    def open(self) -> str:
        """Why every call has to run Python, if so."""
        return self.conditions.open

    @property
    def fleeting(self) -> str:
        """Why this is valid for the traced call only, if so."""
        return self.conditions.fleeting

    def broken(self, signature: Signature, leaves: Sequence[Any]) -> str | None:
        """Why this trace does not fit a call; None if it does."""
        if signature != self.signature:
            return difference(self.signature, signature)
        return self.conditions.changed(leaves)

    def accepts(self, args: tuple[Any, ...]) -> bool:
        """True if this trace, of a call with only tensors, fits such a call."""
        signature = self.signature
        specs = signature.leaves
        if len(specs) != len(args) or modes.gradients is not signature.gradients:
            return False
        if modes.autocast != signature.autocast:
            return False
        first: dict[Cell, int] = {}
        for index, (arg, spec) in enumerate(zip(args, specs)):
            if not isinstance(arg, Tensor):
                return False
            cell = arg._cell
            kind = cell.node.types[0]
            if (
                (kind is not spec.type and kind != spec.type)
                or arg._track.mode != spec.mode
                or arg._steps != spec.steps
                or first.setdefault(cell, index) != spec.same_as
            ):
                return False
        return self.conditions.changed(args) is None

    def is_due(self) -> bool:
        """True at the 2nd, 4th, 8th… call that this trace stands for, where an audit is made.

        What was recorded with unknown sizes was compiled in another way, and is not comparable.
        """
        self._calls += 1
        return not self.recording.symbolic and self._calls & (self._calls - 1) == 0


def trace(
    function: Callable[..., Any],
    args: Any,
    kwargs: Any,
    changing: Set[int] = frozenset(),
    donated: Set[int] = frozenset(),
    views: MovingViews | None = None,
    budget: int = 0,
) -> Trace | tuple[Recording, Conditions]:
    """Record a call and compile it, over the values of views if only these matter.

    A call that selects by a mask has unknown sizes, and is returned as a template.
    """
    recording, conditions = record(function, args, kwargs, changing, donated=donated, counts=True)
    if recording.pattern is not None:
        return recording, conditions
    if views is not None:
        leaves: list[Any] = []
        flatten((args, kwargs), leaves)
        recording = views.by_value(recording, conditions, leaves)
    with paused:
        make = partial(program_for, budget=budget) if budget else program_for
        made = Executable(recording, conditions.changed, make, budget)
        return Trace(recording, conditions, made)
