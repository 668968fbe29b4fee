"""GPU executables: launches in order, captured as one CUDA graph once a program runs again."""

from __future__ import annotations

import operator
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager
from functools import partial
from types import MappingProxyType
from typing import TYPE_CHECKING, Any

from ridgeline.compiler.backend import LayoutExecutable, NumpyCalls
from ridgeline.compiler.memory_plan import Call, HostCall, JoinedCall, KernelCall, Layout
from ridgeline.devices import CPU
from ridgeline.errors import OutOfMemoryError
from ridgeline.graph.node import TensorType
from ridgeline.ops.index_checks import check_indices, index_inputs
from ridgeline.runtime.cpu.control_flow import BranchCall
from ridgeline.runtime.cuda.control_flow import DeviceLoop, control_step
from ridgeline.runtime.cuda.driver import DeviceFailure, blamed, failure, shown_lines
from ridgeline.runtime.cuda.flags import watch
from ridgeline.runtime.cuda.launches import Starting
from ridgeline.runtime.cuda.memory import DeviceBuffer
from ridgeline.runtime.cuda.plan import DevicePlan, HostStep, Slots
from ridgeline.runtime.cuda.space import DeviceSpace
from ridgeline.runtime.cuda.steps import ArgumentWords, KernelStep, LaunchStep
from ridgeline.runtime.cuda.transfer import copying
from ridgeline.scalars import Array

if TYPE_CHECKING:
    from ridgeline.runtime.cuda.backend import CudaBackend

_WARP = 32
_NONE: Mapping[int, DeviceBuffer] = MappingProxyType({})


class CudaExecutable(LayoutExecutable):
    """A layout on a GPU."""

    def __init__(self, layout: Layout, calls: NumpyCalls, target: CudaBackend) -> None:
        super().__init__(layout, calls)
        self._target, self._graph = target, calls.graph
        # what a failure of the device is blamed on: the results of the latest runs
        self.begins = partial(target.device.recent.append, self._graph.outputs)
        self.results_of = _picking(self.results)
        self.space = DeviceSpace(target.device.number)
        workspace = target.workspace(layout)
        flag = layout.returns[-1] - layout.inputs if layout.raises else None
        slots = Slots(
            layout.inputs, layout.made, layout.arena, layout.arena_bytes, workspace, layout.exact,
            flag,
        )  # fmt: skip
        self._workspace, self._wrong = slots.workspace, slots.wrong
        self._counts: list[int] = []  # of the steps that each call is
        target.device.activate()  # libraries describe their calls for the current device
        self.plan = DevicePlan(target.device, slots, lambda words: list(self._steps(words)))
        self._watched = index_inputs(calls.graph) if layout.checked else ()

    def _steps(self, words: ArgumentWords) -> Iterator[LaunchStep]:
        target = self._target
        on = Starting(target.device.number, target.modules, words, self._workspace)
        for call in self.layout.calls:
            if isinstance(call, HostCall):
                made: list[LaunchStep] = [HostStep(partial(self._call_numpy, call))]
            else:
                made = _launches(call, on)
            self._counts.append(len(made))
            yield from made
        if self.layout.checked and not self.layout.raises:
            slots = (self.layout.returns[-1], self._wrong)
            yield KernelStep(self._target.marking, 1, _WARP, 0, 1, slots, words)

    @property
    def exclusive(self) -> AbstractContextManager[Any]:
        """What is held from the beginning of a run that overwrites memory to its end."""
        return self._target.device.enqueuing

    def run(self, inputs: Sequence[Any]) -> list[Any]:
        """Enqueue everything; every output is memory that nobody else has."""
        if self.layout.checked:
            watch(self._target.device.stream).make_room()
        self.begins()
        try:
            copies = self.room_for_copies(inputs) if self.copied else _NONE
            held = self.plan.run(inputs)
        except (DeviceFailure, OutOfMemoryError) as error:
            raise self.explained(error) from None
        if self.layout.checked:
            self.note(inputs)
        results = self.results_of(held)
        for index, made in copies.items():
            results[index] = self.space.copy(results[index], made)
        return results

    def begin(self, inputs: list[Any], given: Collection[int]) -> CudaRun:
        """A run that will be given memory to overwrite."""
        if self.layout.checked:
            watch(self._target.device.stream).make_room()
        return CudaRun(self, inputs)

    def explained(self, error: Exception) -> Exception:
        """Errors of the device name the lines it works on, those of its memory the ones here."""
        if isinstance(error, DeviceFailure):
            return blamed(error, self._target.device.recent)
        if not isinstance(error, OutOfMemoryError):
            return error
        lines = ", ".join(shown_lines(self._graph.outputs)) or "an unknown line"
        error.note = f"{error.note}\nneeded for what was recorded at {lines}".lstrip()
        return error

    def note(self, inputs: Sequence[Any]) -> None:
        """A run over these inputs is enqueued: it may yet turn out that an index was wrong."""
        if self.layout.checked:
            kept = [inputs[n] for n in self._watched]
            nbytes = sum([memory.nbytes for memory in kept])
            watch(self._target.device.stream).add(partial(self._report, kept), nbytes)

    def room_for_copies(self, inputs: Sequence[Any]) -> dict[int, DeviceBuffer]:
        """Memory for results that are not their own, by place, before a run overwrites state."""
        count, made = self.layout.inputs, self.layout.made
        slots = {index: self.results[index] for index in self.copied}
        sizes = {
            index: inputs[s].nbytes if s < count else made[s - count] for index, s in slots.items()
        }
        return {index: self.space.allocate(size) for index, size in sizes.items()}

    def profile(self, inputs: Sequence[Any]) -> list[float]:
        """Run once; the seconds of every call, in order."""
        seconds = iter(self.plan.profile(inputs))
        return [sum(next(seconds) for _ in range(count)) for count in self._counts]

    def _report(self, kept: Sequence[Any]) -> None:
        """Raise if a run over such memory met an index out of range."""
        check_indices(self._graph.outputs, self.calls.shown(dict(zip(self._watched, kept))))

    def _call_numpy(self, call: HostCall, held: Sequence[Any]) -> None:
        """Operands come to the host, results go back."""
        self.calls.run(call, held, self._fill)

    def _fill(self, memory: Any, value: Array, kind: TensorType) -> None:
        self.space.fill(memory, value)


def _picking(slots: Sequence[int]) -> Callable[[Sequence[Any]], list[Any]]:
    """What gives the memory of some slots."""
    if len(slots) < 2:
        return lambda held: [held[slot] for slot in slots] if slots else []
    pick = operator.itemgetter(*slots)
    return lambda held: list(pick(held))


def _launches(call: Call, on: Starting) -> list[LaunchStep]:
    """The steps of a call that is made on the device."""
    if isinstance(call, (DeviceLoop, BranchCall)):
        return [control_step(call, on, _body_launches)]
    assert isinstance(call, (KernelCall, JoinedCall)), "bodies with calls of NumPy run on the host"
    return list(call.launch.steps(call.slots, on))


def _body_launches(layout: Layout, on: Starting) -> list[LaunchStep]:
    return [step for call in layout.calls for step in _launches(call, on)]


class CudaRun:
    """A run that overwrites memory it is given: all of it is the launch of one graph."""

    def __init__(self, executable: CudaExecutable, inputs: list[Any]) -> None:
        self._executable, self._count = executable, len(inputs)
        self._held: list[Any] = inputs  # once a run is prepared, with the memory of what it makes
        self._answers: list[Any] = []
        self._scratch: DeviceBuffer | None = None  # which is free again when the launches are made

    def finish(self, reused: Mapping[int, Any]) -> tuple[list[Any], list[Callable[[], object]]]:
        """The memory of the results, and the calls of the driver that fill it."""
        executable, self._answers = self._executable, []
        inputs = self._held[: self._count]
        executable.begins()
        try:
            copies = executable.room_for_copies(inputs) if executable.copied else _NONE
            held, made_later, self._scratch = executable.plan.prepare(inputs, reused)
        except (DeviceFailure, OutOfMemoryError) as error:
            raise executable.explained(error) from None
        self._held[:] = held
        results, launches = executable.results_of(held), [*made_later]
        stream = executable.plan.device.stream
        for index, made in copies.items():
            if results[index].device == CPU:  # a number, which the run does not overwrite
                executable.space.copy(results[index], made)
            else:
                launches.append(copying(results[index], made, stream))
            results[index] = made
        return results, [partial(self._answers.extend, map(operator.call, launches))]

    def ended(self) -> None:
        """All calls were made: raise what one of them answered, or note the run."""
        for (status,) in self._answers:
            if status:
                raise self._executable.explained(failure("a launch", status))
        self._executable.note(self._held[: self._count])

    def explain(self, error: BaseException) -> None:
        """There is no more to say: what a kernel finds wrong is known later."""
