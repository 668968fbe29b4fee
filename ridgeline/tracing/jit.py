"""jit: a function captured once per signature and replayed as one native call.

Python runs while tracing only: side effects such as print happen then and not on replays. What a
trace depends on is guarded (see `trace.py`); when a guard breaks, the function is traced again,
and `explain()` says why. A branch on a tensor's value raises an error that names the line.

What no guard can compare (a clock, a random source, an iterator that moves on, code without
source) makes a trace open: every call then runs Python, as undecorated code would.
`jit(function, check=True)` compares every call with the plain function.
"""

from __future__ import annotations

import importlib
import os
import threading
from collections.abc import Callable, Hashable, Mapping, Sequence, Set
from functools import update_wrapper
from inspect import isasyncgenfunction, iscoroutinefunction, isgeneratorfunction
from itertools import starmap
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeAlias, TypeVar, cast

from ridgeline.atomic import Change, apply
from ridgeline.config import config
from ridgeline.errors import ArgumentError, MemoryBudgetError, RidgelineError
from ridgeline.execution.device_copies import Brought
from ridgeline.execution.tiers import Interpreted
from ridgeline.graph.facts import SizeFacts
from ridgeline.graph.origins import user_line
from ridgeline.record.captures import CaptureError
from ridgeline.record.modes import RankState, called, modes
from ridgeline.record.turns import AGAIN
from ridgeline.record.upcalls import upcalls
from ridgeline.tensors.pytree import flatten, unflatten
from ridgeline.tracing.audit import compare_traces
from ridgeline.tracing.budgets import budget_bytes
from ridgeline.tracing.checking import checked_call
from ridgeline.tracing.conditions import Conditions
from ridgeline.tracing.donation import Donate, Donation, give_away
from ridgeline.tracing.dynamic import Pattern, Policy, differing, pattern
from ridgeline.tracing.methods import attribute_for, bound
from ridgeline.tracing.moving_views import MovingViews, is_fit
from ridgeline.tracing.open_traces import Opening
from ridgeline.tracing.recording import effects_before, record
from ridgeline.tracing.report import (
    Explanation,
    History,
    explanation,
    in_notebook,
    not_called,
    passes_text,
)
from ridgeline.tracing.signatures import Signature, are_floats, signature_of
from ridgeline.tracing.staged import REFUTED
from ridgeline.tracing.symbolic_traces import Template
from ridgeline.tracing.trace import Trace, trace as trace_call

if TYPE_CHECKING:
    from ridgeline.compiler import Program
    from ridgeline.compiler.kernel_profile import Profile

Axes: TypeAlias = int | Sequence[int]
Dynamic: TypeAlias = (
    bool | Mapping[str, Axes] | Mapping[int, Axes] | Sequence[tuple[str | int, Axes]] | None
)
Memory: TypeAlias = int | str | None
F = TypeVar("F", bound=Callable[..., Any])
MOST_TRACES, MOST_SETTLED = 32, 4  # of these, those of templates
# What user code or ours raises at a size that is no number; anything else is a fault, and is shown.
REFUSALS = (RidgelineError, TypeError, ValueError, IndexError, AttributeError, OverflowError)
_NONE: frozenset[int] = frozenset()
_DETAILS = ("summary", "kernels", "loops", "code", "memory")


class JitFunction:
    """A function that runs as compiled code; made by `jit`."""

    def __init__(
        self,
        function: Callable[..., Any],
        check: bool = False,
        dynamic: Dynamic = None,
        donate: Donate = False,
        memory: Memory = None,
    ) -> None:
        _require_returns(function)
        self.function, self._check = function, check
        self._kept_as = attribute_for(function)  # under which objects keep their own forms
        self._dynamic, self._donate = dynamic, donate
        self._budget = budget_bytes(memory)
        self._policy, self._donation = Policy(function, dynamic), Donation(function, donate)
        self._traces: list[Trace] = []  # the last used first
        self._latest: Trace | None = None  # the last made
        self._opening = Opening()
        self._templates: list[Template] = []  # traces with symbolic sizes, the last made first
        self._history = History(getattr(function, "__qualname__", type(function).__name__))
        self._static = 0  # programs for one signature
        self._changing: dict[Hashable, set[int]] = {}  # float arguments that are read lifted
        self._plain = set[Hashable]()  # calls whose floats cannot be
        self._views = MovingViews()
        self._counts = False  # the function has sizes that follow from values
        self._lock = threading.RLock()
        self._rank = modes.rank  # the simulated rank that made it
        update_wrapper(self, function, updated=())

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__") or name == "function":
            raise AttributeError(name)
        return getattr(self.function, name)  # a jitted module is still a module

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        if modes.capture is not None or modes.eager or modes.anomaly is not None:
            return called(self.function)(*args, **kwargs)
        if modes.rank is not None and self._rank is not modes.rank:
            return self._of_rank(modes.rank)(*args, **kwargs)
        traces = self._traces
        if traces and not kwargs and not self._check and not config.audit:
            latest = traces[0]
            if latest.simple and latest.accepts(args):
                result = latest.executable.replay(args)
                if result is not AGAIN and result is not REFUTED:
                    return result
        if not traces and not self._templates and self._runs_python():
            return self._run_python(args, kwargs)
        given: list[Any] = []
        structure = flatten((args, kwargs), given)
        leaves, exact, original = self._views.shown(structure, given), False, (args, kwargs)
        refuted: list[Pattern] = []  # of traces that do not stand for the counts of this call
        while True:
            args, kwargs = original if leaves is given else unflatten(structure, leaves)
            signature = self._signature(structure, leaves)
            trace = self._find(signature, leaves, refuted)
            traced = trace is None
            if trace is None:
                if traces and self._runs_python():
                    return self._run_python(*original)
                if not exact:
                    by_value = self._views.learn(traces, self._signature(structure, given), given)
                    if by_value is (leaves is given):  # traced otherwise than it was looked for
                        leaves = self._views.shown(structure, given) if by_value else given
                        exact = not by_value
                        continue
                trace = self._trace(signature, leaves, args, kwargs, refuted)
                if trace.recording.by_value and leaves is given:
                    leaves = self._views.shown(structure, given)
            elif config.audit and trace.is_due():
                traced = True
                trace = self._audited(trace, signature, leaves, args, kwargs)
            # Python has just stored what it has no values of
            stored = traced and trace.recording.stores
            if leaves is not given and not is_fit(trace, given, leaves):
                self._views.refuse(structure, trace)
                leaves, exact = given, True
                continue
            if self._check and not trace.open and not stored:
                result = checked_call(self.function, trace, leaves, args, kwargs)
            else:
                result = trace.executable.replay(leaves, traced)
            if result is REFUTED:
                refuted += filter(None, [trace.recording.pattern])
            elif result is not AGAIN:
                return result

    def _of_rank(self, rank: RankState) -> JitFunction:
        """The function for a simulated rank: traces hold state, such as a random stream."""
        own = rank.jitted.get(self)
        if own is None:
            kind, settings = self.__reduce__()
            own = rank.jitted[self] = kind(*settings)
        made: JitFunction = own
        return made

    def _signature(self, structure: Hashable, leaves: list[Any]) -> Signature:
        return signature_of(structure, leaves, self._changing.get(structure, _NONE))

    def _runs_python(self) -> bool:
        """True for a call that no trace can replace; a budget requires compiled calls."""
        return not self._budget and self._opening.runs_python()

    def _run_python(self, args: Any, kwargs: Any) -> Any:
        """Run a call that no trace can replace as undecorated code."""
        result = self.function(*args, **kwargs)
        if self._donate:
            leaves: list[Any] = []
            flatten((args, kwargs), leaves)
            indices = self._donation.indices(leaves, args, kwargs)
            name = getattr(self.function, "__qualname__", repr(self.function))
            changes: list[Change] = []
            give_away([leaves[index] for index in indices], name, user_line(), changes)
            apply(starmap(setattr, changes))
        return result

    def _audited(
        self, trace: Trace, signature: Signature, leaves: list[Any], args: Any, kwargs: Any
    ) -> Trace:
        """Trace a call that would be replayed, and compare."""
        donated = self._donation.indices(leaves, args, kwargs)
        changing = self._changing.get(signature.structure, _NONE)
        fresh = self._capture(args, kwargs, signature, changing, donated)
        if isinstance(fresh, Template):
            fresh = fresh.trace(None, signature)
        compare_traces(trace, fresh)
        return fresh

    def __reduce__(self) -> tuple[Any, ...]:
        """A copy has the function, and traces of its own."""
        memory = self._budget or None
        return JitFunction, (self.function, self._check, self._dynamic, self._donate, memory)

    def __get__(self, instance: Any, owner: type | None = None) -> Any:
        """As a method: a jitted function bound to its instance."""
        if instance is None:
            return self
        return bound(self, instance, owner, self._like)

    def _like(self, function: Callable[..., Any]) -> JitFunction:
        """Another function, jitted in the same way."""
        memory = self._budget or None
        return JitFunction(function, self._check, self._dynamic, self._donate, memory)

    def _find(
        self, signature: Any, leaves: list[Any], refuted: Sequence[Pattern] = ()
    ) -> Trace | None:
        known = set(map(id, refuted))
        with self._lock:
            for index, trace in enumerate(self._traces):
                if id(trace.recording.pattern) in known:
                    continue
                if trace.broken(signature, leaves) is None:
                    if index:
                        self._traces.insert(0, self._traces.pop(index))
                    return trace
            for template in self._templates:
                values = template.values(signature, leaves)
                if values is not None and id(template.pattern) not in known:
                    return self._keep(template.trace(values, signature))
        return None

    def _keep(self, trace: Trace) -> Trace:
        self._latest = trace
        if trace.open or trace.fleeting:
            return trace  # it stands for the call that was traced alone
        traces = self._traces
        traces.insert(0, trace)
        settled = [index for index, each in enumerate(traces) if each.recording.symbolic]
        if len(settled) > MOST_SETTLED:  # their template finds them too, without a search
            del traces[settled[-1]]
        del traces[MOST_TRACES:]
        return trace

    def _trace(
        self,
        signature: Any,
        leaves: list[Any],
        args: Any,
        kwargs: Any,
        refuted: Sequence[Pattern] = (),
    ) -> Trace:
        with self._lock:
            found = self._find(signature, leaves, refuted)  # another thread may have been first
            if found is not None:
                return found
            reason = self._reason(signature, leaves)
            self._policy.watch([trace.signature for trace in self._traces], signature)
            changing = self._changing_floats(signature)
            lifted = signature_of(signature.structure, leaves, changing)
            shape = self._pattern(lifted, leaves, args, kwargs)
            if shape is None and self._counts:
                shape = Pattern(lifted, (), SizeFacts({}))
            donated = self._donation.indices(leaves, args, kwargs)
            failed: Exception | None = None
            if shape is not None:
                try:
                    template = Template(
                        *record(self.function, args, kwargs, changing, shape, donated),
                        self._budget,
                    )
                except MemoryBudgetError:
                    raise
                except REFUSALS as error:  # the call is wrong, or cannot take symbolic sizes
                    failed = error
                    if effects_before(error):
                        self._policy.fix(shape, everything=True)
                        _refuse_second_run(error)
                else:
                    reason += self._opened(template.conditions)
                    return self._keep(self._described(template, reason).trace(None, lifted))
            trace = self._capture(args, kwargs, signature, changing, donated)
            if isinstance(trace, Template):
                self._counts = True
                reason += self._opened(trace.conditions)
                return self._keep(self._described(trace, reason).trace(None, lifted))
            self._static += 1
            reason += self._opened(trace.conditions)
            if shape is not None:
                self._policy.fix(shape, everything=True)
                reason += f" (traced for each size by itself: {failed})"
            self._history.add(str(signature), reason)
            return self._keep(trace)

    def _opened(self, found: Conditions) -> str:
        """Note a new trace that cannot be replayed; returns what to say of it."""
        self._opening.traced(found.open, found.fleeting)
        if found.open:
            return f" (open: every call runs Python, because {found.open})"
        if found.fleeting:
            return f" (for this call alone: {found.fleeting})"
        return ""

    def _pattern(
        self, signature: Signature, leaves: list[Any], args: Any, kwargs: Any
    ) -> Pattern | None:
        """The signature of a call with unknowns, if it has dynamic axes or numbers."""
        policy = self._policy
        axes = policy.axes(signature, leaves, args, kwargs)
        return pattern(signature, axes, policy.numbers(signature))

    def _reason(self, signature: Signature, leaves: list[Any]) -> str:
        """Why a call is traced."""
        for template in self._templates:
            pinned = template.pattern.facts.pinned  # it stands for one call, which a trace is for
            said = None if pinned else template.broken(signature, leaves)
            if said is not None:
                return said
        if self._traces:
            return self._traces[0].broken(signature, leaves) or "no trace fits"
        return "the first call"

    def _described(self, template: Template, reason: str) -> Template:
        """Keep a new template, and say why it was made and what it cannot do."""
        fixed = self._policy.fix(template.pattern)
        if fixed:
            reason += f" ({', '.join(fixed)} is used as a number: each value is traced)"
        elif template.refused:
            reason += f" (compiled for each size by itself: {template.refused})"
        self._history.add(str(template.pattern.signature), reason, serves_more=not template.refused)
        if template.conditions.open or template.conditions.fleeting:
            return template
        self._templates.insert(0, template)
        del self._templates[MOST_TRACES:]
        return template

    def _changing_floats(self, signature: Signature) -> Set[int]:
        """Float arguments in which this call differs from a traced one, and in nothing fixed."""
        known = self._changing.setdefault(signature.structure, set())
        if signature.structure in self._plain:
            return known
        for trace in self._traces:
            found = differing(trace.signature, signature)
            if found is not None and (self._policy.changes(signature) or not found.axes):
                pairs = enumerate(zip(trace.signature.leaves, signature.leaves))
                known.update(p for p, (a, b) in pairs if a != b and are_floats(a, b))
                break
        return known

    def _capture(
        self,
        args: Any,
        kwargs: Any,
        signature: Signature,
        changing: Set[int],
        donated: frozenset[int],
    ) -> Trace | Template:
        """Trace the call; code that cannot take lifted numbers gets plain ones."""
        if not changing:
            return self._traced(args, kwargs, _NONE, donated)
        try:
            return self._traced(args, kwargs, changing, donated)
        except RidgelineError:
            raise
        except (TypeError, ValueError, AttributeError) as error:
            self._changing[signature.structure] = set()
            self._plain.add(signature.structure)
            _refuse_second_run(error)
            return self._traced(args, kwargs, _NONE, donated)

    def _traced(
        self, args: Any, kwargs: Any, changing: Set[int], donated: frozenset[int]
    ) -> Trace | Template:
        """The call, recorded and compiled; a template where it picks by a mask."""
        views, budget = self._views, self._budget
        made = trace_call(self.function, args, kwargs, changing, donated, views, budget)
        return made if isinstance(made, Trace) else Template(*made, budget)

    def _prepared(self, args: Any, kwargs: Any) -> tuple[Trace, list[Any]]:
        """The trace for a call that is not made, and the leaves of its arguments."""
        given: list[Any] = []
        structure = flatten((args, kwargs), given)
        leaves = self._views.shown(structure, given)
        args, kwargs = unflatten(structure, leaves)
        signature = self._signature(structure, leaves)
        found = self._find(signature, leaves) or self._trace(signature, leaves, args, kwargs)
        return found, self._views.shown(structure, given) if found.recording.by_value else leaves

    @property
    def program(self) -> Program:
        """The program that ran last."""
        latest = self._traces[0] if self._traces else self._latest
        if latest is None:
            raise CaptureError("this function has not been called yet, so it has no program")
        return compiled(latest)

    def profile(self, *args: Any, rounds: int = 9, **kwargs: Any) -> Profile:
        """Median seconds of every kernel on these arguments, with its exact FLOPs and bytes.

        The result is a list that prints as a table: time and share of the whole, work, share of
        what the machine can do. The kernels run, but nothing outside sees it: no parameter,
        gradient or result changes. `explain()` has the times from then on.
        """
        trace, leaves = self._prepared(args, kwargs)
        from ridgeline.tracing.profiles import measured  # loads the compiler

        program, memory = compiled(trace), trace.executable.live_buffers(leaves)
        if isinstance(trace.executable.program, Brought):
            memory = trace.executable.program.memory(memory)
        program.measured = measured(program, memory, rounds)
        return program.measured

    def export(
        self,
        path: str | os.PathLike[str],
        *args: Any,
        instruction_sets: Sequence[str] = (),
        prefix: str = "rlx",
        **kwargs: Any,
    ) -> Path:
        """Write a call with these arguments to a file that runs without a compiler, or Python.

        `load_program(path)` loads it, and so does a program in C (docs/deploy.md). Nothing is run.
        Tensors that the function writes to are the program's state, numbers and strings among the
        arguments are part of it. `instruction_sets` names the processors that the file has code
        for, such as "x86-64-v3" or "native". A path that ends in `.o` gives an object to link and
        a header, with functions in C that begin with the prefix.
        """
        export = upcalls.exporting().export
        return cast(Path, export(self, path, args, kwargs, instruction_sets, prefix))

    def dynamic_axes(
        self, signature: Signature, leaves: Sequence[Any], args: Any, kwargs: Any
    ) -> set[tuple[int, int]]:
        """Which axes of arguments may have any length: the number of a leaf, and of its axis."""
        return self._policy.axes(signature, leaves, args, kwargs)

    def bisect(self, *args: Any, **kwargs: Any) -> None:
        """Say which pass of the compiler makes a wrong result of a call with these arguments.

        The call runs with ever more passes and is compared with the interpreter. Nothing outside
        sees it: no parameter, gradient or result changes.
        """
        from ridgeline.tracing.bisect import bisect  # loads the compiler

        print(bisect(*self._prepared(args, kwargs)))

    def frontier(self, *args: Any, **kwargs: Any) -> Any:
        """Bytes against time of a call with these arguments; without any, of the latest call.

        A list of the ways to run it with ever less memory, as `jit(memory=)` chooses from them. It
        prints as a table, and `save("frontier.svg")` draws it.
        """
        from ridgeline.compiler.budget.plot import frontier_of  # for who asks about memory

        if args or kwargs:
            return frontier_of(compiled(self._prepared(args, kwargs)[0]))
        return frontier_of(self.program)

    @property
    def history(self) -> list[str]:
        """The signatures of the last traces, and why each was made."""
        return [f"{signature}: {reason}" for _, signature, reason in self._history.numbered()]

    @property
    def compilations(self) -> int:
        """How many programs were compiled for it: one for a trace, or for all sizes of one."""
        return self._static + sum(template.compilations for template in self._templates)

    @property
    def traces(self) -> int:
        """How many times the function was traced."""
        return self._history.count

    def explain(
        self,
        *args: Any,
        detail: str = "summary",
        stages: bool = False,
        after: str = "",
        **kwargs: Any,
    ) -> None:
        """Show every signature and why it was traced, and how the latest one is computed.

        With arguments, how a call with them is computed; nothing runs. First comes a summary:
        kernels, FLOPs, bytes, and times where `profile` took them. `detail` says how far down the
        text goes behind it: "kernels", "loops", or "code" for the generated code; "memory" shows
        bytes against time instead, for `jit(memory=)`. With `stages` the passes of the compiler are
        listed instead, those that changed something with a star, and
        `after="fuse"` prints what there is after the pass of that name.
        """
        if args or kwargs:
            self._prepared(args, kwargs)
        shown = self.passes(after) if stages or after else self.explanation(detail)
        if in_notebook():
            importlib.import_module("IPython.display").display(shown)
        else:
            print(shown)

    def explanation(self, detail: str = "summary") -> Explanation:
        """What `explain` shows, as a text that notebooks show as tables."""
        if detail not in _DETAILS:
            raise CaptureError(f"detail is one of {', '.join(_DETAILS)}, not {detail!r}")
        name = getattr(self.function, "__qualname__", repr(self.function))
        with self._lock:
            latest = self._traces[0] if self._traces else self._latest
            if latest is None:
                return not_called(name)
            return explanation(name, self._history, latest, detail)

    def passes(self, after: str = "") -> Explanation:
        """The passes that made the latest program, or what there was after one of them."""
        name = getattr(self.function, "__qualname__", repr(self.function))
        with self._lock:
            latest = self._traces[0] if self._traces else self._latest
            return not_called(name) if latest is None else passes_text(latest, after)

    def _repr_html_(self) -> str:
        return self.explanation("kernels").page

    def clear(self) -> None:
        """Forget all traces."""
        with self._lock:
            self._traces.clear()
            self._templates.clear()
            self._latest, self._opening = None, Opening()


def _require_returns(function: Any) -> None:
    """Refuse a function that runs on after its call, such as a generator."""
    if not callable(function):
        raise ArgumentError(f"jit needs a function, not {function!r:.60}")
    if (
        isgeneratorfunction(function)
        or iscoroutinefunction(function)
        or isasyncgenfunction(function)
    ):
        raise ArgumentError(
            f"jit: {function.__qualname__} is a generator or a coroutine: its body runs after the "
            "call",
            help="jit a plain function that returns its results, for instance in a list",
        )


def compiled(trace: Trace) -> Program:
    """The compiled program of a trace, which has none where the interpreter is pinned."""
    if isinstance(trace.executable.program, Interpreted):
        raise CaptureError(
            "there is no compiled program: config.tier pins the interpreter",
            help='set config.tier to "auto" or "compiled"',
        )
    program = trace.executable.program
    return cast("Program", program.program if isinstance(program, Brought) else program)


def jit(
    function: Callable[..., Any] | None = None,
    *,
    check: bool = False,
    dynamic: Dynamic = None,
    donate: Donate = False,
    memory: Memory = None,
) -> Any:
    """Compile a function of tensors: `@jit`, `@jit(check=True)` or `jit(function)`.

    With `check=True` every call also runs the plain function and compares. `dynamic` says which
    axes of tensor arguments may have any length in one program: `{"x": 0, "y": (0, 1)}` names
    arguments (or their places) and axes; True takes those that differ from one call to the next,
    None (as if nothing was said) those of which four lengths came, and False none.
    `donate` names arguments (or their places; True: all) whose memory results may take: tensors
    given there cannot be used after the call.
    `memory` is a budget in bytes, as a number or as "6 GiB": arguments, state, results and all that
    is between never take more while a call runs. What is needed late is then computed a second time
    where that takes the least time, with the same bits; if nothing fits, an error names the
    smallest budget that does (docs/memory.md).
    """
    if function is None:
        return lambda f: JitFunction(f, check, dynamic, donate, memory)
    return JitFunction(function, check, dynamic, donate, memory)


def _refuse_second_run(error: Exception) -> None:
    """Raise if a function had effects before an error: they would be repeated."""
    effects = effects_before(error)
    if effects:
        error.add_note(
            "  jit: the function was traced for numbers that change from call to call, and is not "
            f"run a second time with plain ones, because {effects}; if that is what it needs, call "
            "it again"
        )
        raise error
