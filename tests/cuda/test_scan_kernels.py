"""Scans as a GPU does them, in the interpreter of loops, against the definition of the ops."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest

from ridgeline import dtypes
from ridgeline.dtypes import DType
from ridgeline.graph.interpreter import evaluate
from ridgeline.graph.node import Node
from ridgeline.loops.schedule import (
    Bind,
    BlockScan,
    ScheduleError,
    SplitScan,
    from_json,
    replay,
    to_json,
)
from ridgeline.ops.scan import extreme_scan, linear_scan, scan
from ridgeline.schedules.gpu.machine import A100, H200, T4, GpuMachine
from tests.cuda.lowering import interpreted, schedule
from tests.cuda.programs import call, given, gradients
from tests.loops.parser import parse_kernel

RNG = np.random.default_rng(5)
# one thread, a block, tiles with a rest, pieces of rows, pieces of columns
SHAPES = [
    ((1,), 0), ((1, 1), 0), ((3, 5), 1), ((31,), 0), ((2, 33), 1), ((2, 65), 1), ((3, 1000), 1),
    ((2, 4097), 1), ((9001,), 0), ((1, 20000), 1), ((300, 7), 0), ((1000, 3), 0), ((2, 70, 3), 1),
]  # fmt: skip
FLOATS = [dtypes.float32, dtypes.float64, dtypes.bfloat16, dtypes.float16]


def check(outputs: Sequence[Node], inputs: Sequence[Node], arrays: Sequence[Any]) -> None:
    """Floats agree to a few units in the last place of what the device carries."""
    wanted = evaluate(list(outputs), dict(zip(inputs, arrays)))
    for found, truth in zip(interpreted(outputs, inputs, arrays), wanted):
        assert found.dtype == truth.dtype
        if truth.dtype.kind in "iub":
            np.testing.assert_array_equal(found, truth)
            continue
        close = {8: 1e-12, 4: 2e-7}.get(truth.dtype.itemsize, 1e-2)
        pair = found.astype(np.float64), truth.astype(np.float64)
        np.testing.assert_allclose(*pair, rtol=close, atol=close)


def directions(*more: tuple[tuple[int, ...], int]) -> list[tuple[tuple[int, ...], int, bool]]:
    """Every shape, in one direction or the other."""
    return [(shape, axis, n % 2 == 1) for n, (shape, axis) in enumerate([*SHAPES, *more])]


@pytest.mark.parametrize(("shape", "axis", "reverse"), directions())
def test_sums(shape: tuple[int, ...], axis: int, reverse: bool) -> None:
    x = given(dtypes.float32, *shape)
    values = RNG.integers(-9, 10, shape).astype(np.float32)
    (result,) = interpreted([scan(x, "sum", axis, reverse)], [x], [values])
    turned = np.flip(values, axis) if reverse else values
    wanted = np.cumsum(turned, axis)
    np.testing.assert_array_equal(result, np.flip(wanted, axis) if reverse else wanted)


@pytest.mark.parametrize("dtype", [dtypes.int32, dtypes.bfloat16, dtypes.float64])
def test_sums_of_other_types(dtype: DType) -> None:
    x = given(dtype, 2, 700)
    values = RNG.integers(-1, 2, (2, 700)).astype(dtype.numpy)
    (result,) = interpreted([scan(x, "sum", 1)], [x], [values])
    np.testing.assert_array_equal(
        result, np.cumsum(values.astype(np.float64), 1).astype(dtype.numpy)
    )


def test_a_sum_keeps_nan_and_infinity_where_they_are() -> None:
    x = given(dtypes.float32, 9000)
    values = np.ones(9000, np.float32)
    values[[5000, 8000]] = np.inf, -np.inf
    (result,) = interpreted([scan(x, "sum", 0)], [x], [values])
    with np.errstate(invalid="ignore"):
        np.testing.assert_array_equal(result, np.cumsum(values))


def with_ties(shape: tuple[int, ...], dtype: DType) -> Any:
    """Few values, so that many are equal; floats are NaN and infinite in places."""
    values = RNG.integers(0, 4, shape).astype(dtype.numpy)
    if dtype.kind == "float":
        values[RNG.random(shape) < 0.002] = -np.inf
        values[..., -shape[-1] // 3 :][RNG.random(shape)[..., -shape[-1] // 3 :] < 0.01] = np.nan
    return values


@pytest.mark.parametrize(("shape", "axis", "least"), directions(((100_003,), 0)))
def test_extremes(shape: tuple[int, ...], axis: int, least: bool) -> None:
    torch = pytest.importorskip("torch")
    monoid = "min" if least else "max"
    x = given(dtypes.float32, *shape)
    values = with_ties(shape, dtypes.float32)
    outputs = extreme_scan(x, monoid, axis)
    found = interpreted(outputs, [x], [values])
    wanted = getattr(torch, f"cum{monoid}")(torch.from_numpy(values), axis)
    defined = evaluate(list(outputs), {x: values})
    for own, other, truth in zip(found, wanted, defined):
        np.testing.assert_array_equal(own, other.numpy())
        np.testing.assert_array_equal(own, truth)


@pytest.mark.parametrize("dtype", [dtypes.bfloat16, dtypes.int8, dtypes.uint64, dtypes.bool_])
def test_extremes_of_other_types(dtype: DType) -> None:
    x = given(dtype, 700)
    for monoid in ("max", "min"):
        check(extreme_scan(x, monoid, 0), [x], [with_ties((700,), dtype)])
        for constant in (0, 1):
            check(extreme_scan(x, monoid, 0), [x], [np.full(700, constant, dtype.numpy)])


@pytest.mark.parametrize("monoid", ["max", "min"])
def test_extremes_of_nothing_but_the_neutral_value(monoid: str) -> None:
    x = given(dtypes.float32, 8192)
    worst = np.full(8192, -np.inf if monoid == "max" else np.inf, np.float32)
    check(extreme_scan(x, monoid, 0), [x], [worst])


@pytest.mark.parametrize(("shape", "axis", "reverse"), directions())
def test_sums_of_exponentials(shape: tuple[int, ...], axis: int, reverse: bool) -> None:
    x = given(dtypes.float32, *shape)
    values = (RNG.standard_normal(shape) * 50).astype(np.float32)
    values[RNG.random(shape) < 0.2] = -np.inf
    check([scan(x, "logaddexp", axis, reverse)], [x], [values])


@pytest.mark.parametrize("strange", [np.nan, np.inf])
def test_sums_of_exponentials_keep_what_is_not_finite(strange: float) -> None:
    x = given(dtypes.float64, 9001)
    values = RNG.standard_normal(9001)
    values[:100], values[6000] = -np.inf, strange
    check([scan(x, "logaddexp", 0)], [x], [values])


@pytest.mark.parametrize(("shape", "axis", "reverse"), directions(((100_003,), 0)))
def test_recurrences(shape: tuple[int, ...], axis: int, reverse: bool) -> None:
    factors, terms = given(dtypes.float32, *shape), given(dtypes.float32, *shape)
    arrays = [RNG.uniform(-1.01, 1, shape).astype(np.float32) for _ in range(2)]
    arrays[0][RNG.random(shape) < 0.01] = 0
    check([linear_scan(factors, terms, axis, reverse)], [factors, terms], arrays)


@pytest.mark.parametrize("dtype", [*FLOATS, dtypes.int32])
def test_recurrences_of_other_types(dtype: DType) -> None:
    factors, terms = given(dtype, 9001), given(dtype, 9001)
    arrays = [(RNG.uniform(-1, 1, 9001) * scale).astype(dtype.numpy) for scale in (0.9, 9)]
    if dtype is dtypes.int32:  # it wraps
        arrays[0] = RNG.integers(-5, 6, 9001).astype(np.int32)
    check([linear_scan(factors, terms, 0)], [factors, terms], arrays)


def test_factors_that_would_overflow_together_leave_zero_alone() -> None:
    factors, terms = given(dtypes.float32, 9001), given(dtypes.float32, 9001)
    arrays = [np.full(9001, 10, np.float32), np.zeros(9001, np.float32)]
    arrays[1][8990] = 1
    check([linear_scan(factors, terms, 0)], [factors, terms], arrays)


@pytest.mark.parametrize("name", ["cumsum", "cumprod", "logcumsumexp", "cummax", "cummin"])
@pytest.mark.parametrize("shape", [(5000,), (2, 300)])
def test_gradients(name: str, shape: tuple[int, ...]) -> None:
    x, ct = given(dtypes.float64, *shape), given(dtypes.float64, *shape)
    made: Any = call(name, x, -1)
    output = made if isinstance(made, Node) else made[0]
    values = RNG.uniform(0.5, 1.5, shape)
    values[..., 40] = 0
    check(gradients(output, ct, x), [x, ct], [values, RNG.standard_normal(shape)])


def test_gradients_of_recurrences() -> None:
    factors, terms, ct = (given(dtypes.float64, 2, 5000) for _ in range(3))
    output = linear_scan(factors, terms, 1)
    arrays = [RNG.uniform(-1, 1, (2, 5000)) for _ in range(3)]
    check(gradients(output, ct, factors, terms), [factors, terms, ct], arrays)


SUMS = """kernel sums(x: float32[8] @0, y: float32[] @1)
alloc acc: float32[] reg
acc[] = 0.0
for c < 8 carried:
  acc[] += {value}
y[] = acc[]
"""


def test_only_scans_are_cut() -> None:
    for step in (BlockScan("c", 4, 2), SplitScan("c", 2)):
        assert from_json(to_json([step])) == [step]
        with pytest.raises(ScheduleError, match="not a scan"):
            replay(parse_kernel(SUMS.format(value="x[c] * acc[]")), [step])
    with pytest.raises(ScheduleError, match="not a scan"):
        replay(parse_kernel(SUMS.format(value="x[c]")), [SplitScan("c", 2)])


def test_what_joins_in_order_is_not_bound() -> None:
    shape = (9000,)
    factors, terms = given(dtypes.float32, *shape), given(dtypes.float32, *shape)
    (made,) = schedule([linear_scan(factors, terms, 0)], [factors, terms], H200)
    pieces = replay(made.lowered.kernel, [SplitScan("c", 2)])
    for axis in ("c.f", "c.q"):
        with pytest.raises(ScheduleError, match="in order"):
            replay(pieces, [Bind(axis, "thread")])


@pytest.mark.parametrize("gpu", [T4, A100, H200], ids=lambda gpu: gpu.arch)
def test_kernels_compile_and_fit_every_gpu(gpu: GpuMachine) -> None:
    pytest.importorskip("cuda.bindings.nvrtc")
    from ridgeline.codegen.cuda import compile_all, generate

    x, y = given(dtypes.float64, 1_000_000), given(dtypes.float64, 1_000_000)
    narrow = given(dtypes.bfloat16, 1_000_000)
    outputs = [*extreme_scan(narrow, "max", 0), scan(x, "logaddexp", 0), linear_scan(x, y, 0)]
    sources = [generate(made.kernel) for made in schedule(outputs, [x, y, narrow], gpu)]
    for source in sources:
        assert all(launch.shared_bytes <= 48 << 10 for launch in source.launches)
    compiled = compile_all([source.text for source in sources], gpu.arch)
    assert all(code.startswith(b"\x7fELF") for code in compiled)
