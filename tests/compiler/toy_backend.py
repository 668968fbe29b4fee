"""A third backend in a screen: its machine code is loops as text, which the loop interpreter runs.

It has none of the capabilities that are optional: control flow, library calls and launches that are
joined are what the compiler does without them. Its memory is out of reach of the host's code.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from types import MappingProxyType
from typing import Any

import numpy as np

from ridgeline.compiler.backend import Backend, LayoutExecutable, NumpyCalls
from ridgeline.compiler.memory_plan import HostCall, KernelCall, Layout
from ridgeline.compiler.stages import CompiledKernel
from ridgeline.dtypes import DType, bool_, uint8
from ridgeline.fusion.groups import FusionGroup, Roofline
from ridgeline.graph.node import TensorType
from ridgeline.loops.build import map_buffers
from ridgeline.loops.interpreter.interpret import interpret
from ridgeline.loops.ir import Buffer, Kernel
from ridgeline.loops.lowering.iteration_space import Lowered
from ridgeline.loops.schedule import Step as ScheduleStep
from ridgeline.loops.text.printer import print_kernel
from ridgeline.ops.index_checks import report_index
from ridgeline.scalars import Array
from tests.loops.parser import parse_kernel


class ToyMemory:
    """Bytes of the toy, which only copies show the host."""

    borrowed = False

    def __init__(self, device: str, nbytes: int) -> None:
        self.device, self.nbytes = device, nbytes
        self.bytes = np.full(nbytes, 0xFF, np.uint8)

    def array(self, dtype: DType, shape: Sequence[int]) -> Array:
        size = int(np.prod(shape)) * np.dtype(dtype.numpy).itemsize
        return self.bytes[:size].view(dtype.numpy).reshape(tuple(shape)).copy()

    def fill(self, array: Array) -> None:
        self.bytes[: array.nbytes] = np.ascontiguousarray(array).reshape(-1).view(np.uint8)


class ToySpace:
    """The memory of one toy."""

    def __init__(self, number: int) -> None:
        self.name = f"toy:{number}"

    def allocate(self, nbytes: int) -> ToyMemory:
        return ToyMemory(self.name, nbytes)

    def take_in(self, array: Array) -> ToyMemory:
        made = self.allocate(array.nbytes)
        made.fill(array)
        return made

    def copy(self, memory: Any) -> ToyMemory:
        return self.take_in(memory.array(uint8, (memory.nbytes,)))


@dataclass(frozen=True, slots=True)
class ToyLaunch:
    """How a kernel is started: there is nothing to say."""


class ToyBackend(Backend):
    """Compiles for one toy."""

    launch_types = (ToyLaunch,)
    code: dict[str, Kernel] = {}  # noqa: RUF012, what was loaded, by name

    def __init__(self, number: int) -> None:
        self.space = ToySpace(number)

    def facts(self) -> str:
        return "a toy"

    def roofline(self, facts: str) -> Roofline:
        return Roofline(1e9, 1e9, 1e-6)

    def fingerprint(self) -> str:
        return "toy 1"

    def schedule(self, lowered: Lowered, facts: str) -> list[ScheduleStep]:
        return []

    def launch(self, group: FusionGroup, kernel: Kernel) -> ToyLaunch:
        return ToyLaunch()

    def compile(
        self,
        kernels: Sequence[CompiledKernel],
        library_calls: Sequence[FusionGroup] = (),
        joined: Sequence[Sequence[CompiledKernel]] = (),
        begun: Mapping[str, Any] = MappingProxyType({}),
    ) -> bytes:
        texts = {one.kernel.name: print_kernel(one.kernel) for one in kernels}
        code = "\0".join(texts.values()).encode()
        self.load(code, list(texts))
        return code

    def load(self, code: bytes, symbols: Sequence[str]) -> None:
        for text in filter(None, code.decode().split("\0")):
            kernel = parse_kernel(text)
            self.code[kernel.name] = kernel

    def source(self, kernels: Sequence[Kernel]) -> str:
        return "\n".join(map(print_kernel, kernels))

    def executable(self, layout: Layout, calls: NumpyCalls) -> ToyExecutable:
        return ToyExecutable(layout, calls, self)


class ToyExecutable(LayoutExecutable):
    """Kernel after kernel through the interpreter, over the toy's memory."""

    exclusive = None

    def __init__(self, layout: Layout, calls: NumpyCalls, target: ToyBackend) -> None:
        super().__init__(layout, calls)
        self.target, self.code = target, {name: target.code[name] for name in layout.symbols()}

    def run(self, inputs: Sequence[Any]) -> list[Any]:
        return self.computed(inputs, {})[0]

    def computed(
        self, inputs: Sequence[Any], given: Mapping[int, Any]
    ) -> tuple[list[Any], list[Callable[[], object]]]:
        """The results, and the calls that overwrite memory which is given for some of them."""
        layout, space = self.layout, self.target.space
        made = [space.allocate(size) for size in layout.made]
        arena = space.allocate(layout.arena_bytes)
        held: list[Any] = [m if m.device == space.name else space.copy(m) for m in inputs]
        held += [*made, *(_part(arena, offset) for _, offset in layout.arena)]
        for call in layout.calls:
            if isinstance(call, HostCall):
                self.calls.run(call, held, _fill)
            else:
                assert isinstance(call, KernelCall)
                _interpreted(self.code[call.symbol], [held[slot] for slot in call.slots])
        if layout.checked and held[layout.returns[-1]].array(bool_, ()):
            report_index(
                self.calls.graph.outputs, self.calls.shown(dict(enumerate(held[: layout.inputs])))
            )
        copies = {place: space.copy(held[self.results[place]]) for place in self.copied}
        calls: list[Callable[[], object]] = []
        for number, memory in given.items():
            calls.append(partial(memory.fill, held[layout.inputs + number].bytes))
            held[layout.inputs + number] = memory
        results = [copies.get(place, held[slot]) for place, slot in enumerate(self.results)]
        return results, calls

    def begin(self, inputs: list[Any], given: Collection[int]) -> ToyRun:
        return ToyRun(self, inputs)

    def profile(self, inputs: Sequence[Any]) -> list[float]:
        self.run(inputs)
        return [0.0] * len(self.layout.calls)


class ToyRun:
    """A run that overwrites memory it is given."""

    def __init__(self, executable: ToyExecutable, inputs: list[Any]) -> None:
        self._executable, self._inputs = executable, inputs

    def finish(self, reused: Mapping[int, Any]) -> tuple[list[Any], list[Callable[[], object]]]:
        return self._executable.computed(self._inputs, reused)

    def ended(self) -> None: ...

    def explain(self, error: BaseException) -> None: ...


def _part(arena: ToyMemory, offset: int) -> ToyMemory:
    made = ToyMemory(arena.device, 0)
    made.bytes = arena.bytes[offset:]
    return made


def _fill(memory: ToyMemory, value: Array, kind: TensorType) -> None:
    memory.fill(value)


def _interpreted(kernel: Kernel, memory: Sequence[ToyMemory]) -> None:
    """Run a kernel; one that may work in place is given one memory for two parameters, or two."""
    number = {id(held): n for n, held in enumerate(memory)}
    slots = {p.name: number[id(held)] for p, held in zip(kernel.params, memory)}

    def placed(buffer: Buffer) -> Buffer:
        return replace(buffer, slot=slots.get(buffer.name, buffer.slot))

    params = tuple(map(placed, kernel.params))
    found: dict[int, Any] = {}
    for param, held in zip(params, memory):
        size = int(np.prod([int(s.value) for s in param.shape]))  # type: ignore[attr-defined]
        dtype = np.dtype(param.dtype.numpy)
        seen = held.bytes[: size * dtype.itemsize].view(dtype)
        if param.slot not in found or found[param.slot].nbytes < seen.nbytes:
            found[param.slot] = seen
    interpret(replace(kernel, params=params, body=map_buffers(kernel.body, placed)), found, {})
