"""Prefix scans and differences against torch, with gradients of first and second order."""

from __future__ import annotations

import numpy as np
import pytest

import ridgeline as rl
from tests.functions.reference import agree, numbers


@pytest.mark.parametrize("name", ["cumsum", "cumprod", "logcumsumexp", "cummax", "cummin"])
@pytest.mark.parametrize("dim", [0, 1, -1])
def test_scans(name: str, dim: int) -> None:
    agree(lambda lib, x: getattr(lib, name)(x, dim), [numbers((4, 3, 2))], second=True)


@pytest.mark.parametrize("name", ["cumsum", "cumprod", "logcumsumexp", "cummax", "cummin"])
def test_scans_of_scalars_and_of_nothing(name: str) -> None:
    agree(lambda lib, x: getattr(lib, name)(x, 0), [numbers(())], second=True)
    agree(lambda lib, x: getattr(lib, name)(x, 1), [numbers((2, 0))])
    agree(lambda lib, x: getattr(lib, name)(x, 0), [numbers((1, 3))], second=True)


@pytest.mark.parametrize("zeros", [[0], [2], [1, 3], [0, 1, 2, 3, 4]])
def test_products_with_zeros(zeros: list[int]) -> None:
    x = numbers((5,))
    x[zeros] = 0
    agree(lambda lib, x: x.cumprod(0), [x], second=True)


@pytest.mark.parametrize("dtype", ["bool", "uint8", "int32"])
def test_integers_are_joined_in_int64(dtype: str) -> None:
    x = numbers((3, 4), 0, dtype)
    agree(lambda lib, x: [x.cumsum(0), x.cumprod(1), x.cummax(0)[0]], [x])
    agree(lambda lib, x: x.cumsum(0, dtype=lib.float64), [x])


def test_running_extremes_take_the_last_of_equals_and_keep_nan() -> None:
    x = np.array([1.0, 3.0, 3.0, np.nan, 5.0, np.nan, 2.0])
    agree(lambda lib, x: [*lib.cummax(x, 0), *lib.cummin(x, 0)], [x], gradients=False)
    agree(lambda lib, x: lib.cummax(x, 0)[0], [np.array([2.0, 2.0, 1.0, 2.0])])


def test_log_sums_far_apart_and_infinite() -> None:
    x = np.array([-np.inf, -800.0, 300.0, -np.inf, 301.0, -5000.0])
    agree(lambda lib, x: lib.logcumsumexp(x, 0), [x], gradients=False)
    ours = rl.tensor(x, requires_grad=True)
    ours.logcumsumexp(0).sum().backward()
    expected = [
        sum(np.exp(x[j] - m) if np.isfinite(m) else 0.0 for m in np.logaddexp.accumulate(x)[j:])
        for j in range(6)
    ]
    np.testing.assert_allclose(ours.grad.tolist(), expected, rtol=1e-12)


def test_small_floats_are_rounded_once() -> None:
    x = rl.full((400,), 0.01, dtype=rl.bfloat16)
    assert x.cumsum(0)[-1].item() == pytest.approx(400 * x[0].item(), rel=0.01)


@pytest.mark.parametrize("dtype", ["float16", "bfloat16", "float32", "complex64"])
@pytest.mark.parametrize("name, low", [("cumsum", 0.0), ("cumprod", 0.9)])
def test_running_values_are_carried_in_a_wider_type(name: str, low: float, dtype: str) -> None:
    x = low + (1 - low) * 1.9 * np.random.default_rng(0).random((2, 3000))
    rounded = rl.tensor(x).to(getattr(rl, dtype))
    wide = rl.complex128 if dtype == "complex64" else rl.float64
    for dim in (0, 1):
        exact = rl.tensor(getattr(np, name)(rounded.to(wide).numpy(), dim))
        for tier in ("interpreter", "compiled"):
            with rl.config.override(tier=tier):
                found = getattr(rounded, name)(dim)
                assert found.tolist() == exact.to(rounded.dtype).tolist()


@pytest.mark.parametrize("tier", ["interpreter", "compiled"])
@pytest.mark.parametrize("dtype", ["float64", "complex128"])
def test_short_running_sums_are_those_of_numpy(dtype: str, tier: str) -> None:
    x = (numbers((16, 5, 16)) - numbers((16, 5, 16), 1)).astype(dtype)  # sums that cancel
    with rl.config.override(tier=tier):
        for axis in range(3):
            assert rl.tensor(x).cumsum(axis).tolist() == np.cumsum(x, axis).tolist()


def test_differences_and_integrals() -> None:
    x, y = numbers((3, 6)), np.sort(numbers((6,), 1))
    agree(lambda lib, x: lib.diff(x, 2), [x], second=True)
    agree(lambda lib, x, p: lib.diff(x, prepend=p, append=p), [x, numbers((3, 1))])
    agree(lambda lib, x: lib.diff(x > 0, dim=0), [x], gradients=False)
    agree(lambda lib, x, y: lib.trapezoid(x, y), [x, y], second=True)
    agree(lambda lib, x: lib.cumulative_trapezoid(x, dx=0.5, dim=0), [x])


@pytest.mark.parametrize("edge_order", [1, 2])
def test_gradient(edge_order: int) -> None:
    x, points = numbers((5, 4)), np.sort(numbers((4,), 1))
    agree(lambda lib, x: lib.gradient(x, edge_order=edge_order), [x])
    agree(lambda lib, x: lib.gradient(x, spacing=2.0, dim=0, edge_order=edge_order), [x])
    agree(
        lambda lib, x, p: lib.gradient(x, spacing=[p], dim=1, edge_order=edge_order),
        [x, points], gradients=False,
    )  # fmt: skip


@pytest.mark.parametrize("name", ["cumsum", "cumprod", "logcumsumexp", "cummax"])
def test_both_modes_agree(name: str) -> None:
    def f(x: rl.Tensor) -> rl.Tensor:
        result = getattr(x, name)(0)
        return result[0] if name == "cummax" else result

    x, v, w = (rl.tensor(numbers((5, 2), seed)) for seed in range(3))
    tangent = rl.jvp(f, (x,), (v,))[1]
    pulled = rl.vjp(f, x)[1](w)
    gradient = pulled[0] if isinstance(pulled, tuple) else pulled
    assert (tangent * w).sum().item() == pytest.approx((gradient * v).sum().item(), rel=1e-12)
