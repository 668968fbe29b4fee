"""Ops that were library calls and are kernels: exponents, bits as another type, narrow joins."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import ridgeline as rl
from ridgeline.compiler.layout import KernelCall

EDGES = np.array([0.0, -0.0, 1.0, -3.5, 0.7, 6e-8, 1e-310, -5e-324, 1e300, np.inf, -np.inf, np.nan])


def as_kernels(function: Callable[..., Any], *inputs: rl.Tensor) -> Any:
    """The result of a function that must become kernels alone."""
    jitted = rl.jit(function)
    result = jitted(*inputs)
    assert {type(call) for call in jitted._traces[0].program.layout.calls} == {KernelCall}
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
