"""Every GPU schedule means what the loops mean, without races, and compiles for old and new GPUs.

No GPU is needed: the loop interpreter runs the scheduled loops with its race detector, and NVRTC
compiles the generated text.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from ridgeline import dtypes
from ridgeline.dtypes import DType
from ridgeline.loops.interpreter.interpret import interpret
from ridgeline.loops.text.printer import print_kernel
from ridgeline.ops import reduce as R
from ridgeline.schedules.gpu.machine import A100, H200, T4, GpuMachine
from tests.compiler.programs import catalogue, evaluate, inputs_for
from tests.cuda.lowering import SMALL_GPU, closed, random_inputs, schedule
from tests.cuda.programs import FAMILIES, call, given
from tests.loops.parser import parse_kernel

TOLERANCE = {dtypes.float32: 3e-5, dtypes.bfloat16: 3e-2, dtypes.float64: 1e-9}


def check(
    outputs: Any, inputs: Any, arrays: Any, tolerance: float, gpu: GpuMachine = SMALL_GPU
) -> None:
    """Run the scheduled loops of a graph one kernel after another, and compare each result."""
    truth = dict(zip(inputs, arrays))
    values = dict(truth)
    for scheduled in schedule(outputs, inputs, gpu):
        lowered = scheduled.lowered
        assert parse_kernel(print_kernel(scheduled.kernel)) == scheduled.kernel
        memory = {i: np.ascontiguousarray(values[n]) for i, n in enumerate(lowered.slots)
                  if i < lowered.reads}  # fmt: skip
        for i, node in enumerate(lowered.slots[lowered.reads :], lowered.reads):
            memory[i] = np.zeros(node.shape, node.dtype.numpy)  # type: ignore[arg-type]
        interpret(scheduled.kernel, memory, {})
        for i, node in enumerate(lowered.slots[lowered.reads :], lowered.reads):
            values[node] = memory[i]
            (expected,) = evaluate([node], truth)
            np.testing.assert_allclose(
                memory[i].astype(np.float64), expected.astype(np.float64),
                rtol=tolerance, atol=tolerance,
            )  # fmt: skip


@pytest.mark.parametrize("dtype", [dtypes.float32, dtypes.bfloat16], ids=lambda d: d.name)
@pytest.mark.parametrize("name", FAMILIES)
def test_families_in_the_interpreter(name: str, dtype: DType) -> None:
    outputs, inputs = FAMILIES[name](24, 40, dtype)
    outputs, inputs, held = closed(outputs, inputs)
    arrays = [*random_inputs(inputs[: len(inputs) - len(held)], 1), *held]
    check(outputs, inputs, arrays, TOLERANCE[dtype])


@pytest.mark.parametrize("name", ["softmax", "cross_entropy", "cross_entropy_backward"])
def test_rows_too_long_to_be_held(name: str) -> None:
    narrow = GpuMachine("sm_80", 1, 166_912, 1 << 20, block_threads=32)
    outputs, inputs, held = closed(*FAMILIES[name](2, 6000, dtypes.float32))
    arrays = [*random_inputs(inputs[: len(inputs) - len(held)], 1), *held]
    check(outputs, inputs, arrays, 3e-5, narrow)


@pytest.mark.parametrize("name", catalogue())
def test_catalogue_in_the_interpreter(name: str) -> None:
    outputs, inputs = catalogue()[name]
    check(outputs, inputs, inputs_for(inputs, seed=2), 3e-5)


def test_rows_of_gathered_elements() -> None:
    x, at = given(dtypes.float32, 9, 8), given(dtypes.int64, 6, 8)
    found = call("gather", x, 0, at)
    outputs = [call("sub", found, call("amax", found, 1, True))]
    assert any("held" in print_kernel(s.kernel) for s in schedule(outputs, [x, at], SMALL_GPU))
    check(outputs, [x, at], random_inputs([x, at], 1), 0.0)


@pytest.mark.parametrize("name", ["padded", "joined"])
def test_rows_held_are_read_where_they_have_elements(name: str) -> None:
    x, y = given(dtypes.float32, 6, 7), given(dtypes.float32, 6, 8)
    row = call("pad", x, (2, 1)) if name == "padded" else call("cat", (y, x), 1)
    outputs, inputs, held = closed([call("softmax", row, 1)], [x, y])
    assert any("held" in print_kernel(s.kernel) for s in schedule(outputs, inputs, SMALL_GPU))
    check(outputs, inputs, [*random_inputs([x, y], 1), *held], 3e-5)


@pytest.mark.parametrize("name", ["gathered", "scaled and padded"])
def test_turned_tiles_are_read_where_they_have_elements(name: str) -> None:
    x, at = given(dtypes.float32, 33, 17), given(dtypes.int64, 17, 33)
    if name == "gathered":
        result = call("gather", x, 0, call("transpose", at, 0, 1))
    else:
        result = call("pad", call("tanh", call("transpose", x, 0, 1)), (2, 1, 2, 1))
    outputs, inputs, held = closed([result], [x, at])
    check(outputs, inputs, [*random_inputs([x, at], 1), *held], 3e-5)


@pytest.mark.parametrize("count", [2, 3, 5, 9])
def test_parts_of_several_lengths(count: int) -> None:
    parts = [given(dtypes.float32, 1 + n % 4, 3) for n in range(count)]
    check([call("cat", parts, 0)], parts, random_inputs(parts, 1), 0.0)


def test_hundreds_of_parts_are_not_nested_in_one_another() -> None:
    from ridgeline.codegen.cuda import generate

    parts = [given(dtypes.float32, 1 + n % 2, 3) for n in range(600)]
    (scheduled,) = schedule([call("cat", parts, 0)], parts, SMALL_GPU)
    assert len(generate(scheduled.kernel).text.splitlines()) > len(parts)


SHAPES = {  # small rows, rows of a block, of a cluster, too long to be held; and of odd length
    "small": (64, 96), "block": (300, 8192), "cluster": (200, 65536), "long": (200, 128256),
    "odd": (33, 1001),
}  # fmt: skip


@pytest.mark.parametrize("gpu", [A100, H200], ids=lambda g: g.arch)
@pytest.mark.parametrize("name", FAMILIES)
def test_families_compile(name: str, gpu: GpuMachine) -> None:
    pytest.importorskip("cuda.bindings.nvrtc")
    from ridgeline.codegen.cuda import compile_all, generate

    texts = []
    square = ("matmul", "matmul_backward", "convolution", "max_pool")
    for shape in ["small"] if name in square else SHAPES:
        rows, columns = SHAPES[shape]
        outputs, inputs = FAMILIES[name](rows, columns, dtypes.bfloat16)
        outputs, inputs, _ = closed(outputs, inputs)
        for scheduled in schedule(outputs, inputs, gpu):
            source = generate(scheduled.kernel)
            assert all(launch.block <= 1024 for launch in source.launches)
            assert all(launch.shared_bytes <= gpu.shared_bytes for launch in source.launches)
            if gpu is H200 or shape in ("small", "block"):  # one of every kind for the other
                texts.append(source.text)
    assert all(code.startswith(b"\x7fELF") for code in compile_all(texts, gpu.arch))


@pytest.mark.parametrize("gpu", [H200, T4], ids=lambda g: g.arch)
def test_many_column_sums_meet_in_the_shared_memory_there_is(gpu: GpuMachine) -> None:
    from ridgeline.codegen.cuda import generate

    x = given(dtypes.bfloat16, 128, 256)
    sums = [R.sum_(call("tanh", call("mul", x, 1.0 + n / 16)), (0,)) for n in range(20)]
    outputs, inputs, held = closed(sums, [x])
    check(outputs, inputs, [*random_inputs([x], 1), *held], 3e-2, gpu)
    sources = [generate(scheduled.kernel) for scheduled in schedule(outputs, inputs, gpu)]
    used = [launch.shared_bytes for source in sources for launch in source.launches]
    assert 0 < max(used) <= gpu.shared_bytes


def test_every_family_compiles_for_the_oldest_gpus() -> None:
    pytest.importorskip("cuda.bindings.nvrtc")
    from ridgeline.codegen.cuda import compile_all, generate

    texts = []
    for family in FAMILIES.values():
        outputs, inputs, _ = closed(*family(64, 96, dtypes.bfloat16))
        for scheduled in schedule(outputs, inputs, T4):
            source = generate(scheduled.kernel)
            assert all(launch.shared_bytes <= T4.shared_bytes for launch in source.launches)
            assert all(launch.cluster == 1 for launch in source.launches)
            texts.append(source.text)
    assert all(code.startswith(b"\x7fELF") for code in compile_all(texts, T4.arch))


CASTS = """kernel casts(x: float32[64] @0, y: {0}[64] @1, z: float32[64] @2)
for i < 64 thread:
  y[i] = {0}(x[i])
  z[i] = float32(y[i])
"""
LOOPED = [d for d in dtypes.ALL if d.kind != "complex" and not d.name.startswith("float8")]


@pytest.mark.parametrize("dtype", [d for d in dtypes.ALL if d.kind != "complex"], ids=str)
def test_conversions_compile(dtype: DType) -> None:
    pytest.importorskip("cuda.bindings.nvrtc")
    from ridgeline.codegen.cuda import compile_source, generate

    compile_source(generate(parse_kernel(CASTS.format(dtype.name))).text, "sm_75")


@pytest.mark.parametrize("dtype", LOOPED, ids=str)
def test_element_types_compile(dtype: DType) -> None:
    pytest.importorskip("cuda.bindings.nvrtc")
    from ridgeline.codegen.cuda import compile_all, generate

    names = ["column_sum", "argmax"] if dtype.kind == "float" else ["argmax"]
    if dtype.kind == "float":
        names += ["matmul", "softmax"]
    texts = []
    for name in names:
        outputs, inputs, _ = closed(*FAMILIES[name](32, 40, dtype))
        texts += [generate(s.kernel).text for s in schedule(outputs, inputs, SMALL_GPU)]
    compile_all(texts, "sm_75")
