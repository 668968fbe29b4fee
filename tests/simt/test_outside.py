"""What kernels read outside of themselves is that of the launch, jitted or not."""

from __future__ import annotations

import types
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import ridgeline as rl
from ridgeline import simt
from ridgeline.record.captures import CaptureError
from ridgeline.simt import const, f32, out, threadIdx, tile
from ridgeline.simt.frontend.problems import KernelLanguageError
from ridgeline.simt.launch import LaunchError
from tests.simt import textbook

factor = 2.0
factors = [2.0, 3.0]
settings = types.ModuleType("settings")
settings.factor = 2.0  # type: ignore[attr-defined]
holder = types.SimpleNamespace(factor=2.0)
typed: Any = np.float32(0.7)
typed_three: Any = np.float32(0.3)
table = simt.constant([2.0, 2.0, 2.0])


@simt.device
def scaled(value: f32):
    return value * factor


@simt.kernel
def by_name(x: f32["n"], y: out[f32["n"]]):
    y[threadIdx.x] = x[threadIdx.x] * factor


@simt.kernel
def by_device_function(x: f32["n"], y: out[f32["n"]]):
    y[threadIdx.x] = scaled(x[threadIdx.x])


@simt.kernel
def by_list(x: f32["n"], y: out[f32["n"]]):
    y[threadIdx.x] = x[threadIdx.x] * factors[0]


@simt.kernel
def by_module(x: f32["n"], y: out[f32["n"]]):
    y[threadIdx.x] = x[threadIdx.x] * settings.factor


@simt.kernel
def by_object(x: f32["n"], y: out[f32["n"]]):
    y[threadIdx.x] = x[threadIdx.x] * holder.factor


@simt.kernel
def by_constant_memory(x: f32["n"], y: out[f32["n"]]):
    y[threadIdx.x] = x[threadIdx.x] * table[threadIdx.x]


@tile.kernel
def by_tile(x: f32["n"], y: out[f32["n"]], B: const = 32):
    t = tile.span(0, B)
    y[t] = x[t] * factor


def _set_all(value: float) -> None:
    global factor, table
    factor = factors[0] = settings.factor = holder.factor = value  # type: ignore[attr-defined]
    table = simt.constant([value] * 3)


@pytest.mark.parametrize(
    "launch",
    [
        *[kernel[1, 3] for kernel in (
            by_name, by_device_function, by_list, by_module, by_object, by_constant_memory)],
        by_tile[1],
    ],
    ids=lambda launch: launch.kernel.__name__,
)  # fmt: skip
def test_what_changes_outside_is_noticed(launch: Callable[[rl.Tensor], Any]) -> None:
    x = rl.ones(3)
    jitted = rl.jit(lambda x: launch(x))
    for value in (2.0, 5.0, -0.0, 0.0, 2.0):
        _set_all(value)
        for way in (launch, jitted, jitted):
            found = way(x).numpy()
            np.testing.assert_array_equal(found, np.full(3, value, np.float32))
            assert np.array_equal(np.signbit(found), np.signbit(np.full(3, value)))
    _set_all(2.0)


@simt.kernel
def by_typed_number(x: f32["n"], y: out[f32["n"]]):
    third = typed / typed_three
    y[threadIdx.x] = f32(third * typed_three - typed) + x[threadIdx.x]


def test_numbers_of_another_type_are_another_program() -> None:
    global typed, typed_three
    for kind in (np.float32, np.float64, np.float32):
        typed, typed_three = kind(0.7), kind(0.3)
        wanted = np.float32(typed / typed_three * typed_three - typed)
        assert by_typed_number[1, 2](rl.zeros(2)).tolist() == [wanted, wanted]


@simt.kernel
def with_constant(x: f32["n"], y: out[f32["n"]], C: const = 1.0):
    y[threadIdx.x] = x[threadIdx.x] * f32(C)


def test_zeros_of_both_signs_are_constants_of_their_own() -> None:
    x, jitted = rl.ones(2), rl.jit(lambda x, c: with_constant[1, 2](x, C=c))
    for way in (lambda x, c: with_constant[1, 2](x, C=c), jitted):
        assert [np.signbit(way(x, c).numpy()).any() for c in (0.0, -0.0, 0.0)] == [0, 1, 0]


@pytest.mark.parametrize("shared", [-1, 1.5, "much", True, 1 << 30])
def test_bytes_of_shared_memory_are_checked(shared: Any) -> None:
    with pytest.raises(LaunchError, match="shared memory"):
        textbook.axpy[1, 32, shared]


@simt.kernel
def with_local(x: f32["n"], y: out[f32["n"]], L: const = 8):
    own = simt.local(L, f32)
    for k in range(L):
        own[k] = x[threadIdx.x] + f32(k)
    y[threadIdx.x] = own[L - 1]


def test_memory_that_no_gpu_has_is_refused_before_the_launch() -> None:
    numbers = rl.ones(10, dtype=rl.int32)
    with pytest.raises(LaunchError, match="bytes of shared memory a block"):
        textbook.window_sum[1, 64](numbers, R=10**9)
    with pytest.raises(LaunchError, match="bytes of local memory a thread"):
        with_local[1, 10](rl.ones(10), L=1 << 20)


def test_blocks_too_large_for_the_stack_are_simulated() -> None:
    found = with_local[1, 256](rl.ones(256), L=1 << 13)  # 8 MB, of which a stack has no more
    np.testing.assert_array_equal(found.numpy(), np.full(256, 1 << 13, np.float32))


def test_arguments_that_are_none_are_named() -> None:
    x = rl.ones(3)
    with pytest.raises(LaunchError, match="a of axpy is a number"):
        textbook.axpy[1, 32](np.ones(3), x, x)
    with pytest.raises(LaunchError, match="x of axpy cannot be read"):
        textbook.axpy[1, 32](1.0, np.ones(3, ">f4"), x)
    with pytest.raises(LaunchError, match="the constant R"):
        textbook.window_sum[1, 64](rl.ones(3, dtype=rl.int32), R=[1])


def _tuned(**constants: Any) -> Any:
    return simt.autotune(
        textbook.matmul, constants,
        grid=lambda m, n, L, **_: (simt.cdiv(n, L), simt.cdiv(m, L)),
        block=lambda L, V, **_: (L // V, L // V),
    )  # fmt: skip


def test_what_tuning_is_given_is_checked() -> None:
    a, b = rl.ones(8, 8), rl.ones(8, 8)
    right = {"L": np.array([16]), "S": (4,), "V": (2,)}
    np.testing.assert_array_equal(_tuned(**right)(at=a, b=b).numpy(), np.full((8, 8), 8.0))
    with pytest.raises(TypeError, match="L has several values"):
        _tuned(**{**right, "L": 16})
    with pytest.raises(TypeError, match="is no kernel"):
        simt.autotune(len, {}, grid=lambda: 1, block=lambda: 1)  # type: ignore[arg-type]
    with pytest.raises(TypeError, match="grid is a function"):
        simt.autotune(textbook.matmul, {}, grid=1, block=2)  # type: ignore[arg-type]
    with pytest.raises(ValueError, match="is an array"), pytest.warns(UserWarning, match="left"):
        _tuned(**right)([1], [2])
    with pytest.raises(CaptureError, match="tuned by measuring"):
        rl.jit(lambda a, b: _tuned(**{**right, "S": (8,)})(a, b))(a, b)


class Holder:
    """A kernel that mentions its own class, and a function and a number further down."""

    FACTOR = 2.5

    @simt.kernel
    def scaled(y: out[f32["n"]]):
        y[threadIdx.x] = Holder.FACTOR * doubled(ADDED)


@simt.device
def doubled(x):
    return 2.0 * x


ADDED = 3.0


def test_names_that_are_defined_further_down() -> None:
    assert Holder.scaled[1, 2](n=2).numpy().tolist() == [15.0, 15.0]
    assert Holder().scaled.simulate(1, 2, n=2).outputs["y"].tolist() == [15.0, 15.0]

    @simt.kernel
    def kernel(y: out[f32["n"]]):
        y[threadIdx.x] = later

    with pytest.raises(KernelLanguageError, match="later is not defined yet"):
        kernel[1, 2](n=2)
    later = 4.0
    assert kernel[1, 2](n=2).numpy().tolist() == [4.0, 4.0]

    with pytest.raises(KernelLanguageError, match="nowhere is not defined"):

        @simt.kernel
        def wrong(y: out[f32["n"]]):
            y[threadIdx.x] = nowhere
