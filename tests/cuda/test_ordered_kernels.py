"""Sorts and scatters as a GPU does them, in the interpreter of loops, against NumPy."""

from __future__ import annotations

import numpy as np
import pytest

from ridgeline import dtypes
from ridgeline.devices import device
from ridgeline.dtypes import DType
from ridgeline.graph.interpreter import evaluate
from ridgeline.graph.node import node
from ridgeline.graph.passes.prepare import prepare
from ridgeline.graph.passes.tiled_sorts import tiled_sorts
from ridgeline.ops.radix import RANK, DigitAttrs
from ridgeline.ops.sort import sort
from ridgeline.ops.tiled_radix import DIGIT_COUNTS, TileAttrs, tiled
from ridgeline.schedules.gpu.machine import A100, H200, T4, GpuMachine
from tests.cuda.lowering import interpreted, schedule
from tests.cuda.programs import call, given

RNG = np.random.default_rng(5)


@pytest.mark.parametrize("shape", [(9,), (1, 1), (5, 3), (130, 3), (7, 64), (3, 200)])
def test_ranks(shape: tuple[int, ...]) -> None:
    keys = given(dtypes.uint32, *shape)
    values = RNG.integers(0, 20, shape).astype(np.uint32)
    (result,) = interpreted([node(RANK, (keys,))], [keys], [values])
    np.testing.assert_array_equal(result, np.argsort(values, -1, kind="stable"))


@pytest.mark.parametrize(
    ("shape", "dtype", "digit"),
    [
        ((2, 500), dtypes.uint32, DigitAttrs(3, 8)),
        ((1300,), dtypes.uint64, DigitAttrs(40, 8)),
        ((2, 1024), dtypes.uint32, DigitAttrs(21, 11)),
        ((1, 513), dtypes.uint8, DigitAttrs(7, 1)),
    ],
)
def test_radix_passes_by_tiles(shape: tuple[int, ...], dtype: DType, digit: DigitAttrs) -> None:
    keys, order = given(dtype, *shape), given(dtypes.int32, *shape)
    values = RNG.integers(0, 1 << (dtype.bits - 1), shape).astype(dtype.numpy)
    values[..., :100] = values[..., 100:200]  # equal keys keep their order
    before = np.broadcast_to(np.arange(shape[-1], dtype=np.int32)[::-1], shape)
    both = tiled(keys, order, digit, 512)
    found = interpreted(both, [keys, order], [values, before])
    shift, mask = (np.array(n, dtype.numpy) for n in (digit.shift, (1 << digit.bits) - 1))
    places = np.argsort((values >> shift) & mask, -1, kind="stable")
    np.testing.assert_array_equal(found[0], np.take_along_axis(values, places, -1))
    np.testing.assert_array_equal(found[1], np.take_along_axis(before, places, -1))


def test_counts_are_those_of_the_definition() -> None:
    keys = given(dtypes.uint32, 2, 700)
    values = RNG.integers(0, 1 << 32, (2, 700)).astype(np.uint32)
    counts = node(DIGIT_COUNTS, (keys,), TileAttrs(4, 3, 512))
    (result,) = interpreted([counts], [keys], [values])
    np.testing.assert_array_equal(result, counts.op.value(counts, [values])[0])


@pytest.mark.parametrize("gpu", [T4, A100, H200], ids=lambda gpu: gpu.arch)
def test_tiles_fit_every_gpu(gpu: GpuMachine) -> None:
    pytest.importorskip("cuda.bindings.nvrtc")
    from ridgeline.codegen.cuda import compile_all, generate

    for dtype in (dtypes.float64, dtypes.float32):
        x = given(dtype, 100_000)
        written = tiled_sorts(prepare(sort(x, 0), {x}.__contains__), gpu.shared_bytes)
        sources = [generate(made.kernel) for made in schedule(written, [x], gpu)]
        launches = [launch for source in sources for launch in source.launches]
        assert all(launch.shared_bytes <= gpu.shared_bytes for launch in launches)
    assert compile_all([sources[-2].text], gpu.arch)[0].startswith(b"\x7fELF")


@pytest.mark.parametrize("axis", [0, 1])
@pytest.mark.parametrize("shape", [(50, 40), (3, 300), (200, 1), (1, 7)])
def test_scatters_along_either_axis(shape: tuple[int, int], axis: int) -> None:
    x, index, y = (
        given(dtypes.float32, *shape),
        given(dtypes.int64, *shape),
        given(dtypes.float32, *shape),
    )
    base, added = (RNG.integers(-9, 10, shape).astype(np.float32) for _ in range(2))
    places = RNG.integers(0, shape[axis], shape)
    (result,) = interpreted(
        [call("scatter_add", x, axis, index, y)], [x, index, y], [base, places, added]
    )
    where = np.indices(shape)
    where[axis] = places
    np.add.at(base, tuple(where), added)
    np.testing.assert_array_equal(result, base)


def test_counting_on_a_gpu_reads_two_numbers() -> None:
    from ridgeline.functions.counting import _ends
    from ridgeline.graph.node import TensorType, leaf

    places = leaf(TensorType((1000,), dtypes.int64, device("cuda")))
    values = RNG.integers(3, 500, 1000)
    ends = _ends(places)
    assert ends.shape == (2,)
    (result,) = evaluate([ends], {places: values})
    assert result.tolist() == [values.min(), values.max()]
    empty = leaf(TensorType((0,), dtypes.int64, device("cuda")))
    assert _ends(empty) is empty
