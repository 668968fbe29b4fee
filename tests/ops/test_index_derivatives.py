"""Derivatives of gathers, scatters, sorts and scans by finite differences, in both modes."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings, strategies as st

import ridgeline as rl
from tests.functions.reference import numbers
from tests.ops.derivatives import check_derivatives

PLACES = rl.tensor([2, 0, 2, 1])

SHAPED = {
    "cumsum": lambda x: x.cumsum(-1),
    "cumprod": lambda x: x.cumprod(-1),
    "logcumsumexp": lambda x: x.logcumsumexp(-1),
    "cummax": lambda x: x.cummax(-1)[0],
    "cummin": lambda x: x.cummin(-1)[0],
    "sort": lambda x: x.sort(-1, descending=True)[0],
    "flip": lambda x: x.flatten().flip(0),
    "masked_select": lambda x: x.masked_select(x > 0),
    "masked.var": lambda x: rl.masked.var(x * x, mask=x > -9, correction=0) if x.numel() else x,
    "take": lambda x: x.take(rl.tensor([0, -1])) if x.numel() else x,
    "index_put": lambda x: (x * x).index_put((x > 0,), x.sum()),
}
VECTORS = {
    "gather": lambda x, y: x.gather(0, PLACES) * y,
    "scatter": lambda x, y: x.scatter(0, rl.tensor([2, 0]), y),
    "scatter_add": lambda x, y: x.scatter_add(0, PLACES, y * y),
    "prod": lambda x, y: x.scatter_reduce(0, PLACES, y, "prod"),
    "mean": lambda x, y: x.scatter_reduce(0, PLACES, y, "mean", include_self=False),
    "amax": lambda x, y: x.scatter_reduce(0, PLACES, y, "amax"),
    "index_add": lambda x, y: x.index_add(0, PLACES, y, alpha=2) * x,
    "index_copy": lambda x, y: x.index_copy(0, rl.tensor([3, 1]), (y * x)[:2]),
    "masked_scatter": lambda x, y: x.masked_scatter(x > 0, y),
    "trapezoid": lambda x, y: rl.trapezoid(x, y),
    "quantile": lambda x, y: rl.quantile(x, 0.3) * y,
    "topk": lambda x, y: x.topk(3)[0] * y[:3],
    "median": lambda x, y: x.median() * y,
    "embedding": lambda x, y: rl.nn.functional.embedding(PLACES, x.reshape(4, 1)) * y,
    "unfold": lambda x, y: x.unfold(0, 3, 1) * y[:3],
    "assigned": lambda x, y: _assigned(x, y),
}


def _assigned(x: Any, y: Any) -> Any:
    result = x * 2
    result[rl.tensor([0, 3])] = (y * y)[1:3]
    result[1:3] += x[PLACES][:2] * y[0]
    return result


@pytest.mark.parametrize("name", SHAPED)
@settings(max_examples=6, deadline=None)
@given(shape=st.lists(st.integers(0, 4), max_size=2).map(tuple))
def test_any_shape(name: str, shape: tuple[int, ...]) -> None:
    check_derivatives(SHAPED[name], numbers(shape))


@pytest.mark.parametrize("name", VECTORS)
def test_two_operands(name: str) -> None:
    y = numbers((4,), 1)
    check_derivatives(VECTORS[name], numbers((4,)), y[:2] if name == "scatter" else y)


@pytest.mark.parametrize("zeros", [[1], [0, 2], [0, 1, 2, 3]])
def test_running_products_of_zeros(zeros: list[int]) -> None:
    x = numbers((4, 2))
    x[zeros] = 0
    check_derivatives(lambda x: x.cumprod(0), x)


@pytest.mark.parametrize("name", ["cumsum", "cumprod", "logcumsumexp"])
def test_complex_scans(name: str) -> None:
    z = numbers((4,)) + 1j * numbers((4,), 1)
    check_derivatives(lambda z: getattr(z, name)(0), z)


def test_complex_places() -> None:
    z, w = numbers((4,)) + 1j * numbers((4,), 1), numbers((4,), 2) - 1j * numbers((4,), 3)
    check_derivatives(lambda z, w: z[PLACES] * w, z, w)
    check_derivatives(lambda z, w: z.scatter_reduce(0, PLACES, w, "prod"), z, w, second=False)
    assert np.iscomplexobj(z)
