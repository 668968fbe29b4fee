"""Programs on a GPU as they run: launches in order, one graph once a program runs again."""

from __future__ import annotations

import operator
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager
from functools import partial
from typing import TYPE_CHECKING, Any

from ridgeline.compiler import attention_calls
from ridgeline.compiler.library_calls import LibraryCalls, known
from ridgeline.compiler.memory_plan import Call, HostCall, JoinedCall, KernelCall, Layout
from ridgeline.errors import OutOfMemoryError
from ridgeline.ops.convolve import ConvolveAttrs
from ridgeline.ops.index_checks import check_indices, index_inputs
from ridgeline.runtime.cuda import cudnn_convolution
from ridgeline.runtime.cuda.cublaslt import MatmulStep, Operand
from ridgeline.runtime.cuda.cudnn_plans import GraphStep
from ridgeline.runtime.cuda.driver import DeviceFailure, failure
from ridgeline.runtime.cuda.faults import blamed, places
from ridgeline.runtime.cuda.flags import watch
from ridgeline.runtime.cuda.memory import DeviceBuffer
from ridgeline.runtime.cuda.plan import DevicePlan, HostStep, Slots
from ridgeline.runtime.cuda.space import DeviceSpace
from ridgeline.runtime.cuda.steps import JoinedStep, KernelStep, LaunchStep, Words
from ridgeline.runtime.cuda.transfer import copying

if TYPE_CHECKING:
    from ridgeline.compiler.cuda import CudaBackend

_WARP = 32


class CudaExecutable:
    """A layout on a GPU."""

    def __init__(self, layout: Layout, calls: LibraryCalls, target: CudaBackend) -> None:
        self.layout, self._calls, self._target = layout, calls, target
        self._graph = calls.graph
        self._space = DeviceSpace(target.device.number)
        own = [c for c in layout.calls if isinstance(c, (KernelCall, JoinedCall))]
        workspace = max((call.launch[1] for call in own), default=0)
        slots = Slots(layout.inputs, layout.made, layout.arena, layout.arena_bytes, workspace)
        self._workspace, self._wrong = slots.workspace, slots.wrong
        target.device.activate()  # libraries describe their calls for the current device
        self.plan = DevicePlan(target.device, slots, lambda words: list(self._steps(words)))
        self._results, self._copied = layout.results, tuple(layout.not_their_own())
        self._watched = index_inputs(calls.graph) if layout.checked else ()

    def _steps(self, words: Words) -> Iterator[LaunchStep]:
        for call in self.layout.calls:
            if isinstance(call, HostCall):
                yield HostStep(lambda held, call=call: self._call(call, held))  # type: ignore[misc]
                continue
            if isinstance(call, JoinedCall):
                slots = (*call.slots, self._workspace)
                for symbol, blocks, threads, shared in call.launch[2]:
                    function = self._target.modules[symbol]
                    yield JoinedStep(function, blocks, threads, shared, slots, words)
                continue
            assert isinstance(call, KernelCall), "control flow runs on the host"
            kind, workspace, started = call.launch
            if kind == "matmul":
                yield self._matmul(call.slots, started, words)
                continue
            if kind == "convolution":
                yield self._convolution(call.slots, started, words)
                continue
            if kind == "attention":
                target = self._target
                yield attention_calls.step_of(
                    target.device.number, started, call.slots, self._workspace, words,
                    target.attention,
                )  # fmt: skip
                continue
            slots = tuple(max(slot, 0) for slot in call.slots)  # what is not written is not touched
            slots = (*slots, self._workspace) if workspace else slots
            for symbol, blocks, threads, shared, cluster in started:
                function = self._target.modules[symbol]
                yield KernelStep(function, blocks, threads, shared, cluster, slots, words)
        if self.layout.checked:
            slots = (self.layout.returns[-1], self._wrong)
            yield KernelStep(self._target.marking, 1, _WARP, 0, 1, slots, words)

    def _matmul(self, slots: Sequence[int], started: tuple[Any, ...], words: Words) -> MatmulStep:
        dtype, result, m, n, k, batch, outer, *matrices, shortened, bias = started
        operands = [Operand(slots[place], *strides) for place, *strides in matrices]
        number = self._target.device.number
        return MatmulStep(
            number, (dtype, result), (m, n, k, batch), outer, operands, self._workspace, words,
            shortened, None if bias is None else slots[bias],
        )  # fmt: skip

    def _convolution(
        self, slots: Sequence[int], started: tuple[Any, ...], words: Words
    ) -> GraphStep:
        dtype, *settings = started
        attrs = ConvolveAttrs(*settings)
        plan = self._target.planned(attrs, dtype)
        memory = cudnn_convolution.memory_of(attrs, slots)
        return GraphStep(self._target.device.number, plan, memory, self._workspace, words)

    @property
    def exclusive(self) -> AbstractContextManager[Any]:
        """What is held from the beginning of a run that overwrites memory to its end."""
        return self._target.device.enqueuing

    def run(self, inputs: Sequence[Any]) -> list[Any]:
        """Enqueue everything; every output is memory that nobody else has."""
        if self.layout.checked:
            watch(self._target.device.stream).make_room()
        with self.enqueuing():
            copies = self.room_for_copies(inputs)
            held = self.plan.run(inputs)
        self.note(inputs)
        results = [held[slot] for slot in self._results]
        for place, made in copies.items():
            results[place] = self._space.copy(results[place], made)
        return results

    def begin(self, inputs: list[Any], given: Collection[int]) -> CudaRun:
        """A run that will be given memory to overwrite."""
        if self.layout.checked:
            watch(self._target.device.stream).make_room()
        return CudaRun(self, inputs)

    @contextmanager
    def enqueuing(self) -> Iterator[None]:
        """Errors of the device name the lines it works on, those of its memory the ones here."""
        device = self._target.device
        device.recent.append(self._graph.outputs)
        try:
            yield
        except DeviceFailure as error:
            raise blamed(error, device.recent) from None
        except OutOfMemoryError as error:
            lines = ", ".join(places(self._graph.outputs)) or "an unknown line"
            error.note = f"{error.note}\nneeded for what was recorded at {lines}".lstrip()
            raise

    def note(self, inputs: Sequence[Any]) -> None:
        """A run over these inputs is enqueued: it may yet turn out that an index was wrong."""
        if self.layout.checked:
            kept = [inputs[n] for n in self._watched]
            nbytes = sum([memory.nbytes for memory in kept])
            watch(self._target.device.stream).add(partial(self._report, kept), nbytes)

    def room_for_copies(self, inputs: Sequence[Any]) -> dict[int, DeviceBuffer]:
        """Memory for results that are not their own, by place, before a run overwrites state."""
        count, made = self.layout.inputs, self.layout.made
        slots = {place: self._results[place] for place in self._copied}
        sizes = {
            place: inputs[s].nbytes if s < count else made[s - count] for place, s in slots.items()
        }
        return {place: self._space.allocate(size) for place, size in sizes.items()}

    def profile(self, inputs: Sequence[Any]) -> list[float]:
        """Run once; the seconds of every call, in order."""
        seconds = iter(self.plan.profile(inputs))
        return [sum(next(seconds) for _ in range(_steps_of(c))) for c in self.layout.calls]

    def _report(self, kept: Sequence[Any]) -> None:
        """Raise if a run over such memory met an index out of range."""
        nodes = [self._graph.inputs[n] for n in self._watched]
        given = {
            node: memory.array(node.dtype, known(node.shape)) for node, memory in zip(nodes, kept)
        }
        check_indices(self._graph.outputs, given)

    def _call(self, call: HostCall, held: Sequence[Any]) -> None:
        """A library call in NumPy: its operands come to the host, its results go back."""
        node = self._calls.order[call.node]
        operands = [
            held[slot].array(source.dtype, known(source.shape))
            for slot, source in zip(call.inputs, node.inputs)
        ]
        values = self._calls.call(call.node, operands)
        for slot, value, made in zip(call.outputs, values, node.types):
            if slot >= 0:
                self._space.fill(held[slot], value.astype(made.dtype.numpy, copy=False))


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
        with executable.enqueuing():
            copies = executable.room_for_copies(inputs)
            held, launches, self._scratch = executable.plan.prepare(inputs, reused)
        self._held[:] = held
        results = [self._held[slot] for slot in executable.layout.results]
        stream = executable.plan.device.stream
        for place, made in copies.items():
            launches.append(copying(results[place], made, stream))
            results[place] = made
        return results, [partial(self._answers.extend, map(operator.call, launches))]

    def ended(self) -> None:
        """All calls were made: raise what one of them answered, or note the run."""
        for (status,) in self._answers:
            if status:
                with self._executable.enqueuing():
                    raise failure("a launch", status)
        self._executable.note(self._held[: self._count])

    def explain(self, error: BaseException) -> None:
        """There is no more to say: what a kernel finds wrong is known later."""


def _steps_of(call: Call) -> int:
    """How many steps of a plan a call is."""
    if isinstance(call, (KernelCall, JoinedCall)) and call.launch[0] in ("kernel", "joined"):
        return len(call.launch[2])
    return 1
