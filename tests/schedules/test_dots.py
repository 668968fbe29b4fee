"""Products of narrow numbers by dot-product instructions: chosen where they fit, and right."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given, settings, strategies as st

import ridgeline as rl
from ridgeline import dtypes
from ridgeline.compiler import CompiledKernel, lower_graph
from ridgeline.dtypes import DType
from ridgeline.functions.linear import einsum
from ridgeline.graph.graph import Graph
from ridgeline.graph.node import TensorType, leaf
from ridgeline.loops.interpreter.interpret import interpret
from ridgeline.loops.schedule import replay
from ridgeline.loops.text.printer import print_kernel
from ridgeline.ops.contract import ContractAttrs, axis, contract
from ridgeline.ops.elementwise import cast
from ridgeline.runtime.cpu.backend import pays, task_count
from ridgeline.schedules.accesses import accesses
from ridgeline.schedules.dots import best_dot, dot_steps
from ridgeline.schedules.machine import Machine
from tests.loops.validation import run_native, same_results

PLAIN = Machine(64, 32, 2, 32 << 10, 1 << 20, 32 << 20)
DOTS = replace(PLAIN, instructions=("vdpbf16ps",))
MANY = replace(DOTS, threads=16)


def scheduled(form: str, *shapes: tuple[int, ...], machine: Machine = DOTS) -> CompiledKernel:
    inputs = [leaf(TensorType(shape, dtypes.bfloat16)) for shape in shapes]
    (compiled,) = lower_graph(Graph([einsum(form, *inputs)], inputs), machine).kernels
    return compiled


@pytest.mark.parametrize("form,left,right", [
    ("mk,kn->mn", (200, 34), (34, 48)),
    ("mk,nk->mn", (170, 20), (64, 20)),
    ("bmk,bkn->bmn", (2, 150, 16), (2, 16, 32)),
    ("mk,kn->mn", (64, 33), (33, 48)),  # an odd number of products
    ("mk,kn->mn", (64, 32), (32, 40)),  # columns that fill no whole vectors
    ("km,kn->mn", (32, 61), (32, 64)),  # words of neither operand are whole in memory
    ("km,nk->mn", (35, 40), (50, 35)),
    ("bkm,bkn->bmn", (3, 17, 30), (3, 17, 33)),
])  # fmt: skip
def test_the_schedule_means_the_plain_loops(
    form: str, left: tuple[int, ...], right: tuple[int, ...]
) -> None:
    compiled = scheduled(form, left, right)
    assert "mma vdpbf16ps" in print_kernel(compiled.kernel)
    same_results(compiled.group.loops.kernel, compiled.kernel, tolerance=0.02)


def test_where_packing_costs_more_than_it_gives_there_is_a_plain_tile() -> None:
    assert "mma" not in print_kernel(scheduled("mk,kn->mn", (2, 512), (512, 64)).kernel)


def test_the_operand_along_which_results_lie_is_in_the_lanes() -> None:
    m, n, k = 50, 48, 40
    inputs = [leaf(TensorType(shape, dtypes.bfloat16)) for shape in ((k, n), (k, m))]
    maps = [tuple(map(axis, axes)) for axes in ((2, 1), (2, 0))]
    product = contract(*inputs, ContractAttrs((m, n, k), (0, 1), *maps))
    (compiled,) = lower_graph(Graph([product], inputs), DOTS).kernels
    assert "mma vdpbf16ps" in print_kernel(compiled.kernel)
    same_results(compiled.group.loops.kernel, compiled.kernel, tolerance=0.02)


def test_machines_without_the_instruction_have_a_plain_tile() -> None:
    shapes = (512, 512), (512, 512)
    assert "mma" not in print_kernel(scheduled("mk,kn->mn", *shapes, machine=PLAIN).kernel)


def test_pairs_of_bfloat16_are_used_where_they_are_fast() -> None:
    assert pays("vdpbf16ps", "znver4") and not pays("vdpbf16ps", "emeraldrapids")
    assert pays("vpdpbusd", "emeraldrapids")


def test_every_core_has_a_share() -> None:
    for form, left in (("mk,kn->mn", (512, 512)), ("km,kn->mn", (512, 510))):
        kernel = scheduled(form, left, (512, 256), machine=MANY).kernel
        assert "mma" in print_kernel(kernel) and task_count(kernel) % 16 == 0


@pytest.mark.parametrize("form", ["nn", "nt"])
def test_products_against_float64(form: str) -> None:
    source = np.random.default_rng(0)
    m, n, k = 150, 96, 258
    x = rl.tensor(source.standard_normal((m, k), np.float32)).to(rl.bfloat16)
    shape = (k, n) if form == "nn" else (n, k)
    w = rl.tensor(source.standard_normal(shape, np.float32)).to(rl.bfloat16)
    bias = rl.tensor(source.standard_normal(n, np.float32)).to(rl.bfloat16)
    product = rl.jit(lambda x, w, b: rl.relu((x @ (w if form == "nn" else w.T)).float() + b))
    result = product(x, w, bias).numpy()
    a, b, c = (_double(t) for t in (x, w, bias))
    exact = a @ (b if form == "nn" else b.T)
    wanted = np.maximum(exact + c, 0)
    bound = 2.0**-8 * np.abs(exact) + k * 2.0**-23 * (
        np.abs(a) @ np.abs(b if form == "nn" else b.T)
    )
    assert np.all(np.abs(result - wanted) <= bound)


@settings(max_examples=12, deadline=None)
@given(
    form=st.sampled_from(["mk,kn->mn", "mk,nk->mn", "km,kn->mn", "km,nk->mn"]),
    m=st.integers(1, 60), n=st.integers(1, 100), k=st.integers(1, 70), threads=st.integers(1, 3),
)  # fmt: skip
def test_small_whole_numbers_multiply_exactly(
    form: str, m: int, n: int, k: int, threads: int
) -> None:
    """Infinities lie behind the operands: nothing beyond an end may take part."""
    sizes = {"m": m, "n": n, "k": k}
    shapes = [tuple(sizes[name] for name in term) for term in form.split("->")[0].split(",")]
    machine = replace(DOTS, threads=threads)
    lowered = scheduled(form, *shapes, machine=machine).group.loops
    rows, inner = {"m": m, "n": n}, {"k": k}
    dot = best_dot(lowered.kernel, accesses(lowered.kernel), rows, inner, machine)
    assert dot is not None
    source = np.random.default_rng(m * n * k)
    whole = [source.integers(-8, 9, shape) for shape in shapes]
    memory: dict[int, Any] = {}
    for slot, values in enumerate(whole):
        memory[slot] = np.full(values.size + 64, np.inf, dtypes.bfloat16.numpy)
        memory[slot][: values.size] = values.reshape(-1)
    memory[2] = np.zeros((m, n), dtypes.bfloat16.numpy)
    found = run_native(replay(lowered.kernel, dot_steps(dot, rows, k)), memory)[2]
    wanted = np.einsum(form, *whole).astype(np.float32).astype(dtypes.bfloat16.numpy)
    assert np.array_equal(found.astype(np.float32), wanted.astype(np.float32))


def _double(tensor: Any) -> np.ndarray[Any, np.dtype[np.float64]]:
    return torch.from_numpy(tensor.float().numpy()).double().numpy()


BYTES = replace(PLAIN, instructions=frozenset({"vpdpbusd"}))


def _bytes_product(
    shapes: Sequence[tuple[int, ...]], types: Sequence[DType], form: str, threads: int
) -> tuple[CompiledKernel, Machine]:
    facts = replace(BYTES, threads=threads)
    inputs = [leaf(TensorType(shape, dtype)) for shape, dtype in zip(shapes, types)]
    product = einsum(form, *(cast(i, dtypes.int32) for i in inputs))
    (compiled,) = lower_graph(Graph([product], inputs), facts).kernels
    return compiled, facts


@settings(max_examples=12, deadline=None)
@given(
    form=st.sampled_from(["mk,kn->mn", "mk,nk->mn", "km,kn->mn", "km,nk->mn"]),
    m=st.integers(1, 40), n=st.integers(1, 70), k=st.integers(1, 70), threads=st.integers(1, 2),
    left=st.sampled_from([dtypes.int8, dtypes.uint8]),
)  # fmt: skip
def test_bytes_multiply_exactly(
    form: str, m: int, n: int, k: int, threads: int, left: DType
) -> None:
    """Also the greatest and least of them, in the interpreter and as machine code."""
    sizes = {"m": m, "n": n, "k": k}
    shapes = [tuple(sizes[name] for name in term) for term in form.split("->")[0].split(",")]
    compiled, facts = _bytes_product(shapes, (left, dtypes.int8), form, threads)
    kernel, rows, inner = compiled.group.loops.kernel, {"m": m, "n": n}, {"k": k}
    dot = best_dot(kernel, accesses(kernel), rows, inner, facts)
    assert dot is not None
    source = np.random.default_rng(m * n * k)
    memory: dict[int, Any] = {2: np.zeros((m, n), np.int32)}
    for slot, (shape, dtype) in enumerate(zip(shapes, (left, dtypes.int8))):
        info = np.iinfo(dtype.numpy)
        memory[slot] = source.integers(info.min, info.max + 1, shape).astype(dtype.numpy)
        memory[slot][..., :1] = info.min
    tiled = replay(kernel, dot_steps(dot, rows, k))
    wanted = np.einsum(form, *(memory[slot].astype(np.int32) for slot in (0, 1)))
    assert np.array_equal(run_native(tiled, memory)[2], wanted)
    interpret(tiled, memory, {})
    assert np.array_equal(memory[2], wanted)


def test_products_of_bytes_read_bytes() -> None:
    compiled, _ = _bytes_product(((96, 64), (64, 96)), (dtypes.int8, dtypes.int8), "mk,kn->mn", 1)
    text = print_kernel(compiled.kernel)
    assert "mma vpdpbusd" in text and "b0: int8[96, 64]" in text and "b1: int8[64, 96]" in text
    same_results(compiled.group.loops.kernel, compiled.kernel, tolerance=0.0)


@pytest.mark.parametrize("shape", [(33, 5), (33, 6), (1, 1), (64, 64)])
@pytest.mark.parametrize("dtype", [rl.bfloat16, rl.int8], ids=str)
def test_products_of_a_matrix_and_itself(dtype: Any, shape: tuple[int, int]) -> None:
    numbers = np.random.default_rng(3).integers(-2, 3, shape)
    total = rl.int32 if dtype is rl.int8 else dtype
    for turned in (False, True):

        def gram(x: rl.Tensor, turned: bool = turned) -> rl.Tensor:
            wide = x.to(total)
            return wide.T @ wide if turned else wide @ wide.T

        got = rl.jit(gram)(rl.tensor(numbers).to(dtype))
        wanted = numbers.T @ numbers if turned else numbers @ numbers.T
        assert got.to(rl.int64).tolist() == rl.tensor(wanted).to(total).to(rl.int64).tolist()
