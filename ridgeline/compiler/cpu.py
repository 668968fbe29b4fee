"""The CPU backend: LLVM for code, plans of the native executor to run it (`cpu_run.py`)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from types import MappingProxyType
from typing import Any

from ridgeline.codegen.llvm.emit import LEGALIZE, module_text
from ridgeline.codegen.llvm.machine_code import Library, compile_ir, compiler_fingerprint, target
from ridgeline.codegen.llvm.matrix_instructions import has_instruction
from ridgeline.codegen.loaded_code import LoadedCode
from ridgeline.compiler.backend import Libraries
from ridgeline.compiler.cpu_run import CpuExecutable
from ridgeline.compiler.library_calls import LibraryCalls
from ridgeline.compiler.memory_plan import Layout
from ridgeline.compiler.stages import CompiledKernel
from ridgeline.config import config
from ridgeline.dtypes import float32
from ridgeline.fusion.groups import Group, Roofline
from ridgeline.fusion.materialize import on_host
from ridgeline.graph.graph import Graph
from ridgeline.graph.node import Node
from ridgeline.graph.strides import View, itself
from ridgeline.loops.build import substitute
from ridgeline.loops.instructions import INSTRUCTIONS
from ridgeline.loops.ir import Const, Expr, For, Kernel, Var, index
from ridgeline.loops.legalize import LoopPass
from ridgeline.loops.lowering.elements import widened_from
from ridgeline.loops.lowering.iteration_space import Lowered
from ridgeline.loops.schedule import Step as ScheduleStep
from ridgeline.runtime.cpu.calibration import calibration
from ridgeline.schedules.default import steps as default_steps
from ridgeline.schedules.dots import fitting
from ridgeline.schedules.machine import Machine
from ridgeline.schedules.parallel_tasks import grain

_NOTHING: Mapping[Any, Any] = MappingProxyType({})
MOST_CODE = 8 << 20  # bytes of machine code that stay mapped besides what programs use
machine_code: LoadedCode[Library] = LoadedCode(MOST_CODE)


def machine() -> Machine:
    """The facts of this machine that schedules use."""
    host = target()
    wide = host.vector_bits >= 512
    threads = config.threads or host.threads
    registers = 32 if wide else 16
    halves = wide and host.cpu == "znver4"
    dots = (n for n, row in INSTRUCTIONS.items() if row.depth > 1 and has_instruction(n))
    facts = Machine(
        host.vector_bits // 8, registers, threads, host.l1, host.l2, host.l3, halves,
        tuple(sorted(name for name in dots if pays(name, host.cpu))),
    )  # fmt: skip
    # more threads than cores would measure nothing, and what is measured differs between runs
    if not config.calibrate or config.deterministic or threads > host.threads:
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


def task_count(kernel: Kernel, sizes: Mapping[str, int] | None = None) -> int:
    """The product of the leading parallel loops, at given values of symbolic sizes."""
    tasks, body = 1, kernel.body
    known: dict[Expr, Expr] = {Var.make(n): index(v) for n, v in (sizes or {}).items()}
    while isinstance(body, For) and body.kind == "parallel":
        extent = substitute(body.extent, known)
        assert isinstance(extent, Const)
        tasks *= int(extent.value)
        body = body.body
    return tasks


class CpuBackend:
    """Compiles for the host."""

    def facts(self) -> Machine:
        """The facts of this machine that schedules use."""
        return machine()

    def key(self) -> Machine:
        """The facts of this machine, which hold the number of threads."""
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

    def libraries(self) -> Libraries:
        """None: kernels compute everything that has loops."""
        return Libraries()

    def shared_bytes(self) -> int:
        """None: there are no blocks of threads."""
        return 0

    def apart(self, node: Node) -> bool:
        """Contractions are ours, so all may share kernels."""
        return False

    def parts(self, lowered: Lowered, facts: Machine) -> str:
        """None: cores are few, and what one reads again is in its cache."""
        return ""

    def converts(self, node: Node, facts: Machine) -> bool:
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

    def computes(self, node: Node) -> bool:
        """None: attention is written out, and its parts share kernels."""
        return False

    def operands(self, node: Node, graph: Graph) -> Sequence[View]:
        """Each as it is: nothing is computed whole here."""
        return [itself(operand) for operand in node.inputs]

    def runs(self, node: Node) -> bool:
        """All control flow without library calls in it."""
        return node.op.family == "control" and not on_host(node)

    def launch(self, group: Group, kernel: Kernel | None) -> tuple[int, int] | None:
        """How many tasks, and how many are handed out at a time."""
        assert kernel is not None, "the CPU computes no node whole"
        return self.launch_at(kernel, {}, group.seconds)

    def launch_at(
        self, kernel: Kernel, sizes: Mapping[str, int], seconds: float
    ) -> tuple[int, int] | None:
        """The same for a kernel over symbolic sizes, which takes these seconds."""
        tasks = task_count(kernel, sizes)
        return (tasks, grain(tasks, seconds, machine())) if tasks else None

    def join_key(self, kernel: CompiledKernel) -> None:
        """None: the executor starts kernels one after the other at little cost."""

    def join_fits(self, parts: Sequence[CompiledKernel]) -> bool:
        """There are none."""
        return False

    def join(self, parts: Sequence[CompiledKernel]) -> tuple[str, tuple[int, int]]:
        """There are none."""
        raise AssertionError("the CPU starts kernels one by one")

    def begin(self, group: Group, kernel: CompiledKernel | None) -> Mapping[str, Any]:
        """Nothing: all kernels are one module."""
        return {}

    def compile(
        self,
        kernels: Sequence[CompiledKernel],
        whole: Sequence[Group] = (),
        joined: Sequence[Sequence[CompiledKernel]] = (),
        begun: Mapping[str, Any] = _NOTHING,
    ) -> bytes:
        """Object code for all kernels; those already in the process keep their machine code."""
        return self.compile_loops([compiled.kernel for compiled in kernels])

    def compile_loops(self, kernels: Sequence[Kernel]) -> bytes:
        """Object code for scheduled loops; without a disk cache, of those that are new here."""
        kept = config.cache_max_bytes > 0
        there = machine_code.held(kernel.name for kernel in kernels)
        unique = [k for k in {k.name: k for k in kernels}.values() if kept or k.name not in there]
        if not unique:
            return b""
        code = compile_ir(self.source(unique))
        self.load(code, [kernel.name for kernel in unique])
        return code

    def load(self, code: bytes, symbols: Sequence[str]) -> None:
        """Map object code into the process, unless all of it is there already."""
        machine_code.load([(symbols, lambda: Library.load(code, lasting=False))])

    def legalize(self) -> Sequence[LoopPass]:
        """What LLVM IR has no words for."""
        return LEGALIZE

    def source(self, kernels: Sequence[Kernel]) -> str:
        """LLVM IR."""
        return module_text(list(kernels), target().vector_bits // 8)

    def executable(self, layout: Layout, calls: LibraryCalls) -> CpuExecutable:
        """Plans with the library calls between them."""
        return CpuExecutable(layout, calls, machine_code)
