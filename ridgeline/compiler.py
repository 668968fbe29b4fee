"""The compiler: a graph in, a program out. Its body is the list of its stages.

    graph → stored values → fused groups → loops → schedule → LLVM IR → object code → plan

Programs are kept by structure, in the process and on disk; a warm start loads the plan and the
machine code without any of the stages above.
"""

from __future__ import annotations

import ctypes
import json
import threading
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, fields, replace
from hashlib import blake2b
from math import ceil
from time import perf_counter
from typing import Any

from ridgeline.codegen.llvm.emit import module_text
from ridgeline.codegen.llvm.native import (
    Library,
    ObjectCache,
    compile_ir,
    compiler_fingerprint,
    target,
)
from ridgeline.config import config
from ridgeline.dtypes import bool_
from ridgeline.errors import IndexRangeError
from ridgeline.fusion.groups import Fusion, Group, Roofline, fuse
from ridgeline.fusion.values import choose_values, in_memory, nbytes
from ridgeline.graph.copying import onto_fresh_leaves
from ridgeline.graph.interpreter import evaluate
from ridgeline.graph.node import Node, TensorType, proj, topological
from ridgeline.graph.sizes import Size
from ridgeline.loops.ir import Const, For, Kernel
from ridgeline.loops.printer import print_kernel
from ridgeline.loops.schedule import Step as ScheduleStep, replay
from ridgeline.ops.index_checks import index_flag
from ridgeline.runtime.arena import LiveRange, plan_arena
from ridgeline.runtime.buffer import Buffer
from ridgeline.runtime.cpu.executor import Plan, Step
from ridgeline.schedules.default import steps as default_steps
from ridgeline.schedules.machine import Machine

_SERIAL_SECONDS = 8e-6  # below this, waking another core costs more than it gives
_CHUNK_SECONDS = 4e-6


@dataclass(frozen=True, slots=True)
class KernelCall:
    """One step of a program: which kernel, over which slots, in how many tasks."""

    symbol: str
    slots: tuple[int, ...]
    tasks: int
    grain: int


@dataclass(frozen=True, slots=True)
class HostCall:
    """A library call between kernels: which node (by place in the graph), over which slots."""

    node: int
    inputs: tuple[int, ...]
    outputs: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class Layout:
    """A program as data: what the disk cache keeps beside the machine code.

    Slots are the inputs, then buffers made for each run (results first), then the arena's.
    """

    calls: tuple[KernelCall | HostCall, ...]
    inputs: int
    made: tuple[int, ...]  # bytes of every buffer made for a run
    returns: tuple[int, ...]  # for each output: a slot among the inputs or the buffers made
    arena: tuple[tuple[int, int], ...]
    arena_bytes: int
    peak_live: int
    checked: bool = False  # the last output is a flag: an index was out of range


@dataclass(slots=True)
class CompiledKernel:
    """A kernel through its stages, kept for `explain` and for profiles."""

    group: Group
    steps: list[ScheduleStep]
    kernel: Kernel


@dataclass(slots=True)
class Program:
    """A compiled graph. Results are fresh buffers.

    Without library calls, `run` is one native call; each library call cuts the plan in two.
    """

    layout: Layout
    parts: tuple[Plan | HostCall, ...]
    output_types: tuple[TensorType, ...]
    source: tuple[tuple[Node, ...], tuple[Node, ...]]
    _stages: Stages | None = field(default=None)
    _order: list[Node] | None = field(default=None)

    def run(self, inputs: Sequence[Buffer]) -> list[Buffer]:
        """Run on the inputs' buffers; every output is a buffer nobody else has."""
        layout = self.layout
        held = [*inputs, *[Buffer.allocate(size) for size in layout.made]]
        addresses = [buffer.address for buffer in held]
        for part in self.parts:
            if isinstance(part, Plan):
                part.run(addresses)
            else:
                self._call(part, held)
        if layout.checked:
            flag = held[layout.returns[-1]].array(bool_, ())
            if flag:
                self._report(inputs)
        returns = layout.returns[: len(self.output_types)]
        return _each_its_own([held[slot] for slot in returns], inputs)

    def _report(self, inputs: Sequence[Buffer]) -> None:
        """Raise for the index that is out of range: the definition of the op names it."""
        outputs, leaves = self.source
        env = {n: b.array(n.dtype, _known(n.shape)) for n, b in zip(leaves, inputs)}
        evaluate(outputs, env)
        raise IndexRangeError("an index is out of range")

    def profile(self, inputs: Sequence[Buffer]) -> list[float]:
        """Run once and give the seconds of every kernel and library call, in order."""
        held = [*inputs, *[Buffer.allocate(size) for size in self.layout.made]]
        addresses = [buffer.address for buffer in held]
        seconds: list[float] = []
        for part in self.parts:
            if isinstance(part, Plan):
                seconds += part.profile(addresses)
            else:
                begin = perf_counter()
                self._call(part, held)
                seconds.append(perf_counter() - begin)
        return seconds

    def _call(self, call: HostCall, held: list[Buffer]) -> None:
        """Run a library call: the NumPy value of its node."""
        node = self.order[call.node]
        operands = [
            held[slot].array(source.dtype, _known(source.shape))
            for slot, source in zip(call.inputs, node.inputs)
        ]
        for slot, value, made in zip(call.outputs, node.op.value(node, operands), node.types):
            if slot >= 0:
                held[slot].array(made.dtype, _known(made.shape))[...] = value

    @property
    def order(self) -> list[Node]:
        """The nodes of the program, by which library calls are numbered."""
        if self._order is None:
            outputs, inputs = self.source
            self._order = topological(outputs, stop=set(inputs).__contains__)
        return self._order

    @property
    def stages(self) -> Stages:
        """Every stage of the compilation; compiled again if the program came from the cache."""
        if self._stages is None:
            self._stages = lower_graph(*self.source)
        return self._stages

    def explain(self, detail: str = "loops") -> str:
        """The stages of every kernel, printed; `detail` is kernels, loops or code."""
        from ridgeline.explain import explain_program

        return explain_program(self, detail)


def _each_its_own(results: list[Buffer], inputs: Sequence[Buffer]) -> list[Buffer]:
    """Results that are an input handed through, or one another, in memory of their own."""
    seen = {id(buffer) for buffer in inputs}
    for place, buffer in enumerate(results):
        if id(buffer) in seen:
            results[place] = fresh = Buffer.allocate(buffer.nbytes)
            ctypes.memmove(fresh.address, buffer.address, buffer.nbytes)
        seen.add(id(buffer))
    return results


def _known(shape: tuple[Size, ...]) -> tuple[int, ...]:
    assert all(isinstance(size, int) for size in shape), "sizes are known when a program runs"
    return shape  # type: ignore[return-value]


@dataclass(slots=True)
class Stages:
    """The front half of the compilation: fusion and scheduled loops, before machine code."""

    fusion: Fusion
    kernels: list[CompiledKernel]
    results: tuple[Node, ...]
    order: tuple[Node, ...]


def machine() -> Machine:
    """The facts of this machine that schedules use."""
    host = target()
    wide = host.vector_bits >= 512
    threads = config.threads or host.threads
    return Machine(host.vector_bits // 8, 32 if wide else 16, threads, host.l1, host.l2, host.l3)


def roofline() -> Roofline:
    """What fusion reckons with: round figures, so that decisions do not depend on noise."""
    return Roofline(bytes_per_second=20e9, flops_per_second=100e9, launch_seconds=0.5e-6)


def lower_graph(
    outputs: Sequence[Node], inputs: Sequence[Node], facts: Machine | None = None
) -> Stages:
    """Graph to scheduled kernels, for this machine unless told otherwise."""
    given = set(inputs)

    def is_input(node: Node) -> bool:
        return node in given

    values = choose_values(outputs, is_input)
    fusion = fuse(values, is_input, roofline())
    facts = facts or machine()
    kernels = []
    for group in fusion.groups:
        if group.lowered is not None:
            steps = default_steps(group.lowered, facts)
            scheduled = named(replay(group.lowered.kernel, steps))
            kernels.append(CompiledKernel(group, steps, scheduled))
    return Stages(fusion, kernels, values.results, tuple(topological(outputs, is_input)))


def named(kernel: Kernel) -> Kernel:
    """The kernel under a name that holds a hash of its text: equal kernels share machine code."""
    text = print_kernel(replace(kernel, name="k"))
    digest = blake2b(text.encode(), digest_size=8).hexdigest()
    return replace(kernel, name=f"{kernel.name}_{digest}")


def task_count(kernel: Kernel) -> int:
    """The product of the leading parallel loops."""
    tasks, body = 1, kernel.body
    while isinstance(body, For) and body.kind == "parallel":
        assert isinstance(body.extent, Const)
        tasks *= int(body.extent.value)
        body = body.body
    return tasks


def _grain(tasks: int, seconds: float, threads: int) -> int:
    """Tasks handed out at a time; all of them where the work is too short to share."""
    if seconds < _SERIAL_SECONDS or threads == 1:
        return max(tasks, 1)
    per_task = seconds / tasks
    return min(max(ceil(_CHUNK_SECONDS / per_task), ceil(tasks / (threads * 8)), 1), tasks)


def lay_out(stages: Stages, inputs: Sequence[Node]) -> Layout:
    """Slots, arena and task counts for scheduled kernels."""
    slot_of: dict[Node, int] = {}
    for number, node in enumerate(inputs):
        slot_of.setdefault(node, number)
    lives = _live_ranges(stages)
    calls = [step for step, g in enumerate(stages.fusion.groups) if g.host]
    kept = [v for v, life in lives.items() if any(life.first <= c <= life.last for c in calls)]
    made = [v for v in dict.fromkeys((*stages.results, *kept)) if v not in slot_of]
    for number, node in enumerate(made, len(inputs)):
        slot_of[node] = number
    temporary = [v for v in lives if v not in slot_of]
    arena = plan_arena([lives[v] for v in temporary])
    first = len(inputs) + len(made)
    for number, value in enumerate(temporary, first):
        slot_of[value] = number
    return Layout(
        tuple(_calls(stages, slot_of)),
        len(inputs),
        tuple(map(nbytes, made)),
        tuple(slot_of[r] for r in stages.results),
        tuple((first + i, offset) for i, offset in enumerate(arena.offsets)),
        arena.nbytes,
        arena.peak_live,
    )


def _stored(group: Group) -> tuple[Node, ...]:
    return group.values if group.host else group.loops.slots[group.loops.reads :]


def _calls(stages: Stages, slot_of: dict[Node, int]) -> Iterator[KernelCall | HostCall]:
    threads = machine().threads
    place = {node: i for i, node in enumerate(stages.order)}
    kernels = iter(stages.kernels)
    for group in stages.fusion.groups:
        if group.host is not None:
            node = group.host
            sources = tuple(slot_of[in_memory(i, slot_of.__contains__)] for i in node.inputs)
            outputs = tuple(slot_of.get(proj(node, i), -1) for i in range(len(node.types)))
            yield HostCall(place[node], sources, outputs)
            continue
        compiled = next(kernels)
        tasks = task_count(compiled.kernel)
        slots = tuple(slot_of[group.loops.slots[b.slot]] for b in compiled.kernel.params)
        if tasks > 0:
            grain = _grain(tasks, group.seconds, threads)
            yield KernelCall(compiled.kernel.name, slots, tasks, grain)


def _live_ranges(stages: Stages) -> dict[Node, LiveRange]:
    """When each written value is in use, by step."""
    first: dict[Node, int] = {}
    last: dict[Node, int] = {}
    for step, group in enumerate(stages.fusion.groups):
        for value in _stored(group):
            first[value] = last[value] = step
        for value in group.reads:
            last[value] = step
    return {v: LiveRange(nbytes(v), first[v], last[v]) for v in first}


# ---- machine code and caches --------------------------------------------------------------------

_addresses: dict[str, int] = {}
_programs: dict[object, Program] = {}
_lock = threading.RLock()


def structure(outputs: Sequence[Node], inputs: Sequence[Node]) -> tuple[object, ...]:
    """What a graph computes, without which leaves it computes it from."""
    number: dict[Node, int] = {}
    rows: list[object] = []
    for node in inputs:
        if node not in number:
            number[node] = len(number)
            rows.append(node.types)
        else:  # the same node given twice reads one buffer
            rows.append(number[node])
    given = set(inputs)
    for node in topological(outputs, stop=given.__contains__):
        if node not in number:
            number[node] = len(number)
            rows.append((node.op.name, node.attrs, tuple(number[i] for i in node.inputs)))
    return (tuple(rows), tuple(number[o] for o in outputs))


def compile_graph(outputs: Sequence[Node], inputs: Sequence[Node]) -> Program:
    """The program for a graph; compiled once per structure, settings and machine."""
    key = (structure(outputs, inputs), machine())
    with _lock:
        program = _programs.get(key)
        if program is None:
            program = _load_or_compile(key, *onto_fresh_leaves(outputs, inputs))
            _programs[key] = program
    return program


def _load_or_compile(key: object, results: tuple[Node, ...], inputs: tuple[Node, ...]) -> Program:
    flag = index_flag(results, inputs)
    outputs = results if flag is None else (*results, flag)
    cache = ObjectCache("programs")
    digest = blake2b(f"{compiler_fingerprint()}{key!r}".encode(), digest_size=20).hexdigest()
    stored = cache.get(digest)
    stages = None
    if stored is not None:
        head, _, code = stored.partition(b"\n")
        layout = _layout_from(json.loads(head))
        loaded = Library.load(code) if code else None
        for call in layout.calls:
            if isinstance(call, KernelCall) and call.symbol not in _addresses:
                assert loaded is not None
                _addresses[call.symbol] = loaded.address(call.symbol)
    else:
        stages = lower_graph(outputs, inputs)
        layout = replace(lay_out(stages, inputs), checked=flag is not None)
        code = _compile_kernels([k.kernel for k in stages.kernels])
        cache.put(digest, json.dumps(_layout_data(layout)).encode() + b"\n" + code)
    types = tuple(o.type for o in results)
    return Program(layout, tuple(_parts(layout)), types, (outputs, inputs), stages)


def _parts(layout: Layout) -> Iterator[Plan | HostCall]:
    """Runs of kernels as plans, with the library calls between them.

    The arena lasts for one plan: what is in use across a library call has a buffer of its own.
    """
    slots = layout.inputs + len(layout.made) + len(layout.arena)
    steps: list[Step] = []
    for call in layout.calls:
        if isinstance(call, KernelCall):
            steps.append(Step(_addresses[call.symbol], call.slots, call.tasks, call.grain))
            continue
        if steps:
            yield Plan(steps, slots, layout.arena, layout.arena_bytes)
            steps = []
        yield call
    if steps:
        yield Plan(steps, slots, layout.arena, layout.arena_bytes)


def compile_kernel(kernel: Kernel) -> tuple[int, Kernel]:
    """The machine code of one kernel, and the kernel under its final name."""
    final = named(kernel)
    with _lock:
        if final.name not in _addresses:
            _compile_kernels([final])
    return _addresses[final.name], final


def _compile_kernels(kernels: Sequence[Kernel]) -> bytes:
    """Object code for all kernels; those already in the process keep their machine code."""
    unique = list({k.name: k for k in kernels}.values())
    if not unique:
        return b""
    code = compile_ir(module_text(unique, target().vector_bits // 8))
    loaded = Library.load(code)
    for kernel in unique:
        _addresses.setdefault(kernel.name, loaded.address(kernel.name))
    return code


def _layout_data(layout: Layout) -> dict[str, object]:
    calls = [
        [c.symbol, c.slots, c.tasks, c.grain] if isinstance(c, KernelCall)
        else [c.node, c.inputs, c.outputs]
        for c in layout.calls
    ]  # fmt: skip
    return {**{f.name: getattr(layout, f.name) for f in fields(Layout)}, "calls": calls}


def _layout_from(data: dict[str, Any]) -> Layout:
    calls = tuple(
        KernelCall(c[0], tuple(c[1]), c[2], c[3]) if len(c) == 4
        else HostCall(c[0], tuple(c[1]), tuple(c[2]))
        for c in data.pop("calls")
    )  # fmt: skip
    data["arena"] = tuple((slot, offset) for slot, offset in data["arena"])
    data["made"], data["returns"] = tuple(data["made"]), tuple(data["returns"])
    return Layout(calls, **data)
