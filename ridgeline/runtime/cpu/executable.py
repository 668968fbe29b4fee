"""CPU executables: native plans, with NumPy calls between them.

Without library calls a run is one native call; each library call cuts the plan in two.
"""

from __future__ import annotations

import ctypes
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence, Set
from dataclasses import dataclass
from functools import cached_property, partial
from itertools import count
from operator import getitem
from time import perf_counter, perf_counter_ns
from typing import Protocol

import numpy as np

from ridgeline.codegen.caches import LoadedCode
from ridgeline.codegen.llvm.machine_code import Library
from ridgeline.communicators.current import current_rank
from ridgeline.compiler.backend import LayoutExecutable, NumpyCalls, known
from ridgeline.compiler.memory_plan import Call, HostCall, KernelCall, Layout
from ridgeline.compiler.posted_calls import AwaitCall, PostCall
from ridgeline.devices import CPU
from ridgeline.dtypes import bool_, uint8
from ridgeline.graph.node import TensorType
from ridgeline.ops.index_checks import report_index
from ridgeline.runtime.buffer import HostBuffer, misplaced
from ridgeline.runtime.cpu.control_flow import BranchCall, LoopCall
from ridgeline.runtime.cpu.control_words import (
    Address,
    Await,
    Branch,
    Control,
    Loop,
    Post,
    Stop,
    SubPlan,
)
from ridgeline.runtime.cpu.executor import SCRATCH_BYTES, NativePlan, NativeStep
from ridgeline.runtime.cpu.mailbox import (
    PostedCall,
    PostedProgram,
    PostedRun,
    axis_number,
    mailbox_of,
)
from ridgeline.scalars import Array

Part = NativePlan | HostCall


@dataclass(frozen=True, slots=True)
class PlainRun:
    """A run as one plan over addresses: of inputs, of `sizes`, of memory that its caller makes."""

    plan: NativePlan
    sizes: tuple[int, ...]
    made: tuple[int, ...]  # bytes of each piece of memory
    results: tuple[int, ...]  # by output: which of them it is; several may be one
    flag: int | None  # which of them says whether an index was out of range


class CpuExecutable(LayoutExecutable):
    """Runs of kernels as native plans, and library calls in NumPy between them."""

    exclusive = None  # several runs of a plan do not meet

    def __init__(self, layout: Layout, calls: NumpyCalls, code: LoadedCode[Library]) -> None:
        """`code` has the kernels by name."""
        super().__init__(layout, calls)
        self.parts = tuple(_parts(layout, code))
        self.sizes = [HostBuffer.borrow(np.array(size, np.int64)) for size in layout.sizes]
        self._split: tuple[NativePlan, NativePlan] | None = None
        self._single = self._only_plan()

    def _only_plan(self) -> NativePlan | None:
        """The plan of a program that has nothing else, and one result in memory of its own."""
        layout, only = self.layout, self.parts[0] if len(self.parts) == 1 else None
        if not isinstance(only, NativePlan) or layout.checked or self.copied or self.sizes:
            return None
        if layout.context >= 0:  # of its rank's mailbox
            return None
        return only if len(layout.made) == 1 and self.results == (layout.inputs,) else None

    def plain(self) -> PlainRun | None:
        """The run as a single plan whose caller allocates all memory; None if it is more."""
        layout, only = self.layout, self.parts[0] if len(self.parts) == 1 else None
        first = layout.inputs + len(layout.sizes)
        if not isinstance(only, NativePlan) or layout.exact or min(self.results) < first:
            return None
        if layout.context >= 0:
            return None
        flag = layout.returns[-1] - first if layout.checked else None
        results = tuple([slot - first for slot in self.results])
        sizes = tuple([size.address for size in self.sizes])
        return PlainRun(only, sizes, layout.made, results, flag)

    def run(self, inputs: Sequence[HostBuffer]) -> list[HostBuffer]:
        """Run on the inputs' buffers; every output is a buffer nobody else has."""
        if self._single is not None:
            return self._run_single(self._single, inputs)
        layout = self.layout
        made = [HostBuffer.allocate(size, layout.exact) for size in layout.made]
        held = [*inputs, *self.sizes, *made]
        try:
            addresses = [buffer.address for buffer in held]
        except AttributeError:  # spelled out, since every call of a jitted function comes here
            addresses = _addresses(held)
        if layout.context >= 0:
            run = self.runner(held, addresses)
            _run_posting(self, held, ((part, None) for part in self.parts), run)
        else:
            for part in self.parts:
                if isinstance(part, NativePlan):
                    part.run(addresses)
                else:
                    self.call(part, held)
        if layout.checked and held[layout.returns[-1]].array(bool_, ()):
            self.report(inputs)
        results = [held[slot] for slot in self.results]
        for index in self.copied:
            results[index] = _copy(results[index], layout.exact)
        return results

    def _run_single(self, plan: NativePlan, inputs: Sequence[HostBuffer]) -> list[HostBuffer]:
        """The fast path for a single plan with one result: most small functions."""
        result = HostBuffer.allocate(self.layout.made[0], self.layout.exact)
        addresses = []
        try:
            for buffer in inputs:
                addresses.append(buffer.address)
        except AttributeError:
            addresses = _addresses(inputs)
        addresses.append(result.address)
        plan.run(addresses)
        return [result]

    def begin(self, inputs: list[HostBuffer], given: Collection[int]) -> CpuRun:
        """Run what comes before anything given, by number of memory, is overwritten."""
        return CpuRun(self, inputs, given)

    def report(self, inputs: Sequence[HostBuffer]) -> None:
        """Raise the error that names an index out of range."""
        report_index(self.calls.graph.outputs, self.calls.shown(dict(enumerate(inputs))))

    def split(self, last: NativePlan) -> tuple[NativePlan, NativePlan]:
        """The last plan before it overwrites anything that a run may be given, and from there on.

        The flag of a wrong index is known by then; the second part looks at it once more.
        """
        if self._split is None:
            layout, first = self.layout, self.layout.inputs + len(self.layout.sizes)
            given = {first + n for n in (*layout.reusable, *(n for n, _ in layout.in_place))}
            steps = last.steps
            end = next((i for i, step in enumerate(steps) if _touches(step, given)), len(steps))
            stop = [step for step in steps[:end] if isinstance(step, Stop)]
            halves = steps[:end], [*stop, *steps[end:]]
            early, late = (
                NativePlan(part, layout.slots, layout.arena, layout.arena_bytes, layout.exact)
                for part in halves
            )
            self._split = early, late
        return self._split

    def profile(self, inputs: Sequence[HostBuffer]) -> list[float]:
        """Run once and give the seconds of every kernel and library call, in order."""
        made = [HostBuffer.allocate(size) for size in self.layout.made]
        held = [*inputs, *self.sizes, *made]
        seconds: list[float] = []

        addresses = _addresses(held)

        def run(part: Part, arena: HostBuffer | None = None) -> None:
            begin = perf_counter()
            if isinstance(part, NativePlan):
                times = zip(part.steps, part.profile(addresses, arena))
                seconds.extend(time for step, time in times if not isinstance(step, Stop))
            else:
                self.call(part, held)
                seconds.append(perf_counter() - begin)

        if self.layout.context >= 0:
            _run_posting(self, held, ((part, None) for part in self.parts), run)
            return seconds
        for part in self.parts:
            run(part)
        return seconds

    def runner(
        self, held: Sequence[HostBuffer], addresses: Sequence[int]
    ) -> Callable[[Part, HostBuffer | None], None]:
        """A function that runs a part, in an arena where one is given."""

        def run(part: Part, arena: HostBuffer | None) -> None:
            if not isinstance(part, NativePlan):
                self.call(part, held)
            elif arena is None:
                part.run(addresses)
            else:
                part.run_watched(addresses, arena)

        return run

    def call(self, call: HostCall, held: Sequence[HostBuffer]) -> None:
        """A call of NumPy."""
        self.calls.run(call, held, _fill)

    @cached_property
    def posted(self) -> PostedProgram:
        """The collectives that its plans start."""
        order = self.calls.order
        posts = [call for call in self.layout.calls if isinstance(call, PostCall)]
        return PostedProgram([PostedCall(order[c.node], order[c.awaited]) for c in posts])


def _fill(memory: HostBuffer, value: Array, kind: TensorType) -> None:
    memory.array(kind.dtype, known(kind.shape))[...] = value


_EMPTY = HostBuffer.allocate(0)


def _run_posting(
    executable: CpuExecutable,
    held: Sequence[HostBuffer],
    parts: Iterable[tuple[Part, HostBuffer | None]],
    run: Callable[[Part, HostBuffer], None],
) -> None:
    """Run parts whose plans post collectives, each in an arena that is given or its own.

    Where this ends early, memory that a collective may still write to is kept for it.
    """
    posted = PostedRun(executable.posted, held[executable.layout.context], held)
    try:
        mailbox = mailbox_of(current_rank())
        mailbox.begin(posted)
        for part, given in parts:
            arena = given
            if isinstance(part, NativePlan):
                arena = part.arena() if given is None else given
                posted.kept.append(arena)
            run(part, arena or _EMPTY)
            mailbox.raise_failure(posted)
        mailbox.end(posted)
    except BaseException:
        posted.state.is_left = True
        raise


class CpuRun:
    """A run that overwrites memory it is given, all in its last call, which is C code."""

    __slots__ = ("_arena", "_begun", "_count", "_executable", "_given", "_held", "_last", "_plan")

    def __init__(
        self, executable: CpuExecutable, inputs: list[HostBuffer], given: Collection[int]
    ) -> None:
        self._executable, self._given, self._count = executable, given, len(inputs)
        layout = executable.layout
        self._held = inputs
        self._held += executable.sizes
        self._held += [
            _EMPTY if number in given else HostBuffer.allocate(size, layout.exact)
            for number, size in enumerate(layout.made)
        ]
        *before, last = executable.parts
        assert isinstance(last, NativePlan), "what overwrites memory runs after all library calls"
        self._last = self._plan = last
        self._arena: HostBuffer | None = None
        self._begun = 0
        if before or not last.quick:
            self._run_before(before)
        elif last.arena_bytes > SCRATCH_BYTES:
            self._arena = last.arena()

    def _run_before(self, parts: Sequence[NativePlan | HostCall]) -> None:
        """Run these parts, and as much of the last plan as signals may interrupt."""
        self._arena = self._plan.arena()
        run = self._executable.runner(self._held, _addresses(self._held))
        if self._executable.layout.context >= 0:
            _run_posting(self._executable, self._held, self._early(parts), run)
            return
        for part, arena in self._early(parts):
            run(part, arena)

    def _early(self, parts: Sequence[Part]) -> Iterator[tuple[Part, HostBuffer | None]]:
        """Parts, and the last plan as far as nothing given is overwritten, with their arenas."""
        for part in parts:
            yield part, None
        if not self._plan.quick:
            self._begun = perf_counter_ns()
            early, self._last = self._executable.split(self._plan)
            yield early, self._arena

    def finish(
        self, reused: Mapping[int, HostBuffer]
    ) -> tuple[list[HostBuffer], list[Callable[[], object]]]:
        """The memory of the results, and the calls of C code that fill it.

        `reused` is the memory given; where it lacks some, fresh memory takes its place.
        """
        layout, held = self._executable.layout, self._held
        first = layout.inputs + len(layout.sizes)
        for number in self._given:
            held[first + number] = reused.get(number) or HostBuffer.allocate(
                layout.made[number], layout.exact
            )
        addresses = _addresses(held)
        calls: list[Callable[[], object]] = [self._last.prepared(addresses, self._arena)]
        if layout.checked:
            # the flag as an index: 0 is there, 1 is out of range
            calls.append(partial(getitem, (None,), held[layout.returns[-1]].array(uint8, ())))
        results = [held[slot] for slot in layout.results]
        for index in self._executable.copied:
            source = results[index]
            made = HostBuffer.allocate(source.nbytes, layout.exact)
            calls.append(partial(ctypes.memmove, made.address, source.address, source.nbytes))
            results[index] = made
        return results, calls

    def ended(self) -> None:
        """All calls were made: next time it is known how long that takes."""
        if self._begun:
            self._plan.took(perf_counter_ns() - self._begun)

    def explain(self, error: BaseException) -> None:
        """Raise what says more than the error of a call: which index is out of range."""
        if isinstance(error, IndexError) and self._executable.layout.checked:
            self._executable.report(self._held[: self._count])


def _addresses(held: Sequence[HostBuffer]) -> list[int]:
    """Where the memory lies that a plan is given."""
    try:
        return [buffer.address for buffer in held]
    except AttributeError:  # memory of a device has none, and kernels cannot reach it
        elsewhere = next(memory for memory in held if memory.device != CPU)
        raise misplaced(elsewhere, CPU) from None


def _touches(step: NativeStep | Control, slots: Set[int]) -> bool:
    """True where a step may write to some slots; of those with bodies that is not asked."""
    if isinstance(step, NativeStep):
        return not slots.isdisjoint(step.args)
    return isinstance(step, Loop | Branch)


def _copy(buffer: HostBuffer, exact: bool) -> HostBuffer:
    made = HostBuffer.allocate(buffer.nbytes, exact)
    ctypes.memmove(made.address, buffer.address, buffer.nbytes)
    return made


def _parts(layout: Layout, code: LoadedCode[Library]) -> Iterator[NativePlan | HostCall]:
    """Runs of kernels as plans, with the library calls between them.

    The arena lasts for one plan: what is in use across a library call has a buffer of its own. A
    flag that is known before a library call stops the plans after it too.
    """
    steps: list[NativeStep | Control] = []
    posted = count()
    memory = layout.slots, layout.arena, layout.arena_bytes, layout.exact

    def plan(body: Layout) -> NativePlan:
        inner = [native_step(call, code.code, plan) for call in body.calls]
        return NativePlan(inner, body.slots, body.arena, body.arena_bytes)

    for number, call in enumerate(layout.calls):
        if number == layout.check:
            steps.append(Stop(layout.returns[-1]))
        if isinstance(call, PostCall):
            axis, rest = axis_number(call.axis), (call.result, call.operands)
            steps.append(Post(call.context, call.ticket, next(posted), axis, *rest))
            continue
        if isinstance(call, AwaitCall):
            steps.append(Await(call.context, call.ticket))
            continue
        if not isinstance(call, HostCall):
            steps.append(native_step(call, code.code, plan))
            continue
        if any(not isinstance(step, Stop) for step in steps):
            yield NativePlan(steps, *memory)
        steps = [Stop(layout.returns[-1])] if 0 <= layout.check <= number else []
        yield call
    if any(not isinstance(step, Stop) for step in steps):
        yield NativePlan(steps, *memory)


class HasKernels(Protocol):
    """Code, in this process or in a file."""

    def address(self, symbol: str) -> Address:
        """Where a kernel is."""


def native_step(
    call: Call,
    code: Callable[[str], HasKernels],
    plan: Callable[[Layout], SubPlan],
) -> NativeStep | Loop | Branch:
    """A call as a step: `code` finds what has a kernel, by its symbol, and `plan` makes a body.

    What its caller binds in a body are the addresses that `run` would take.
    """
    if isinstance(call, KernelCall):
        library, launch = code(call.symbol), call.launch
        address = library.address(call.symbol)
        return NativeStep(address, call.slots, launch.tasks, launch.grain, library)
    if isinstance(call, LoopCall):
        test = None if call.test is None else plan(call.test)
        return Loop(plan(call.body), call.tables, test, call.test_tables)
    assert isinstance(call, BranchCall), "bodies with library calls are library calls themselves"
    first, second = zip([plan(part) for part in call.parts], call.tables)
    return Branch(call.predicate, (first, second))
