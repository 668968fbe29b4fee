"""Ops that were library calls and are kernels: exponents, bits as another type, narrow joins."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import ridgeline as rl
from ridgeline.compiler.memory_plan import KernelCall

EDGES = np.array([0.0, -0.0, 1.0, -3.5, 0.7, 6e-8, 1e-310, -5e-324, 1e300, np.inf, -np.inf, np.nan])


def as_kernels(function: Callable[..., Any], *inputs: rl.Tensor) -> Any:
    """The result of a function that must become kernels alone."""
    jitted = rl.jit(function)
    result = jitted(*inputs)
    assert {type(call) for call in jitted._traces[0].executable.program.layout.calls} == {
        KernelCall
    }
    return result


@pytest.mark.parametrize("dtype", [np.float16, np.float32, np.float64])
def test_frexp_is_that_of_numpy(dtype: type) -> None:
    with np.errstate(all="ignore"):
        x = EDGES.astype(dtype)
    mantissa, exponent = as_kernels(rl.frexp, rl.tensor(x))
    wanted = np.frexp(x)
    np.testing.assert_array_equal(mantissa.numpy(), wanted[0])
    np.testing.assert_array_equal(np.signbit(mantissa.numpy()), np.signbit(wanted[0]))
    np.testing.assert_array_equal(exponent.numpy(), wanted[1])
    np.testing.assert_array_equal(rl.ldexp(mantissa, exponent).numpy(), x)


@pytest.mark.parametrize(
    "source, target",
    [(np.float32, rl.int32), (np.float64, rl.int64), (np.int32, rl.float32), (np.int8, rl.uint8)],
)
def test_bits_are_read_as_another_type(source: type, target: rl.DType) -> None:
    x = np.arange(-3, 4).astype(source)
    found = as_kernels(lambda t: t.view(target) + 0, rl.tensor(x)).numpy()
    np.testing.assert_array_equal(found, x.view(found.dtype))


@pytest.mark.parametrize("dtype", [rl.bfloat16, rl.float16])
@pytest.mark.parametrize("reduce", ["sum", "prod"])
def test_joins_into_narrow_floats_round_once(dtype: rl.DType, reduce: str) -> None:
    draw = np.random.default_rng(0)
    base = rl.tensor(draw.uniform(0.5, 1.5, (4, 3))).to(dtype)
    updates = rl.tensor(draw.uniform(0.9, 1.1, (60, 3))).to(dtype)
    places = rl.tensor(draw.integers(0, 4, 60))

    def join(base: rl.Tensor, updates: rl.Tensor) -> rl.Tensor:
        return (
            base.index_reduce(0, places, updates, reduce)
            if reduce == "prod"
            else (base.index_add(0, places, updates))
        )

    with rl.config.override(tier="interpreter"):
        wanted = join(base, updates).tolist()
    assert as_kernels(join, base, updates).tolist() == wanted


FLOAT8 = [rl.float8_e4m3fn, rl.float8_e5m2]


@pytest.mark.parametrize("dtype", FLOAT8)
def test_every_eight_bit_float_is_read_and_written(dtype: rl.DType) -> None:
    bytes_ = np.arange(256, dtype=np.uint8)
    values = bytes_.view(dtype.numpy)
    found = as_kernels(lambda t: t.to(rl.float32) + 0, rl.tensor(values)).numpy()
    np.testing.assert_array_equal(found, values.astype(np.float32))
    again = as_kernels(lambda t: t.to(dtype), rl.tensor(values.astype(np.float32))).numpy()
    known = ~np.isnan(values.astype(np.float32))
    np.testing.assert_array_equal(again.view(np.uint8)[known], bytes_[known])
    assert np.isnan(again.astype(np.float32)[~known]).all()


@pytest.mark.parametrize("dtype", FLOAT8)
def test_conversions_to_eight_bits_round_to_even(dtype: rl.DType) -> None:
    values = np.arange(256, dtype=np.uint8).view(dtype.numpy).astype(np.float32)
    finite = np.sort(values[np.isfinite(values)])
    between = (finite[1:] + finite[:-1]) / 2  # ties
    x = np.concatenate([
        between, np.nextafter(between, np.inf, dtype=np.float32),
        np.nextafter(between, -np.inf, dtype=np.float32),
        np.random.default_rng(0).standard_normal(500).astype(np.float32) * 50,
        np.array([1e-30, 1e-45, 1e30, -1e30, np.inf, -np.inf, 448, 464, 465, 57344, 61440, 70000]),
    ]).astype(np.float32)  # fmt: skip
    with rl.config.override(tier="interpreter"):
        wanted = rl.tensor(x).to(dtype).numpy().view(np.uint8)
    found = as_kernels(lambda t: t.to(dtype), rl.tensor(x)).numpy().view(np.uint8)
    np.testing.assert_array_equal(found, wanted)


PROGRAMS8: dict[str, Callable[[rl.Tensor], rl.Tensor]] = {
    "sums": lambda t: t.float().sum(1) + t.to(rl.float32).mean(),
    "product": lambda t: (t.float() @ t.float().mT).to(t.dtype),
    "views": lambda t: rl.cat([t.mT[1:], t.mT[:-1] * 2]),
    "choice": lambda t: rl.where(t.float() > 0, t, -t),
    "gather": lambda t: t[rl.tensor([2, 0])],
    "largest": lambda t: t.abs().amax(0),
    "own sum": lambda t: t.sum(1),
    "own product": lambda t: t @ t.mT,
    "order": lambda t: t.sort(1).values,
    "places": lambda t: t.argmax(1),
    "scatter": lambda t: t.index_add(0, rl.tensor([1, 1, 3]), t[:3]),
    "running": lambda t: (t * 0.125).cumsum(1),
}


@pytest.mark.parametrize("dtype", FLOAT8)
@pytest.mark.parametrize("name", PROGRAMS8)
def test_programs_over_eight_bit_floats(name: str, dtype: rl.DType) -> None:
    x = rl.tensor(np.random.default_rng(1).integers(-8, 9, (5, 37)).astype(np.float32)).to(dtype)
    with rl.config.override(tier="interpreter"):
        wanted = PROGRAMS8[name](x)
        exact = wanted.float().tolist()
    found = as_kernels(PROGRAMS8[name], x)
    assert found.dtype is wanted.dtype and found.float().tolist() == exact
