"""A kernel that stores a narrow float goes on with the stored value, as other kernels read it."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import numpy as np
import pytest

import ridgeline as rl
from ridgeline import DType, Tensor

NARROW = [rl.float16, rl.bfloat16]
Pair = tuple[Tensor, Tensor]


@pytest.fixture(autouse=True)
def compiled() -> Iterator[None]:
    with rl.config.override(tier="compiled"):
        yield


def pointwise(x: Tensor, w: Tensor) -> Pair:
    y = x * 0.3 + x
    return y, y.float() * 3


def summed(x: Tensor, w: Tensor) -> Pair:
    y = x * 0.3 + x
    return y, y.float().sum(1, keepdim=True) * 0 + y.float() * 3


def product(x: Tensor, w: Tensor) -> Pair:
    y = (x @ w) * 0.3
    return y, y.float() * 3


def turned(x: Tensor, w: Tensor) -> Pair:
    y = (x * 0.3 + x).t()
    return y.contiguous(), y.float() * 3


@pytest.mark.parametrize("dtype", NARROW)
@pytest.mark.parametrize("shape", [(1, 1), (7, 3), (33, 40), (64, 64)])
@pytest.mark.parametrize("function", [pointwise, summed, product, turned])
def test_what_is_read_is_what_is_stored(
    function: Callable[[Tensor, Tensor], Pair], shape: tuple[int, int], dtype: DType
) -> None:
    rng = np.random.default_rng(0)
    x, w = (rl.tensor(rng.uniform(0.2, 2, s)).to(dtype) for s in (shape, (shape[1], 17)))
    stored, read = rl.jit(function)(x, w)
    np.testing.assert_array_equal(read.numpy(), stored.float().numpy() * np.float32(3))


@pytest.mark.parametrize("dtype", NARROW)
def test_a_single_number_does_not_deviate_from_its_mean(dtype: DType) -> None:
    def spread(x: Tensor) -> Tensor:
        y = rl.sin(rl.cos(x))
        return rl.std(y + y * y, 0, correction=0)

    x = rl.tensor(np.linspace(0.5, 2, 15).reshape(1, 15)).to(dtype)
    assert rl.jit(spread)(x).tolist() == [0.0] * 15
