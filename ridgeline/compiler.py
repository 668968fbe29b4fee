"""The compiler: a graph in, a program out. Its body is the list of its stages.

    graph → stored values → fused groups → loops → schedule → LLVM IR → object code → plan

Programs are kept by structure, in the process and on disk; a warm start loads the plan and the
machine code without any of the stages above.
"""

from __future__ import annotations

import json
import threading
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from hashlib import blake2b
from math import ceil

from ridgeline.codegen.llvm.emit import module_text
from ridgeline.codegen.llvm.native import (
    Library,
    ObjectCache,
    compile_ir,
    compiler_fingerprint,
    target,
)
from ridgeline.config import config
from ridgeline.fusion.groups import Fusion, Group, Roofline, fuse
from ridgeline.fusion.values import choose_values, nbytes
from ridgeline.graph.copying import onto_fresh_leaves
from ridgeline.graph.node import Node, TensorType, topological
from ridgeline.loops.ir import Const, For, Kernel
from ridgeline.loops.printer import print_kernel
from ridgeline.loops.schedule import Step as ScheduleStep
from ridgeline.loops.schedule import replay
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
class Layout:
    """A program as data: what the disk cache keeps beside the machine code."""

    calls: tuple[KernelCall, ...]
    inputs: int
    results: tuple[tuple[int, int], ...]  # (slot, bytes) of every buffer made for the caller
    returns: tuple[int, ...]  # for each output: a slot among the inputs or results
    arena: tuple[tuple[int, int], ...]
    arena_bytes: int
    peak_live: int


@dataclass(slots=True)
class CompiledKernel:
    """A kernel through its stages, kept for `explain` and for profiles."""

    group: Group
    steps: list[ScheduleStep]
    kernel: Kernel


@dataclass(slots=True)
class Program:
    """A compiled graph. `run` is one native call; results are fresh buffers."""

    layout: Layout
    plan: Plan
    output_types: tuple[TensorType, ...]
    source: tuple[tuple[Node, ...], tuple[Node, ...]]
    _stages: Stages | None = field(default=None)

    def run(self, inputs: Sequence[Buffer]) -> list[Buffer]:
        """Run on the inputs' buffers; every output is a buffer nobody else has."""
        layout = self.layout
        results = [Buffer.allocate(size) for _, size in layout.results]
        held = [*inputs, *results]
        if layout.calls:
            self.plan.run([buffer.address for buffer in held])
        return [held[slot] for slot in layout.returns]

    def profile(self, inputs: Sequence[Buffer]) -> list[float]:
        """Run once and give the seconds of every kernel."""
        results = [Buffer.allocate(size) for _, size in self.layout.results]
        return self.plan.profile([buffer.address for buffer in (*inputs, *results)])

    @property
    def stages(self) -> Stages:
        """Every stage of the compilation; compiled again if the program came from the cache."""
        if self._stages is None:
            self._stages = lower_graph(*self.source)
        return self._stages

    def explain(self) -> str:
        """The stages of every kernel, printed."""
        from ridgeline.explain import explain_program

        return explain_program(self)


@dataclass(slots=True)
class Stages:
    """The front half of the compilation: fusion and scheduled loops, before machine code."""

    fusion: Fusion
    kernels: list[CompiledKernel]
    results: tuple[Node, ...]


def machine() -> Machine:
    """The facts of this machine that schedules use."""
    host = target()
    wide = host.vector_bits >= 512
    threads = config.threads or host.threads
    return Machine(
        host.vector_bits // 8, 32 if wide else 16, threads, host.l1, host.l2, host.l3
    )


def roofline() -> Roofline:
    """What fusion reckons with: round figures, so that decisions do not depend on noise."""
    return Roofline(bytes_per_second=20e9, flops_per_second=100e9, launch_seconds=0.5e-6)


def lower_graph(outputs: Sequence[Node], inputs: Sequence[Node]) -> Stages:
    """Graph to scheduled kernels."""
    given = set(inputs)

    def is_input(node: Node) -> bool:
        return node in given

    values = choose_values(outputs, is_input)
    fusion = fuse(values, is_input, roofline())
    facts = machine()
    kernels = []
    for group in fusion.groups:
        steps = default_steps(group.lowered, facts)
        kernels.append(CompiledKernel(group, steps, named(replay(group.lowered.kernel, steps))))
    return Stages(fusion, kernels, values.results)


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
    made = list(dict.fromkeys(r for r in stages.results if r not in slot_of))
    results = []
    for node in made:
        slot_of[node] = len(inputs) + len(results)
        results.append((slot_of[node], nbytes(node)))
    written = [v for k in stages.kernels for v in k.group.lowered.slots[k.group.lowered.reads :]]
    temporary = [v for v in dict.fromkeys(written) if v not in slot_of]
    lives = _live_ranges(stages, temporary)
    arena = plan_arena([lives[v] for v in temporary])
    first = len(inputs) + len(results)
    for number, value in enumerate(temporary, first):
        slot_of[value] = number
    threads = machine().threads
    calls = []
    for compiled in stages.kernels:
        lowered = compiled.group.lowered
        tasks = task_count(compiled.kernel)
        slots = tuple(slot_of[lowered.slots[b.slot]] for b in compiled.kernel.params)
        grain = _grain(tasks, compiled.group.seconds, threads)
        if tasks > 0:
            calls.append(KernelCall(compiled.kernel.name, slots, tasks, grain))
    return Layout(
        tuple(calls),
        len(inputs),
        tuple(results),
        tuple(slot_of[r] for r in stages.results),
        tuple((first + i, offset) for i, offset in enumerate(arena.offsets)),
        arena.nbytes,
        arena.peak_live,
    )


def _live_ranges(stages: Stages, temporary: Sequence[Node]) -> dict[Node, LiveRange]:
    wanted = set(temporary)
    first: dict[Node, int] = {}
    last: dict[Node, int] = {}
    for step, compiled in enumerate(stages.kernels):
        for value in compiled.group.lowered.slots:
            if value in wanted:
                first.setdefault(value, step)
                last[value] = step
    return {v: LiveRange(nbytes(v), first[v], last[v]) for v in temporary}


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


def _load_or_compile(
    key: object, outputs: tuple[Node, ...], inputs: tuple[Node, ...]
) -> Program:
    cache = ObjectCache("programs")
    digest = blake2b(f"{compiler_fingerprint()}{key!r}".encode(), digest_size=20).hexdigest()
    stored = cache.get(digest)
    stages = None
    if stored is not None:
        head, _, code = stored.partition(b"\n")
        layout = _layout_from(json.loads(head))
        loaded = Library.load(code) if code else None
        for call in layout.calls:
            if call.symbol not in _addresses and loaded is not None:
                _addresses[call.symbol] = loaded.address(call.symbol)
    else:
        stages = lower_graph(outputs, inputs)
        layout = lay_out(stages, inputs)
        code = _compile_kernels([k.kernel for k in stages.kernels])
        cache.put(digest, json.dumps(_layout_data(layout)).encode() + b"\n" + code)
    steps = [Step(_addresses[c.symbol], c.slots, c.tasks, c.grain) for c in layout.calls]
    slots = layout.inputs + len(layout.results) + len(layout.arena)
    plan = Plan(steps, slots, layout.arena, layout.arena_bytes)
    return Program(layout, plan, tuple(o.type for o in outputs), (outputs, inputs), stages)


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
    return {
        "calls": [[c.symbol, list(c.slots), c.tasks, c.grain] for c in layout.calls],
        "inputs": layout.inputs,
        "results": layout.results,
        "returns": layout.returns,
        "arena": layout.arena,
        "arena_bytes": layout.arena_bytes,
        "peak_live": layout.peak_live,
    }


def _layout_from(data: dict[str, list[list[int]]]) -> Layout:
    calls = tuple(KernelCall(str(s), tuple(a), t, g) for s, a, t, g in data["calls"])  # type: ignore[arg-type,misc]
    results = tuple((a, b) for a, b in data["results"])
    arena = tuple((a, b) for a, b in data["arena"])
    return Layout(
        calls, data["inputs"], results, tuple(data["returns"]), arena,  # type: ignore[arg-type]
        data["arena_bytes"], data["peak_live"],  # type: ignore[arg-type]
    )  # fmt: skip


