"""Integers of one and two bytes keep torch's element types, and bytes of images are resampled."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import ridgeline as rl

torch = pytest.importorskip("torch")

FUNCTIONS: dict[str, Callable[..., Any]] = {
    "scatter mean": lambda t, x, i: x.scatter_reduce(0, i, x, "mean"),
    "scatter mean alone": lambda t, x, i: x.scatter_reduce(0, i, x, "mean", include_self=False),
    "index_reduce mean": lambda t, x, i: x.index_reduce(0, i, x, "mean"),
    "powers": lambda t, x, i: t.linalg.vander(x),
    "masked.cumsum": lambda t, x, i: t.masked.cumsum(x, 0, mask=i > 0),
    "masked.cumprod": lambda t, x, i: t.masked.cumprod(x, 0),
    "masked.sum": lambda t, x, i: t.masked.sum(x, 0, mask=i > 0),
}


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("dtype", [np.uint8, np.int8, np.int16, np.int32, np.int64])
@pytest.mark.parametrize("name", FUNCTIONS)
def test_functions_of_narrow_integers(name: str, dtype: type) -> None:
    x, places = np.array([3, 113, 7, 9], dtype), np.array([0, 0, 1, 1])
    want = FUNCTIONS[name](torch, torch.tensor(x), torch.tensor(places))
    found = FUNCTIONS[name](rl, rl.tensor(x), rl.tensor(places))
    assert found.dtype.name == str(want.dtype).split(".")[-1]
    assert found.tolist() == want.tolist()


@pytest.mark.parametrize("mode", ["bilinear", "bicubic"])
@pytest.mark.parametrize("scale", [2.0, 1.5])
def test_bytes_of_images_are_rounded_once(mode: str, scale: float) -> None:
    image = np.random.default_rng(0).integers(0, 256, (1, 2, 6, 5)).astype(np.uint8)
    exact = torch.tensor(image, dtype=torch.float64)
    want = torch.nn.functional.interpolate(exact, scale_factor=scale, mode=mode).clamp(0, 255)
    found = rl.nn.functional.interpolate(rl.tensor(image), scale_factor=scale, mode=mode)
    assert found.dtype is rl.uint8
    assert np.abs(found.numpy() - want.numpy()).max() <= 0.5 + 1e-3


def test_other_integers_are_not_resampled() -> None:
    with pytest.raises(rl.RidgelineError, match="takes floats, or bytes, not int32"):
        rl.nn.functional.interpolate(rl.ones(1, 1, 4, 4, dtype=rl.int32), 8, mode="bilinear")


@pytest.mark.parametrize("tier", ["interpreter", "compiled"])
@pytest.mark.parametrize("source", ["float64", "float32", "float16", "bfloat16"])
def test_floats_wrap_around_in_narrow_integers(source: str, tier: str) -> None:
    numbers = [189.0, 300.0, -200.0, -1.5, -3.0, 255.0, 256.0, 128.0, 6.0e4, -6.0e4, 0.9]
    integers = ["int8", "uint8", "int16", "uint16", "int32", "uint32", "int64", "uint64"]
    given = torch.tensor(numbers * 3, dtype=getattr(torch, source))
    x = rl.tensor(numbers * 3, dtype=getattr(rl, source))
    with rl.config.override(tier=tier):
        found = {name: x.to(getattr(rl, name)).tolist() for name in integers}
    assert found == {name: given.to(getattr(torch, name)).tolist() for name in integers}
