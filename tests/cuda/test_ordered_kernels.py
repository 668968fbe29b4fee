"""Scans, sorts and scatters as a GPU does them, in the interpreter of loops, against NumPy."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest

from ridgeline import dtypes
from ridgeline.devices import device
from ridgeline.dtypes import DType
from ridgeline.graph.interpreter import evaluate
from ridgeline.graph.node import Node, node
from ridgeline.graph.passes.prepare import prepare
from ridgeline.graph.passes.tiled_sorts import tiled_sorts
from ridgeline.loops.interpret import interpret
from ridgeline.loops.parser import parse_kernel
from ridgeline.loops.printer import print_kernel
from ridgeline.loops.schedule import Prefix, Resume, ScheduleError, from_json, replay, to_json
from ridgeline.ops.radix import RANK, DigitAttrs
from ridgeline.ops.scan import scan
from ridgeline.ops.sort import sort
from ridgeline.ops.tiled_radix import DIGIT_COUNTS, TileAttrs, tiled
from ridgeline.schedules.gpu.machine import A100, H200, T4, GpuMachine
from tests.cuda.lowering import SMALL_GPU, schedule
from tests.cuda.programs import call, given

RNG = np.random.default_rng(5)


def run(outputs: Sequence[Node], inputs: Sequence[Node], arrays: Sequence[Any]) -> list[Any]:
    """The values of a graph, kernel by kernel, with checks of bounds and races."""
    known = dict(zip(inputs, arrays))
    for scheduled in schedule(outputs, inputs, SMALL_GPU):
        assert parse_kernel(print_kernel(scheduled.kernel)) == scheduled.kernel
        slots, reads = scheduled.lowered.slots, scheduled.lowered.reads
        memory = {
            n: np.ascontiguousarray(known[s]) if n < reads else np.zeros(s.shape, s.dtype.numpy)  # type: ignore[arg-type]
            for n, s in enumerate(slots)
        }
        interpret(scheduled.kernel, memory, {})
        known |= {s: memory[n] for n, s in enumerate(slots) if n >= reads}
    return [known[output] for output in outputs]


SCANS = [  # one thread, a block, tiles with a rest, pieces of rows, pieces of columns
    ((3, 5), 1), ((2, 65), 1), ((3, 1000), 1), ((2, 4099), 1), ((9001,), 0), ((1, 20000), 1),
    ((300, 7), 0), ((2, 70, 3), 1), ((1, 1), 0),
]  # fmt: skip


@pytest.mark.parametrize("reverse", [False, True])
@pytest.mark.parametrize(("shape", "axis"), SCANS)
def test_scans(shape: tuple[int, ...], axis: int, reverse: bool) -> None:
    x = given(dtypes.float32, *shape)
    values = RNG.integers(-9, 10, shape).astype(np.float32)
    (result,) = run([scan(x, "sum", axis, reverse)], [x], [values])
    turned = np.flip(values, axis) if reverse else values
    wanted = np.cumsum(turned, axis)
    np.testing.assert_array_equal(result, np.flip(wanted, axis) if reverse else wanted)


@pytest.mark.parametrize("dtype", [dtypes.int32, dtypes.bfloat16, dtypes.float64])
def test_scans_of_other_types(dtype: DType) -> None:
    x = given(dtype, 2, 700)
    values = RNG.integers(-1, 2, (2, 700)).astype(dtype.numpy)
    (result,) = run([scan(x, "sum", 1)], [x], [values])
    np.testing.assert_array_equal(
        result, np.cumsum(values.astype(np.float64), 1).astype(dtype.numpy)
    )


def test_a_scan_keeps_nan_and_infinity_where_they_are() -> None:
    x = given(dtypes.float32, 9000)
    values = np.ones(9000, np.float32)
    values[[5000, 8000]] = np.inf, -np.inf
    (result,) = run([scan(x, "sum", 0)], [x], [values])
    with np.errstate(invalid="ignore"):
        np.testing.assert_array_equal(result, np.cumsum(values))


def test_only_scans_are_cut() -> None:
    text = """kernel sums(x: float32[8] @0, y: float32[] @1)
alloc acc: float32[] reg
acc[] = 0.0
for c < 8 carried:
  acc[] += x[c]
y[] = acc[]
"""
    for step in (Prefix("c", 4, 2), Resume("c", 2)):
        assert from_json(to_json([step])) == [step]
        with pytest.raises(ScheduleError, match="not a scan"):
            replay(parse_kernel(text), [step])


@pytest.mark.parametrize(("threads", "run"), [(1, 1), (2, 3), (8, 1), (3, 2), (0, 4), (4, 0)])
def test_tiles_of_a_scan(threads: int, run: int) -> None:
    text = """kernel scan(x: int32[29] @0, y: int32[29] @1)
alloc acc: int32[] reg
acc[] = 0
for c < 29 carried:
  acc[] += x[c]
  y[c] = acc[]
"""
    steps = [Resume("c", 3), Prefix("c", threads, run)]
    if threads not in (1, 2, 8) or not run:
        with pytest.raises(ScheduleError, match="no tile"):
            replay(parse_kernel(text), steps)
        return
    values, result = np.arange(29, dtype=np.int32), np.zeros(29, np.int32)
    interpret(replay(parse_kernel(text), steps), {0: values, 1: result})
    np.testing.assert_array_equal(result, np.cumsum(values))
    with pytest.raises(ScheduleError, match="pieces"):
        replay(parse_kernel(text), [Resume("c", 0)])


@pytest.mark.parametrize("shape", [(9,), (1, 1), (5, 3), (130, 3), (7, 64), (3, 200)])
def test_ranks(shape: tuple[int, ...]) -> None:
    keys = given(dtypes.uint32, *shape)
    values = RNG.integers(0, 20, shape).astype(np.uint32)
    (result,) = run([node(RANK, (keys,))], [keys], [values])
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
    found = run(both, [keys, order], [values, before])
    shift, mask = (np.array(n, dtype.numpy) for n in (digit.shift, (1 << digit.bits) - 1))
    places = np.argsort((values >> shift) & mask, -1, kind="stable")
    np.testing.assert_array_equal(found[0], np.take_along_axis(values, places, -1))
    np.testing.assert_array_equal(found[1], np.take_along_axis(before, places, -1))


def test_counts_are_those_of_the_definition() -> None:
    keys = given(dtypes.uint32, 2, 700)
    values = RNG.integers(0, 1 << 32, (2, 700)).astype(np.uint32)
    counts = node(DIGIT_COUNTS, (keys,), TileAttrs(4, 3, 512))
    (result,) = run([counts], [keys], [values])
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
    (result,) = run([call("scatter_add", x, axis, index, y)], [x, index, y], [base, places, added])
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
