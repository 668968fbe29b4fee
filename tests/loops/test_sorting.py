"""Sorts, selections, searches and running extremes in kernels, against torch and NumPy."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import ridgeline as rl
from ridgeline.compiler import HostCall

torch = pytest.importorskip("torch")
TYPES = ("float32", "float64", "float16", "bfloat16", "int64", "int32", "int16", "int8", "uint8")


def compiled(function: Any, *arguments: rl.Tensor) -> Any:
    """The result of a jitted function, all of which ran in kernels."""
    jitted = rl.jit(function)
    result = jitted(*arguments)
    assert not any(isinstance(part, HostCall) for part in jitted.program.layout.calls)
    return result


def values(dtype: str, shape: tuple[int, ...], seed: int = 0) -> Any:
    """Many ties; with NaN, infinities and both zeros for floats."""
    source = torch.Generator().manual_seed(seed)
    raw = torch.randint(-40, 40, shape, generator=source).to(getattr(torch, dtype))
    if raw.dtype.is_floating_point:
        flat = raw.view(-1)
        special = [float("nan"), float("inf"), -float("inf"), -0.0, 0.0, float("nan")]
        flat[: len(special)] = torch.tensor(special)[: len(flat)].to(raw.dtype)
    return raw[..., torch.randperm(shape[-1], generator=source)]


def same(found: rl.Tensor, expected: Any) -> None:
    wide = expected.double() if expected.dtype.is_floating_point else expected
    np.testing.assert_array_equal(found.numpy().astype(wide.numpy().dtype), wide.numpy())


@pytest.mark.parametrize("length", [1, 17, 256, 300, 9000])
@pytest.mark.parametrize("dtype", TYPES)
def test_sort(dtype: str, length: int) -> None:
    x = values(dtype, (2, length))
    descending = length % 2 == 1
    ours = rl.tensor(x.double().numpy()).to(getattr(rl, dtype))
    found = compiled(lambda t: rl.sort(t, dim=1, descending=descending, stable=True), ours)
    expected = torch.sort(x, dim=1, descending=descending, stable=True)
    same(found[0], expected[0])
    same(found[1], expected[1])


def test_sort_along_other_axes_and_of_all_orders() -> None:
    x = values("float32", (300, 3, 2))
    for descending in (False, True):
        found = compiled(
            lambda t, d=descending: rl.argsort(t, dim=0, descending=d, stable=True),
            rl.tensor(x.numpy()),
        )
        same(found, torch.argsort(x, dim=0, descending=descending, stable=True))
    signs = rl.tensor(np.array([0.0, -0.0, 0.0], np.float32))
    ordered, _ = compiled(lambda t: rl.sort(t, stable=True), signs)
    assert np.signbit(ordered.numpy()).tolist() == [False, True, False]  # equal, so in their order


@pytest.mark.parametrize("dtype", ["float32", "int64", "int16", "uint8"])
@pytest.mark.parametrize("count", [1, 7, 60])
def test_topk_finds_the_first_of_equal_ones(dtype: str, count: int) -> None:
    x = values(dtype, (3, 500), seed=count)
    for largest in (True, False):
        found = compiled(
            lambda t, top=largest: rl.topk(t, count, largest=top), rl.tensor(x.numpy())
        )
        expected = torch.sort(x, dim=1, descending=largest, stable=True)
        same(found[0], expected[0][:, :count])
        same(found[1], expected[1][:, :count])


@pytest.mark.parametrize("length", [1, 2, 7, 64, 1000])
def test_searchsorted(length: int) -> None:
    rng = np.random.default_rng(length)
    sequence = np.sort(rng.integers(-9, 9, length)).astype(np.float32)
    wanted = rng.integers(-10, 10, (5, 40)).astype(np.float32)
    wanted[0, :3] = np.nan, np.inf, -0.0
    for side in ("left", "right"):
        found = compiled(
            lambda s, v, r=side: rl.searchsorted(s, v, side=r), *map(rl.tensor, (sequence, wanted))
        )
        np.testing.assert_array_equal(found.numpy(), np.searchsorted(sequence, wanted, side))  # type: ignore[call-overload]


@pytest.mark.parametrize("name", ["cummax", "cummin"])
@pytest.mark.parametrize("dtype", ["float32", "bfloat16", "int64", "bool"])
def test_running_extremes(name: str, dtype: str) -> None:
    x = values("float32" if dtype == "bfloat16" else "int64", (4, 30)).to(getattr(torch, dtype))
    ours = rl.tensor(x.double().numpy()).to(getattr(rl, dtype))
    found = compiled(lambda t: getattr(rl, name)(t, 1), ours)
    expected = getattr(torch, name)(x, 1)
    same(found[0], expected[0])
    same(found[1], expected[1])


def test_running_logsumexp() -> None:
    x = values("float32", (4, 40))
    x[1, :5] = -np.inf
    found = compiled(lambda t: rl.logcumsumexp(t, 1), rl.tensor(x.numpy()))
    np.testing.assert_allclose(found.numpy(), torch.logcumsumexp(x, 1).numpy(), rtol=1e-6)
