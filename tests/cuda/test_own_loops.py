"""Sorts and scatters as a GPU does them, in the interpreter of loops, against NumPy."""

from __future__ import annotations

import numpy as np
import pytest

from ridgeline import dtypes
from ridgeline.devices import device
from ridgeline.dtypes import DType
from ridgeline.graph.graph import Graph
from ridgeline.graph.interpreter import evaluate
from ridgeline.graph.node import Node, TensorType, leaf, node
from ridgeline.graph.passes.legalize.decompose import join_updates, tile_sorts, widen_sums
from ridgeline.ops.gather import scatter
from ridgeline.ops.radix import RANK, DigitAttrs
from ridgeline.ops.sort import sort
from ridgeline.ops.tiled_radix import DIGIT_COUNTS, TileAttrs, tiled
from ridgeline.ops.tiled_selection import smallest_by_tiles, tile_size
from ridgeline.schedules.gpu.machine import A100, H200, T4, GpuMachine
from tests.compiler.passing import prepared
from tests.cuda.lowering import SMALL_GPU, interpreted, schedule
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


@pytest.mark.parametrize(
    ("shape", "count", "dtype", "alike"),
    [
        ((2, 700), 40, dtypes.uint32, 50),
        ((1100,), 17, dtypes.uint32, 1 << 31),
        ((1, 1025), 1, dtypes.uint64, 3),
        pytest.param((5000,), 17, dtypes.uint32, 1 << 31, marks=pytest.mark.slow),
        pytest.param((1, 4097), 1, dtypes.uint64, 3, marks=pytest.mark.slow),
        ((300,), 75, dtypes.uint8, 200),
        ((3, 1029), 257, dtypes.uint32, 1),
    ],
)
def test_selections_by_tiles(shape: tuple[int, ...], count: int, dtype: DType, alike: int) -> None:
    keys = given(dtype, *shape)
    values = RNG.integers(0, alike, shape).astype(dtype.numpy)
    values[..., 7] = np.iinfo(dtype.numpy).max  # the largest key is no mark of an empty place
    both = smallest_by_tiles(keys, count)
    assert both is not None
    found = interpreted(both, [keys], [values])
    places = np.sort(np.argsort(values, -1, kind="stable")[..., :count], -1)
    np.testing.assert_array_equal(found[1], places)
    np.testing.assert_array_equal(found[0], np.take_along_axis(values, places, -1))


def test_a_tile_that_is_all_largest_keys_keeps_its_first() -> None:
    keys = given(dtypes.uint32, 600)
    values = np.full(600, 0xFFFFFFFF, np.uint32)
    both = smallest_by_tiles(keys, 30)
    assert both is not None
    found = interpreted(both, [keys], [values])
    np.testing.assert_array_equal(found[1], np.arange(30))


@pytest.mark.parametrize("length", [4096, 4097, 8191, 8193, 50257, 999_983])
@pytest.mark.parametrize("count", [1, 40, 1024])
def test_every_tile_has_as_many_as_are_wanted(length: int, count: int) -> None:
    size = tile_size(length, count, 4096)
    assert size is not None and size <= 4096
    tiles = -(-length // size)
    assert length - (tiles - 1) * size >= count


@pytest.mark.parametrize("arch", ["sm_75", "sm_80", "sm_89", "sm_90a", "sm_100", "sm_120"])
def test_selections_compile_for_every_architecture(arch: str) -> None:
    pytest.importorskip("cuda.bindings.nvrtc")
    from ridgeline.codegen.cuda import compile_all, generate

    x = given(dtypes.float32, 3, 5000)
    outputs = prepared(sort(x, 1, True, 40), [x])
    written = tile_sorts(Graph(outputs, [x]), T4.shared_bytes).outputs
    texts = [generate(made.kernel).text for made in schedule(written, [x], T4)]
    for image in compile_all(texts, arch):
        assert image.startswith(b"\x7fELF")


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
        written = tile_sorts(Graph(prepared(sort(x, 0), [x]), [x]), gpu.shared_bytes).outputs
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


SETS = [  # base, places of the updates, axes that they name
    ((10,), (700,), (0,)), ((700,), (3,), (0,)), ((5, 300), (200,), (1,)), ((300, 5), (200,), (0,)),
    ((4, 3, 50), (9, 11), (2, 0)), ((7, 6), (4,), (1,)), ((3, 2, 4), (100,), (2, 1)),
    ((70, 64), (2,), (0,)), ((1,), (65,), (0,)),
]  # fmt: skip


@pytest.mark.parametrize("dtype", [dtypes.float32, dtypes.bool_, dtypes.bfloat16])
@pytest.mark.parametrize(("shape", "places", "axes"), SETS)
def test_the_last_update_of_a_place_counts(
    shape: tuple[int, ...], places: tuple[int, ...], axes: tuple[int, ...], dtype: DType
) -> None:
    kept = tuple(n for a, n in enumerate(shape) if a not in axes)
    x, y = given(dtype, *shape), given(dtype, *places, *kept)
    indices = [given(dtypes.int64, *places) for _ in axes]
    arrays = [RNG.integers(0, 100, n.shape).astype(dtype.numpy) for n in (x, y)]  # type: ignore[arg-type]
    arrays += [RNG.integers(0, shape[a], places) for a in axes]
    inputs = [x, y, *indices]
    output = scatter(x, y, indices, axes)
    (wanted,) = evaluate([output], dict(zip(inputs, arrays)))
    for roots in ((output,), join_updates(Graph.below([output])).outputs):
        (found,) = interpreted(roots, inputs, arrays)
        np.testing.assert_array_equal(found, wanted)


@pytest.mark.parametrize("axis", [0, 1])
@pytest.mark.parametrize("shape", [(70, 3), (3, 200), (200, 1), (66, 66)])
def test_updates_along_an_axis(shape: tuple[int, int], axis: int) -> None:
    x, y = given(dtypes.float32, *shape), given(dtypes.float32, *shape)
    index = given(dtypes.int64, *shape)
    base, new = (RNG.standard_normal(shape).astype(np.float32) for _ in range(2))
    arrays = [base, RNG.integers(0, shape[axis], shape), new]
    output = call("scatter", x, axis, index, y)
    (wanted,) = evaluate([output], dict(zip([x, index, y], arrays)))
    for roots in ((output,), join_updates(Graph.below([output])).outputs):
        (found,) = interpreted(roots, [x, index, y], arrays)
        np.testing.assert_array_equal(found, wanted)


def test_few_updates_and_those_of_many_rows_stay_in_order() -> None:
    x, few = given(dtypes.float32, 20, 1 << 14), given(dtypes.int64, 3)
    several = given(dtypes.int64, 100)
    for index in (few, several):
        updates = given(dtypes.float32, *index.shape, 1 << 14)  # type: ignore[arg-type]
        output = scatter(x, updates, [index], (0,))
        assert join_updates(Graph.below([output])).outputs == (output,)


def _on_gpu(dtype: DType, *shape: int) -> Node:
    return leaf(TensorType(shape, dtype, "cuda:0"))


@pytest.mark.parametrize("dtype", [dtypes.float32, dtypes.float16])
@pytest.mark.parametrize(("rows", "places", "updates"), [(512, 7, 40), (600, 40, 30), (520, 1, 25)])
def test_rows_are_summed_in_shared_memory(
    dtype: DType, rows: int, places: int, updates: int
) -> None:
    x, y = _on_gpu(dtype, rows, places), _on_gpu(dtype, rows, updates)
    i = _on_gpu(dtypes.int64, rows, updates)
    outputs = prepared([call("scatter_add", x, 1, i, y)], [x, i, y])
    outputs = list(widen_sums(Graph(outputs, [x, i, y])).outputs)
    base, added = (RNG.standard_normal((rows, n)).astype(dtype.numpy) for n in (places, updates))
    at = RNG.integers(0, places, (rows, updates))
    made = schedule(outputs, [x, i, y], SMALL_GPU)
    assert [one.kernel.name.split("_")[0] for one in made] == ["scatter"]  # no pass in float64
    (result,) = interpreted(outputs, [x, i, y], [base, at, added])
    wanted = base.astype(np.float64)
    np.add.at(wanted, (np.arange(rows)[:, None], at), added.astype(np.float64))
    np.testing.assert_array_equal(result, wanted.astype(dtype.numpy))


@pytest.mark.parametrize("arch", ["sm_75", "sm_80", "sm_89", "sm_90a", "sm_100", "sm_120"])
def test_scatters_compile_for_every_architecture(arch: str) -> None:
    pytest.importorskip("cuda.bindings.nvrtc")
    from ridgeline.codegen.cuda import compile_all, generate

    texts = []
    x, i, y = (_on_gpu(d, 4096, 4096) for d in (dtypes.float32, dtypes.int64, dtypes.float32))
    lines, at, new = (
        _on_gpu(dtypes.float32, 1000, 64), _on_gpu(dtypes.int64, 8000),
        _on_gpu(dtypes.float32, 8000, 64),
    )  # fmt: skip
    for output, inputs in (
        (call("scatter_add", x, 1, i, y), [x, i, y]),
        (call("index_add", lines, 0, at, new), [lines, at, new]),
    ):
        outputs = widen_sums(Graph(prepared([output], inputs), inputs)).outputs
        texts += [generate(made.kernel).text for made in schedule(outputs, inputs, H200)]
    assert all(image.startswith(b"\x7fELF") for image in compile_all(texts, arch))
