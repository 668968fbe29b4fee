"""Pooling, unpooling and padding against torch: values, indices and gradients."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given, settings, strategies as st

import ridgeline as rl
from ridgeline.errors import RidgelineError
from tests.functions.reference import agree
from tests.ops.derivatives import check_derivatives

IMAGE = np.random.default_rng(2).standard_normal((2, 3, 7, 6))
VOLUME = np.random.default_rng(3).standard_normal((1, 2, 5, 4, 6))


def functional(lib: Any, name: str) -> Any:
    return getattr(lib.nn.functional, name)


@settings(max_examples=40, deadline=None)
@given(
    kernel=st.tuples(st.integers(1, 3), st.integers(1, 3)),
    stride=st.none() | st.integers(1, 3),
    padding=st.integers(0, 1),
    dilation=st.integers(1, 2),
    ceil=st.booleans(),
)
def test_max_pool_with_indices(
    kernel: tuple[int, int], stride: int | None, padding: int, dilation: int, ceil: bool
) -> None:
    padding = min(padding, min(kernel) // 2)
    arguments = (kernel, stride, padding, dilation, ceil, True)
    agree(lambda lib, x: tuple(functional(lib, "max_pool2d")(x, *arguments)), [IMAGE])


@settings(max_examples=40, deadline=None)
@given(
    kernel=st.integers(1, 4),
    stride=st.none() | st.integers(1, 3),
    padding=st.integers(0, 2),
    ceil=st.booleans(),
    include=st.booleans(),
    divisor=st.none() | st.integers(1, 5),
)
def test_avg_pool(
    kernel: int, stride: int | None, padding: int, ceil: bool, include: bool, divisor: int | None
) -> None:
    arguments = (kernel, stride, min(padding, kernel // 2), ceil, include, divisor)
    agree(lambda lib, x: functional(lib, "avg_pool2d")(x, *arguments), [IMAGE])


@pytest.mark.parametrize("size", [1, 3, (4, None), (7, 6), (2, 5)])
def test_adaptive(size: Any) -> None:
    agree(lambda lib, x: functional(lib, "adaptive_avg_pool2d")(x, size), [IMAGE])
    agree(lambda lib, x: tuple(functional(lib, "adaptive_max_pool2d")(x, size, True)), [IMAGE])


@pytest.mark.parametrize("name", ["max_pool3d", "avg_pool3d", "lp_pool3d"])
def test_three_axes(name: str) -> None:
    first = (2.0,) if name == "lp_pool3d" else ()
    agree(lambda lib, x: functional(lib, name)(x, *first, 2, (2, 1, 2)), [np.abs(VOLUME)])
    agree(lambda lib, x: functional(lib, "adaptive_max_pool3d")(x, (2, 3, 4)), [VOLUME])


@pytest.mark.parametrize("name", ["max_pool1d", "avg_pool1d"])
def test_one_axis_and_no_batch(name: str) -> None:
    agree(lambda lib, x: functional(lib, name)(x, 3, 2, 1), [IMAGE[0, 0]])
    agree(lambda lib, x: functional(lib, "max_pool2d")(x, 2), [IMAGE[0]])


def test_unpooling_puts_values_back() -> None:
    def program(lib: Any, x: Any) -> Any:
        values, places = functional(lib, "max_pool2d")(x, 2, return_indices=True)
        return functional(lib, "max_unpool2d")(values, places, 2, output_size=(7, 6))

    agree(program, [IMAGE])


def test_fractional() -> None:
    samples = np.full((2, 3, 2), 0.37)

    def program(lib: Any, x: Any) -> Any:
        drawn = lib.tensor(samples)
        return tuple(
            functional(lib, "fractional_max_pool2d")(
                x, 2, (4, 3), return_indices=True, _random_samples=drawn
            )
        )

    agree(program, [IMAGE])


@pytest.mark.parametrize("mode", ["reflect", "replicate", "circular"])
@pytest.mark.parametrize("amounts", [(0, 2, 1, 0), (2, 1, 1, 2), (-1, 1, 2, -2)])
def test_padding_modes(mode: str, amounts: tuple[int, ...]) -> None:
    agree(lambda lib, x: functional(lib, "pad")(x, amounts, mode), [IMAGE], second=True)


def test_both_modes() -> None:
    check_derivatives(lambda x: rl.max_pool2d(x, 3, 2, 1), IMAGE[:1, :1])
    check_derivatives(lambda x: rl.adaptive_max_pool2d(x, (3, 4)), IMAGE[:1, :1])
    check_derivatives(lambda x: rl.avg_pool2d(x, 3, 2, 1, True, False), IMAGE[:1, :1])
    check_derivatives(lambda x: rl.lp_pool2d(x, 2.0, 3), IMAGE[:1, :1])


def test_integers_and_narrow_floats() -> None:
    x = np.arange(-8, 8).reshape(1, 4, 4)
    for name in ("avg_pool2d", "max_pool2d"):
        got = functional(rl, name)(rl.tensor(x), 2)
        np.testing.assert_array_equal(
            got.numpy(), functional(torch, name)(torch.tensor(x), 2).numpy()
        )
    narrow = rl.tensor(IMAGE.astype(np.float32)).to(rl.bfloat16)
    want = torch.nn.functional.avg_pool2d(torch.tensor(IMAGE.astype(np.float32)).bfloat16(), 3)
    got = rl.avg_pool2d(narrow, 3)
    assert got.dtype is rl.bfloat16
    np.testing.assert_allclose(got.float().numpy(), want.float().numpy(), rtol=1e-2, atol=1e-2)


def test_wrong_input() -> None:
    x = rl.tensor(IMAGE)
    for wrong in (
        lambda: rl.max_pool2d(x, 9),
        lambda: rl.max_pool2d(x, 2, padding=2),
        lambda: rl.avg_pool2d(x, 0),
        lambda: rl.avg_pool2d(x, (2, 2, 2)),
        lambda: rl.max_pool2d(rl.ones(3), 2),
        lambda: rl.adaptive_avg_pool2d(x, (1, 2, 3)),
        lambda: rl.nn.functional.pad(x, (7, 0), "reflect"),
        lambda: rl.nn.functional.pad(x, (1, 0), "sideways"),
        lambda: rl.max_unpool2d(x, rl.ones(2, 3, dtype=rl.int64), 2),
        lambda: rl.nn.functional.fractional_max_pool2d(x, 2),
    ):
        with pytest.raises(RidgelineError):
            wrong()


@pytest.mark.parametrize("wrong", [True, 2.0, "2", None])
@pytest.mark.parametrize("name", ["avg_pool2d", "max_pool2d"])
def test_windows_are_ints_and_the_error_names_them(name: str, wrong: object) -> None:
    images = rl.ones(1, 1, 4, 4)
    with pytest.raises(TypeError, match="kernel_size: ints are needed"):
        getattr(rl.nn.functional, name)(images, wrong)
