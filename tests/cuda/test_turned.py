"""Kernels that read across the order in which they store, as tiles turned in shared memory.

No GPU is needed: the loops run in the interpreter with its race detector, and NVRTC compiles them.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings, strategies as st

import ridgeline as rl
from ridgeline.codegen.cuda import compile_all, generate
from ridgeline.loops.interpreter.interpret import interpret
from ridgeline.loops.ir import Kernel
from ridgeline.loops.schedule import replay
from ridgeline.schedules.gpu.default import steps
from ridgeline.schedules.gpu.machine import H200, T4
from tests.cuda.lowering import SMALL_GPU


def scheduled(function: Callable[..., Any], *arrays: Any) -> Kernel:
    """The one kernel of a function."""
    loops = rl.loops(function, *map(rl.tensor, arrays))
    return replay(loops.lowered.kernel, steps(loops.lowered, SMALL_GPU))


def is_turned(kernel: Kernel) -> bool:
    """True where a tile goes through shared memory."""
    return "_shared" in generate(kernel).text.split('extern "C"')[1]


def numbers(seed: int, *shape: int, dtype: Any = np.float32) -> Any:
    return np.random.default_rng(seed).integers(-9, 10, shape).astype(dtype)


def run(kernel: Kernel, arrays: list[Any], result: Any) -> Any:
    """The result of a kernel whose operands are these arrays, in order."""
    memory = {slot: array.reshape(-1) for slot, array in enumerate(arrays)}
    interpret(kernel, {**memory, len(arrays): result.reshape(-1)})
    return result


LENGTHS = st.sampled_from([17, 28, 33, 40, 49, 64, 72, 130, 300])
DTYPES = [np.float32, np.float16, np.float64, np.int8, rl.bfloat16.numpy]


@settings(max_examples=25, deadline=None)
@given(LENGTHS, LENGTHS | st.integers(2, 16), st.sampled_from([1, 2, 3]), st.sampled_from(DTYPES))
def test_any_plane_of_any_type(rows: int, columns: int, batch: int, dtype: Any) -> None:
    x = numbers(rows, batch, rows, columns, dtype=dtype)
    kernel = scheduled(lambda x: x.permute(0, 2, 1), x)
    assert is_turned(kernel) == (rows * columns >= 512)
    result = run(kernel, [x], np.zeros((batch, columns, rows), dtype))
    np.testing.assert_array_equal(result, x.transpose(0, 2, 1))


@pytest.mark.parametrize("order", [(0, 2, 3, 1), (0, 3, 1, 2), (3, 2, 1, 0), (2, 3, 0, 1)])
def test_images(order: tuple[int, ...]) -> None:
    x = numbers(1, 34, 36, 5, 33)
    kernel = scheduled(lambda x: x.permute(*order), x)
    made = np.transpose(x, order)
    np.testing.assert_array_equal(run(kernel, [x], np.zeros(made.shape, x.dtype)), made)


def test_what_lies_along_the_result_is_read_as_it_lies() -> None:
    """Two operands across, one along, one repeated."""
    across, other = numbers(0, 2, 64, 96), numbers(1, 2, 64, 96, dtype=np.float16)
    along, bias = numbers(2, 2, 96, 64), numbers(3, 64)

    def function(a: Any, b: Any, c: Any, d: Any) -> Any:
        return (a.permute(0, 2, 1) + c + d).relu() * b.float().permute(0, 2, 1)

    arrays = [across, other, along, bias]
    kernel = scheduled(function, *arrays)
    text = generate(kernel).text.split('extern "C"')[1]
    assert text.count("_shared_") >= 2 and text.count("__syncthreads") == 1
    wanted = np.maximum(across.transpose(0, 2, 1) + along + bias, 0) * other.transpose(0, 2, 1)
    ordered = [other, bias, along, across]  # as the kernel meets them
    np.testing.assert_array_equal(run(kernel, ordered, np.zeros(wanted.shape, np.float32)), wanted)


def test_an_operand_with_a_margin() -> None:
    x = numbers(4, 2, 40, 60)
    kernel = scheduled(lambda x: rl.nn.functional.pad(x, (2, 2)).permute(0, 2, 1), x)
    wanted = np.pad(x, ((0, 0), (0, 0), (2, 2))).transpose(0, 2, 1)
    np.testing.assert_array_equal(run(kernel, [x], np.zeros(wanted.shape, x.dtype)), wanted)


def test_an_operand_read_both_ways() -> None:
    x = numbers(5, 64, 64)
    kernel = scheduled(lambda x: x + x.T, x)
    np.testing.assert_array_equal(run(kernel, [x], np.zeros((64, 64), x.dtype)), x + x.T)


@pytest.mark.parametrize("shape", [(1, 64), (64, 1), (3, 128), (16, 128), (0, 64)])
def test_thin_planes_are_not_turned(shape: tuple[int, int]) -> None:
    x = numbers(6, *shape)
    kernel = scheduled(lambda x: x.T + 1, x)
    assert not is_turned(kernel)
    np.testing.assert_array_equal(run(kernel, [x], np.zeros(shape[::-1], x.dtype)), x.T + 1)


def test_vectors_both_ways_where_a_tile_is_not_whole() -> None:
    """bfloat16 images of 56 × 57 points: both ways accesses of 16 bytes behind a test."""
    x = rl.zeros(2, 96, 56, 57, dtype=rl.bfloat16)
    loops = rl.loops(lambda x: x.permute(0, 2, 3, 1), x)
    kernel = replay(loops.lowered.kernel, steps(loops.lowered, H200))
    text = generate(kernel).text.split('extern "C"')[1]
    assert text.count("*(const Pack<unsigned short, 8> *)") == 1
    assert text.count("*(Pack<unsigned short, 8> *)") == 2  # into the tile, and the result


def test_bits_are_moved_as_they_are() -> None:
    loops = rl.loops(lambda x: x.T, rl.zeros(64, 128, dtype=rl.bfloat16))
    text = generate(replay(loops.lowered.kernel, steps(loops.lowered, H200))).text
    assert "float" not in text.split('extern "C"')[1]


def test_they_compile_for_old_and_new_gpus() -> None:
    pytest.importorskip("cuda.bindings.nvrtc")
    for gpu in (T4, H200):
        texts = []
        for dtype in (rl.bfloat16, rl.float32, rl.int8, rl.float64, rl.bool):
            loops = rl.loops(lambda x: x.permute(0, 2, 1), rl.zeros(3, 72, 49, dtype=dtype))
            texts.append(generate(replay(loops.lowered.kernel, steps(loops.lowered, gpu))).text)
        assert all(code.startswith(b"\x7fELF") for code in compile_all(texts, gpu.arch))
