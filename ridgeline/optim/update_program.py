"""An optimizer's update as a program of its own: one call, whatever the number of parameters.

Undecorated, an update is a dozen ops for every parameter, and recording them takes longer than to
compute them. So an update that comes again is traced, as jit traces a function, and replayed from
then on. Traces are told apart by which parameters have gradients; numbers of the groups, such as
the learning rate, are read in every step. What a trace depends on is guarded as under jit: after a
change of groups or state the update is plain Python again until it has come often enough.

When that is, is reckoned from the number of tensors and never measured, so that runs are
reproducible. Compilation goes on beside the program where `config.background` allows it.
"""

from __future__ import annotations

import re
import threading
from collections.abc import Hashable
from functools import lru_cache
from time import perf_counter
from typing import TYPE_CHECKING, Any

from ridgeline.atomic import apply
from ridgeline.compiler.background import background, report_defect
from ridgeline.config import config
from ridgeline.devices import is_mesh
from ridgeline.errors import RidgelineError
from ridgeline.execution import flush_log
from ridgeline.execution.tiers import program_for
from ridgeline.record.cells import Step
from ridgeline.record.modes import enable_grad, modes
from ridgeline.record.mutation import Table
from ridgeline.record.recorder import flush
from ridgeline.record.turns import AGAIN
from ridgeline.tensors.snapshot import Snapshot
from ridgeline.tracing.conditions import Conditions
from ridgeline.tracing.executable import Executable
from ridgeline.tracing.recording import Recording, record
from ridgeline.tracing.trace import Trace

if TYPE_CHECKING:
    from ridgeline.optim.optimizer import Optimizer

MOST_TRACES = 8  # patterns of present gradients that keep their programs
MOST_SEEN = 64  # patterns that are counted
# What an update and its compilation are reckoned with, in seconds: round figures.
_PER_TENSOR = 5e-4
_COMPILE, _COMPILE_PER_TENSOR = 0.15, 0.01
_PATIENCE, _BESIDE = 0.3, 0.03  # shares of the cost of compiling after which it begins
_SEEN = 3  # steps at least
_OWN = "ridgeline.optim"  # where the rules are defined that are known to trace
_IS_PRIVATE = re.compile("_[^_]").match  # names of which a rule consists


class UpdateProgram:
    """The traces of one optimizer's update, and how often it was seen without one."""

    def __init__(self) -> None:
        self._traces: list[Trace] = []  # the last used first
        self._seen: dict[Hashable, int] = {}  # plain steps by which gradients there were
        self._waiting: set[Hashable] = set()  # of which the program is being compiled
        self._refused = False
        self._lock = threading.Lock()

    def __reduce__(self) -> tuple[Any, ...]:
        """A copy belongs to another optimizer, and begins anew."""
        return UpdateProgram, ()

    def run(self, optimizer: Optimizer) -> bool:
        """Make the update by a program; False where there is none, and nothing has happened."""
        if self._refused or not _is_possible(optimizer):
            return False
        flush()  # what came before is the same work with and without a program
        while True:
            trace = self._fitting() or self._made(optimizer)
            if trace is None:
                return False
            began = perf_counter()
            executable = trace.executable
            if executable.replay(()) is not AGAIN:
                device, ops = executable.output_types[0].device, len(executable.graph.order)
                flush_log.note("the update", device, ops, "found", began, began)
                return True

    def seen(self, optimizer: Optimizer) -> None:
        """Take note of an update that was made in Python, from its beginning to its end."""
        if not self._refused:
            if len(self._seen) > MOST_SEEN:
                self._seen.clear()
            present = _present(optimizer)
            self._seen[present] = self._seen.get(present, 0) + 1

    def _fitting(self) -> Trace | None:
        """The trace of an update with these gradients; where one no longer holds, all go."""
        for index, trace in enumerate(self._traces):
            with self._lock:
                if trace.conditions.changed(()) is not None:
                    if trace.conditions.other_gradients(()) is not None:
                        continue
                    self._traces.clear()
                    self._seen.clear()
                    return None
                if index:
                    self._traces.remove(trace)
                    self._traces.insert(0, trace)
            return trace
        return None

    def _made(self, optimizer: Optimizer) -> Trace | None:
        """A trace of the update that is about to be made, where it has come often enough."""
        present = _present(optimizer)
        beside = config.background and not config.deterministic and config.tier == "auto"
        tensors = len(present) - present.count(None)
        if present in self._waiting or not _is_due(self._seen.get(present, 0), tensors, beside):
            return None
        if any(is_mesh(p.device) for group in optimizer.param_groups for p in group["params"]):
            return None  # ranks would come to have their programs at different steps
        recorded = self._recorded(optimizer)
        if recorded is None or not beside:
            return None if recorded is None else self._compiled(*recorded)
        self._waiting.add(present)
        if not background.submit(lambda: self._compile_beside(*recorded, present)):
            self._waiting.discard(present)
        return None

    def _recorded(self, optimizer: Optimizer) -> tuple[Recording, Conditions] | None:
        """The update without a program yet; None where it cannot stand for others."""
        states = list(optimizer.state.values())
        if any(not isinstance(state, Table) for state in states):
            return None  # a dictionary of the user's, whose changes nobody would notice
        before = Snapshot()  # a first step may put tensors of the trace into the state
        before.entries(optimizer.state)
        for state in states:
            before.entries(state)
        back, found = before.back(), None
        try:
            with enable_grad():
                made, holds = record(optimizer._update_all, (), {})
            found = None if holds.open or holds.fleeting or made.leaks else (made, holds)
        except RidgelineError:
            self._refused = True  # the plain update says what is wrong, if it is
        finally:
            if found is None:
                apply(back)
        return found

    def _compiled(self, recording: Recording, conditions: Conditions) -> Trace | None:
        """The trace with its program, kept for the steps to come."""
        try:
            executable = Executable(recording, conditions.changed, program_for)
            trace = Trace(recording, conditions, executable)
        except Exception as error:
            self._refused = True
            if not isinstance(error, RidgelineError):
                report_defect("an optimizer's update", error)
            return None
        with self._lock:
            self._traces.insert(0, trace)
            del self._traces[MOST_TRACES:]
        return trace

    def _compile_beside(
        self, recording: Recording, conditions: Conditions, present: Hashable
    ) -> None:
        self._compiled(recording, conditions)
        self._waiting.discard(present)


def _present(optimizer: Optimizer) -> tuple[tuple[Step, ...] | None, ...]:
    """Which parameters have gradients, and how each shows its memory."""
    members = [parameter for group in optimizer.param_groups for parameter in group["params"]]
    return tuple([None if (g := parameter.grad) is None else g._steps for parameter in members])


def _is_due(seen: int, tensors: int, beside: bool) -> bool:
    """True where an update of so many tensors has come often enough to be compiled."""
    if config.tier == "compiled":
        return tensors > 0
    compiling = (_BESIDE if beside else _PATIENCE) * (_COMPILE + _COMPILE_PER_TENSOR * tensors)
    return seen >= _SEEN and seen * tensors * _PER_TENSOR > compiling


def _is_possible(optimizer: Optimizer) -> bool:
    """True where an update can be replayed: by a rule of ours, and in no special mode."""
    if config.tier == "interpreter" or modes.eager or modes.anomaly is not None:
        return False
    if modes.autocast or modes.on_read or not isinstance(optimizer.state, Table):
        return False
    kind: Any = type(optimizer)
    return kind._update.__module__.startswith(_OWN) and _is_own(kind)


@lru_cache(maxsize=256)
def _is_own(kind: Hashable) -> bool:
    """True for a class whose update is made by methods of this package alone."""
    assert isinstance(kind, type)
    own = [base for base in kind.__mro__ if base.__module__.startswith(_OWN)]
    rules = {name for base in own for name in vars(base) if _IS_PRIVATE(name)}
    others = (vars(base) for base in kind.__mro__ if base not in own)
    return all(rules.isdisjoint(names) for names in others)
