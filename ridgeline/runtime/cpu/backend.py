"""The CPU backend: LLVM code generation, plans of the native executor."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from math import prod
from types import MappingProxyType
from typing import Any

from ridgeline.codegen.caches import LoadedCode
from ridgeline.codegen.llvm.emit import LEGALIZE, module_text
from ridgeline.codegen.llvm.machine_code import (
    Library,
    compile_ir,
    compiler_fingerprint,
    has_instruction,
    host,
    target,
)
from ridgeline.compiler.backend import Backend, NumpyCalls
from ridgeline.compiler.memory_plan import Layout
from ridgeline.compiler.stages import CompiledKernel
from ridgeline.config import config
from ridgeline.dtypes import float32
from ridgeline.fusion.groups import FusionGroup, Roofline
from ridgeline.graph.node import Node
from ridgeline.loops.build import substitute
from ridgeline.loops.instructions import INSTRUCTIONS
from ridgeline.loops.ir import Const, Expr, For, Kernel, Var, index
from ridgeline.loops.legalize import LoopPass
from ridgeline.loops.lowering.elements import widened_from
from ridgeline.loops.lowering.iteration_space import Lowered
from ridgeline.loops.schedule import Step as ScheduleStep
from ridgeline.runtime.cpu.calibration import calibration
from ridgeline.runtime.cpu.control_flow import CALL_TYPES, NativeControlFlow
from ridgeline.runtime.cpu.executable import CpuExecutable
from ridgeline.runtime.memory import block_bytes, exact_bytes
from ridgeline.schedules.default import steps as default_steps
from ridgeline.schedules.dots import fitting
from ridgeline.schedules.machine import Machine, grain

_CONTROL_FLOW = NativeControlFlow()
MOST_CODE = 8 << 20  # bytes of machine code that stay mapped besides what programs use
machine_code: LoadedCode[Library] = LoadedCode(MOST_CODE)


def machine() -> Machine:
    """The facts about the machine that code is made for, as schedules use them."""
    made_for = target()
    wide = made_for.vector_bits >= 512
    threads = config.threads or made_for.threads
    registers = 32 if wide else 16
    halves = wide and made_for.cpu == "znver4"
    dots = (n for n, row in INSTRUCTIONS.items() if row.depth > 1 and has_instruction(n))
    facts = Machine(
        made_for.vector_bits // 8, registers, threads, made_for.l1, made_for.l2, made_for.l3,
        halves, tuple(sorted(name for name in dots if pays(name, made_for.cpu))),
    )  # fmt: skip
    # more threads than cores would measure nothing, and what is measured differs between runs
    if not config.calibrate or config.deterministic or threads > made_for.threads:
        return facts
    if made_for.cpu != host().cpu:  # nor does measuring here say anything of another machine
        return facts
    rates = calibration()
    if rates is None:
        return facts
    return replace(
        facts, core_bytes=rates.core_bytes, core_flops=rates.core_flops,
        region_seconds=rates.region_seconds,
    )  # fmt: skip


def pays(instruction: str, cpu: str) -> bool:
    """False for pairs of bfloat16 on Intel's cores, and on those that nobody measured.

    There the instruction takes the time in which two units do four multiply-adds in float32: these
    were 1.0 to 1.6 times as fast on Emerald Rapids, and half as fast on Zen 4.
    """
    return instruction != "vdpbf16ps" or cpu.startswith("znver")


def task_extents(kernel: Kernel) -> Iterator[Expr]:
    """The extents of the leading parallel loops, whose product is the number of tasks."""
    body = kernel.body
    while isinstance(body, For) and body.kind == "parallel":
        yield body.extent
        body = body.body


def task_count(kernel: Kernel, sizes: Mapping[str, int] = MappingProxyType({})) -> int:
    """The number of tasks, at given values of symbolic sizes."""
    known: dict[Expr, Expr] = {Var.make(n): index(v) for n, v in sizes.items()}
    extents = [e if isinstance(e, Const) else substitute(e, known) for e in task_extents(kernel)]
    counts = [int(extent.value) for extent in extents if isinstance(extent, Const)]
    assert len(counts) == len(extents)
    return prod(counts)


@dataclass(frozen=True, slots=True)
class TaskLaunch:
    """How many tasks a kernel has, and how many are handed out at a time."""

    tasks: int
    grain: int


def launch_of(tasks: int, seconds: float, facts: Machine) -> TaskLaunch | None:
    """How a kernel of so many tasks is started, which takes these seconds; None without any."""
    return TaskLaunch(tasks, grain(tasks, seconds, facts)) if tasks else None


class CpuBackend(Backend):
    """Compiles for the host; kernels compute everything that has loops."""

    launch_types = (TaskLaunch, *CALL_TYPES)
    posts_collectives = True

    def __init__(self, number: int = 0) -> None:
        """There is one host."""

    def facts(self) -> Machine:
        """The facts of this machine that schedules use, the number of threads among them."""
        return machine()

    def roofline(self, facts: Machine) -> Roofline:
        """What one of the working cores does; a kernel of its own costs half a parallel step."""
        return Roofline(facts.core_bytes, facts.core_flops, facts.region_seconds / 2, chains=True)

    def fingerprint(self) -> str:
        """The compiler's sources, LLVM and the CPU."""
        return compiler_fingerprint()

    def schedule(self, lowered: Lowered, facts: Machine) -> list[ScheduleStep]:
        """The default schedule of a kernel."""
        return default_steps(lowered, facts)

    def reads_narrow_operands(self, node: Node, facts: Machine) -> bool:
        """Products by instructions that take narrow numbers, and those with narrow weights alone.

        Weights, the second operand, are widened as they are packed, or read by few rows. What lies
        in rows of the first would be widened again for every strip of columns.
        """
        left, right = map(widened_from, node.inputs)
        if right is None:
            return False
        if left is None:
            return node.dtype is float32
        rows = [INSTRUCTIONS[name] for name in facts.instructions]
        pairs = ((left, right), (right, left))
        return any(fitting(row, *pair, node.dtype) for row in rows for pair in pairs)

    def block_bytes(self, nbytes: int, exact: bool) -> int:
        """The size class of the pool, or whole pages."""
        return exact_bytes(nbytes) if exact else block_bytes(nbytes)

    def control_flow(self) -> NativeControlFlow:
        """All control flow without NumPy calls."""
        return _CONTROL_FLOW

    def launch(self, group: FusionGroup, kernel: Kernel) -> TaskLaunch | None:
        """The tasks of a kernel of known sizes."""
        return launch_of(task_count(kernel), group.seconds, machine())

    def compile(
        self,
        kernels: Sequence[CompiledKernel],
        library_calls: Sequence[FusionGroup] = (),
        joined: Sequence[Sequence[CompiledKernel]] = (),
        begun: Mapping[str, Any] = MappingProxyType({}),
    ) -> bytes:
        """Object code for all kernels; those already in the process keep their machine code."""
        return self.compile_loops([compiled.kernel for compiled in kernels])

    def compile_loops(self, kernels: Sequence[Kernel]) -> bytes:
        """Object code for scheduled loops; without a disk cache, only of new ones."""
        kept = config.cache_max_bytes > 0
        there = machine_code.held(kernel.name for kernel in kernels)
        unique = [k for k in {k.name: k for k in kernels}.values() if kept or k.name not in there]
        if not unique:
            return b""
        code = compile_ir(self.source(unique))
        self.load(code, [kernel.name for kernel in unique])
        return code

    def load(self, code: bytes, symbols: Sequence[str]) -> None:
        """Map object code into the process, unless all of its kernels are loaded."""
        machine_code.load([(symbols, lambda: Library.load(code, lasting=False))])

    def legalize(self) -> Sequence[LoopPass]:
        """Passes for what LLVM IR cannot express."""
        return LEGALIZE

    def source(self, kernels: Sequence[Kernel]) -> str:
        """LLVM IR."""
        return module_text(list(kernels), target().vector_bits // 8)

    def executable(self, layout: Layout, calls: NumpyCalls) -> CpuExecutable:
        """Plans, with the NumPy calls between them."""
        return CpuExecutable(layout, calls, machine_code)
