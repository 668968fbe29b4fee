"""Products in tile registers: loops of the same meaning, and code that leaves what they leave."""

from __future__ import annotations

import platform
from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings, strategies as st

import ridgeline as rl
from ridgeline import dtypes
from ridgeline.codegen.llvm import emit, machine_code, machine_code as facts
from ridgeline.codegen.llvm.machine_code import has_instruction
from ridgeline.compiler import CompiledKernel, lower_graph
from ridgeline.dtypes import DType
from ridgeline.functions.linear import einsum, linear
from ridgeline.functions.pointwise import relu
from ridgeline.graph.graph import Graph
from ridgeline.graph.node import TensorType, leaf
from ridgeline.loops.instructions import INSTRUCTIONS
from ridgeline.loops.interpreter.interpret import interpret
from ridgeline.loops.ir import Kernel, named
from ridgeline.loops.schedule import replay
from ridgeline.loops.text.printer import print_kernel
from ridgeline.ops.elementwise import cast
from ridgeline.runtime.cpu.backend import task_count
from ridgeline.schedules.accesses import accesses
from ridgeline.schedules.dots import best_dot, dot_steps
from ridgeline.schedules.machine import Machine
from tests.loops.validation import run_native
from tests.schedules.tile_machine import TileMachine

TILES = Machine(
    64, 32, 2, 48 << 10, 2 << 20, 32 << 20,
    instructions=tuple(n for n, row in INSTRUCTIONS.items() if row.rows > 1),
)  # fmt: skip
FORMS = ["mk,kn->mn", "mk,nk->mn", "km,kn->mn", "km,nk->mn"]
TYPES = [
    (dtypes.bfloat16, dtypes.bfloat16),
    *((a, b) for a in (dtypes.int8, dtypes.uint8) for b in (dtypes.int8, dtypes.uint8)),
]  # fmt: skip


def product(
    form: str, sizes: dict[str, int], types: tuple[DType, DType], machine: Machine = TILES
) -> CompiledKernel:
    terms = form.split("->")[0].split(",")
    shapes = [tuple(sizes[n] for n in term) for term in terms]
    inputs = [leaf(TensorType(shape, dtype)) for shape, dtype in zip(shapes, types)]
    total = dtypes.float32 if types[0] is dtypes.bfloat16 else dtypes.int32
    made = einsum(form, *(cast(i, total) for i in inputs))
    (compiled,) = lower_graph(Graph([made], inputs), machine).kernels
    return compiled


def tiled(compiled: CompiledKernel, machine: Machine = TILES) -> Kernel:
    """The kernel in tile registers, also where another schedule would be faster."""
    loops = compiled.group.loops
    rows = {a.name: int(a.extent) for a in loops.rows}  # type: ignore[call-overload]
    inner = {a.name: int(a.extent) for a in loops.inner}  # type: ignore[call-overload]
    dot = best_dot(loops.kernel, accesses(loops.kernel), rows, inner, machine)
    assert dot is not None and dot.instruction.rows > 1
    return replay(loops.kernel, dot_steps(dot, rows, *inner.values()))


def filled(kernel: Kernel, form: str, seed: int) -> tuple[dict[int, Any], Any]:
    """Memory with operands of which all products are exact, and the result there should be."""
    source = np.random.default_rng(seed)
    memory: dict[int, Any] = {}
    wide = []
    for buffer in sorted(kernel.params, key=lambda b: b.slot):
        shape = tuple(int(s.value) for s in buffer.shape)  # type: ignore[attr-defined]
        low, high = (-8, 9) if buffer.dtype.kind == "float" else (None, None)
        if low is None:
            info = np.iinfo(buffer.dtype.numpy)
            low, high = info.min, info.max + 1
        values = source.integers(low, high, shape)
        memory[buffer.slot] = values.astype(buffer.dtype.numpy)
        wide.append(values)
    memory[2][...] = 77
    return memory, np.einsum(form, *wide[:2])


@settings(
    max_examples=10, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)
@given(
    form=st.sampled_from(FORMS), types=st.sampled_from(TYPES), threads=st.integers(1, 3),
    m=st.integers(1, 70), n=st.integers(1, 100), k=st.integers(1, 140), whole=st.booleans(),
)  # fmt: skip
def test_products_of_whole_numbers_are_exact(
    form: str, types: tuple[DType, DType], threads: int, m: int, n: int, k: int, whole: bool,
    monkeypatch: pytest.MonkeyPatch,
) -> None:  # fmt: skip
    """In the interpreter, as plain machine code, and with tile registers."""
    if whole:
        m, n, k = 16 * (1 + m // 32), 16 * (1 + n // 32), 64 * (1 + k // 64)
    machine = replace(TILES, threads=threads)
    sizes = {"m": m, "n": n, "k": k}
    kernel = tiled(product(form, sizes, types, machine), machine)
    memory, wanted = filled(kernel, form, m * n * k)
    cpu = TileMachine()
    assert np.array_equal(cpu.run(kernel, memory, monkeypatch)[2], wanted)
    assert cpu.counts and not any(cpu.form), "registers were not used, or not given up"
    assert np.array_equal(run_native(kernel, memory)[2], wanted)
    interpret(kernel, memory, {})
    assert np.array_equal(memory[2], wanted)


def test_what_is_fused_behind_a_product_reads_its_tiles(monkeypatch: pytest.MonkeyPatch) -> None:
    inputs = [leaf(TensorType(shape, dtypes.bfloat16)) for shape in ((40, 70), (50, 70), (50,))]
    made = cast(linear(*inputs), dtypes.float32)
    (compiled,) = lower_graph(Graph([relu(made)], inputs), TILES).kernels
    source = np.random.default_rng(0)
    memory: dict[int, Any] = {
        slot: source.integers(-4, 5, node.shape).astype(dtypes.bfloat16.numpy)
        for slot, node in enumerate(inputs)
    }
    memory[3] = np.zeros((40, 50), np.float32)
    x, w, b = (memory[slot].astype(np.float32) for slot in range(3))
    assert "mma tdpbf16ps" in print_kernel(compiled.kernel)
    found = TileMachine().run(compiled.kernel, memory, monkeypatch)[3]
    rounded = (x @ w.T + b).astype(dtypes.bfloat16.numpy).astype(np.float32)
    assert np.array_equal(found, np.maximum(rounded, 0))


@pytest.mark.parametrize("types", [TYPES[0], TYPES[1]], ids=["bfloat16", "int8"])
def test_large_products_use_tiles_and_every_core(types: tuple[DType, DType]) -> None:
    machine = replace(TILES, threads=16)
    for form in FORMS:
        kernel = product(form, {"m": 512, "n": 512, "k": 512}, types, machine).kernel
        assert "mma tdp" in print_kernel(kernel) and task_count(kernel) % 16 == 0


def test_a_single_row_and_other_machines_use_no_tiles() -> None:
    row = product("mk,nk->mn", {"m": 1, "n": 256, "k": 256}, TYPES[0])
    assert "mma" not in print_kernel(row.kernel)
    without = replace(TILES, instructions=())
    plain = product("mk,nk->mn", {"m": 256, "n": 256, "k": 256}, TYPES[0], without)
    assert "mma" not in print_kernel(plain.kernel)


@pytest.mark.skipif(platform.machine() != "x86_64", reason="LLVM makes code for this CPU alone")
@pytest.mark.parametrize("types,name", [
    (TYPES[0], "tdpbf16ps"), (TYPES[1], "tdpbssd"), (TYPES[2], "tdpbsud"), (TYPES[3], "tdpbusd"),
    (TYPES[4], "tdpbuud"),
])  # fmt: skip
def test_assembly_has_the_instruction_and_keeps_sums_in_registers(
    types: tuple[DType, DType], name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(emit, "has_instruction", lambda name: INSTRUCTIONS[name].rows > 1)
    kernel = product("mk,kn->mn", {"m": 64, "n": 64, "k": 256}, types).kernel
    lines = assembly(emit.module_text([named(kernel)], 64)).splitlines()
    assert sum(line.split()[:1] == [name] for line in lines) == 4
    assert sum("tilezero" in line for line in lines) == 4
    assert sum("tilestored" in line for line in lines) == 4
    assert sum("tileloadd" in line for line in lines) == 4
    assert sum("ldtilecfg" in line for line in lines) == sum(
        "tilerelease" in line for line in lines
    )


def assembly(text: str) -> str:
    import llvmlite.binding as llvm

    _, options, preamble = machine_code._machine(machine_code.host())
    machine = llvm.Target.from_default_triple().create_target_machine(
        cpu="sapphirerapids", opt=3, reloc="pic", codemodel="small"
    )
    module = llvm.parse_assembly(preamble + text, llvm.create_context())
    passes = llvm.create_new_module_pass_manager()
    passes.add_sroa_pass()
    passes.run(module, llvm.create_pass_builder(machine, options))
    made: str = machine.emit_assembly(module)
    return made


def test_without_leave_of_the_system_there_are_no_tiles(monkeypatch: pytest.MonkeyPatch) -> None:
    features = "+avx512f,+amx-tile,+amx-bf16"
    monkeypatch.setattr(facts, "_cpu_and_features", lambda: ("sapphirerapids", features))
    monkeypatch.setattr(facts, "config", SimpleNamespace(isa="auto"))
    for allowed, sign in ((True, "+"), (False, "-")):
        monkeypatch.setattr(facts, "_may_use_tiles", lambda allowed=allowed: allowed)
        found = facts.host.__wrapped__().features
        assert found == f"+avx512f,{sign}amx-tile,{sign}amx-bf16"


@pytest.mark.skipif(not has_instruction("tdpbf16ps"), reason="this CPU has no tile registers")
@pytest.mark.parametrize("shape", [(64, 64, 64), (300, 70, 100), (512, 512, 1024), (17, 1, 33)])
def test_products_on_this_cpu_are_exact(shape: tuple[int, int, int]) -> None:
    m, n, k = shape
    source = np.random.default_rng(1)
    a, b = source.integers(-8, 9, (m, k)), source.integers(-8, 9, (k, n))
    wide = rl.jit(lambda x, y: x.float() @ y.float())
    found = wide(rl.tensor(a).to(rl.bfloat16), rl.tensor(b).to(rl.bfloat16))
    assert np.array_equal(found.numpy(), a @ b)
    whole = rl.jit(lambda x, y: x.to(rl.int32) @ y.to(rl.int32))
    for types in ((rl.int8, rl.int8), (rl.uint8, rl.int8), (rl.int8, rl.uint8)):
        left, right = (rl.tensor(v).to(t) for v, t in zip((a, b), types))
        signed = [v if t is rl.int8 else v % 256 for v, t in zip((a, b), types)]
        assert np.array_equal(whole(left, right).numpy(), signed[0] @ signed[1])
